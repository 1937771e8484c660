//! Rows to files and back.

mod ingest;
mod manifest;
mod merge;
mod round_trip;
mod support;
