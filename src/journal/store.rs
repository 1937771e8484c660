//! Carrying out a planned transaction in SQLite, and what is known after one that failed.
//!
//! A COMMIT that returns an error may have left a complete transaction in the write-ahead log: the frames
//! are written before the sync that failed. Nobody can see them, but a recovery after a crash would. Before
//! anything else is done, the store therefore commits a small transaction of its own, which overwrites the
//! first of these frames and so breaks the chain of checksums. Only when that is on disk is the failed
//! transaction known to be void. Until then no transaction is tried.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rusqlite::config::DbConfig;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, ErrorCode, OptionalExtension as _, ToSql, params};

use super::error::JournalError;
use super::evict::{self, End, Step};
use super::plan::{Batch, Plan, StreamState};
use super::receipts::{self, Keyed, MAX_RECEIPTS, Receipt};
use super::settings::JournalSettings;
use super::{checkpoint, sql, stamps};
use crate::stream::marks::Mark;
use crate::stream::offsets::CommitProof;

/// The writer's side of the journal's file.
pub(super) struct Store {
    connection: Connection,
    pub path: PathBuf,
    pub settings: JournalSettings,
    /// Pages in the write-ahead log after the last commit.
    wal_pages: Arc<AtomicU64>,
    /// Bytes of one page in the write-ahead log, its header included.
    wal_page_bytes: u64,
    /// Whether a failed COMMIT has not been made void yet.
    unsure: bool,
    /// How many receipts there are.
    receipts: u64,
}

/// Text that is bound without a look at its bytes: canonical rows are UTF-8 by construction.
pub(super) struct Text<'a>(pub &'a [u8]);

impl ToSql for Text<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(ValueRef::Text(self.0)))
    }
}

impl Store {
    pub(super) fn new(connection: Connection, path: PathBuf, settings: JournalSettings) -> Result<Self, JournalError> {
        checkpoint::reserve(&path, settings.wal_reserve_bytes)?;
        let fail = |source| JournalError::Sql { action: "read the page size", path: path.clone(), source };
        let page_bytes = connection.pragma_query_value(None, "page_size", |row| row.get::<_, u32>(0)).map_err(fail)?;
        let receipts = receipts::count(&connection).map_err(|source| JournalError::Sql {
            action: "count the receipts",
            path: path.clone(),
            source,
        })?;
        let mut store = Self {
            connection,
            path: path.clone(),
            settings,
            wal_pages: Arc::default(),
            wal_page_bytes: u64::from(page_bytes) + 24,
            unsure: false,
            receipts,
        };
        store.watch().map_err(fail)?;
        Ok(store)
    }

    /// Pages in the write-ahead log, and the bytes that one takes there.
    pub(super) fn wal_pages(&self) -> (u64, u64) {
        (self.wal_pages.load(Relaxed), self.wal_page_bytes)
    }

    /// Reads the mark of `publisher`; the default if it has none.
    pub(super) fn read_mark(&self, stream: u32, publisher: &str) -> rusqlite::Result<Mark> {
        let mut statement = self
            .connection
            .prepare_cached("SELECT last_seq, last_offset FROM marks WHERE stream = ?1 AND publisher = ?2")?;
        let mark = statement
            .query_row(params![stream, publisher], |row| {
                Ok(Mark { last_seq: row.get::<_, i64>(0)? as u64, last_offset: Some(row.get(1)?) })
            })
            .optional()?;
        Ok(mark.unwrap_or_default())
    }

    /// Finds the receipt of a key.
    pub(super) fn find_receipt(&self, stream: u32, keyed: &Keyed, now_us: i64) -> rusqlite::Result<Option<Receipt>> {
        receipts::find(&self.connection, stream, keyed.operation, &keyed.key, now_us)
    }

    /// Whether a transaction with `pending` receipts may write one more.
    pub(super) fn has_room_for_receipt(&self, pending: usize, now_us: i64) -> bool {
        self.receipts + (pending as u64) < MAX_RECEIPTS
            || receipts::any_out_of_date(&self.connection, now_us).unwrap_or(false)
    }

    /// Writes `plan` in one transaction. The text of the error is for the publishers.
    pub(super) fn commit(&mut self, plan: &Plan, streams: &[StreamState], now_us: i64) -> Result<CommitProof, String> {
        let committed = self.try_commit(plan, streams, now_us);
        if committed.is_err() && !plan.receipts.is_empty() {
            // Some may have been counted that were not written, or the other way round.
            self.receipts = receipts::count(&self.connection).unwrap_or(self.receipts);
        }
        committed
    }

    fn try_commit(&mut self, plan: &Plan, streams: &[StreamState], now_us: i64) -> Result<CommitProof, String> {
        if self.unsure {
            self.make_void().map_err(|error| format!("an earlier commit failed and is not yet undone: {error}"))?;
        }
        let committed = match self.only_part(plan) {
            // One statement begins and commits by itself. It may fail as a COMMIT does, with its rows in the log;
            // but a lock that it waited for in vain is the one it begins with.
            Some(batch) => match self.insert(&streams[batch.stream], batch) {
                Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => {
                    return Err(error.to_string());
                }
                committed => committed,
            },
            None => {
                if let Err(error) = self.write(plan, streams, now_us) {
                    self.roll_back();
                    return Err(error.to_string());
                }
                self.run("COMMIT")
            }
        };
        let Err(error) = committed else {
            return Ok(CommitProof::after_commit());
        };
        self.roll_back();
        self.unsure = true;
        tracing::error!(%error, journal = %self.path.display(), "a commit failed");
        match self.after_failed_commit(plan, streams) {
            Ok(Some(proof)) => Ok(proof),
            Ok(None) => Err(error.to_string()),
            Err(again) => {
                tracing::error!(error = %again, "the failed commit cannot be undone yet; nothing is committed until it is");
                Err(error.to_string())
            }
        }
    }

    /// The batch of a plan that is nothing but one SQL row.
    fn only_part<'a>(&self, plan: &'a Plan) -> Option<&'a Batch> {
        let [batch] = plan.batches.as_slice() else { return None };
        let whole = batch.rows.body.len() <= self.settings.max_batch_bytes;
        (whole && plan.marking().is_empty() && plan.receipts.is_empty()).then_some(batch)
    }

    /// Lends the connection between two transactions.
    ///
    /// What a COMMIT of the borrower's that failed has left is made void before the next one, as if it were our own.
    pub(super) fn lend(&mut self, borrower: impl FnOnce(&mut Connection, &Path, &mut bool)) {
        if self.unsure
            && let Err(error) = self.make_void()
        {
            tracing::error!(%error, "the failed commit cannot be undone yet");
        }
        borrower(&mut self.connection, &self.path, &mut self.unsure);
        self.roll_back();
    }

    /// Deletes some of the batches of a stream that lie below `below`, in a transaction of its own.
    pub(super) fn evict(&mut self, state: &StreamState, below: i64) -> rusqlite::Result<Step> {
        if self.unsure {
            self.make_void()?;
        }
        let end =
            End { offset: state.end.durable(), last_ts_us: Some(state.last_ts_us).filter(|ts_us| *ts_us != i64::MIN) };
        self.run("BEGIN IMMEDIATE")?;
        let step = match evict::step(&self.connection, state.id, below, end, evict::STEP) {
            Ok(step) if step.batches > 0 => step,
            other => {
                self.roll_back();
                return other;
            }
        };
        if let Err(error) = self.run("COMMIT") {
            // Whether the batches are there or not makes no difference to anybody, but what the failed commit left in
            // the log must not come before the next one.
            self.roll_back();
            self.unsure = true;
            self.make_void()?;
            return Err(error);
        }
        Ok(step)
    }

    fn write(&mut self, plan: &Plan, streams: &[StreamState], now_us: i64) -> rusqlite::Result<()> {
        self.run("BEGIN IMMEDIATE")?;
        for batch in &plan.batches {
            self.insert(&streams[batch.stream], batch)?;
        }
        for stream in plan.marking() {
            let state = &streams[*stream];
            let mut statement = self.connection.prepare_cached(
                "INSERT INTO marks (stream, publisher, last_seq, last_offset) VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT DO UPDATE SET last_seq = excluded.last_seq, last_offset = excluded.last_offset",
            )?;
            for (publisher, mark) in state.marks.moving() {
                statement.execute(params![state.id, publisher, mark.last_seq as i64, mark.last_offset])?;
            }
        }
        if !plan.receipts.is_empty() {
            for ((stream, operation, key), pending) in &plan.receipts {
                let first_offset = pending.first.get();
                let receipt =
                    Receipt { body_hash: pending.body_hash, first_offset, count: pending.count, ts_us: pending.ts_us };
                receipts::write(&self.connection, (*stream, *operation, key), &receipt, now_us)?;
            }
            let written = plan.receipts.len() as u64;
            let forgotten = receipts::forget(&self.connection, written, now_us)?;
            self.receipts = (self.receipts + written).saturating_sub(forgotten);
        }
        Ok(())
    }

    /// Writes the rows of one stream, in one SQL row if they are not too large.
    fn insert(&self, state: &StreamState, batch: &Batch) -> rusqlite::Result<()> {
        let mut statement = self.connection.prepare_cached(&state.insert_sql)?;
        for part in Parts::new(batch, self.settings.max_batch_bytes) {
            let stamps = (part.runs.len() > 1).then(|| stamps::format(&part.runs));
            let last_ts_us = part.runs.last().map_or(0, |run| run.ts_us);
            statement.execute(params![part.first_offset, part.rows, last_ts_us, stamps, Text(part.body)])?;
        }
        Ok(())
    }

    fn run(&self, sql: &str) -> rusqlite::Result<()> {
        self.connection.prepare_cached(sql)?.execute([]).map(|_| ())
    }

    fn roll_back(&self) {
        if !self.connection.is_autocommit()
            && let Err(error) = self.run("ROLLBACK")
        {
            tracing::error!(%error, "a transaction cannot be rolled back");
        }
    }

    /// Finds out what a failed COMMIT did and makes that final: `None` if it did nothing, a proof if its rows
    /// are in the log after all and synced.
    fn after_failed_commit(&mut self, plan: &Plan, streams: &[StreamState]) -> rusqlite::Result<Option<CommitProof>> {
        self.make_void()?;
        let Some(batch) = plan.batches.first() else { return Ok(None) };
        let sql = format!("SELECT 1 FROM batches_{} WHERE first_offset = ?1", streams[batch.stream].id);
        let there = self.connection.query_row(&sql, [batch.first.get()], |_| Ok(())).optional()?.is_some();
        if !there {
            return Ok(None);
        }
        // It was visible to the transaction that has just been synced after it. The file is synced as well,
        // because a sync that once failed says nothing about the pages it failed for.
        let (busy, pages, moved) = self.connection.query_row("PRAGMA wal_checkpoint(FULL)", [], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?))
        })?;
        tracing::warn!(busy, pages, moved, "a commit that reported an error is in the log");
        Ok(Some(CommitProof::after_commit()))
    }

    /// Commits a transaction that overwrites whatever a failed COMMIT left in the write-ahead log, on a new
    /// connection if the present one does not recover.
    fn make_void(&mut self) -> rusqlite::Result<()> {
        const VOID: &str = "UPDATE voided SET commits = commits + 1";
        if self.connection.execute(VOID, []).is_err() {
            self.roll_back();
            self.connection = sql::reopen_writer(&self.path, &self.settings)?;
            self.watch()?;
            self.connection.execute(VOID, [])?;
        }
        self.unsure = false;
        Ok(())
    }

    /// Moves the write-ahead log into the file as far as no reader is in the way. Returns the pages in the
    /// log and how many of them are moved.
    pub(super) fn checkpoint(&self) -> rusqlite::Result<(u64, u64)> {
        checkpoint::passive(&self.connection)
    }

    /// Leaves the write-ahead log for the next start when the connection is closed.
    pub(super) fn keep_log(&self) {
        if let Err(error) = self.connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true) {
            tracing::error!(%error, "the write-ahead log cannot be kept");
        }
    }

    fn watch(&mut self) -> rusqlite::Result<()> {
        self.connection.set_prepared_statement_cache_capacity(256);
        let wal_pages = Arc::clone(&self.wal_pages);
        self.connection.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, pages: std::ffi::c_int| {
            wal_pages.store(pages.max(0) as u64, Relaxed);
            Ok(())
        }))
    }
}

/// A part of a batch that goes into one SQL row.
struct Part<'a> {
    first_offset: i64,
    rows: u32,
    body: &'a [u8],
    runs: Vec<stamps::Run>,
}

/// Splits a batch at row ends into parts of at most `max_bytes` (more if a single row is larger).
struct Parts<'a> {
    batch: &'a Batch,
    max_bytes: usize,
    next_row: usize,
    run: usize,
    /// Rows of the current run that are in parts already.
    run_rows_used: u32,
}

impl<'a> Parts<'a> {
    fn new(batch: &'a Batch, max_bytes: usize) -> Self {
        Self { batch, max_bytes, next_row: 0, run: 0, run_rows_used: 0 }
    }

    fn runs(&mut self, mut rows: u32) -> Vec<stamps::Run> {
        let mut runs = Vec::new();
        while rows > 0 {
            let Some(run) = self.batch.runs.get(self.run) else { break };
            let take = rows.min(run.rows - self.run_rows_used);
            runs.push(stamps::Run { rows: take, ts_us: run.ts_us });
            rows -= take;
            self.run_rows_used += take;
            if self.run_rows_used == run.rows {
                self.run += 1;
                self.run_rows_used = 0;
            }
        }
        runs
    }
}

impl<'a> Iterator for Parts<'a> {
    type Item = Part<'a>;

    fn next(&mut self) -> Option<Part<'a>> {
        let ends = &self.batch.rows.ends;
        let first = self.next_row;
        if first >= ends.len() {
            return None;
        }
        let start = if first == 0 { 0 } else { ends[first - 1] as usize };
        let fitting = ends[first..].partition_point(|end| *end as usize - start <= self.max_bytes);
        let rows = fitting.max(1);
        self.next_row = first + rows;
        let end = ends[self.next_row - 1] as usize;
        Some(Part {
            first_offset: self.batch.first.get() + first as i64,
            rows: rows as u32,
            body: &self.batch.rows.body[start..end],
            runs: self.runs(rows as u32),
        })
    }
}
