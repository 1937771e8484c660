//! streamcast-uring: a durable fan-out server. See `docs/architecture.md` for the way of a row.

pub mod auth;
pub mod batches;
pub mod broker;
pub mod cli;
pub mod client;
pub mod config;
pub mod demo;
pub mod http;
pub mod journal;
pub mod lake;
pub mod logging;
pub mod registry;
pub mod schema;
pub mod session;
pub mod stream;
pub mod telemetry;
pub mod tls;
pub mod wire;
