//! The command line: one file for each command, thin, and one table of exit codes.

mod app;
mod common;
mod create;
mod demo;
mod doctor;
mod exit;
mod keys;
mod output;
mod progress;
mod publish;
mod schema;
mod serve;
mod streams;
mod subscribe;

pub use app::main;
pub use exit::{EXIT_CODES, Exit};
