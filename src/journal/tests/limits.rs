//! Every bound, reached.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crossbeam_channel::{bounded, unbounded};
use rusqlite::Connection;

use super::support::{Event, PATIENCE, Recorder, Rig, ok, settings, spec};
use crate::journal::reader::{MAX_WAITING_REQUESTS, Page, PageRequest};
use crate::journal::{
    Append, CommitSink, GroupCommit, JOURNAL_FILE, Job, JournalError, JournalSettings, StreamSpec, open,
};
use crate::telemetry::Telemetry;

fn wal_bytes(rig: &Rig) -> u64 {
    rig.telemetry.writer.wal_bytes.load(Relaxed)
}

/// Commits `count` rows of 4 KB, one at a time.
fn commit_rows(rig: &Rig, count: u64) {
    let row = format!(r#"{{"t":"{}"}}"#, "x".repeat(4000));
    for token in 0..count {
        rig.append(1, token, 0, &[&row]);
        rig.outcomes(1);
    }
}

#[test]
fn the_write_ahead_log_starts_over_and_keeps_its_length() {
    let dir = tempfile::tempdir().expect("a directory");
    let eager = JournalSettings { wal_step_bytes: 1 << 17, wal_checkpoint_bytes: 1 << 19, ..settings() };
    let rig = Rig::start_with(dir.path(), &[spec("a")], eager);
    let mut longest = 0;
    for _ in 0..40 {
        commit_rows(&rig, 20);
        longest = longest.max(wal_bytes(&rig));
    }
    assert!(rig.telemetry.writer.checkpoints_total.load(Relaxed) >= 3);
    let file = dir.path().join("journal.db-wal").metadata().expect("it is there").len();
    assert!(longest < 4 << 20, "800 rows of 4 KB went through a log of {longest} bytes");
    assert!(file >= 1 << 20, "the log's file has {file} bytes");
    rig.stop();
}

#[test]
fn a_reader_in_the_way_makes_the_log_longer_and_stops_no_commit() {
    let dir = tempfile::tempdir().expect("a directory");
    let tight = JournalSettings {
        wal_step_bytes: 1 << 16,
        wal_checkpoint_bytes: 1 << 17,
        wal_limit_bytes: 1 << 18,
        ..settings()
    };
    let rig = Rig::start_with(dir.path(), &[spec("a")], tight);
    let other = Connection::open(dir.path().join(JOURNAL_FILE)).expect("opens");
    other.execute_batch("BEGIN; SELECT count(*) FROM batches_1").expect("reads");
    commit_rows(&rig, 200);
    assert!(wal_bytes(&rig) > 1 << 20, "{}", wal_bytes(&rig));
    other.execute_batch("COMMIT").expect("done");
    commit_rows(&rig, 20);
    assert!(wal_bytes(&rig) < 1 << 19, "{}", wal_bytes(&rig));
    drop(other);
    rig.stop();
}

#[test]
fn a_large_batch_is_spread_over_rows_of_bounded_size() {
    let dir = tempfile::tempdir().expect("a directory");
    let small = JournalSettings { max_batch_bytes: 1000, ..settings() };
    let rig = Rig::start_with(dir.path(), &[spec("a")], small);
    let long = format!(r#"{{"t":"{}"}}"#, "x".repeat(2000));
    let mut frame = vec![r#"{"t":1}"#; 500];
    frame[250] = &long;
    rig.append(1, 1, 0, &frame);
    assert_eq!(rig.outcomes(1), [(1, ok(1, 500))]);
    rig.stop();
    let file = Connection::open(dir.path().join(JOURNAL_FILE)).expect("opens");
    let (rows, sum, over): (i64, i64, i64) = file
        .query_row("SELECT count(*), sum(count), sum(length(body) > 1000 AND count > 1) FROM batches_1", [], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })
        .expect("reads");
    assert!(rows >= 5 && sum == 500 && over == 0, "{rows} rows, {sum} in sum, {over} too long");
}

#[test]
fn frames_with_a_transaction_of_their_own_let_others_through() {
    let dir = tempfile::tempdir().expect("a directory");
    let rig = Rig::start(dir.path(), &[spec("a"), StreamSpec { group_commit: false, ..spec("b") }]);
    rig.append(1, 999, 0, &vec!["{}"; 20_000]);
    for token in 0..100 {
        rig.append(2, token, 0, &["{}"]);
    }
    rig.append(1, 500, 0, &["{}"]);
    let order: Vec<u64> = rig.outcomes(102).into_iter().map(|(token, _)| token).collect();
    assert_eq!(order[0], 999);
    let at = order.iter().position(|token| *token == 500).expect("answered");
    assert!(at >= 80, "a turn takes few of them: {at}");
    rig.stop();
}

#[test]
fn more_requests_than_may_wait_are_refused_at_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let rig = Rig::start(dir.path(), &[spec("a")]);
    let (started, starts) = bounded(1);
    let (release, held) = bounded::<()>(1);
    let ask = |reply| rig.reader.page(PageRequest { stream: 1, from: 1, until: 1, max_bytes: 1, filter: None, reply });
    ask(Box::new(move |_| {
        started.send(()).expect("the test waits");
        held.recv().unwrap_or_default();
    }));
    starts.recv_timeout(PATIENCE).expect("the reader is busy");
    let (sender, pages) = unbounded();
    for _ in 0..=MAX_WAITING_REQUESTS {
        let sender = sender.clone();
        ask(Box::new(move |page| sender.send(page).unwrap_or_default()));
    }
    let refused: Vec<Page> = pages.try_iter().collect();
    assert_eq!(refused, [Page::Failed("too many replays wait for the journal".to_owned())]);
    drop(release);
    for _ in 0..MAX_WAITING_REQUESTS {
        assert!(matches!(pages.recv_timeout(PATIENCE), Ok(Page::Rows { done: true, .. })));
    }
    let reader = rig.reader.clone();
    rig.stop();
    let (sender, closed) = bounded(1);
    let reply = Box::new(move |page| sender.send(page).unwrap_or_default());
    reader.page(PageRequest { stream: 1, from: 1, until: 1, max_bytes: 1, filter: None, reply });
    assert_eq!(closed.recv_timeout(PATIENCE), Ok(Page::Failed("the journal is closed".to_owned())));
}

/// A sink that does what the test wants with the first commit.
struct Odd<F: FnMut() + Send>(F);

impl<F: FnMut() + Send> CommitSink for Odd<F> {
    fn wants_frames(&self, _: u32) -> bool {
        true
    }
    fn deliver(&mut self, _: GroupCommit) {
        (self.0)();
    }
    fn claimed(&mut self, _: u32, _: u64, _: u64, _: Option<i64>) {}
    fn claim_failed(&mut self, _: u32, _: u64, _: String) {}
    fn superseded(&mut self, _: u32, _: u64) {}
    fn note(&mut self, _: u64, _: u64, _: u64) {}
}

fn append(stream: u32) -> Job {
    let rows = super::support::rows(&["{}"]);
    Job::Append(Append { stream, token: 1, claim: None, first_seq: None, rows, ts_us: 0, insert: None })
}

#[test]
fn stopping_waits_only_as_long_as_it_may() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut journal = open(dir.path(), settings()).expect("opens");
    journal.declare(&spec("a")).expect("created");
    let (release, held) = bounded::<()>(1);
    let sink = Odd(move || held.recv().unwrap_or_default());
    let writer = journal.start(Box::new(sink), Telemetry::new(1).into(), None).expect("starts");
    let jobs = writer.sender();
    jobs.send(append(1)).expect("it runs");
    let late = writer.stop(Duration::from_millis(20));
    assert!(matches!(late, Err(JournalError::StopTimeout { .. })), "{late:?}");
    drop(release);
}

#[test]
fn a_writer_that_panicked_takes_no_jobs_and_says_so() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut journal = open(dir.path(), settings()).expect("opens");
    journal.declare(&spec("a")).expect("created");
    let writer = journal.start(Box::new(Odd(|| panic!("on purpose"))), Telemetry::new(1).into(), None).expect("starts");
    let jobs = writer.sender();
    jobs.send(append(1)).expect("it runs");
    assert!(matches!(writer.stop(PATIENCE), Err(JournalError::WriterPanicked)));
    assert!(matches!(jobs.send(Job::Note(1, 2, 3)), Err(Job::Note(1, 2, 3))));
}

#[test]
fn rows_for_a_stream_that_is_not_recorded_are_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let journal = open(dir.path(), settings()).expect("opens");
    let (sender, events) = unbounded();
    let writer = journal.start(Box::new(Recorder(sender)), Telemetry::new(1).into(), None).expect("starts");
    writer.sender().send(append(7)).expect("it runs");
    let Ok(Event::Commit(commit)) = events.recv_timeout(PATIENCE) else { panic!("no answer") };
    assert_eq!(commit.outcomes.len(), 1);
    assert!(commit.blocks.is_empty());
    writer.stop(PATIENCE).expect("stops");
}
