//! Configuration: the file `streamcast.toml`, the command line over it, and the typed [`Config`] the broker runs on.

mod check;
mod error;
mod file;
mod model;
mod schema;
mod stream;
mod table;

pub use check::{EXAMPLE, parse_core_list};
pub use error::ConfigError;
pub use file::{parse_level, parse_listen};
pub use model::{Config, CoreRequest, Keepalive, Limits, Log, LogLevel, Slow, Stats, StreamConfig};

#[cfg(test)]
mod tests;
