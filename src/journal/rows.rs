//! Reading rows of the journal for those who move them elsewhere, on a connection of their own.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, OptionalExtension as _};

use super::erase;
use super::error::JournalError;
use super::holes::{self, Holes};
use super::scan::{ScanError, scan};
use super::sql;
use crate::stream::holes::{Erasure, Hole};

/// A connection for reading rows in bulk. Every call is one short transaction.
pub struct RowReader {
    path: PathBuf,
    connection: Connection,
}

impl std::fmt::Debug for RowReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RowReader").field("path", &self.path).finish_non_exhaustive()
    }
}

impl RowReader {
    /// Opens the journal `path`, which must exist.
    ///
    /// # Errors
    /// When SQLite refuses.
    pub fn open(path: &Path) -> Result<Self, JournalError> {
        let connection = sql::open_reader(path).map_err(|source| JournalError::Sql {
            action: "open the file for reading",
            path: path.to_owned(),
            source,
        })?;
        Ok(Self { path: path.to_owned(), connection })
    }

    /// Calls `take` with offset, stamp in microseconds and canonical row of every row of `[from, until)` that is in the
    /// journal, in order, until it returns false. The transaction lasts as long as that: `take` is to stop early.
    ///
    /// # Errors
    /// When SQLite refuses or a batch is damaged.
    pub fn rows(
        &self,
        stream: u32,
        from: i64,
        until: i64,
        mut take: impl FnMut(i64, i64, &[u8]) -> bool,
    ) -> Result<(), JournalError> {
        let mut holes = Holes::new(&self.connection, stream);
        let mut failed = None;
        let scanned = scan(&self.connection, stream, from, until, |offset, ts_us, line| match holes.contains(offset) {
            // Erased: its bytes are here for a little longer, for nobody.
            Ok(erased) => erased || take(offset, ts_us, line),
            Err(error) => {
                failed = Some(error);
                false
            }
        });
        if let Some(error) = failed {
            return Err(self.failed(error));
        }
        scanned.map_err(|error| match error {
            ScanError::Sql(source) => self.failed(source),
            damaged @ ScanError::Damaged(_) => {
                JournalError::Damaged { path: self.path.clone(), what: damaged.to_string() }
            }
        })
    }

    /// Bytes of the rows in batches that begin at or above `from`.
    ///
    /// # Errors
    /// When SQLite refuses.
    pub fn bytes_from(&self, stream: u32, from: i64) -> Result<u64, JournalError> {
        let sql = format!("SELECT coalesce(sum(octet_length(body)), 0) FROM batches_{stream} WHERE first_offset >= ?1");
        let bytes = self.connection.query_row(&sql, [from], |row| row.get::<_, i64>(0));
        Ok(bytes.map_err(|source| self.failed(source))?.max(0) as u64)
    }

    /// The stamp, in microseconds, of the batch that holds `offset` or is the first above it.
    ///
    /// # Errors
    /// When SQLite refuses.
    pub fn ts_us_at(&self, stream: u32, offset: i64) -> Result<Option<i64>, JournalError> {
        let sql = format!(
            "SELECT ts_us FROM batches_{stream} WHERE first_offset + count > ?1 AND first_offset >=
             coalesce((SELECT max(first_offset) FROM batches_{stream} WHERE first_offset <= ?1), ?1)
             ORDER BY first_offset LIMIT 1"
        );
        self.connection.query_row(&sql, [offset], |row| row.get(0)).optional().map_err(|source| self.failed(source))
    }

    /// How many offsets of `[start, end)` were left out on purpose.
    ///
    /// # Errors
    /// When SQLite refuses.
    pub fn skipped_between(&self, stream: u32, start: i64, end: i64) -> Result<u64, JournalError> {
        holes::between(&self.connection, stream, start, end).map_err(|source| self.failed(source))
    }

    /// Tells of ascending offsets whether they are in holes.
    pub fn in_hole(&self, stream: u32) -> impl FnMut(i64) -> Result<bool, JournalError> + use<'_> {
        let mut holes = Holes::new(&self.connection, stream);
        move |offset| holes.contains(offset).map_err(|source| self.failed(source))
    }

    /// Where the last hole of a stream ends; it moves with every erasure.
    ///
    /// # Errors
    /// When SQLite refuses.
    pub fn last_hole(&self, stream: u32) -> Result<Option<i64>, JournalError> {
        let sql = "SELECT max(end_offset) FROM skipped WHERE stream = ?1 AND first_offset =
                   (SELECT max(first_offset) FROM skipped WHERE stream = ?1)";
        let last = self.connection.query_row(sql, [stream], |row| row.get(0));
        last.map_err(|source| self.failed(source))
    }

    /// The latest erasure of a stream that is not purged.
    ///
    /// # Errors
    /// When SQLite refuses.
    pub fn last_unpurged(&self, stream: u32) -> Result<Option<i64>, JournalError> {
        // Purges are noted from the first erasure on.
        let sql = "SELECT marker, purged_us IS NULL FROM erasures WHERE stream = ?1 ORDER BY marker DESC LIMIT 1";
        let last = self.connection.query_row(sql, [stream], |row| Ok((row.get(0)?, row.get::<_, bool>(1)?)));
        let last = last.optional().map_err(|source| self.failed(source))?;
        Ok(last.filter(|(_, unpurged)| *unpurged).map(|(marker, _)| marker))
    }

    /// All holes of a stream, in order, and its erasures, as they were at one moment.
    ///
    /// # Errors
    /// When SQLite refuses.
    pub fn holes(&self, stream: u32) -> Result<(Vec<Hole>, Vec<Erasure>), JournalError> {
        let read = || -> rusqlite::Result<_> {
            let transaction = self.connection.unchecked_transaction()?;
            let holes = holes::all(&transaction, stream)?;
            let erasures = erase::all(&transaction, stream)?;
            transaction.finish()?;
            Ok((holes, erasures))
        };
        read().map_err(|source| self.failed(source))
    }

    fn failed(&self, source: rusqlite::Error) -> JournalError {
        JournalError::Sql { action: "read rows", path: self.path.clone(), source }
    }
}
