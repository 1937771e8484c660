//! From stamped lines, as the journal has them, to one sealed file.

use std::path::Path;

use streamcast_shards::manner::give_way;

use super::error::ColumnsError;
use super::layout::Layout;
use super::rows::Rows;
use super::unnamed::Unnamed;
use super::write::{FileName, FileWriter, WriteOptions};
use crate::lake::DataFile;

/// Writes rows to one Parquet file. Dropped unfinished, it leaves nothing behind.
#[derive(Debug)]
pub struct Sealer {
    rows: Rows,
    writer: FileWriter,
    batch_bytes: u64,
    row_count: u64,
    bytes: u64,
}

/// Lines become a batch when they are this many, or take this many bytes as Arrow.
const BATCH_ROWS: usize = 16 << 10;
const BATCH_BYTES: u64 = 4 << 20;

/// Rows after which others are let in, if it is time: some tens of microseconds.
const GIVE_WAY_ROWS: u64 = 64;

impl Sealer {
    /// Starts a file in `directory`, which is made if it is not there.
    ///
    /// # Errors
    /// When the file system refuses, or the layout has no such columns to sort by.
    pub fn create(layout: &Layout, directory: &Path, options: &WriteOptions) -> Result<Self, ColumnsError> {
        let writer = FileWriter::create(layout, directory, options)?;
        let batch_bytes = BATCH_BYTES.min(options.row_group_bytes);
        Ok(Self { rows: Rows::new(layout.clone()), writer, batch_bytes, row_count: 0, bytes: 0 })
    }

    /// Takes the row at `offset`, stamped `ts_us` (microseconds): its canonical text without a line feed.
    ///
    /// # Errors
    /// If the line is damaged, the offset does not rise, or the file cannot be written. The sealer is of no use then.
    #[inline]
    pub fn push(&mut self, offset: i64, ts_us: i64, line: &[u8]) -> Result<(), ColumnsError> {
        self.rows.push(offset, ts_us, line)?;
        self.row_count += 1;
        if self.row_count.is_multiple_of(GIVE_WAY_ROWS) {
            give_way();
        }
        if self.rows.len() >= BATCH_ROWS || self.rows.bytes() >= self.batch_bytes { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<(), ColumnsError> {
        let bytes = self.rows.bytes();
        self.bytes += bytes;
        let batch = self.rows.finish()?;
        self.writer.write(batch, bytes)
    }

    /// How many rows it has taken.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.row_count
    }

    /// What the rows take as Arrow, in bytes, by the estimate of docs/storage.md.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes + self.rows.bytes()
    }

    /// Ends the file. It is complete and on disk, and waits for its name.
    ///
    /// # Errors
    /// [`ColumnsError::Empty`] if there are no rows; otherwise as [`Sealer::push`].
    pub fn finish(mut self) -> Result<Unnamed, ColumnsError> {
        if self.rows.len() > 0 {
            self.write()?;
        }
        self.writer.finish()
    }

    /// Ends the file and names it after its rows.
    ///
    /// # Errors
    /// As [`Sealer::finish`], and when the file system refuses the name.
    pub fn finish_named(self, name: FileName) -> Result<DataFile, ColumnsError> {
        let unnamed = self.finish()?;
        let name = name.new_name(unnamed.file().start, unnamed.file().end);
        unnamed.place(&name)
    }
}
