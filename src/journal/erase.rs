//! Erasing rows (docs/batches.md, "Erasures"): at once for every reader, and then from the file.
//!
//! The transaction of an erasure makes holes of the rows' offsets, gives the erasure an offset of its own, the marker,
//! and writes its receipt. From its commit on no reader gives the rows, wherever they lie. That their bytes go is the
//! business of [`super::purge`].

use rusqlite::{Connection, OptionalExtension as _, params};

use super::error::JournalError;
use super::holes;
use super::office::Office;
use super::plan::StreamState;
use super::receipts::{self, Keyed, Receipt};
use crate::stream::holes::Erasure;
use crate::stream::offsets::CommitProof;

pub(super) const TABLES: &str = "
    ALTER TABLE skipped ADD COLUMN marker INTEGER;
    CREATE TABLE erasures (
        stream INTEGER NOT NULL REFERENCES streams(id),
        marker INTEGER NOT NULL,
        records INTEGER NOT NULL,
        ts_us INTEGER NOT NULL,
        purged_us INTEGER,
        PRIMARY KEY (stream, marker)
    ) STRICT, WITHOUT ROWID;
";

/// An erasure that is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marker {
    /// Its own offset.
    pub offset: i64,
    /// How many rows it erased.
    pub records: u32,
    /// Its stamp, in microseconds.
    pub ts_us: i64,
    /// When nothing held the rows' bytes any more, in microseconds.
    pub purged_us: Option<i64>,
    /// Whether an earlier request with the same key made it.
    pub duplicate: bool,
}

/// What came of an erasure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Erased {
    /// It is recorded.
    Marked(Marker),
    /// Its key was used for another body.
    KeyReused,
    /// The stream takes no rows: it is not served.
    NotServed,
    /// The stream has no offsets left.
    Exhausted,
}

impl Office<'_> {
    /// What came of an earlier erasure with the same key, if there was one.
    ///
    /// # Errors
    /// When SQLite refuses.
    pub fn erased_before(&self, stream: u32, keyed: &Keyed, now_us: i64) -> Result<Option<Erased>, JournalError> {
        let Some(receipt) = self.receipt(stream, keyed, now_us)? else { return Ok(None) };
        if receipt.body_hash != keyed.body_hash {
            return Ok(Some(Erased::KeyReused));
        }
        let fail = |source| JournalError::Sql { action: "read an erasure", path: self.path.to_owned(), source };
        let purged_us = self.purged_us(stream, receipt.first_offset).map_err(fail)?;
        let Receipt { first_offset: offset, count: records, ts_us, .. } = receipt;
        Ok(Some(Erased::Marked(Marker { offset, records, ts_us, purged_us, duplicate: true })))
    }

    /// Erases the rows of a stream with these offsets, in ascending order.
    ///
    /// # Errors
    /// When SQLite refuses; nothing is erased then.
    pub fn erase(
        &mut self,
        stream: u32,
        offsets: &[i64],
        keyed: Option<&Keyed>,
        now_us: i64,
    ) -> Result<Erased, JournalError> {
        let Some(place) = self.index.get(&stream).copied() else { return Ok(Erased::NotServed) };
        let path = self.path.to_owned();
        let fail = |source| JournalError::Sql { action: "erase rows", path: path.clone(), source };
        if let Some(keyed) = keyed
            && let Some(erased) = self.erased_before(stream, keyed, now_us)?
        {
            return Ok(erased);
        }
        let state = &mut self.streams[place];
        let Some(marker) = state.end.assign(1) else { return Ok(Erased::Exhausted) };
        let ts_us = now_us.max(state.last_ts_us);
        let written = write(self.connection, state, (marker.get(), ts_us), offsets, keyed, now_us);
        let records = match written {
            Ok(records) => records,
            Err(error) => {
                state.end.abandon();
                // The rest of the transaction goes; what a failed COMMIT left must not come before the next one.
                *self.commit_failed |= error.in_commit;
                return Err(fail(error.source));
            }
        };
        let proof = CommitProof::after_commit();
        state.end.settle(&proof);
        state.last_ts_us = ts_us;
        if let Some(counters) = &state.counters {
            counters.end_offset.store(state.end.durable(), std::sync::atomic::Ordering::Release);
        }
        self.moved.push((stream, state.end.durable(), ts_us));
        Ok(Erased::Marked(Marker { offset: marker.get(), records, ts_us, purged_us: None, duplicate: false }))
    }

    /// The latest erasures of a stream, newest first.
    ///
    /// # Errors
    /// When SQLite refuses.
    pub fn erasures(&self, stream: u32, limit: u32) -> Result<Vec<Marker>, JournalError> {
        let fail = |source| JournalError::Sql { action: "read erasures", path: self.path.to_owned(), source };
        let mut statement = self
            .connection
            .prepare_cached(
                "SELECT marker, records, ts_us, purged_us FROM erasures WHERE stream = ?1 ORDER BY marker DESC LIMIT ?2",
            )
            .map_err(fail)?;
        let rows = statement
            .query_map(params![stream, limit], |row| {
                Ok(Marker {
                    offset: row.get(0)?,
                    records: row.get(1)?,
                    ts_us: row.get(2)?,
                    purged_us: row.get(3)?,
                    duplicate: false,
                })
            })
            .map_err(fail)?;
        rows.collect::<rusqlite::Result<_>>().map_err(fail)
    }

    fn purged_us(&self, stream: u32, marker: i64) -> rusqlite::Result<Option<i64>> {
        let mut statement =
            self.connection.prepare_cached("SELECT purged_us FROM erasures WHERE stream = ?1 AND marker = ?2")?;
        Ok(statement.query_row(params![stream, marker], |row| row.get(0)).optional()?.flatten())
    }
}

/// Why a transaction failed.
pub(super) struct Failed {
    pub source: rusqlite::Error,
    /// Whether it was its COMMIT.
    pub in_commit: bool,
}

impl From<rusqlite::Error> for Failed {
    fn from(source: rusqlite::Error) -> Self {
        Self { source, in_commit: false }
    }
}

pub(super) fn in_transaction<T>(
    connection: &mut Connection,
    work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
) -> Result<T, Failed> {
    let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    let done = work(&transaction)?;
    transaction.commit().map_err(|source| Failed { source, in_commit: true })?;
    Ok(done)
}

/// Records an erasure. Returns how many rows it erased.
fn write(
    connection: &mut Connection,
    state: &StreamState,
    (marker, ts_us): (i64, i64),
    offsets: &[i64],
    keyed: Option<&Keyed>,
    now_us: i64,
) -> Result<u32, Failed> {
    let stream = state.id;
    in_transaction(connection, |connection| {
        let mut holes = holes::Holes::new(connection, stream);
        let mut fresh: Vec<(i64, i64)> = Vec::new();
        let mut records = 0;
        for &offset in offsets.iter().filter(|offset| **offset < marker) {
            if holes.contains(offset)? {
                continue;
            }
            records += 1;
            match fresh.last_mut() {
                Some((_, end)) if *end == offset => *end += 1,
                Some((_, end)) if *end > offset => records -= 1,
                _ => fresh.push((offset, offset + 1)),
            }
        }
        let mut insert = connection
            .prepare_cached("INSERT INTO skipped (stream, first_offset, end_offset, marker) VALUES (?1, ?2, ?3, ?4)")?;
        for (first, end) in fresh.into_iter().chain([(marker, marker + 1)]) {
            insert.execute(params![stream, first, end, marker])?;
        }
        connection
            .prepare_cached("INSERT INTO erasures (stream, marker, records, ts_us) VALUES (?1, ?2, ?3, ?4)")?
            .execute(params![stream, marker, records, ts_us])?;
        connection
            .prepare_cached("UPDATE streams SET end_offset = ?2, last_ts_us = ?3 WHERE id = ?1")?
            .execute(params![stream, marker + 1, ts_us])?;
        if let Some(Keyed { operation, key, body_hash }) = keyed {
            let receipt = Receipt { body_hash: *body_hash, first_offset: marker, count: records, ts_us };
            receipts::write(connection, (stream, *operation, key), &receipt, now_us)?;
        }
        Ok(records)
    })
}

/// All erasures of a stream, in order.
pub(super) fn all(connection: &Connection, stream: u32) -> rusqlite::Result<Vec<Erasure>> {
    let mut statement =
        connection.prepare_cached("SELECT marker, records, ts_us FROM erasures WHERE stream = ?1 ORDER BY marker")?;
    let erasures = statement
        .query_map([stream], |row| Ok(Erasure { marker: row.get(0)?, records: row.get(1)?, ts_us: row.get(2)? }))?;
    erasures.collect()
}
