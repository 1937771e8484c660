//! How to talk to each kind of server: connect, read messages in place, publish, read acknowledgements.

mod error;
mod http;
mod nats;
mod nchan;
mod protocol;
mod redis;
mod streamcast;

pub use error::WireError;
pub use protocol::*;
