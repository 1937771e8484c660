//! Sessions: what a shard does with the connections of subscribers and publishers (wire.md sections 1 to 9).
//!
//! The session room knows the wire, schemas and the shard's engine. The log is behind two channels: jobs for
//! the writer, pages from the readers. Nothing here waits.

mod app;
mod hub;
mod outbox;
mod passes;
mod publisher;
mod remote;
mod served;
mod subscriber;

pub use app::{Links, SessionApp};
pub use passes::attach;
pub use publisher::now_us;
pub use remote::{LIVE_ORIGIN_NONE, LiveRows, Remote, Token};
pub use served::{Catalog, CatalogBounds, CatalogCell, ServedStream, StreamSettings, end_offset};
