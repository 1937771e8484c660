//! What the life of a stream asks of the journal. A journal without a writer answers at once; with a writer, somebody
//! asks on the steps' behalf.

use crate::journal::{Adopted, Journal, JournalError};
use crate::stream::record::StreamRecord;

/// The journal's side of a stream's life. Every change is on disk when it returns, and doing it again is right.
pub trait Ledger: Send {
    /// What is recorded of a stream.
    ///
    /// # Errors
    /// When the journal cannot be read.
    fn record(&mut self, stream: &str) -> Result<Option<StreamRecord>, JournalError>;

    /// Deletes the rows below `below`, which are safe in files.
    ///
    /// # Errors
    /// When the journal cannot be written.
    fn evict(&mut self, stream: u32, below: i64) -> Result<(), JournalError>;

    /// Goes on in a new log from the present end on; the rows of the one before have left.
    ///
    /// # Errors
    /// When rows are left or the journal cannot be written.
    fn begin_log(
        &mut self,
        stream: u32,
        log: &str,
        schema_canonical: &str,
        sort_by: &[String],
        floor: Option<i64>,
    ) -> Result<(), JournalError>;

    /// Forgets how far publishers are: the next one begins at 1.
    ///
    /// # Errors
    /// When the journal cannot be written.
    fn forget_marks(&mut self, stream: u32) -> Result<(), JournalError>;

    /// Records a stream that comes from elsewhere.
    ///
    /// # Errors
    /// When a stream of that name has rows or the journal cannot be written.
    fn adopt(&mut self, adopted: &Adopted) -> Result<(), JournalError>;

    /// The rows up to `end` are in files that the journal never had; the last of them is stamped `last_ts_us`.
    ///
    /// # Errors
    /// When the journal cannot be written.
    fn advance(&mut self, stream: u32, end: i64, last_ts_us: i64) -> Result<(), JournalError>;
}

impl Ledger for Journal {
    fn record(&mut self, stream: &str) -> Result<Option<StreamRecord>, JournalError> {
        Ok(self.streams().into_iter().find(|record| record.name == stream))
    }

    fn evict(&mut self, stream: u32, below: i64) -> Result<(), JournalError> {
        Journal::evict(self, stream, below)
    }

    fn begin_log(
        &mut self,
        stream: u32,
        log: &str,
        schema_canonical: &str,
        sort_by: &[String],
        floor: Option<i64>,
    ) -> Result<(), JournalError> {
        Journal::begin_log(self, stream, log, schema_canonical, sort_by, floor).map(|_| ())
    }

    fn forget_marks(&mut self, stream: u32) -> Result<(), JournalError> {
        Journal::forget_marks(self, stream)
    }

    fn adopt(&mut self, adopted: &Adopted) -> Result<(), JournalError> {
        Journal::adopt(self, adopted).map(|_| ())
    }

    fn advance(&mut self, stream: u32, end: i64, last_ts_us: i64) -> Result<(), JournalError> {
        Journal::advance(self, stream, end, last_ts_us).map(|_| ())
    }
}
