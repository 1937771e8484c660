//! Chunks of a bulk load become files of the log.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};

use super::super::error::ColumnsError;
use super::super::layout::Layout;
use super::super::merge::batch_bytes;
use super::super::unnamed::Unnamed;
use super::super::write::{FileName, FileWriter, WriteOptions};
use super::source::Chunk;
use crate::lake::DataFile;

/// Writes chunks to one Parquet file. Dropped unfinished, it leaves nothing behind.
#[derive(Debug)]
pub struct ChunkWriter {
    layout: Layout,
    writer: FileWriter,
    rows: u64,
}

impl ChunkWriter {
    /// Starts a file in `directory`, which is made if it is not there.
    ///
    /// # Errors
    /// When the file system refuses, or the layout has no such columns to sort by.
    pub fn create(layout: &Layout, directory: &Path, options: &WriteOptions) -> Result<Self, ColumnsError> {
        Ok(Self { layout: layout.clone(), writer: FileWriter::create(layout, directory, options)?, rows: 0 })
    }

    /// Takes the rows of a chunk: they get offsets from `first_offset` on, and all the stamp `ts_us` (microseconds).
    ///
    /// # Errors
    /// If the offsets do not rise, or the file cannot be written. The writer is of no use then.
    pub fn push(&mut self, chunk: &Chunk, first_offset: i64, ts_us: i64) -> Result<(), ColumnsError> {
        let end = first_offset.saturating_add(chunk.rows as i64);
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(chunk.columns.len() + 2);
        columns.push(Arc::new(Int64Array::from_iter_values(first_offset..end)));
        columns.extend_from_slice(&chunk.columns);
        columns.push(Arc::new(Int64Array::from_value(ts_us, chunk.rows)));
        let batch = RecordBatch::try_new(self.layout.arrow().clone(), columns)
            .map_err(|error| ColumnsError::Layout(error.to_string()))?;
        let bytes = batch_bytes(&batch);
        self.writer.write(batch, bytes)?;
        self.rows += chunk.rows as u64;
        Ok(())
    }

    /// How many rows it has taken.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// How large the file is so far, without the row group that is being filled.
    #[must_use]
    pub fn written_bytes(&self) -> u64 {
        self.writer.written_bytes()
    }

    /// Ends the file. It is complete and on disk, and waits for its name.
    ///
    /// # Errors
    /// [`ColumnsError::Empty`] if there are no rows; otherwise as [`ChunkWriter::push`].
    pub fn finish(self) -> Result<Unnamed, ColumnsError> {
        self.writer.finish()
    }

    /// Ends the file and names it after its first row.
    ///
    /// # Errors
    /// As [`ChunkWriter::finish`], and when the file system refuses the name.
    pub fn finish_named(self) -> Result<DataFile, ColumnsError> {
        let unnamed = self.finish()?;
        let name = FileName::Start.new_name(unnamed.file().start, unnamed.file().end);
        unnamed.place(&name)
    }
}
