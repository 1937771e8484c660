//! One request of a replay, answered from one connection in one short transaction.

use rusqlite::{Connection, OptionalExtension as _, params};
use streamcast_shards::manner::give_way;

use super::archive::Archive;
use super::holes::{self, Holes};
use super::reader::{Page, RowFilter};
use super::scan::{ScanError, scan};
use crate::stream::offsets::DurableOffset;
use crate::stream::replay::{self, LogFacts, Resolution, ResolveRequest};
use crate::wire::row::push_row_frame;

/// Rows that one page looks at, at most, so that a filter that lets nothing through still takes turns.
const MAX_SCANNED_ROWS: u64 = 50_000;

/// Bytes of rows that one page looks at, at most.
const MAX_SCANNED_BYTES: usize = 4 << 20;

/// Rows between two offers of the core to those that need it for rows on their way.
const PIECE_ROWS: u64 = 64;

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

impl From<ScanError> for PageError {
    fn from(error: ScanError) -> Self {
        match error {
            ScanError::Sql(error) => Self::Sql(error),
            damaged @ ScanError::Damaged(_) => Self::Log(damaged.to_string()),
        }
    }
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
pub(super) fn resolve(
    connection: &Connection,
    archive: &dyn Archive,
    stream: u32,
    request: &ResolveRequest,
) -> Result<Resolution, PageError> {
    // One transaction, so that every answer is about the same state of the journal. The archive may have more by the
    // time it is asked, never less than what the journal has lost until then.
    let transaction = connection.unchecked_transaction()?;
    let resolution = replay::resolve(request, &mut Facts { connection, archive, stream })?;
    transaction.finish()?;
    Ok(resolution)
}

struct Facts<'a> {
    connection: &'a Connection,
    archive: &'a dyn Archive,
    stream: u32,
}

impl LogFacts for Facts<'_> {
    type Error = PageError;

    fn first_row_at_or_above(&mut self, offset: i64, frontier: i64) -> Result<Option<i64>, PageError> {
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
        if first == Some(offset) {
            return Ok(first);
        }
        let archived = self.archived_at_or_above(offset, first.unwrap_or(frontier))?;
        Ok(archived.or(first).filter(|first| *first < frontier))
    }

    fn skipped_between(&mut self, offset: i64, frontier: i64) -> Result<u64, PageError> {
        Ok(holes::between(self.connection, self.stream, offset, frontier)?)
    }

    fn is_erased(&mut self, offset: i64) -> Result<bool, PageError> {
        Ok(holes::is_erased(self.connection, self.stream, offset)?)
    }
}

impl Facts<'_> {
    /// The offset of the first row in the archive at or above `offset` and below `below`.
    fn archived_at_or_above(&self, mut offset: i64, below: i64) -> Result<Option<i64>, PageError> {
        let mut statement = self.connection.prepare_cached(
            "SELECT end_offset FROM skipped WHERE stream = ?1 AND first_offset <= ?2 AND end_offset > ?2",
        )?;
        while let Some((start, end)) = self
            .archive
            .stretch_at_or_above(self.stream, offset)
            .map_err(PageError::Log)?
            .filter(|(start, _)| *start < below)
        {
            offset = offset.max(start);
            // The offset may be one that was left out on purpose.
            while let Some(end) = statement.query_row(params![self.stream, offset], |row| row.get(0)).optional()? {
                offset = end;
            }
            if offset < end {
                return Ok(Some(offset).filter(|offset| *offset < below));
            }
        }
        Ok(None)
    }
}

/// Reads one page: from the journal, or from the archive if the journal's rows begin later.
pub(super) fn read(connection: &Connection, archive: &dyn Archive, wanted: &Wanted<'_>) -> Result<Page, PageError> {
    let mut builder = Builder::new(connection, wanted);
    scan(connection, wanted.stream, wanted.from, wanted.until, |offset, ts_us, line| {
        builder.take(offset, ts_us, line)
    })?;
    if builder.is_missing_the_first() {
        // Asked after the journal: rows are there before they are deleted from it.
        builder.failure = None;
        archive
            .rows(wanted.stream, wanted.from, wanted.until, &mut |offset, ts_us, line| {
                builder.take(offset, ts_us, line)
            })
            .map_err(PageError::Log)?;
        if builder.next == wanted.from && builder.failure.is_none() {
            builder.skip_to(wanted.until);
        }
    } else if builder.has_room() {
        builder.skip_to(wanted.until);
    }
    builder.finish()
}

/// A page in the making.
struct Builder<'a> {
    connection: &'a Connection,
    wanted: &'a Wanted<'a>,
    holes: Holes<'a>,
    frames: Vec<u8>,
    rows: u32,
    next: i64,
    scanned_rows: u64,
    scanned_bytes: usize,
    full: bool,
    failure: Option<PageError>,
}

impl<'a> Builder<'a> {
    fn new(connection: &'a Connection, wanted: &'a Wanted<'a>) -> Self {
        Self {
            connection,
            wanted,
            holes: Holes::new(connection, wanted.stream),
            frames: Vec::with_capacity(wanted.max_bytes.min(MAX_SCANNED_BYTES)),
            rows: 0,
            next: wanted.from,
            scanned_rows: 0,
            scanned_bytes: 0,
            full: false,
            failure: None,
        }
    }

    fn has_room(&self) -> bool {
        !self.full
            && self.failure.is_none()
            && self.next < self.wanted.until
            && self.scanned_rows < MAX_SCANNED_ROWS
            && self.scanned_bytes < MAX_SCANNED_BYTES
    }

    /// Whether the journal has no row at the page's start although one was given out.
    fn is_missing_the_first(&mut self) -> bool {
        if self.failure.is_none() && self.next == self.wanted.from && !self.full {
            // There was no row at all: nothing may be left out up to the end.
            self.skip_to(self.wanted.until);
        }
        self.next == self.wanted.from && matches!(self.failure, Some(PageError::Log(_)))
    }

    /// Moves on to `offset`, if every offset before it was left out on purpose.
    fn skip_to(&mut self, offset: i64) -> bool {
        let hole = offset.abs_diff(self.next);
        if offset <= self.next {
            return true;
        }
        match holes::between(self.connection, self.wanted.stream, self.next, offset) {
            Ok(skipped) if skipped == hole => {
                self.next = offset;
                true
            }
            Ok(_) => {
                let what = format!("rows from offset {} on are neither in the journal nor in a sealed file", self.next);
                self.failure = Some(PageError::Log(what));
                false
            }
            Err(error) => {
                self.failure = Some(PageError::Sql(error));
                false
            }
        }
    }

    /// Takes one row, unless the page has no room for it; false to be given no more.
    #[inline]
    fn take(&mut self, offset: i64, ts_us: i64, line: &[u8]) -> bool {
        if !self.has_room() || (offset != self.next && !self.skip_to(offset)) {
            return false;
        }
        match self.holes.contains(offset) {
            Ok(false) => {}
            // Erased: its bytes are here for a little longer, for nobody.
            Ok(true) => {
                self.next = offset + 1;
                self.scanned_rows += 1;
                return true;
            }
            Err(error) => {
                self.failure = Some(PageError::Sql(error));
                return false;
            }
        }
        if self.wanted.filter.is_none_or(|filter| filter(line)) {
            let before = self.frames.len();
            push_row_frame(&mut self.frames, Some(DurableOffset::stored(offset).get()), ts_us, line);
            if before > 0 && self.frames.len() > self.wanted.max_bytes {
                self.frames.truncate(before);
                self.full = true;
                return false;
            }
            self.rows += 1;
        }
        self.next = offset + 1;
        self.scanned_rows += 1;
        self.scanned_bytes += line.len() + 1;
        if self.scanned_rows.is_multiple_of(PIECE_ROWS) {
            give_way();
        }
        true
    }

    fn finish(self) -> Result<Page, PageError> {
        match self.failure {
            // What was read before the hole is good; the next page will find out about it again.
            Some(failure) if self.next == self.wanted.from => Err(failure),
            _ => Ok(Page::Rows {
                frames: self.frames,
                rows: self.rows,
                next: self.next,
                done: self.next >= self.wanted.until,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::archive::NoArchive;
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
            let mut facts = Facts { connection: &connection, archive: &NoArchive, stream: 1 };
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
