//! The fan-out engine of streamcast-uring. It knows cores, sockets, WebSocket frames and bytes; it knows
//! nothing of rows, schemas, SQL or HTTP routes.
//!
//! A shard is one pinned thread with its own executor, connections and feeds ([`shard::spawn`]). What it does
//! with connections is an [`App`]'s business, which acts on the shard's [`Engine`]. Other threads reach a shard
//! through its inbox and in no other way.

mod block;
mod cipher;
mod conn;
mod core;
pub mod cores;
pub mod doorbell;
mod engine;
mod feed;
mod flush;
pub mod frame;
pub mod head;
pub mod inbound;
pub mod inbox;
mod kernel;
pub mod listen;
pub mod manner;
mod pace;
pub mod probe;
pub mod quota;
mod reactor;
mod sender;
pub mod shard;
mod timers;
mod wheel;

pub use block::Block;
pub use cipher::{Cipher, Encryption};
pub use conn::{ConnId, Ended};
pub use core::{Admission, App, Command, Handoff, Peer};
pub use engine::{Counts, Engine, FeedId, FeedLimits, Lagging, Settings};
pub use head::{Pass, UpgradeHead};
pub use sender::{BATCH_SENDS, Sender, Sent};
