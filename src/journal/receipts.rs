//! Receipts of idempotent requests (docs/batches.md, "Idempotency"): which key of a stream led to which offsets.
//!
//! A receipt is written by the transaction that does what it tells of, so the two are there together or not at all.

use std::collections::HashMap;

use rusqlite::{Connection, OptionalExtension as _, params};

use super::error::JournalError;
use super::office::Office;
use crate::stream::offsets::AssignedOffset;

/// How long a receipt is kept, in microseconds: seven days.
pub const RECEIPT_KEPT_US: i64 = 7 * 24 * 3600 * 1_000_000;

/// Receipts of all streams together. When they are all younger than [`RECEIPT_KEPT_US`], requests with a new key are
/// refused until the oldest has gone.
pub const MAX_RECEIPTS: u64 = 4_000_000;

/// Receipts that a transaction forgets for each one that it writes, if they are old enough, and on top of it.
const FORGOTTEN_EACH: u64 = 4;
const FORGOTTEN_MORE: u64 = 64;

pub(super) const TABLES: &str = "
    CREATE TABLE receipts (
        stream INTEGER NOT NULL,
        operation INTEGER NOT NULL,
        key TEXT NOT NULL,
        body_hash BLOB NOT NULL,
        first_offset INTEGER NOT NULL,
        count INTEGER NOT NULL,
        ts_us INTEGER NOT NULL,
        kept_until_us INTEGER NOT NULL,
        PRIMARY KEY (stream, operation, key)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX receipts_by_age ON receipts (kept_until_us);
    CREATE TABLE validators (
        stream INTEGER PRIMARY KEY,
        version INTEGER NOT NULL,
        source TEXT
    ) STRICT;
";

/// What a key was used for; the same key may be used once for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Entries were inserted.
    Insert = 1,
    /// Entries were erased.
    Erase = 2,
}

/// The idempotency key of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keyed {
    /// What is asked for.
    pub operation: Operation,
    /// The key.
    pub key: String,
    /// The SHA-256 of the request's body.
    pub body_hash: [u8; 32],
}

/// What came of an earlier request with the same key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    /// The SHA-256 of its body.
    pub body_hash: [u8; 32],
    /// The first offset that it got.
    pub first_offset: i64,
    /// How many rows it inserted or erased.
    pub count: u32,
    /// The stamp of its batch, in microseconds.
    pub ts_us: i64,
}

impl Office<'_> {
    /// The receipt of an earlier request with the same key, of whatever body.
    ///
    /// # Errors
    /// When SQLite refuses.
    pub fn receipt(&self, stream: u32, keyed: &Keyed, now_us: i64) -> Result<Option<Receipt>, JournalError> {
        find(self.connection, stream, keyed.operation, &keyed.key, now_us).map_err(|source| JournalError::Sql {
            action: "read a receipt",
            path: self.path.to_owned(),
            source,
        })
    }
}

/// A receipt that the open transaction is to write.
pub(super) struct Pending {
    pub body_hash: [u8; 32],
    pub first: AssignedOffset,
    pub count: u32,
    pub ts_us: i64,
}

/// All receipts that the open transaction is to write, by stream, operation and key.
pub(super) type PendingReceipts = HashMap<(u32, Operation, String), Pending>;

/// Finds the receipt of a key, unless it is too old.
pub(super) fn find(
    connection: &Connection,
    stream: u32,
    operation: Operation,
    key: &str,
    now_us: i64,
) -> rusqlite::Result<Option<Receipt>> {
    let mut statement = connection.prepare_cached(
        "SELECT body_hash, first_offset, count, ts_us FROM receipts
         WHERE stream = ?1 AND operation = ?2 AND key = ?3 AND kept_until_us > ?4",
    )?;
    statement
        .query_row(params![stream, operation as u8, key, now_us], |row| {
            Ok(Receipt { body_hash: row.get(0)?, first_offset: row.get(1)?, count: row.get(2)?, ts_us: row.get(3)? })
        })
        .optional()
}

/// Writes one receipt; an older one of the same key, which has to be out of date, gives way.
pub(super) fn write(
    connection: &Connection,
    (stream, operation, key): (u32, Operation, &str),
    receipt: &Receipt,
    now_us: i64,
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(
        "INSERT OR REPLACE INTO receipts
             (stream, operation, key, body_hash, first_offset, count, ts_us, kept_until_us)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    )?;
    let Receipt { body_hash, first_offset, count, ts_us } = receipt;
    statement.execute(params![
        stream,
        operation as u8,
        key,
        body_hash,
        first_offset,
        count,
        ts_us,
        now_us.saturating_add(RECEIPT_KEPT_US)
    ])?;
    Ok(())
}

/// Forgets receipts that are out of date, a few for each of the `written` new ones. Returns how many.
pub(super) fn forget(connection: &Connection, written: u64, now_us: i64) -> rusqlite::Result<u64> {
    let mut statement = connection.prepare_cached(
        "DELETE FROM receipts WHERE (stream, operation, key) IN
         (SELECT stream, operation, key FROM receipts WHERE kept_until_us <= ?1 ORDER BY kept_until_us LIMIT ?2)",
    )?;
    let limit = written.saturating_mul(FORGOTTEN_EACH).saturating_add(FORGOTTEN_MORE);
    statement.execute(params![now_us, i64::try_from(limit).unwrap_or(i64::MAX)]).map(|forgotten| forgotten as u64)
}

/// Whether a receipt could be forgotten now.
pub(super) fn any_out_of_date(connection: &Connection, now_us: i64) -> rusqlite::Result<bool> {
    let mut statement = connection.prepare_cached("SELECT 1 FROM receipts WHERE kept_until_us <= ?1 LIMIT 1")?;
    Ok(statement.query_row([now_us], |_| Ok(())).optional()?.is_some())
}

/// How many receipts there are.
pub(super) fn count(connection: &Connection) -> rusqlite::Result<u64> {
    connection.query_row("SELECT count(*) FROM receipts", [], |row| row.get::<_, i64>(0)).map(|count| count as u64)
}

/// The version of a stream's validator; 0 before there was one.
pub(super) fn validator_version(connection: &Connection, stream: u32) -> rusqlite::Result<u64> {
    let mut statement = connection.prepare_cached("SELECT version FROM validators WHERE stream = ?1")?;
    let version = statement.query_row([stream], |row| row.get::<_, i64>(0)).optional()?;
    Ok(version.unwrap_or(0) as u64)
}

/// All validators: version and expression, by stream.
pub(super) fn validators(connection: &Connection) -> rusqlite::Result<HashMap<u32, (u64, Option<String>)>> {
    let mut statement = connection.prepare("SELECT stream, version, source FROM validators")?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, (row.get::<_, i64>(1)? as u64, row.get(2)?))))?;
    rows.collect()
}
