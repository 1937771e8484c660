//! The metadata documents of a stream (docs/storage.md, "Metadata documents"; wire.md section 14.8): what they say,
//! how they are committed, and keeping them there.
//!
//! A document is the list of a stream's logs. Committing one is what makes a migration, a retirement or a retention
//! floor true; everything else on disk follows from it and is repaired from it.

mod commit;
mod ensure;
mod files;
mod holes;
mod model;
mod remote;
mod remove;
mod uri;

pub use commit::{Change, Current, Documents, Order};
pub(crate) use ensure::default_prefix;
pub use ensure::{Declared, ensure};
pub use holes::Holes;
pub use model::{Document, Dropped, LiveLog, Pending, Retirement, SealedLog, system_schema};
pub use remote::Objects;
pub use uri::{local_path, uris};
