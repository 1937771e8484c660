//! Bulk sources: files of other programs as batches of a layout's columns, checked as published rows are.

mod ahead;
mod check;
mod csv;
mod error;
mod ipc;
mod lines;
mod packed;
mod source;
mod tables;
mod writer;

pub use ahead::ReadAhead;
pub use error::IngestError;
pub use source::{Chunk, Format, Source};
pub use writer::ChunkWriter;
