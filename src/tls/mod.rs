//! TLS: certificates that can change while the broker runs, and the record layer of connections on a shard.
//!
//! Handshakes are made on background cores, by the HTTP side, which also answers the upgrade. A WebSocket then goes back to
//! a shard, with its keys as a [`streamcast_shards::Cipher`], or with the kernel as the one that has them
//! ([`KernelTls`]).

mod edge;
mod files;
mod kernel;
mod layout;
mod record;
mod roots;

pub use edge::RecordEdge;
pub use files::{Certificates, TlsError, TlsFiles};
pub use kernel::{Handshaken, KernelTls, KernelTlsError};
pub use record::Record;
pub use roots::client_config;
