//! Configuration: the file `streamcast.toml`, the command line over it, and the typed [`Config`] the broker runs on.

mod access;
mod check;
mod error;
mod file;
mod lake;
mod model;
mod registry;
mod schema;
mod stream;
mod table;

pub use access::{Auth, KernelUse, Tls};
pub use check::{EXAMPLE, load_schema};
pub use error::ConfigError;
pub use file::{MAX_CORE, parse_cores, parse_level, parse_listen};
pub use lake::{Lake, S3};
pub use model::{Config, CoreRequest, Keepalive, Limits, Log, LogLevel, Slow, Stats, StreamConfig};
pub use registry::{HistoryGuard, Registry, StorageProfile};

#[cfg(test)]
mod tests;
