//! Erasing rows (docs/batches.md, "Erasures"): at once for every reader, and then from the file.
//!
//! The transaction of an erasure makes holes of the rows' offsets, gives the erasure an offset of its own, the marker,
//! and writes its receipt. From its commit on no reader gives the rows, wherever they lie. Taking their bytes out of
//! the journal follows in steps, each a transaction that rewrites a few batches; a crash in between leaves the rest.

use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension as _, params};

use super::error::JournalError;
use super::office::Office;
use super::plan::StreamState;
use super::receipts::{self, Keyed, Receipt};
use super::stamps::{self, Run, push_run};
use super::{holes, store};
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

/// Bytes of batches that one step rewrites, about.
const STEP_BYTES: usize = 1 << 20;

/// An erasure that is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marker {
    /// Its own offset.
    pub offset: i64,
    /// How many rows it erased.
    pub records: u32,
    /// Its stamp, in microseconds.
    pub ts_us: i64,
    /// When the rows' bytes were gone from the journal, in microseconds.
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
            && let Some(receipt) =
                receipts::find(self.connection, stream, keyed.operation, &keyed.key, now_us).map_err(fail)?
        {
            if receipt.body_hash != keyed.body_hash {
                return Ok(Erased::KeyReused);
            }
            let purged_us = self.purged_us(stream, receipt.first_offset).map_err(fail)?;
            let Receipt { first_offset: offset, count: records, ts_us, .. } = receipt;
            return Ok(Erased::Marked(Marker { offset, records, ts_us, purged_us, duplicate: true }));
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

    /// Takes bytes of erased rows out of the journal, from `from` on; gives where to go on, or none at the end of the
    /// journal's rows below `marker`.
    ///
    /// # Errors
    /// When SQLite refuses. The step may be repeated.
    pub fn purge_step(&mut self, stream: u32, marker: i64, from: i64) -> Result<Option<i64>, JournalError> {
        let fail = |source| JournalError::Sql { action: "purge erased rows", path: self.path.to_owned(), source };
        self.connection.pragma_update(None, "secure_delete", true).map_err(fail)?;
        let step = purge(self.connection, stream, marker, from);
        // Only these deletions are worth what it costs.
        self.connection.pragma_update(None, "secure_delete", false).map_err(fail)?;
        step.map_err(|error| {
            *self.commit_failed |= error.in_commit;
            fail(error.source)
        })
    }

    /// Notes that nothing of an erasure's rows is left anywhere.
    ///
    /// # Errors
    /// When SQLite refuses.
    pub fn note_purged(&mut self, stream: u32, marker: i64, now_us: i64) -> Result<(), JournalError> {
        let fail = |source| JournalError::Sql { action: "note a purge", path: self.path.to_owned(), source };
        self.connection
            .execute(
                "UPDATE erasures SET purged_us = ?3 WHERE stream = ?1 AND marker = ?2 AND purged_us IS NULL",
                params![stream, marker, now_us],
            )
            .map(drop)
            .map_err(fail)
    }

    /// The first offset that an erasure took a row from.
    ///
    /// # Errors
    /// When SQLite refuses.
    pub fn first_erased(&self, stream: u32, marker: i64) -> Result<Option<i64>, JournalError> {
        let fail = |source| JournalError::Sql { action: "read an erasure", path: self.path.to_owned(), source };
        let sql = "SELECT min(first_offset) FROM skipped WHERE stream = ?1 AND marker = ?2 AND first_offset < ?2";
        self.connection.query_row(sql, params![stream, marker], |row| row.get(0)).map_err(fail)
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
struct Failed {
    source: rusqlite::Error,
    /// Whether it was its COMMIT.
    in_commit: bool,
}

impl From<rusqlite::Error> for Failed {
    fn from(source: rusqlite::Error) -> Self {
        Self { source, in_commit: false }
    }
}

fn in_transaction<T>(
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

/// One SQL row of a stream.
struct Stored {
    first_offset: i64,
    count: u32,
    ts_us: i64,
    stamps: Option<String>,
    body: Vec<u8>,
}

/// Rewrites batches with rows that `marker` erased, from `from` on, up to [`STEP_BYTES`].
fn purge(connection: &mut Connection, stream: u32, marker: i64, from: i64) -> Result<Option<i64>, Failed> {
    in_transaction(connection, |connection| {
        let mut at = from;
        let mut bytes = 0;
        while bytes < STEP_BYTES {
            let mut hole = connection.prepare_cached(
                "SELECT max(first_offset, ?3) FROM skipped
                 WHERE stream = ?1 AND marker = ?2 AND end_offset > ?3 AND first_offset < ?2 AND first_offset >=
                 coalesce((SELECT max(first_offset) FROM skipped WHERE stream = ?1 AND first_offset <= ?3), ?3)
                 ORDER BY first_offset LIMIT 1",
            )?;
            let Some(hole) = hole.query_row(params![stream, marker, at], |row| row.get::<_, i64>(0)).optional()? else {
                return Ok(None);
            };
            let Some(stored) = holding(connection, stream, hole)? else { return Ok(None) };
            at = stored.first_offset + i64::from(stored.count);
            bytes += stored.body.len();
            rewrite(connection, stream, &stored)?;
        }
        Ok(Some(at))
    })
}

/// The batch that holds `offset`, or the first above it.
fn holding(connection: &Connection, stream: u32, offset: i64) -> rusqlite::Result<Option<Stored>> {
    let sql = format!(
        "SELECT first_offset, count, ts_us, stamps, body FROM batches_{stream}
         WHERE first_offset + count > ?1 AND first_offset >=
         coalesce((SELECT max(first_offset) FROM batches_{stream} WHERE first_offset <= ?1), ?1)
         ORDER BY first_offset LIMIT 1"
    );
    let mut statement = connection.prepare_cached(&sql)?;
    statement
        .query_row([offset], |row| {
            Ok(Stored {
                first_offset: row.get(0)?,
                count: row.get(1)?,
                ts_us: row.get(2)?,
                stamps: row.get(3)?,
                body: row.get_ref(4)?.as_bytes()?.to_vec(),
            })
        })
        .optional()
}

/// Replaces a batch by what is left of it outside of holes.
fn rewrite(connection: &Connection, stream: u32, stored: &Stored) -> rusqlite::Result<()> {
    let runs = match &stored.stamps {
        None => vec![Run { rows: stored.count, ts_us: stored.ts_us }],
        // A batch that is damaged stays as it is; whoever reads it says so.
        Some(text) => match stamps::parse(text, stored.count) {
            Some(runs) => runs,
            None => return Ok(()),
        },
    };
    let stamps = runs.iter().flat_map(|run| std::iter::repeat_n(run.ts_us, run.rows as usize));
    let lines = stored.body.split_inclusive(|byte| *byte == b'\n');
    let mut holes = holes::Holes::new(connection, stream);
    let mut parts: BTreeMap<i64, (Vec<u8>, Vec<Run>, u32)> = BTreeMap::new();
    let mut part = None;
    for ((line, ts_us), offset) in lines.zip(stamps).zip(stored.first_offset..) {
        if holes.contains(offset)? {
            part = None;
            continue;
        }
        let (body, runs, rows) = parts.entry(*part.get_or_insert(offset)).or_default();
        body.extend_from_slice(line);
        push_run(runs, 1, ts_us);
        *rows += 1;
    }
    connection
        .prepare_cached(&format!("DELETE FROM batches_{stream} WHERE first_offset = ?1"))?
        .execute([stored.first_offset])?;
    let mut insert = connection.prepare_cached(&format!(
        "INSERT INTO batches_{stream} (first_offset, count, ts_us, stamps, body) VALUES (?1, ?2, ?3, ?4, ?5)"
    ))?;
    for (first_offset, (body, runs, rows)) in parts {
        let stamps = (runs.len() > 1).then(|| stamps::format(&runs));
        let last_ts_us = runs.last().map_or(0, |run| run.ts_us);
        insert.execute(params![first_offset, rows, last_ts_us, stamps, store::Text(&body)])?;
    }
    Ok(())
}

/// Erasures whose rows may not be gone yet: stream and marker.
pub(super) fn unpurged(connection: &Connection) -> rusqlite::Result<Vec<(u32, i64)>> {
    let mut statement =
        connection.prepare("SELECT stream, marker FROM erasures WHERE purged_us IS NULL ORDER BY stream, marker")?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    rows.collect()
}
