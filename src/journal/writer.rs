//! The writer thread: everything queued, one transaction, one sync, then delivery.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};
use streamcast_shards::Block;

use super::awake::Awake;
use super::checkpoint::{Checkpointer, Duty};
use super::encode;
use super::error::JournalError;
use super::gather::Gathering;
use super::insert::Desk;
use super::job::{Append, ClaimRef, CommitSink, GroupCommit, Job};
use super::lock::RootLock;
use super::office::{Errand, Office};
use super::plan::{Batch, Plan, StreamState};
use super::store::Store;
use super::thread::{WRITER_SLICE_NS, pin_to, prefer_latency};
use crate::stream::offsets::CommitProof;
use crate::telemetry::Telemetry;

/// Frames with a transaction of their own that one turn takes at most, so that others get their turn.
const MAX_ALONE_FRAMES: usize = 16;

/// Quiet time after which the write-ahead log is moved into the file although it is short.
const IDLE: Duration = Duration::from_millis(200);

/// While frames keep coming, a step of an eviction is made no more often than this.
const EVICT_EVERY: Duration = Duration::from_millis(20);

enum Command {
    Job(Job),
    /// Jobs that came together, and may be committed together.
    Jobs(Vec<Job>),
    Stop,
}

/// What the writer does next.
enum Next {
    Job(Job),
    Stop,
}

/// Sends jobs to the writer; cheap to clone, never blocks. The number of jobs is bounded by the callers:
/// at most `max_inbound` rows per stream and `max_in_flight` frames per connection are under way.
#[derive(Clone)]
pub struct JobSender(Sender<Command>);

impl std::fmt::Debug for JobSender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JobSender").field("queued", &self.0.len()).finish()
    }
}

impl JobSender {
    /// Queues `job`. The caller has counted its rows and bytes as queued; the writer takes them off again
    /// with the outcome.
    ///
    /// # Errors
    /// Gives the job back when the writer has stopped.
    pub fn send(&self, job: Job) -> Result<(), Job> {
        self.0.send(Command::Job(job)).map_err(|refused| match refused.0 {
            Command::Job(job) => job,
            Command::Jobs(_) | Command::Stop => Job::Note(0, 0, 0),
        })
    }

    /// Queues jobs in one go, so that the writer finds them all when it wakes. The same holds for them.
    ///
    /// # Errors
    /// Gives the jobs back when the writer has stopped.
    pub fn send_all(&self, jobs: Vec<Job>) -> Result<(), Vec<Job>> {
        self.0.send(Command::Jobs(jobs)).map_err(|refused| match refused.0 {
            Command::Jobs(jobs) => jobs,
            Command::Job(_) | Command::Stop => Vec::new(),
        })
    }
}

/// The running writer. Dropping it stops it without waiting.
pub struct Writer {
    commands: Sender<Command>,
    done: Receiver<()>,
    thread: JoinHandle<()>,
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("queued", &self.commands.len()).finish_non_exhaustive()
    }
}

impl Writer {
    pub(super) fn start(
        lock: RootLock,
        store: Store,
        streams: Vec<StreamState>,
        sink: Box<dyn CommitSink>,
        telemetry: Arc<Telemetry>,
        core: Option<usize>,
    ) -> Result<Self, JournalError> {
        let (commands, queue) = unbounded();
        let (finished, done) = bounded(1);
        let checkpointer = Checkpointer::start(&store.path, &store.settings.checkpoint_cores)?;
        let index = streams.iter().enumerate().map(|(index, state)| (state.id, index)).collect();
        let backlog = VecDeque::new();
        let (evictions, gathering) = (Evictions::default(), Gathering::default());
        let awake = Awake::start(core.filter(|_| store.settings.keep_awake));
        let worker = Worker {
            store,
            checkpointer,
            streams,
            index,
            sink,
            telemetry,
            queue,
            backlog,
            evictions,
            gathering,
            awake,
            everyone_waits: false,
        };
        let name = "sc-writer".to_owned();
        let thread = std::thread::Builder::new()
            .name(name.clone())
            .spawn(move || {
                pin_to(core.as_slice());
                prefer_latency(WRITER_SLICE_NS);
                worker.run();
                // The root is given up only after the database is closed.
                drop(lock);
                let _ = finished.send(());
            })
            .map_err(|source| JournalError::Thread { name, source })?;
        Ok(Self { commands, done, thread })
    }

    /// A sender for jobs.
    #[must_use]
    pub fn sender(&self) -> JobSender {
        JobSender(self.commands.clone())
    }

    /// Whether the writer still runs; it ends by itself only by a panic.
    #[must_use]
    pub fn is_running(&self) -> bool {
        !self.thread.is_finished()
    }

    /// Commits and delivers all that is queued, moves the write-ahead log into the file, closes it and gives
    /// the data root up. Jobs sent afterwards are given back or dropped.
    ///
    /// # Errors
    /// When that takes longer than `deadline` or the writer panicked.
    pub fn stop(self, deadline: Duration) -> Result<(), JournalError> {
        // A failed send means the thread is gone; joining tells why.
        let _ = self.commands.send(Command::Stop);
        match self.done.recv_timeout(deadline) {
            Err(RecvTimeoutError::Timeout) => Err(JournalError::StopTimeout { seconds: deadline.as_secs_f64() }),
            Ok(()) | Err(RecvTimeoutError::Disconnected) => {
                self.thread.join().map_err(|_| JournalError::WriterPanicked)
            }
        }
    }
}

/// Frames that one turn commits, and what ended the taking.
#[derive(Default)]
struct Group {
    jobs: Vec<Job>,
    rows: usize,
    bytes: usize,
    alone: usize,
    /// What is to be done after the frames; it ends the taking.
    after: Option<After>,
    stop: bool,
}

/// What is done between two transactions.
enum After {
    Note(u64, u64, u64),
    Errand(Errand),
}

/// What a frame counts for while it is queued.
struct Weight {
    stream: usize,
    rows: usize,
    bytes: usize,
}

struct Worker {
    store: Store,
    checkpointer: Checkpointer,
    streams: Vec<StreamState>,
    index: HashMap<u32, usize>,
    sink: Box<dyn CommitSink>,
    telemetry: Arc<Telemetry>,
    queue: Receiver<Command>,
    /// Jobs of the last [`Command::Jobs`] that are still to be taken.
    backlog: VecDeque<Job>,
    evictions: Evictions,
    gathering: Gathering,
    awake: Awake,
    /// Whether nothing came while the last transaction was on its way.
    everyone_waits: bool,
}

/// What is to be deleted when there is time for it.
#[derive(Default)]
struct Evictions {
    /// Number of the stream and offset, the next one to be worked on first.
    wanted: VecDeque<(u32, i64)>,
    last_step: Option<Instant>,
}

impl Evictions {
    fn ask(&mut self, stream: u32, below: i64) {
        match self.wanted.iter_mut().find(|(wanted, _)| *wanted == stream) {
            Some((_, asked)) => *asked = below.max(*asked),
            None => self.wanted.push_back((stream, below)),
        }
    }

    fn is_due(&self) -> bool {
        !self.wanted.is_empty() && self.last_step.is_none_or(|last| last.elapsed() >= EVICT_EVERY)
    }
}

impl Worker {
    fn run(mut self) {
        let mut stopping = false;
        loop {
            let first = if stopping { self.next_now() } else { self.wait() };
            let Some(first) = first else { break };
            let group = self.collect(first);
            stopping |= group.stop;
            self.process(group);
            if self.evictions.is_due() && !stopping {
                self.evict();
            }
        }
        // The last connection that closes takes the log away, which has to be the writer's.
        self.checkpointer.close();
        if !self.checkpointer.is_broken() {
            self.checkpointer.finished(self.store.checkpoint(), &self.store.settings);
        }
        if self.checkpointer.is_broken() {
            self.store.keep_log();
        }
    }

    /// The next thing to do; uses the first quiet moment to have the log moved.
    fn wait(&mut self) -> Option<Next> {
        loop {
            if let Some(next) = self.next_now() {
                return Some(next);
            }
            if !self.evictions.wanted.is_empty() {
                self.evict();
                continue;
            }
            let command = match self.queue.recv_timeout(IDLE) {
                Ok(command) => command,
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => {
                    self.checkpointer.when_idle();
                    self.queue.recv().ok()?
                }
            };
            if let Some(next) = self.unpack(command) {
                return Some(next);
            }
        }
    }

    /// The next thing to do, if it is there already.
    fn next_now(&mut self) -> Option<Next> {
        loop {
            if let Some(job) = self.backlog.pop_front() {
                return Some(Next::Job(job));
            }
            let command = self.queue.try_recv().ok()?;
            if let Some(next) = self.unpack(command) {
                return Some(next);
            }
        }
    }

    fn unpack(&mut self, command: Command) -> Option<Next> {
        match command {
            Command::Job(job) => Some(Next::Job(job)),
            Command::Stop => Some(Next::Stop),
            Command::Jobs(jobs) => {
                self.backlog = jobs.into();
                self.backlog.pop_front().map(Next::Job)
            }
        }
    }

    /// The next thing to do while a transaction waits for those that were just answered.
    fn next_returning(&mut self, frames: usize) -> Option<Next> {
        loop {
            let until = self.gathering.until(frames, Instant::now())?;
            let command = self.queue.recv_deadline(until).ok()?;
            if let Some(next) = self.unpack(command) {
                return Some(next);
            }
        }
    }

    /// Takes everything that is queued, up to the bounds of one transaction.
    fn collect(&mut self, first: Next) -> Group {
        let mut group = Group::default();
        self.take(&mut group, first);
        let (max_rows, max_bytes) = (self.store.settings.max_group_rows as usize, self.store.settings.max_group_bytes);
        while !group.stop
            && group.after.is_none()
            && group.rows < max_rows
            && group.bytes < max_bytes
            && group.alone < MAX_ALONE_FRAMES
        {
            let Some(next) = self.next_now().or_else(|| self.next_returning(group.jobs.len())) else { break };
            self.take(&mut group, next);
        }
        self.gathering.closed(group.jobs.len(), Instant::now);
        group
    }

    fn take(&mut self, group: &mut Group, next: Next) {
        match next {
            Next::Stop => group.stop = true,
            Next::Job(Job::Note(a, b, c)) => group.after = Some(After::Note(a, b, c)),
            Next::Job(Job::Errand(errand)) => group.after = Some(After::Errand(errand)),
            Next::Job(job) => {
                if let Job::Append(append) = &job {
                    group.rows += append.rows.ends.len();
                    group.bytes += append.rows.body.len();
                    let state = self.index.get(&append.stream).map(|index| &self.streams[*index]);
                    let alone = state.is_some_and(|state| !state.group_commit);
                    group.alone += usize::from(alone);
                    // A request of the batch API comes once, and a frame that is committed alone wins nothing by others.
                    if !alone && append.insert.is_none() {
                        self.gathering.took(append.token);
                    }
                }
                group.jobs.push(job);
            }
        }
    }

    fn process(&mut self, group: Group) {
        let mut shared = Plan::default();
        let mut weights = Vec::with_capacity(group.jobs.len());
        let mut alone = Vec::new();
        let mut claims = Vec::new();
        for job in group.jobs {
            match job {
                Job::Append(append) => {
                    let Some(index) = self.index.get(&append.stream).copied() else {
                        tracing::error!(stream = append.stream, "rows for a stream that the journal does not record");
                        shared.refuse(append.token, append.stream, "the stream is not recorded".to_owned());
                        continue;
                    };
                    let weight = Weight { stream: index, rows: append.rows.ends.len(), bytes: append.rows.body.len() };
                    // Whether the claim holds is a matter of the frame's place in the queue.
                    let admitted = self.streams[index].admits(&append);
                    if self.streams[index].group_commit {
                        weights.push(weight);
                        self.plan(&mut shared, index, append, admitted);
                    } else {
                        alone.push((append, weight, admitted));
                    }
                }
                Job::Claim { stream, publisher, token } => {
                    let Some(index) = self.index.get(&stream).copied() else {
                        self.sink.claim_failed(stream, token, "the stream is not recorded".to_owned());
                        continue;
                    };
                    let older = self.streams[index].claims.insert(Arc::clone(&publisher), token);
                    claims.push((index, publisher, token, older.filter(|older| *older != token)));
                }
                Job::Release { stream, publisher, token } => {
                    let Some(index) = self.index.get(&stream).copied() else { continue };
                    let held = &mut self.streams[index].claims;
                    if held.get(&publisher) == Some(&token) {
                        held.remove(&publisher);
                    }
                }
                Job::Evict { stream, below } => {
                    self.evictions.ask(stream, below);
                }
                Job::Note(..) | Job::Errand(_) => debug_assert!(false, "they end the taking"),
            }
        }
        self.carry_out(shared, &weights);
        for (append, weight, admitted) in alone {
            let mut plan = Plan::default();
            self.plan(&mut plan, weight.stream, append, admitted);
            self.carry_out(plan, &[weight]);
        }
        for (index, publisher, token, older) in claims {
            self.answer_claim(index, publisher, token, older);
        }
        match group.after {
            Some(After::Note(a, b, c)) => self.sink.note(a, b, c),
            Some(After::Errand(errand)) => {
                let mut moved = Vec::new();
                let settings = self.store.settings.clone();
                self.store.lend(|connection, path, commit_failed| {
                    let (streams, index, checkpointer) = (&mut self.streams, &mut self.index, &mut self.checkpointer);
                    let (settings, moved) = (&settings, &mut moved);
                    errand.run(&mut Office {
                        connection,
                        path,
                        streams,
                        index,
                        checkpointer,
                        settings,
                        commit_failed,
                        moved,
                    });
                });
                self.tend_log();
                if !moved.is_empty() {
                    // Blocks without frames: nobody gets anything, and everybody knows where the streams end.
                    let empty = |end| Arc::new(Block { end_offset: Some(end), ..Block::default() });
                    let blocks = moved.into_iter().map(|(stream, end, ts_us)| (stream, empty(end), 0, ts_us)).collect();
                    self.sink.deliver(GroupCommit { blocks, outcomes: Vec::new() });
                }
            }
            None => {}
        }
    }

    fn plan(&mut self, plan: &mut Plan, index: usize, mut append: Append, admitted: bool) {
        let state = &mut self.streams[index];
        if let Some(insert) = append.insert.take() {
            let (store, stream, now_us) = (&self.store, state.id, now_us());
            let find = |keyed: &_| store.find_receipt(stream, keyed, now_us);
            let has_room = insert.keyed.is_none() || store.has_room_for_receipt(plan.receipts.len(), now_us);
            plan.insert(index, state, (append, *insert), Desk { now_us, has_room, find });
        } else if admitted {
            let (store, stream) = (&self.store, state.id);
            plan.add(index, state, append, |publisher| store.read_mark(stream, publisher));
        } else {
            plan.lose(append.token, append.stream);
        }
    }

    /// Commits one transaction and delivers what came of it: counters, blocks, answers, in this order.
    fn carry_out(&mut self, plan: Plan, weights: &[Weight]) {
        if plan.is_empty() {
            // Only duplicates and gaps, judged by what is on disk: nothing to write.
            self.gathering.dropped();
            self.take_off(weights);
            self.answer(plan, None);
            return;
        }
        let started = Instant::now();
        self.awake.begun(started, self.everyone_waits || self.gathering.is_one_each(weights.len()));
        let committed = self.store.commit(&plan, &self.streams, now_us());
        let elapsed = started.elapsed();
        self.everyone_waits = self.backlog.is_empty() && self.queue.is_empty();
        self.take_off(weights);
        let counters = &self.telemetry.writer;
        match committed {
            Ok(proof) => {
                counters.commits_total.fetch_add(1, Relaxed);
                counters.frames_total.fetch_add(weights.len() as u64, Relaxed);
                counters.commit_us.record(elapsed.as_micros() as u64);
                self.deliver(plan, &proof);
                self.gathering.answered(elapsed, started + elapsed);
            }
            Err(detail) => {
                self.gathering.dropped();
                counters.failed_commits_total.fetch_add(1, Relaxed);
                self.answer(plan, Some(&detail));
            }
        }
        self.tend_log();
    }

    /// Frames leave the count of what is queued once their outcome is known.
    fn take_off(&self, weights: &[Weight]) {
        for weight in weights {
            self.telemetry.writer.queued_bytes.fetch_sub(weight.bytes as i64, Relaxed);
            if let Some(counters) = &self.streams[weight.stream].counters {
                counters.queued_rows.fetch_sub(weight.rows as i64, Relaxed);
            }
        }
    }

    /// Answers frames of a transaction that failed with `failure`, or that had nothing to write.
    fn answer(&mut self, plan: Plan, failure: Option<&str>) {
        let outcomes = match failure {
            Some(detail) => plan.abandon(&mut self.streams, detail),
            None => plan.without_writing(),
        };
        if !outcomes.is_empty() {
            self.sink.deliver(GroupCommit { blocks: Vec::new(), outcomes });
        }
    }

    /// Advances the ends, encodes the rows and hands them over.
    fn deliver(&mut self, plan: Plan, proof: &CommitProof) {
        let (batches, outcomes) = plan.settle(&mut self.streams, proof);
        let rows: u64 = batches.iter().map(|batch| u64::from(batch.count())).sum();
        self.telemetry.writer.rows_total.fetch_add(rows, Relaxed);
        self.telemetry.writer.group_rows.record(rows);
        let blocks = batches.into_iter().map(|batch| self.encode(&batch, proof)).collect();
        self.sink.deliver(GroupCommit { blocks, outcomes });
    }

    fn encode(&self, batch: &Batch, proof: &CommitProof) -> (u32, Arc<Block>, u32, i64) {
        let state = &self.streams[batch.stream];
        let encode = if self.sink.wants_frames(state.id) { encode::block } else { encode::unsent };
        let (block, frame_bytes) = encode(batch.first.settle(proof), &batch.rows, &batch.runs);
        let (count, last_ts_us) = (batch.count(), batch.last_ts_us());
        if let Some(counters) = &state.counters {
            counters.end_offset.store(state.end.durable(), Relaxed);
            counters.rows_total.fetch_add(u64::from(count), Relaxed);
            counters.frame_bytes_total.fetch_add(frame_bytes, Relaxed);
            counters.last_send_us.store(last_ts_us, Relaxed);
            counters.last_send_after_us.store(counters.started.1.elapsed().as_micros() as i64, Relaxed);
        }
        (state.id, Arc::new(block), count, last_ts_us)
    }

    fn answer_claim(&mut self, index: usize, publisher: ClaimRef, token: u64, older: Option<u64>) {
        let state = &mut self.streams[index];
        if let Some(older) = older {
            self.sink.superseded(state.id, older);
        }
        let mark = match state.marks.settled(&publisher) {
            Some(mark) => mark,
            None => match self.store.read_mark(state.id, &publisher) {
                Ok(mark) => {
                    state.marks.admit(publisher, mark);
                    mark
                }
                Err(error) => {
                    tracing::error!(%error, stream = state.name, "a publisher's mark cannot be read");
                    self.sink.claim_failed(state.id, token, error.to_string());
                    return;
                }
            },
        };
        self.sink.claimed(state.id, token, mark.last_seq, mark.last_offset);
    }

    /// Deletes a few of the batches that are not needed any more.
    fn evict(&mut self) {
        let Some((stream, below)) = self.evictions.wanted.pop_front() else { return };
        // A stream that was detached meanwhile keeps its rows until somebody asks again.
        let Some(index) = self.index.get(&stream).copied() else { return };
        let counters = &self.telemetry.writer;
        match self.store.evict(&self.streams[index], below) {
            Ok(step) => {
                counters.evicted_batches_total.fetch_add(step.batches, Relaxed);
                counters.evicted_bytes_total.fetch_add(step.bytes, Relaxed);
                if step.more {
                    self.evictions.wanted.push_back((stream, below));
                }
                if let (Some(cut), Some(counters)) = (step.cut, &self.streams[index].counters) {
                    counters.lake.evicted(cut);
                }
                if step.batches > 0 {
                    self.tend_log();
                }
            }
            Err(error) => {
                tracing::warn!(%error, stream = self.streams[index].name, "rows that were moved cannot be deleted yet");
            }
        }
        self.evictions.last_step = Some(Instant::now());
    }

    /// Keeps the write-ahead log short.
    fn tend_log(&mut self) {
        let (pages, page_bytes) = self.store.wal_pages();
        let duty = self.checkpointer.after_commit(pages, page_bytes, &self.store.settings);
        if duty == Duty::Finish {
            self.checkpointer.finished(self.store.checkpoint(), &self.store.settings);
        }
        let counters = &self.telemetry.writer;
        counters.wal_bytes.store(pages * page_bytes, Relaxed);
        counters.checkpoints_total.store(self.checkpointer.passes(), Relaxed);
    }
}

/// The wall clock in microseconds.
fn now_us() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as i64)
}
