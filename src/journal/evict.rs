//! Deleting batches that are safe elsewhere, a few at a time.
//!
//! A step is a transaction of its own that deletes whole batches from the front of a stream, so that a crash leaves a
//! shorter log and never a hole. The pages it frees are used again by later commits; the file does not shrink.

use rusqlite::{Connection, params};

/// How much one step deletes, so that a commit behind it waits for milliseconds at most.
#[derive(Debug, Clone, Copy)]
pub(super) struct Budget {
    pub batches: u32,
    pub bytes: u64,
}

/// A step of the running writer: about a millisecond.
pub(super) const STEP: Budget = Budget { batches: 512, bytes: 1 << 20 };

/// A step while nobody waits for a commit.
pub(super) const OFFLINE_STEP: Budget = Budget { batches: 16_384, bytes: 32 << 20 };

/// What a step did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Step {
    pub batches: u64,
    pub bytes: u64,
    /// The offset after the last row that was deleted.
    pub cut: Option<i64>,
    /// Whether batches below the offset may be left.
    pub more: bool,
}

/// The end of a stream, which has to be written down when its last batch goes.
#[derive(Debug, Clone, Copy)]
pub(super) struct End {
    pub offset: i64,
    /// The stamp of the last row there ever was.
    pub last_ts_us: Option<i64>,
}

/// Deletes batches of `stream` that lie wholly below `below`, within a transaction that the caller began and commits.
pub(super) fn step(
    connection: &Connection,
    stream: u32,
    below: i64,
    end: End,
    budget: Budget,
) -> rusqlite::Result<Step> {
    let below = below.min(end.offset);
    let mut step = Step::default();
    let mut cut = None;
    {
        let sql = format!(
            "SELECT first_offset + count, octet_length(body) FROM batches_{stream}
             WHERE first_offset < ?1 ORDER BY first_offset"
        );
        let mut statement = connection.prepare_cached(&sql)?;
        let mut rows = statement.query([below])?;
        while let Some(row) = rows.next()? {
            let batch_end: i64 = row.get(0)?;
            if batch_end > below {
                break;
            }
            if step.batches >= u64::from(budget.batches) || step.bytes >= budget.bytes {
                step.more = true;
                break;
            }
            step.batches += 1;
            step.bytes += row.get::<_, i64>(1)?.max(0) as u64;
            cut = Some(batch_end);
        }
    }
    step.cut = cut;
    let Some(cut) = cut else { return Ok(step) };
    if !step.more && cut >= end.offset {
        // Nothing that is left tells where the stream ends.
        connection
            .prepare_cached("UPDATE streams SET end_offset = max(end_offset, ?2), last_ts_us = ?3 WHERE id = ?1")?
            .execute(params![stream, end.offset, end.last_ts_us])?;
    }
    connection.prepare_cached(&format!("DELETE FROM batches_{stream} WHERE first_offset < ?1"))?.execute([cut])?;
    Ok(step)
}

/// The offset of the first row that the journal still has of a stream, if it has any.
pub(super) fn first_kept(connection: &Connection, stream: u32) -> rusqlite::Result<Option<i64>> {
    connection.query_row(&format!("SELECT min(first_offset) FROM batches_{stream}"), [], |row| row.get(0))
}
