//! Streams as pure state machines: offsets, exactly-once marks, replay resolution, names and records.
//!
//! Nothing here does I/O, reads a clock or starts a thread; time, stored facts and outcomes are arguments.

pub mod holes;
pub mod marks;
pub mod name;
pub mod offsets;
pub mod record;
pub mod replay;
