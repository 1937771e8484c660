//! Taking the bytes of erased rows out of the journal (docs/batches.md, "Erasures"), in steps that are short enough to
//! come between two commits: each is a transaction of its own, and a crash in between leaves the rest.
//!
//! First the batches that hold such rows are rewritten without them. Then everything that is free in the file is
//! overwritten, for batches that were sealed leave their bytes behind in pages that wait to be used again. Last the
//! write-ahead log begins anew, which has copies of all these pages.

use std::collections::BTreeMap;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension as _, params};

use super::erase::{Failed, in_transaction};
use super::error::JournalError;
use super::office::Office;
use super::stamps::{self, Run, push_run};
use super::{checkpoint, holes, store};

/// Bytes of batches that one step rewrites, about.
const STEP_BYTES: usize = 1 << 20;

/// Batches and holes that one step looks at, at most.
const STEP_LOOKS: usize = 4096;

/// Free pages that one step overwrites, at most.
const STEP_PAGES: i64 = 64;

/// Rows of zeros that one step gives back.
const STEP_ZEROS: i64 = 4;

/// How long readers may keep the write-ahead log from beginning anew.
const RENEWAL: Duration = Duration::from_millis(50);

/// Erasures that are listed at a time.
const MAX_LISTED: i64 = 10_000;

impl Office<'_> {
    /// The erasures of a stream that are not purged, the oldest first; of many the oldest only.
    ///
    /// # Errors
    /// When SQLite refuses.
    pub fn unpurged(&self, stream: u32) -> Result<Vec<i64>, JournalError> {
        let read = || -> rusqlite::Result<Vec<i64>> {
            let sql = "SELECT marker FROM erasures WHERE stream = ?1 AND purged_us IS NULL ORDER BY marker LIMIT ?2";
            let mut statement = self.connection.prepare_cached(sql)?;
            let rows = statement.query_map(params![stream, MAX_LISTED], |row| row.get(0))?;
            rows.collect()
        };
        read().map_err(self.refused("read erasures"))
    }

    /// Rewrites batches of a stream that hold erased rows, from the offset `from` on; gives where to go on, or none at
    /// the end of the journal's rows.
    ///
    /// # Errors
    /// When SQLite refuses. The step may be repeated.
    pub fn purge_step(&mut self, stream: u32, from: i64) -> Result<Option<i64>, JournalError> {
        self.thoroughly("purge erased rows", |connection| purge(connection, stream, from))
    }

    /// Overwrites some of what is free in the file; false when nothing is left to overwrite.
    ///
    /// # Errors
    /// When SQLite refuses. The step may be repeated.
    pub fn scrub_step(&mut self) -> Result<bool, JournalError> {
        self.thoroughly("overwrite free pages", |connection| in_transaction(connection, scrub))
    }

    /// Begins the write-ahead log anew, filled with zeros, when everything in it is in the file; false while a reader or
    /// a pass that is under way is in the way.
    ///
    /// # Errors
    /// When SQLite or the file system refuses.
    pub fn renew_log(&mut self) -> Result<bool, JournalError> {
        if !self.checkpointer.may_renew() {
            return Ok(false);
        }
        // Readers take milliseconds; commits must not wait for one that takes longer.
        let asked = self.connection.busy_timeout(RENEWAL).and_then(|()| {
            let busy = self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0));
            self.connection.busy_timeout(Duration::from_millis(self.settings.busy_timeout_ms))?;
            busy
        });
        match asked {
            Ok(0) => checkpoint::reserve(self.path, self.settings.wal_reserve_bytes).map(|()| true),
            Ok(_) => Ok(false),
            Err(error) if is_busy(&error) => Ok(false),
            Err(error) => {
                self.checkpointer.renewal_failed(&error);
                Err(self.refused("begin the write-ahead log anew")(error))
            }
        }
    }

    /// Notes that nothing is left of the rows that the erasures up to `through` took.
    ///
    /// # Errors
    /// When SQLite refuses.
    pub fn note_purged(&mut self, stream: u32, through: i64, now_us: i64) -> Result<(), JournalError> {
        self.connection
            .execute(
                "UPDATE erasures SET purged_us = ?3 WHERE stream = ?1 AND marker <= ?2 AND purged_us IS NULL",
                params![stream, through, now_us],
            )
            .map(drop)
            .map_err(self.refused("note a purge"))
    }

    /// Does something with every page that it frees overwritten at once.
    fn thoroughly<T>(
        &mut self,
        action: &'static str,
        step: impl FnOnce(&mut Connection) -> Result<T, Failed>,
    ) -> Result<T, JournalError> {
        self.connection.pragma_update(None, "secure_delete", true).map_err(self.refused(action))?;
        let done = step(self.connection);
        // Only these deletions are worth what it costs.
        self.connection.pragma_update(None, "secure_delete", "FAST").map_err(self.refused(action))?;
        done.map_err(|error| {
            *self.commit_failed |= error.in_commit;
            self.refused(action)(error.source)
        })
    }

    fn refused(&self, action: &'static str) -> impl FnOnce(rusqlite::Error) -> JournalError + use<> {
        let path = self.path.to_owned();
        move |source| JournalError::Sql { action, path, source }
    }
}

fn is_busy(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error_code();
    matches!(code, Some(rusqlite::ErrorCode::DatabaseBusy | rusqlite::ErrorCode::DatabaseLocked))
}

/// One SQL row of a stream.
struct Stored {
    first_offset: i64,
    count: u32,
    ts_us: i64,
    stamps: Option<String>,
    body: Vec<u8>,
}

/// Rewrites batches with rows in holes, from `from` on, up to [`STEP_BYTES`].
fn purge(connection: &mut Connection, stream: u32, from: i64) -> Result<Option<i64>, Failed> {
    in_transaction(connection, |connection| {
        let mut at = from;
        let mut bytes = 0;
        for _ in 0..STEP_LOOKS {
            let Some((first, end)) = extent(connection, stream, at)? else { return Ok(None) };
            let Some((hole, _)) = holes::at_or_above(connection, stream, first.max(from))? else { return Ok(None) };
            if hole >= end {
                at = hole;
                continue;
            }
            let stored = read(connection, stream, first)?;
            bytes += stored.body.len();
            rewrite(connection, stream, &stored)?;
            at = end;
            if bytes >= STEP_BYTES {
                break;
            }
        }
        Ok(Some(at))
    })
}

/// The offsets of the batch that holds `offset`, or of the first above it.
fn extent(connection: &Connection, stream: u32, offset: i64) -> rusqlite::Result<Option<(i64, i64)>> {
    let sql = format!(
        "SELECT first_offset, first_offset + count FROM batches_{stream}
         WHERE first_offset + count > ?1 AND first_offset >=
         coalesce((SELECT max(first_offset) FROM batches_{stream} WHERE first_offset <= ?1), ?1)
         ORDER BY first_offset LIMIT 1"
    );
    let mut statement = connection.prepare_cached(&sql)?;
    statement.query_row([offset], |row| Ok((row.get(0)?, row.get(1)?))).optional()
}

fn read(connection: &Connection, stream: u32, first_offset: i64) -> rusqlite::Result<Stored> {
    let sql = format!("SELECT first_offset, count, ts_us, stamps, body FROM batches_{stream} WHERE first_offset = ?1");
    connection.prepare_cached(&sql)?.query_row([first_offset], |row| {
        Ok(Stored {
            first_offset: row.get(0)?,
            count: row.get(1)?,
            ts_us: row.get(2)?,
            stamps: row.get(3)?,
            body: row.get_ref(4)?.as_bytes()?.to_vec(),
        })
    })
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

/// Takes free pages up with rows of zeros until none is free, then gives them back; a crash leaves rows that the next
/// purge gives back.
fn scrub(connection: &Connection) -> rusqlite::Result<bool> {
    let number = |pragma: &str| connection.query_row(&format!("PRAGMA {pragma}"), [], |row| row.get::<_, i64>(0));
    let made = connection.query_row("SELECT 1 FROM sqlite_schema WHERE name = 'zeros'", [], |_| Ok(())).optional()?;
    let full = match made {
        Some(()) => connection.query_row("SELECT 1 FROM zeros WHERE id < 0", [], |_| Ok(())).optional()?.is_some(),
        None => false,
    };
    let free = number("freelist_count")?;
    if !full && free > 0 {
        connection.execute_batch("CREATE TABLE IF NOT EXISTS zeros (id INTEGER PRIMARY KEY, bytes BLOB) STRICT")?;
        let bytes = free.min(STEP_PAGES) * (number("page_size")? - 4);
        connection.execute("INSERT INTO zeros (bytes) VALUES (zeroblob(?1))", [bytes])?;
        return Ok(true);
    }
    if made.is_none() {
        return Ok(false);
    }
    // From here on pages become free that hold nothing; they must not be taken up again.
    connection.execute("INSERT OR IGNORE INTO zeros (id) VALUES (-1)", [])?;
    let sql = "DELETE FROM zeros WHERE id IN (SELECT id FROM zeros WHERE id > 0 LIMIT ?1)";
    if connection.execute(sql, [STEP_ZEROS])? > 0 {
        return Ok(true);
    }
    connection.execute_batch("DROP TABLE zeros")?;
    Ok(false)
}

/// Streams with erasures whose rows may not be gone yet.
pub(super) fn unpurged(connection: &Connection) -> rusqlite::Result<Vec<u32>> {
    let mut statement =
        connection.prepare("SELECT DISTINCT stream FROM erasures WHERE purged_us IS NULL ORDER BY stream")?;
    let rows = statement.query_map([], |row| row.get(0))?;
    rows.collect()
}
