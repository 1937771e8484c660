//! What one transaction is to write: frames judged in queue order, joined to one batch per stream.
//!
//! Pure but for reading marks that are not in memory. A plan moves offsets and marks tentatively; it is then
//! settled with the proof of its commit or abandoned.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::job::{Append, ClaimRef, Outcome};
use super::receipts::PendingReceipts;
use super::stamps::{Run, push_run};
use crate::stream::marks::{Mark, Marks, Verdict};
use crate::stream::offsets::{AssignedOffset, CommitProof, EndOffset};
use crate::stream::record::StreamRecord;
use crate::telemetry::StreamCounters;
use crate::wire::batch::RowBatch;
use crate::wire::publish::Seq;

/// What the writer knows of one stream.
pub(super) struct StreamState {
    pub id: u32,
    pub name: String,
    pub group_commit: bool,
    pub end: EndOffset,
    /// The stamp of the last durable row; no later row gets a lower one.
    pub last_ts_us: i64,
    pub marks: Marks,
    pub claims: HashMap<ClaimRef, u64>,
    pub counters: Option<Arc<StreamCounters>>,
    pub insert_sql: String,
    /// Which validator inserts have to have passed (docs/batches.md); 0 before there was one.
    pub validator_version: u64,
}

impl StreamState {
    pub(super) fn new(
        record: &StreamRecord,
        last_ts_us: Option<i64>,
        group_commit: bool,
        counters: Option<Arc<StreamCounters>>,
    ) -> Self {
        if let Some(counters) = &counters {
            counters.end_offset.store(record.end_offset, Relaxed);
        }
        Self {
            id: record.id,
            name: record.name.clone(),
            group_commit,
            end: EndOffset::new(record.end_offset),
            last_ts_us: last_ts_us.unwrap_or(i64::MIN),
            marks: Marks::default(),
            claims: HashMap::new(),
            counters,
            insert_sql: format!(
                "INSERT INTO batches_{} (first_offset, count, ts_us, stamps, body) VALUES (?1, ?2, ?3, ?4, ?5)",
                record.id
            ),
            validator_version: 0,
        }
    }

    /// Whether `append` comes from the connection that holds its publisher id now, or from a plain one.
    pub(super) fn admits(&self, append: &Append) -> bool {
        append.claim.as_ref().is_none_or(|publisher| self.claims.get(publisher) == Some(&append.token))
    }
}

/// The rows of one stream in one transaction.
pub(super) struct Batch {
    /// Index of the stream.
    pub stream: usize,
    pub first: AssignedOffset,
    pub rows: RowBatch,
    pub runs: Vec<Run>,
}

impl Batch {
    pub(super) fn count(&self) -> u32 {
        self.rows.ends.len() as u32
    }

    /// The stamp of the last row.
    pub(super) fn last_ts_us(&self) -> i64 {
        self.runs.last().map_or(0, |run| run.ts_us)
    }
}

/// What becomes of a frame if its transaction commits.
pub(super) enum Fate {
    Taken { prior: Vec<Option<i64>>, first: Option<AssignedOffset>, count: u32 },
    Gap { expected: u64, got: Seq },
    Lost,
    Failed(String),
    Inserted { first: Place, count: u32, ts_us: i64, duplicate: bool },
    KeyReused,
    ReceiptsFull,
    Stale,
}

/// Where the rows of an insert are.
#[derive(Clone, Copy)]
pub(super) enum Place {
    /// In the open transaction.
    Now(AssignedOffset),
    /// In the log, by an earlier one.
    Before(i64),
}

/// How the transaction that a frame was in ended.
enum End<'a> {
    Committed(&'a CommitProof),
    /// There was nothing to write.
    NotNeeded,
    Failed(&'a str),
}

impl Fate {
    fn outcome(self, end: &End<'_>) -> Outcome {
        let failed = |detail: &str| Outcome::CommitFailed(detail.to_owned());
        match (self, end) {
            (Self::Lost, _) => Outcome::Lost,
            (Self::Failed(detail), _) => Outcome::CommitFailed(detail),
            (Self::KeyReused, _) => Outcome::KeyReused,
            (Self::ReceiptsFull, _) => Outcome::ReceiptsFull,
            (Self::Stale, _) => Outcome::Stale,
            (Self::Inserted { first: Place::Before(first), count, ts_us, duplicate }, _) => {
                Outcome::Inserted { first, count, ts_us, duplicate }
            }
            (_, End::Failed(detail)) => failed(detail),
            (Self::Gap { expected, got }, _) => Outcome::Gap { expected, got },
            (Self::Taken { prior, first: Some(first), count }, End::Committed(proof)) => {
                Outcome::Ok { prior, first: first.settle(proof).get(), count }
            }
            (Self::Taken { prior, count, .. }, End::Committed(_)) => Outcome::Ok { prior, first: 0, count },
            (Self::Taken { prior, .. }, End::NotNeeded) => Outcome::Ok { prior, first: 0, count: 0 },
            (Self::Inserted { first: Place::Now(first), count, ts_us, duplicate }, End::Committed(proof)) => {
                Outcome::Inserted { first: first.settle(proof).get(), count, ts_us, duplicate }
            }
            (Self::Inserted { .. }, End::NotNeeded) => failed("rows were not written"),
        }
    }
}

/// One transaction in the making.
#[derive(Default)]
pub(super) struct Plan {
    pub batches: Vec<Batch>,
    fates: Vec<(u64, u32, Fate)>,
    /// Receipts that the transaction has to write.
    pub receipts: PendingReceipts,
    /// Which batch a stream has, by index of the stream.
    slots: HashMap<usize, usize>,
    /// Streams whose marks move.
    marking: Vec<usize>,
}

impl Plan {
    /// Whether the transaction would write nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// Streams whose marks the transaction has to write.
    pub(super) fn marking(&self) -> &[usize] {
        &self.marking
    }

    /// Judges `append`, whose claim holds, and takes its new rows in. `load` reads a mark that is not in memory.
    pub(super) fn add<E: std::fmt::Display>(
        &mut self,
        stream: usize,
        state: &mut StreamState,
        append: Append,
        load: impl FnOnce(&str) -> Result<Mark, E>,
    ) {
        let token = append.token;
        let fate = self.judge(stream, state, append, load);
        self.fates.push((token, state.id, fate));
    }

    /// Notes a frame whose connection had lost its claim when the frame came to its turn.
    pub(super) fn lose(&mut self, token: u64, stream: u32) {
        self.fates.push((token, stream, Fate::Lost));
    }

    /// Notes what becomes of a frame.
    pub(super) fn foresee(&mut self, token: u64, stream: u32, fate: Fate) {
        self.fates.push((token, stream, fate));
    }

    /// Answers a frame without taking it in.
    pub(super) fn refuse(&mut self, token: u64, stream: u32, detail: String) {
        self.fates.push((token, stream, Fate::Failed(detail)));
    }

    fn judge<E: std::fmt::Display>(
        &mut self,
        stream: usize,
        state: &mut StreamState,
        append: Append,
        load: impl FnOnce(&str) -> Result<Mark, E>,
    ) -> Fate {
        let rows = append.rows.ends.len() as u32;
        let (Some(publisher), Some(first_seq)) = (append.claim, append.first_seq) else {
            let first = match self.take(stream, state, append.rows, 0, append.ts_us) {
                Ok(taken) => taken.map(|(first, _)| first),
                Err(detail) => return Fate::Failed(detail),
            };
            return Fate::Taken { prior: Vec::new(), first, count: rows };
        };
        if state.marks.settled(&publisher).is_none() {
            match load(&publisher) {
                Ok(mark) => state.marks.admit(Arc::clone(&publisher), mark),
                Err(error) => return Fate::Failed(format!("cannot read the mark of {publisher:?}: {error}")),
            }
        }
        let prior = match state.marks.judge(&publisher, &first_seq, rows) {
            Some(Verdict::Take { prior }) => prior,
            Some(Verdict::Gap { expected }) => return Fate::Gap { expected, got: first_seq },
            None => return Fate::Failed(format!("the mark of {publisher:?} is not in memory")),
        };
        let count = rows - prior.len() as u32;
        if count == 0 {
            return Fate::Taken { prior, first: None, count };
        }
        match self.take(stream, state, append.rows, prior.len(), append.ts_us) {
            Ok(taken) => {
                let first = taken.map(|(first, _)| first);
                if let Some(first) = first {
                    state.marks.advance(&publisher, count, first);
                    if !self.marking.contains(&stream) {
                        self.marking.push(stream);
                    }
                }
                Fate::Taken { prior, first, count }
            }
            Err(detail) => Fate::Failed(detail),
        }
    }

    /// Takes the rows after the first `skip` into the stream's batch and gives them offsets and a stamp.
    pub(super) fn take(
        &mut self,
        stream: usize,
        state: &mut StreamState,
        mut rows: RowBatch,
        skip: usize,
        ts_us: i64,
    ) -> Result<Option<(AssignedOffset, i64)>, String> {
        let count = (rows.ends.len() - skip) as u32;
        if count == 0 {
            return Ok(None);
        }
        let first = state.end.assign(count).ok_or_else(|| format!("stream {:?} has no offsets left", state.name))?;
        let slot = self.slots.get(&stream).copied();
        let floor = slot.map_or(state.last_ts_us, |slot| self.batches[slot].last_ts_us());
        let ts_us = ts_us.max(floor);
        match slot {
            Some(slot) => {
                let batch = &mut self.batches[slot];
                join(&mut batch.rows, &rows, skip);
                push_run(&mut batch.runs, count, ts_us);
            }
            None => {
                if skip > 0 {
                    let mut rest = RowBatch::default();
                    join(&mut rest, &rows, skip);
                    rows = rest;
                }
                self.slots.insert(stream, self.batches.len());
                self.batches.push(Batch { stream, first, rows, runs: vec![Run { rows: count, ts_us }] });
            }
        }
        Ok(Some((first, ts_us)))
    }

    /// The transaction is on disk: moves every stream it wrote to, and gives the batches and the answers.
    pub(super) fn settle(
        self,
        streams: &mut [StreamState],
        proof: &CommitProof,
    ) -> (Vec<Batch>, Vec<(u64, u32, Outcome)>) {
        for batch in &self.batches {
            let state = &mut streams[batch.stream];
            state.end.settle(proof);
            state.last_ts_us = batch.last_ts_us();
        }
        for stream in &self.marking {
            streams[*stream].marks.settle(proof);
        }
        let outcomes = outcomes(self.fates, &End::Committed(proof));
        (self.batches, outcomes)
    }

    /// Answers frames of which nothing has to be written: duplicates, gaps and refusals.
    pub(super) fn without_writing(self) -> Vec<(u64, u32, Outcome)> {
        debug_assert!(self.is_empty(), "rows are answered by their commit");
        outcomes(self.fates, &End::NotNeeded)
    }

    /// The transaction failed: nothing moved, and every frame in it is told so.
    pub(super) fn abandon(self, streams: &mut [StreamState], detail: &str) -> Vec<(u64, u32, Outcome)> {
        for batch in &self.batches {
            streams[batch.stream].end.abandon();
        }
        for stream in &self.marking {
            streams[*stream].marks.abandon();
        }
        outcomes(self.fates, &End::Failed(detail))
    }
}

fn outcomes(fates: Vec<(u64, u32, Fate)>, end: &End<'_>) -> Vec<(u64, u32, Outcome)> {
    fates.into_iter().map(|(token, stream, fate)| (token, stream, fate.outcome(end))).collect()
}

/// Appends the rows of `from` after its first `skip` to `to`.
fn join(to: &mut RowBatch, from: &RowBatch, skip: usize) {
    let start = if skip == 0 { 0 } else { from.ends[skip - 1] };
    let base = to.body.len() as u32;
    to.body.extend_from_slice(&from.body[start as usize..]);
    to.ends.extend(from.ends[skip..].iter().map(|end| end - start + base));
}
