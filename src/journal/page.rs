//! One request of a replay, answered from one connection in one short transaction.

use rusqlite::{CachedStatement, Connection, OptionalExtension as _, Row, Rows, params};

use super::reader::{Page, RowFilter};
use super::stamps::{self, Run};
use crate::stream::offsets::DurableOffset;
use crate::stream::replay::{self, LogFacts, Resolution, ResolveRequest};
use crate::wire::row::push_row_frame;

/// Rows that one page looks at, at most, so that a filter that lets nothing through still takes turns.
const MAX_SCANNED_ROWS: u64 = 50_000;

/// Bytes of rows that one page looks at, at most.
const MAX_SCANNED_BYTES: usize = 4 << 20;

/// Why a request cannot be answered.
#[derive(Debug, thiserror::Error)]
pub(super) enum PageError {
    /// SQLite refused.
    #[error(transparent)]
    Sql(#[from] rusqlite::Error),
    /// The rows are gone, or never made sense.
    #[error("{0}")]
    Log(String),
}

/// What a page is to hold; see [`super::reader::PageRequest`].
pub(super) struct Wanted<'a> {
    pub stream: u32,
    pub from: i64,
    pub until: i64,
    pub max_bytes: usize,
    pub filter: Option<&'a RowFilter>,
}

/// Decides where a replay starts.
pub(super) fn resolve(connection: &Connection, stream: u32, request: &ResolveRequest) -> Result<Resolution, PageError> {
    // One transaction, so that every answer is about the same state of the log.
    let transaction = connection.unchecked_transaction()?;
    let resolution = replay::resolve(request, &mut Facts { connection, stream })?;
    transaction.finish()?;
    Ok(resolution)
}

struct Facts<'a> {
    connection: &'a Connection,
    stream: u32,
}

impl LogFacts for Facts<'_> {
    type Error = rusqlite::Error;

    fn first_row_at_or_above(&mut self, offset: i64, frontier: i64) -> rusqlite::Result<Option<i64>> {
        if offset >= frontier {
            return Ok(None);
        }
        let sql = format!(
            "SELECT max(first_offset, ?1) FROM batches_{0} WHERE first_offset + count > ?1 AND first_offset >=
             coalesce((SELECT max(first_offset) FROM batches_{0} WHERE first_offset <= ?1), ?1)
             ORDER BY first_offset LIMIT 1",
            self.stream
        );
        let mut statement = self.connection.prepare_cached(&sql)?;
        let first: Option<i64> = statement.query_row([offset], |row| row.get(0)).optional()?;
        Ok(first.filter(|first| *first < frontier))
    }

    fn skipped_between(&mut self, offset: i64, frontier: i64) -> rusqlite::Result<u64> {
        skipped_between(self.connection, self.stream, offset, frontier)
    }
}

fn skipped_between(connection: &Connection, stream: u32, start: i64, end: i64) -> rusqlite::Result<u64> {
    let mut statement = connection.prepare_cached(
        "SELECT coalesce(sum(min(end_offset, ?3) - max(first_offset, ?2)), 0) FROM skipped
         WHERE stream = ?1 AND first_offset < ?3 AND end_offset > ?2",
    )?;
    statement.query_row(params![stream, start, end], |row| row.get::<_, i64>(0).map(|sum| sum.max(0) as u64))
}

/// Reads one page.
pub(super) fn read(connection: &Connection, wanted: &Wanted<'_>) -> Result<Page, PageError> {
    let sql = format!(
        "SELECT first_offset, count, ts_us, stamps, body FROM batches_{0} WHERE first_offset < ?2 AND first_offset >=
         coalesce((SELECT max(first_offset) FROM batches_{0} WHERE first_offset <= ?1), ?1) ORDER BY first_offset",
        wanted.stream
    );
    let mut statement: CachedStatement<'_> = connection.prepare_cached(&sql)?;
    let mut rows: Rows<'_> = statement.query(params![wanted.from, wanted.until])?;
    let mut builder = Builder::new(wanted);
    while builder.has_room() {
        let Some(row) = rows.next()? else {
            builder.skip_to(connection, wanted.until)?;
            break;
        };
        builder.batch(connection, row)?;
    }
    Ok(builder.finish())
}

/// A page in the making.
struct Builder<'a> {
    wanted: &'a Wanted<'a>,
    frames: Vec<u8>,
    rows: u32,
    next: i64,
    scanned_rows: u64,
    scanned_bytes: usize,
    full: bool,
}

impl<'a> Builder<'a> {
    fn new(wanted: &'a Wanted<'a>) -> Self {
        Self {
            wanted,
            frames: Vec::with_capacity(wanted.max_bytes.min(MAX_SCANNED_BYTES)),
            rows: 0,
            next: wanted.from,
            scanned_rows: 0,
            scanned_bytes: 0,
            full: false,
        }
    }

    fn has_room(&self) -> bool {
        !self.full
            && self.next < self.wanted.until
            && self.scanned_rows < MAX_SCANNED_ROWS
            && self.scanned_bytes < MAX_SCANNED_BYTES
    }

    /// Moves on to `offset`, if every offset before it was left out on purpose.
    fn skip_to(&mut self, connection: &Connection, offset: i64) -> Result<(), PageError> {
        let hole = offset.abs_diff(self.next);
        if offset > self.next && skipped_between(connection, self.wanted.stream, self.next, offset)? != hole {
            return Err(PageError::Log(format!("rows from offset {} on are not in the journal any more", self.next)));
        }
        self.next = self.next.max(offset);
        Ok(())
    }

    /// Takes rows of one batch until the page is full.
    fn batch(&mut self, connection: &Connection, row: &Row<'_>) -> Result<(), PageError> {
        let first_offset: i64 = row.get(0)?;
        let count: u32 = row.get(1)?;
        let end_offset = first_offset.saturating_add(i64::from(count));
        if end_offset <= self.next {
            return Ok(());
        }
        if first_offset > self.next {
            self.skip_to(connection, first_offset)?;
        }
        let damaged = || PageError::Log(format!("the batch at offset {first_offset} of the journal is damaged"));
        let runs = match row.get_ref(3)?.as_str_or_null().map_err(|_| damaged())? {
            None => vec![Run { rows: count, ts_us: row.get(2)? }],
            Some(text) => stamps::parse(text, count).ok_or_else(damaged)?,
        };
        let body = row.get_ref(4)?.as_bytes().map_err(|_| damaged())?;
        let before = (self.next - first_offset) as usize;
        let mut start = match before.checked_sub(1) {
            None => 0,
            Some(last) => memchr::memchr_iter(b'\n', body).nth(last).ok_or_else(damaged)? + 1,
        };
        let mut stamped = runs.iter().flat_map(|run| std::iter::repeat_n(run.ts_us, run.rows as usize)).skip(before);
        let end_offset = end_offset.min(self.wanted.until);
        while self.next < end_offset {
            let length = memchr::memchr(b'\n', &body[start..]).ok_or_else(damaged)?;
            let line = &body[start..start + length];
            let ts_us = stamped.next().ok_or_else(damaged)?;
            if !self.row(DurableOffset::stored(self.next), ts_us, line) {
                return Ok(());
            }
            start += length + 1;
        }
        Ok(())
    }

    /// Takes one row, unless the page has no room for it.
    fn row(&mut self, offset: DurableOffset, ts_us: i64, line: &[u8]) -> bool {
        if self.scanned_rows >= MAX_SCANNED_ROWS || self.scanned_bytes >= MAX_SCANNED_BYTES {
            return false;
        }
        if self.wanted.filter.is_none_or(|filter| filter(line)) {
            let before = self.frames.len();
            push_row_frame(&mut self.frames, Some(offset.get()), ts_us, line);
            if before > 0 && self.frames.len() > self.wanted.max_bytes {
                self.frames.truncate(before);
                self.full = true;
                return false;
            }
            self.rows += 1;
        }
        self.next = offset.get() + 1;
        self.scanned_rows += 1;
        self.scanned_bytes += line.len() + 1;
        true
    }

    fn finish(self) -> Page {
        Page::Rows { frames: self.frames, rows: self.rows, next: self.next, done: self.next >= self.wanted.until }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn facts_about_any_log_are_those_of_its_offsets(
            parts in prop::collection::vec((any::<bool>(), 1_i64..6), 0..12),
        ) {
            let connection = Connection::open_in_memory().expect("opens");
            connection
                .execute_batch(
                    "CREATE TABLE batches_1 (first_offset INTEGER PRIMARY KEY, count INTEGER);
                     CREATE TABLE skipped (stream INTEGER, first_offset INTEGER, end_offset INTEGER)",
                )
                .expect("created");
            let (mut rows, mut holes, mut next) = (Vec::new(), Vec::new(), 1);
            for (is_batch, length) in parts {
                let end = next + length;
                if is_batch {
                    connection.execute("INSERT INTO batches_1 VALUES (?1, ?2)", [next, length]).expect("inserted");
                    rows.extend(next..end);
                } else {
                    connection.execute("INSERT INTO skipped VALUES (1, ?1, ?2)", [next, end]).expect("inserted");
                    holes.extend(next..end);
                }
                next = end;
            }
            let mut facts = Facts { connection: &connection, stream: 1 };
            for frontier in 1..=next {
                for offset in [i64::MIN].into_iter().chain(0..=next + 1) {
                    let first = rows.iter().copied().find(|row| (offset..frontier).contains(row));
                    prop_assert_eq!(facts.first_row_at_or_above(offset, frontier).expect("asked"), first);
                    let skipped = holes.iter().filter(|hole| (offset..frontier).contains(hole)).count() as u64;
                    if offset <= frontier {
                        prop_assert_eq!(facts.skipped_between(offset, frontier).expect("asked"), skipped);
                    }
                }
            }
        }
    }
}
