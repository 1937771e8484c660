//! A journal in a temporary directory with a sink that records what it is given.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use streamcast_shards::{Block, frame};

use crate::journal::reader::{Page, PageRequest, ReaderHandle, Readers, RowFilter};
use crate::journal::{
    Append, Archive, CommitSink, GroupCommit, Job, JobSender, Journal, JournalSettings, NoArchive, Outcome, StreamSpec,
    Writer, open,
};
use crate::stream::replay::{Resolution, ResolveRequest};
use crate::telemetry::{StreamCounters, Telemetry};
use crate::wire::batch::RowBatch;
use crate::wire::publish::Seq;

/// Long enough for any machine; only a failing test waits for it.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// What the sink was given, in order.
#[derive(Debug)]
pub enum Event {
    Commit(GroupCommit),
    Claimed { token: u64, last_seq: u64, last_offset: Option<i64> },
    ClaimFailed,
    Superseded { token: u64 },
    Note(u64, u64, u64),
}

/// The stream whose frames nobody wants.
pub const UNHEARD: u32 = 7;

pub struct Recorder(pub Sender<Event>);

impl CommitSink for Recorder {
    fn wants_frames(&self, stream: u32) -> bool {
        stream != UNHEARD
    }

    fn deliver(&mut self, commit: GroupCommit) {
        let _ = self.0.send(Event::Commit(commit));
    }

    fn claimed(&mut self, _stream: u32, token: u64, last_seq: u64, last_offset: Option<i64>) {
        let _ = self.0.send(Event::Claimed { token, last_seq, last_offset });
    }

    fn claim_failed(&mut self, _stream: u32, _token: u64, _detail: String) {
        let _ = self.0.send(Event::ClaimFailed);
    }

    fn superseded(&mut self, _stream: u32, token: u64) {
        let _ = self.0.send(Event::Superseded { token });
    }

    fn note(&mut self, a: u64, b: u64, c: u64) {
        let _ = self.0.send(Event::Note(a, b, c));
    }
}

pub fn spec(name: &str) -> StreamSpec {
    StreamSpec {
        name: name.to_owned(),
        schema_canonical: r#"{"type":"object","properties":{},"required":[]}"#.to_owned(),
        sort_by: Vec::new(),
        exactly_once: true,
        group_commit: true,
    }
}

/// Small files, so that tests reach the bounds.
pub fn settings() -> JournalSettings {
    JournalSettings { wal_reserve_bytes: 1 << 20, ..JournalSettings::default() }
}

pub fn rows<T: AsRef<str>>(rows: &[T]) -> RowBatch {
    let mut batch = RowBatch::default();
    for row in rows {
        batch.body.extend_from_slice(row.as_ref().as_bytes());
        batch.body.push(b'\n');
        batch.ends.push(batch.body.len() as u32);
    }
    batch
}

/// A running journal.
pub struct Rig {
    pub writer: Writer,
    pub jobs: JobSender,
    pub events: Receiver<Event>,
    pub telemetry: Arc<Telemetry>,
    pub counters: Vec<Arc<StreamCounters>>,
    pub readers: Readers,
    pub reader: ReaderHandle,
}

impl Rig {
    /// Starts a journal at `root` that serves `specs` as streams 1, 2, …
    pub fn start(root: &Path, specs: &[StreamSpec]) -> Self {
        Self::start_with(root, specs, settings())
    }

    pub fn start_with(root: &Path, specs: &[StreamSpec], settings: JournalSettings) -> Self {
        Self::start_over(root, specs, settings, Arc::new(NoArchive))
    }

    /// As [`Rig::start_with`], with a place that rows have left the journal for.
    pub fn start_over(root: &Path, specs: &[StreamSpec], settings: JournalSettings, archive: Arc<dyn Archive>) -> Self {
        let mut journal = open(root, settings).expect("the journal opens");
        let mut counters = Vec::new();
        for spec in specs {
            let record = journal.declare(spec).expect("the stream is declared");
            let counter = Arc::new(StreamCounters::new(&record.name, true, Some(record.end_offset)));
            journal.attach_counters(record.id, Arc::clone(&counter));
            counters.push(counter);
        }
        Self::run(journal, counters, &archive)
    }

    fn run(journal: Journal, counters: Vec<Arc<StreamCounters>>, archive: &Arc<dyn Archive>) -> Self {
        let telemetry = Arc::new(Telemetry::new(1));
        let (sender, events) = unbounded();
        let path = journal.path().to_owned();
        let writer =
            journal.start(Box::new(Recorder(sender)), Arc::clone(&telemetry), None).expect("the writer starts");
        let readers = Readers::start(&path, archive, 1, || (), Arc::clone(&telemetry)).expect("the readers start");
        let (jobs, reader) = (writer.sender(), readers.handle());
        Self { writer, jobs, events, telemetry, counters, readers, reader }
    }

    pub fn stop(self) {
        drop(self.readers);
        self.writer.stop(PATIENCE).expect("the writer stops");
    }

    pub fn send(&self, job: Job) {
        if let Job::Append(append) = &job {
            self.telemetry.writer.queued_bytes.fetch_add(append.rows.body.len() as i64, Relaxed);
            if let Some(counters) = self.counters.get(append.stream as usize - 1) {
                counters.queued_rows.fetch_add(append.rows.ends.len() as i64, Relaxed);
            }
        }
        self.jobs.send(job).expect("the writer runs");
    }

    pub fn append<T: AsRef<str>>(&self, stream: u32, token: u64, ts_us: i64, frame: &[T]) {
        self.send(Job::Append(Append {
            stream,
            token,
            claim: None,
            first_seq: None,
            rows: rows(frame),
            ts_us,
            insert: None,
        }));
    }

    pub fn append_as<T: AsRef<str>>(&self, publisher: &str, token: u64, seq: u64, frame: &[T]) {
        self.send(Job::Append(Append {
            stream: 1,
            token,
            claim: Some(publisher.into()),
            first_seq: Some(Seq::Small(seq)),
            rows: rows(frame),
            ts_us: 1,
            insert: None,
        }));
    }

    pub fn claim(&self, publisher: &str, token: u64) {
        self.send(Job::Claim { stream: 1, publisher: publisher.into(), token });
    }

    pub fn event(&self) -> Event {
        self.events.recv_timeout(PATIENCE).expect("the writer answers")
    }

    /// The outcomes of the next `count` frames, with their tokens.
    pub fn outcomes(&self, count: usize) -> Vec<(u64, Outcome)> {
        let mut outcomes = Vec::new();
        while outcomes.len() < count {
            if let Event::Commit(commit) = self.event() {
                outcomes.extend(commit.outcomes.into_iter().map(|(token, _, outcome)| (token, outcome)));
            }
        }
        outcomes
    }

    /// The mark that the next claim is answered with.
    pub fn claimed(&self) -> (u64, Option<i64>) {
        loop {
            if let Event::Claimed { last_seq, last_offset, .. } = self.event() {
                return (last_seq, last_offset);
            }
        }
    }

    pub fn resolve(&self, stream: u32, request: ResolveRequest) -> Resolution {
        let (reply, answer) = bounded(1);
        let reply = Box::new(move |resolution| reply.send(resolution).unwrap_or_default());
        self.reader.resolve(stream, request, reply);
        answer.recv_timeout(PATIENCE).expect("the reader answers")
    }

    pub fn page(&self, stream: u32, from: i64, until: i64, max_bytes: usize, filter: Option<RowFilter>) -> Page {
        let (reply, answer) = bounded(1);
        let reply = Box::new(move |page| reply.send(page).unwrap_or_default());
        self.reader.page(PageRequest { stream, from, until, max_bytes, filter, reply });
        answer.recv_timeout(PATIENCE).expect("the reader answers")
    }

    /// The frames of a whole replay, and in how many pages they came.
    pub fn replay(&self, stream: u32, from: i64, until: i64, max_bytes: usize) -> (Vec<u8>, usize) {
        let (mut all, mut next, mut pages) = (Vec::new(), from, 0);
        loop {
            match self.page(stream, next, until, max_bytes, None) {
                Page::Rows { frames, next: after, done, rows } => {
                    assert!(done || after > next, "a page moves on");
                    assert!(rows <= 1 || frames.len() <= max_bytes, "a page of {rows} rows keeps to its bytes");
                    all.extend_from_slice(&frames);
                    next = after;
                    pages += 1;
                    if done {
                        return (all, pages);
                    }
                }
                Page::Failed(detail) => panic!("the page failed: {detail}"),
            }
        }
    }
}

/// The texts of the frames in `bytes`.
pub fn texts(mut bytes: &[u8]) -> Vec<String> {
    let mut texts = Vec::new();
    while !bytes.is_empty() {
        let (header, length) = match bytes[1] {
            126 => (4, usize::from(u16::from_be_bytes([bytes[2], bytes[3]]))),
            127 => {
                (10, usize::try_from(u64::from_be_bytes(bytes[2..10].try_into().expect("eight bytes"))).expect("small"))
            }
            short => (2, usize::from(short)),
        };
        let (frame, rest) = bytes.split_at(header + length);
        texts.push(String::from_utf8(frame::payload(frame).to_vec()).expect("text"));
        bytes = rest;
    }
    texts
}

pub fn block_texts(block: &Block) -> Vec<String> {
    (0..block.count())
        .map(|index| String::from_utf8(frame::payload(block.frame(index)).to_vec()).expect("text"))
        .collect()
}

pub fn ok(first: i64, count: u32) -> Outcome {
    Outcome::Ok { prior: Vec::new(), first, count }
}
