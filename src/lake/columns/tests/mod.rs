//! Rows to files and back.

mod round_trip;
mod support;
