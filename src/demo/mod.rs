//! `streamcast-uring demo`: a broker with two streams that never stand still. `trades` is a made-up market, `host` is this
//! machine's own telemetry. Both come in the way any publisher's rows do: over a WebSocket.

mod banner;
mod feed;
mod host;
mod market;
mod options;
mod root;
mod run;
mod streams;

pub use market::{Market, Trade};
pub use options::{DEFAULT_RATE_ROWS_PER_S, DemoOptions, MAX_RATE_ROWS_PER_S, MIN_RATE_ROWS_PER_S};
pub use run::{DemoError, Serving, run};
