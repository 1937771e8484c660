//! The batch API over HTTP (docs/batches.md): `/v1/streams` and below.

mod answer;
mod entries;
mod follow;
mod query;
mod routes;
mod streams;

pub use routes::{PREFIX, router};
