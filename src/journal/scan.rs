//! Going through the rows of a stream in the journal, in offset order.

use rusqlite::{Connection, Row, params};

use super::stamps::{self, Run};

/// Why rows cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum ScanError {
    /// SQLite refused.
    #[error(transparent)]
    Sql(#[from] rusqlite::Error),
    /// The batch does not hold what it says.
    #[error("the batch at offset {0} of the journal is damaged")]
    Damaged(i64),
}

/// Calls `take` with offset, stamp and canonical row of every row of `[from, until)`, until it returns false.
pub(super) fn scan(
    connection: &Connection,
    stream: u32,
    from: i64,
    until: i64,
    mut take: impl FnMut(i64, i64, &[u8]) -> bool,
) -> Result<(), ScanError> {
    let sql = format!(
        "SELECT first_offset, count, ts_us, stamps, body FROM batches_{stream} WHERE first_offset < ?2 AND first_offset >=
         coalesce((SELECT max(first_offset) FROM batches_{stream} WHERE first_offset <= ?1), ?1) ORDER BY first_offset"
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query(params![from, until])?;
    while let Some(row) = rows.next()? {
        if !batch(row, from, until, &mut take)? {
            break;
        }
    }
    Ok(())
}

/// Goes through one batch; false if `take` wants no more.
fn batch(
    row: &Row<'_>,
    from: i64,
    until: i64,
    take: &mut impl FnMut(i64, i64, &[u8]) -> bool,
) -> Result<bool, ScanError> {
    let first_offset: i64 = row.get(0)?;
    let count: u32 = row.get(1)?;
    let end_offset = first_offset.saturating_add(i64::from(count));
    if end_offset <= from {
        return Ok(true);
    }
    let damaged = || ScanError::Damaged(first_offset);
    let runs = match row.get_ref(3)?.as_str_or_null().map_err(|_| damaged())? {
        None => vec![Run { rows: count, ts_us: row.get(2)? }],
        Some(text) => stamps::parse(text, count).ok_or_else(damaged)?,
    };
    let body = row.get_ref(4)?.as_bytes().map_err(|_| damaged())?;
    let before = (from - first_offset).max(0) as usize;
    let mut start = match before.checked_sub(1) {
        None => 0,
        Some(last) => memchr::memchr_iter(b'\n', body).nth(last).ok_or_else(damaged)? + 1,
    };
    let mut stamped = runs.iter().flat_map(|run| std::iter::repeat_n(run.ts_us, run.rows as usize)).skip(before);
    for offset in first_offset.max(from)..end_offset.min(until) {
        let length = memchr::memchr(b'\n', &body[start..]).ok_or_else(damaged)?;
        let ts_us = stamped.next().ok_or_else(damaged)?;
        if !take(offset, ts_us, &body[start..start + length]) {
            return Ok(false);
        }
        start += length + 1;
    }
    Ok(true)
}
