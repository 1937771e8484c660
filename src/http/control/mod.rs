//! The control API, `/control/v1` (wire.md section 11): requests in, the registry's answers out.

mod openapi;
mod request;
mod routes;
#[cfg(test)]
mod tests;

pub use openapi::{Asked, ControlApi, Overseen};
pub(super) use request::pairs;
pub use routes::{PREFIX, router};
