//! Offsets that hold no row: skipped when a log was taken up again elsewhere, or erased (docs/storage.md).

use rusqlite::{Connection, OptionalExtension as _, params};

use crate::stream::holes::Hole;

/// The holes of a stream, asked for ascending offsets.
pub(super) struct Holes<'c> {
    connection: &'c Connection,
    stream: u32,
    /// The hole that `offset`s up to its end are compared with; absent when there is none any more.
    next: Option<(i64, i64)>,
    looked: bool,
}

impl<'c> Holes<'c> {
    pub(super) fn new(connection: &'c Connection, stream: u32) -> Self {
        Self { connection, stream, next: None, looked: false }
    }

    /// Whether `offset`, which is not below the one before, is in a hole.
    #[inline]
    pub(super) fn contains(&mut self, offset: i64) -> rusqlite::Result<bool> {
        if !self.looked || self.next.is_some_and(|(_, end)| end <= offset) {
            self.looked = true;
            self.next = at_or_above(self.connection, self.stream, offset)?;
        }
        Ok(self.next.is_some_and(|(first, _)| first <= offset))
    }
}

/// The hole that `offset` is in, or the first above it.
pub(super) fn at_or_above(connection: &Connection, stream: u32, offset: i64) -> rusqlite::Result<Option<(i64, i64)>> {
    let mut statement = connection.prepare_cached(
        "SELECT first_offset, end_offset FROM skipped WHERE stream = ?1 AND end_offset > ?2 AND first_offset >=
         coalesce((SELECT max(first_offset) FROM skipped WHERE stream = ?1 AND first_offset <= ?2), ?2)
         ORDER BY first_offset LIMIT 1",
    )?;
    statement.query_row(params![stream, offset], |row| Ok((row.get(0)?, row.get(1)?))).optional()
}

/// How many offsets of `[start, end)` are in holes.
pub(super) fn between(connection: &Connection, stream: u32, start: i64, end: i64) -> rusqlite::Result<u64> {
    let mut statement = connection.prepare_cached(
        "SELECT coalesce(sum(min(end_offset, ?3) - max(first_offset, ?2)), 0) FROM skipped
         WHERE stream = ?1 AND first_offset < ?3 AND end_offset > ?2 AND first_offset >=
         coalesce((SELECT max(first_offset) FROM skipped WHERE stream = ?1 AND first_offset <= ?2), ?2)",
    )?;
    statement.query_row(params![stream, start, end], |row| row.get::<_, i64>(0).map(|sum| sum.max(0) as u64))
}

/// Whether `offset` is in a hole that an erasure left.
pub(super) fn is_erased(connection: &Connection, stream: u32, offset: i64) -> rusqlite::Result<bool> {
    let mut statement = connection.prepare_cached(
        "SELECT end_offset > ?2 AND marker IS NOT NULL FROM skipped WHERE stream = ?1 AND first_offset <= ?2
         ORDER BY first_offset DESC LIMIT 1",
    )?;
    Ok(statement.query_row(params![stream, offset], |row| row.get(0)).optional()?.unwrap_or(false))
}

/// All holes of a stream, in order.
pub(super) fn all(connection: &Connection, stream: u32) -> rusqlite::Result<Vec<Hole>> {
    let mut statement = connection.prepare_cached(
        "SELECT first_offset, end_offset, marker FROM skipped WHERE stream = ?1 ORDER BY first_offset",
    )?;
    let holes =
        statement.query_map([stream], |row| Ok(Hole { first: row.get(0)?, end: row.get(1)?, marker: row.get(2)? }))?;
    holes.collect()
}

/// How many offsets of every stream are in holes.
pub(super) fn totals(connection: &Connection) -> rusqlite::Result<Vec<(u32, i64)>> {
    let mut statement =
        connection.prepare("SELECT stream, sum(end_offset - first_offset) FROM skipped GROUP BY stream")?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    rows.collect()
}
