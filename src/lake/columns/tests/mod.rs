//! Rows to files and back.

mod foreign;
mod hostile;
mod ingest;
mod manifest;
mod merge;
mod round_trip;
mod support;
