//! The command line: one file for each command, thin, and one table of exit codes.

mod app;
mod common;
mod create;
mod demo;
mod doctor;
mod exit;
mod flush;
mod ingest;
mod keys;
mod life;
mod maintain;
mod migrate;
mod output;
mod progress;
mod publish;
mod remote;
mod restore;
mod retain;
mod retire;
mod schema;
mod serve;
mod show;
mod streams;
mod subscribe;

pub use app::main;
pub use exit::{EXIT_CODES, Exit};
