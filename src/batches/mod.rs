//! The batch API without its HTTP: positions and cursors, requests and answers, validators, inserts, reads and
//! erasures (docs/batches.md).
//!
//! What is a function of bytes is in files of its own ([`token`], [`body`], [`validator`], [`render`]); [`Service`]
//! puts them together with the writer and the readers. Every row is an ordinary row of the log: an insert is a frame
//! of one more kind of publisher, a read is a replay.

mod answers;
pub mod body;
mod change;
mod erase;
pub mod error;
pub mod follow;
pub mod limits;
pub mod name;
mod purge;
pub mod read;
pub mod render;
pub mod retention;
mod scan;
mod service;
pub mod shared;
mod signature;
mod sip;
pub mod table;
pub mod time;
pub mod token;
pub mod validator;

pub use answers::{Answers, HTTP_SHARD};
pub use erase::view as view_erasure;
pub use error::ApiError;
pub use service::{Check, Directory, Service, Stream};
