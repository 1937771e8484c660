//! Rows to files and back.

mod manifest;
mod round_trip;
mod support;
