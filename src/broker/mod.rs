//! Composition: what a broker is made of, in what order it starts, and in what order it stops.

mod access;
mod awake;
mod batches;
mod build;
mod delivery;
mod error;
mod managed;
mod notify;
mod restraint;
mod running;
mod signals;
mod streams;
#[cfg(test)]
mod streams_tests;
mod succession;
mod tables;

pub use error::BrokerError;
pub use running::{Broker, run};
pub use streams::Streams;
pub use tables::{mover_settings, open_root};
