//! The HTTP side of the listener: statistics, metrics, health and the console page, served on background cores.
//!
//! A shard accepts every connection. What does not ask for a WebSocket is handed over with
//! [`HttpHandle::adopt`]; a connection that asks for one later goes back through [`HttpSettings::on_upgrade`].

mod access;
mod activity;
mod audit;
mod batches;
mod caller;
mod coding;
mod connection;
pub mod console;
mod control;
mod errors;
mod handed;
mod health;
mod lent;
mod metrics;
mod openapi;
mod page;
mod process;
mod routes;
mod server;
mod settings;
mod spelled;
mod stats;
mod upgrade;

#[cfg(test)]
mod tests;

pub use caller::Caller;
pub use errors::HttpError;
pub use server::{AdoptRefused, HttpHandle, start};
pub use settings::{HttpLimits, HttpSettings, OnUpgrade, UpgradeHead};
