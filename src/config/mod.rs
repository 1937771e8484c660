//! Configuration: the file `streamcast.toml`, the command line over it, and the typed [`Config`] the broker runs on.

mod model;

pub use model::{Config, CoreRequest, Keepalive, Limits, Log, LogLevel, Slow, Stats, StreamConfig};
