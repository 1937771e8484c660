//! streamcast-uring: a durable fan-out server. See `docs/architecture.md` for the way of a row.

pub mod config;
pub mod http;
pub mod logging;
pub mod schema;
pub mod telemetry;
pub mod wire;
