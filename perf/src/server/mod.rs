//! The servers that are measured: how they are started, watched and stopped.

mod probe;
mod process;
mod script;
mod usage;

pub use process::{Server, ServerError, StartRequest};
pub use script::{Peer, PeerError};
pub use usage::{Memory, Usage};
