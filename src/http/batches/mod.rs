//! The batch API over HTTP (docs/batches.md): `/v1/streams` and below.

mod answer;
mod call;
mod entries;
mod erasures;
mod follow;
mod lookout;
mod openapi;
mod query;
mod refusals;
mod retention;
mod routes;
mod streams;

pub use openapi::BatchesApi;
pub use routes::{PREFIX, router};
