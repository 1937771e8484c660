//! A lake on a real data root: rows go in through the journal, and every way out gives the same rows.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crossbeam_channel::{bounded, unbounded};
use streamcast_shards::manner::Manner;

use super::*;
use crate::journal::reader::{Page, PageRequest, Readers};
use crate::journal::{Append, CommitSink, GroupCommit, Job, Journal, JournalSettings, StreamRecord, StreamSpec, open};
use crate::lake::catalog::Tier;
use crate::lake::documents;
use crate::schema::Schema;
use crate::stream::replay::{NotReplayable, Requested, Resolution, ResolveRequest};
use crate::telemetry::{StreamCounters, Telemetry};
use crate::wire::RowBatch;

mod purge;

const SCHEMA: &str =
    r#"{"type":"object","properties":{"id":{"type":"integer"},"note":{"type":["string","null"]}},"required":["id"]}"#;

fn schema() -> Schema {
    Schema::compile(&serde_json::from_str(SCHEMA).expect("json"), true).expect("a schema")
}

fn spec(name: &str, sort_by: &[&str]) -> StreamSpec {
    StreamSpec {
        name: name.to_owned(),
        schema_canonical: schema().canonical().to_owned(),
        sort_by: sort_by.iter().map(|column| (*column).to_owned()).collect(),
        exactly_once: false,
        group_commit: true,
    }
}

struct Quiet(crossbeam_channel::Sender<usize>);

impl CommitSink for Quiet {
    fn wants_frames(&self, _: u32) -> bool {
        false
    }
    fn deliver(&mut self, commit: GroupCommit) {
        let _ = self.0.send(commit.outcomes.len());
    }
    fn claimed(&mut self, _: u32, _: u64, _: u64, _: Option<i64>) {}
    fn claim_failed(&mut self, _: u32, _: u64, _: String) {}
    fn superseded(&mut self, _: u32, _: u64) {}
    fn note(&mut self, _: u64, _: u64, _: u64) {}
}

fn journal(root: &Path, sort_by: &[&str]) -> (Journal, StreamRecord) {
    let mut journal =
        open(root, JournalSettings { wal_reserve_bytes: 1 << 20, ..JournalSettings::default() }).expect("opens");
    let record = journal.declare(&spec("t", sort_by)).expect("declared");
    (journal, record)
}

/// Appends rows with ids `range`, in frames of 50, and stops the writer again.
fn append(root: &Path, sort_by: &[&str], range: std::ops::Range<i64>) {
    let (journal, record) = journal(root, sort_by);
    let (sender, done) = unbounded();
    let writer = journal.start(Box::new(Quiet(sender)), Arc::new(Telemetry::new(1)), None).expect("starts");
    let ids: Vec<i64> = range.collect();
    let frames = ids.chunks(50).len();
    for (frame, ids) in ids.chunks(50).enumerate() {
        let mut rows = RowBatch::default();
        for id in ids {
            rows.body.extend_from_slice(line(*id).as_bytes());
            rows.body.push(b'\n');
            rows.ends.push(rows.body.len() as u32);
        }
        let ts_us = 1_700_000_000_000_000 + frame as i64;
        let job = Job::Append(Append {
            stream: record.id,
            token: 0,
            claim: None,
            first_seq: None,
            rows,
            ts_us,
            insert: None,
        });
        writer.sender().send(job).expect("runs");
    }
    let mut answered = 0;
    while answered < frames {
        answered += done.recv_timeout(std::time::Duration::from_secs(60)).expect("answered");
    }
    writer.stop(std::time::Duration::from_secs(60)).expect("stops");
}

fn line(id: i64) -> String {
    // Ids fall, so that files sorted by id are in another order than offsets.
    format!(r#"{{"id":{},"note":"n{id}"}}"#, -id)
}

fn settings() -> MoverSettings {
    MoverSettings { target_seal_rows: Some(100), compact_min_files: 4, ..MoverSettings::default() }
}

struct Rig {
    journal: Journal,
    record: StreamRecord,
    lake: Lake,
}

fn rig(root: &Path, sort_by: &[&str], published: Option<&str>, replay_published: bool) -> Rig {
    rig_with(root, sort_by, published, replay_published, settings())
}

fn rig_with(
    root: &Path,
    sort_by: &[&str],
    published: Option<&str>,
    replay_published: bool,
    settings: MoverSettings,
) -> Rig {
    let (journal, record) = journal(root, sort_by);
    let root = journal.root().to_owned();
    let declared = documents::Declared { published, ..documents::Declared::default() };
    let document = documents::ensure(&root, &record, &declared).expect("documents");
    let lake = Lake::open(&root, journal.path(), &LakeSettings::default()).expect("opens");
    lake.add(&LakeStream {
        record: &record,
        schema: &schema(),
        published: document.live_log.published.as_deref().expect("a prefix"),
        start_offset: document.live_log.start_offset,
        replay_published,
        settings,
        counters: Arc::new(StreamCounters::new("t", true, Some(record.end_offset))),
    })
    .expect("added");
    Rig { journal, record, lake }
}

impl Rig {
    fn flush(&mut self) -> Flushed {
        let flushed = self.lake.flush("t").expect("flushed");
        self.journal.evict(self.record.id, flushed.sealed_end).expect("evicted");
        flushed
    }

    fn readers(&self) -> Readers {
        Readers::start(self.journal.path(), &self.lake.archive(), 1, || (), Arc::new(Telemetry::new(1)))
            .expect("starts")
    }

    /// Ids and offsets of a whole replay from `from`.
    fn replay(&self, from: i64, max_bytes: usize) -> Vec<(i64, i64)> {
        let readers = self.readers();
        let (mut next, mut all) = (from, Vec::new());
        loop {
            let (reply, answer) = bounded(1);
            readers.handle().page(PageRequest {
                stream: self.record.id,
                from: next,
                until: self.record.end_offset,
                max_bytes,
                filter: None,
                reply: Box::new(move |page| reply.send(page).unwrap_or_default()),
            });
            let page = answer.recv_timeout(std::time::Duration::from_secs(60)).expect("answered");
            let Page::Rows { frames, next: after, done, .. } = page else { panic!("{page:?}") };
            let mut rest = &frames[..];
            while !rest.is_empty() {
                let header = if rest[1] < 126 { 2 } else { 4 };
                let length =
                    if rest[1] < 126 { usize::from(rest[1]) } else { usize::from(rest[2]) << 8 | usize::from(rest[3]) };
                let text = std::str::from_utf8(&rest[header..header + length]).expect("text");
                let (offset, _, row) = serde_json::from_str::<(i64, i64, serde_json::Value)>(text).expect("a row");
                let id = -row["id"].as_i64().expect("an id");
                assert!(text.ends_with(&format!(",{}]", line(id))), "{text} is not byte for byte the row");
                all.push((offset, id));
                rest = &rest[header + length..];
            }
            next = after;
            if done {
                return all;
            }
        }
    }

    fn resolve(&self, offset: i64) -> Resolution {
        let (reply, answer) = bounded(1);
        let offset = if offset == 0 { Requested::Earliest } else { Requested::At(offset) };
        let request = ResolveRequest { offset, frontier: self.record.end_offset, floor: None, max_replay: Some(5_000) };
        let readers = self.readers();
        readers.handle().resolve(
            self.record.id,
            request,
            Box::new(move |answer| reply.send(answer).unwrap_or_default()),
        );
        answer.recv_timeout(std::time::Duration::from_secs(60)).expect("answered")
    }

    fn table_rows(&self) -> u64 {
        let mut table = self.lake.table("t").expect("opens").expect("a table");
        self.lake.block_on(table.row_count()).expect("counted")
    }
}

fn offsets(range: std::ops::Range<i64>) -> Vec<(i64, i64)> {
    range.map(|offset| (offset, offset)).collect()
}

#[test]
fn rows_move_through_all_tiers_and_a_replay_sees_one_sequence() {
    for sort_by in [&[][..], &["id"]] {
        let dir = tempfile::tempdir().expect("a directory");
        append(dir.path(), sort_by, 1..1_001);
        let mut here = rig(dir.path(), sort_by, None, false);
        assert_eq!(here.flush(), Flushed { sealed_end: 1_001, published_end: 1_001, rows: 1_000 });
        assert_eq!(here.lake.view("t").expect("there").files.len(), 10);
        assert_eq!(here.replay(1, 777), offsets(1..1_001));
        assert_eq!(here.table_rows(), 1_000);
        drop(here);
        append(dir.path(), sort_by, 1_001..1_101);
        let mut here = rig(dir.path(), sort_by, None, false);
        assert_eq!(here.replay(950, 1 << 20), offsets(950..1_101));
        assert_eq!(here.resolve(0), Resolution::Serve { start: 1 });
        here.flush();
        here.lake.compact("t").expect("merged");
        let view = here.lake.view("t").expect("there");
        assert!(view.files.len() < 5, "{view:?}");
        assert_eq!((view.rows(), view.sealed_end), (1_100, 1_101));
        assert_eq!(view.files[0].tier, Tier::Compacted);
        assert_eq!(here.table_rows(), 1_100);
        assert_eq!(here.replay(1, 4_096), offsets(1..1_101));
        // Nothing is left to do.
        assert_eq!(here.flush().rows, 0);
        here.lake.clean("t").expect("cleaned");
        assert_eq!(here.replay(1, 4_096), offsets(1..1_101));
    }
}

#[test]
fn an_evicted_row_is_readable_only_where_replays_read_the_table() {
    let dir = tempfile::tempdir().expect("a directory");
    append(dir.path(), &[], 1..251);
    let mut here = rig(dir.path(), &[], None, false);
    here.flush();
    assert_eq!(here.lake.evict("t").expect("evicted"), 3);
    assert_eq!(here.resolve(0), Resolution::Serve { start: 251 });
    let evicted = Resolution::Refuse(NotReplayable::Evicted { offset: 7, earliest: 251 });
    assert_eq!(here.resolve(7), evicted);
    drop(here);
    let here = rig(dir.path(), &[], None, true);
    assert_eq!(here.resolve(7), Resolution::Serve { start: 7 });
    assert_eq!(here.replay(1, 500), offsets(1..251));
}

#[test]
fn a_table_elsewhere_gets_copies_and_is_read_when_the_copies_here_are_gone() {
    let dir = tempfile::tempdir().expect("a directory");
    let elsewhere = tempfile::tempdir().expect("a directory");
    let prefix = format!("file://{}/pub", elsewhere.path().display());
    append(dir.path(), &[], 1..251);
    let mut here = rig(dir.path(), &[], Some(&prefix), true);
    here.flush();
    assert!(elsewhere.path().join("pub/t/t/metadata/version-hint.text").exists());
    assert_eq!(here.table_rows(), 250);
    here.lake.evict("t").expect("evicted");
    assert_eq!(here.replay(1, 1 << 20), offsets(1..251));
}

#[test]
fn what_a_crash_left_is_deleted_or_completed() {
    let dir = tempfile::tempdir().expect("a directory");
    append(dir.path(), &[], 1..801);
    let mut here = rig(dir.path(), &[], None, false);
    here.flush();
    // Before it was recorded: a file that was noted, and one without a name.
    let directory = dir.path().canonicalize().expect("there").join("t/t/published/t/data/sealed");
    let orphan = directory.join("801-900-aaaaaaaa.parquet");
    let log = here.lake.view("t").expect("there").id;
    here.lake.catalog().intend(log, Tier::Sealed, &orphan, (801, 900)).expect("noted");
    let nameless = directory.join("x.parquet.tmp");
    for path in [&orphan, &nameless] {
        std::fs::write(path, "PAR1").expect("written");
    }
    drop(here);
    let here = rig(dir.path(), &[], None, false);
    assert!(!orphan.exists() && !nameless.exists());
    assert_eq!(here.lake.catalog().intents().expect("read"), []);
    assert_eq!(here.replay(1, 1 << 20), offsets(1..801));
}

#[test]
fn rows_that_come_wait_for_those_that_go_only_when_very_many_are_left() {
    let dir = tempfile::tempdir().expect("a directory");
    append(dir.path(), &[], 1..11);
    let here = rig(dir.path(), &[], None, false);
    let (shared, stream) = (here.lake.shared(), here.lake.moved("t"));
    let manners = || [false, true].map(|awaited| seal::manner(&shared, awaited));
    assert_eq!(manners(), [Manner::Patient, Manner::Brisk]);
    stream.counters.frame_bytes_total.fetch_add(2 << 30, Relaxed);
    assert_eq!(manners(), [Manner::Hurried; 2]);
    stream.counters.frame_bytes_total.fetch_sub(2 << 30, Relaxed);
    assert_eq!(manners(), [Manner::Patient, Manner::Brisk]);
    drop(here);
    let here = rig_with(dir.path(), &[], None, false, MoverSettings { maintain: false, ..settings() });
    here.lake.moved("t").counters.frame_bytes_total.fetch_add(2 << 30, Relaxed);
    assert_eq!(seal::manner(&here.lake.shared(), false), Manner::Patient, "what stays in the journal does not count");
}

#[test]
fn missing_rows_stop_the_seal() {
    let dir = tempfile::tempdir().expect("a directory");
    append(dir.path(), &[], 1..101);
    append(dir.path(), &[], 101..301);
    let file = rusqlite::Connection::open(dir.path().join("journal.db")).expect("opens");
    file.execute("DELETE FROM batches_1 WHERE first_offset = (SELECT min(first_offset) FROM batches_1)", [])
        .expect("deleted");
    drop(file);
    let here = rig(dir.path(), &[], None, false);
    let error = here.lake.flush("t").expect_err("rows are missing");
    assert!(matches!(error, MoverError::RowsMissing { from: 1, .. }), "{error}");
    assert!(matches!(here.lake.flush("other"), Err(MoverError::Unknown(_))));
}

#[test]
fn what_waits_for_the_table_becomes_one_file_first() {
    for sort_by in [&[][..], &["id"]] {
        let dir = tempfile::tempdir().expect("a directory");
        append(dir.path(), sort_by, 1..1_001);
        let mut here = rig(dir.path(), sort_by, None, false);
        let (shared, moved) = (here.lake.shared(), here.lake.moved("t"));
        here.lake.block_on(seal::seal_all(&shared, &moved, i64::MAX, true)).expect("sealed");
        assert_eq!(here.lake.view("t").expect("there").files.len(), 10);
        assert_eq!(here.lake.block_on(gather::gather(&shared, &moved)).expect("gathered"), 10);
        let view = here.lake.view("t").expect("there");
        assert_eq!((view.files.len(), view.files[0].tier, view.rows()), (1, Tier::Compacted, 1_000));
        // Its parts stay for replays that are about to open them.
        assert_eq!(shared.catalog.trash_of(moved.log).expect("read").len(), 10);
        assert_eq!(here.lake.block_on(gather::gather(&shared, &moved)).expect("nothing to do"), 0);
        here.flush();
        let mut table = here.lake.table("t").expect("opens").expect("a table");
        assert_eq!(here.lake.block_on(table.files()).expect("read").len(), 1);
        assert_eq!((table.snapshots().len(), here.table_rows()), (1, 1_000));
        assert_eq!(here.replay(1, 4_096), offsets(1..1_001));
    }
}

#[test]
fn a_file_that_the_table_has_unnoticed_is_not_merged_away() {
    let dir = tempfile::tempdir().expect("a directory");
    append(dir.path(), &[], 1..101);
    let here = rig(dir.path(), &[], None, false);
    let (shared, moved) = (here.lake.shared(), here.lake.moved("t"));
    here.lake.block_on(async {
        seal::seal_all(&shared, &moved, i64::MAX, true).await.expect("sealed");
        let files = shared.catalog.data_files(moved.log, &[1]).expect("described");
        let mut slot = moved.table.lock().await;
        let table = publish::open(&shared, &moved, &mut slot).await.expect("made");
        table.append(&files, &publish::commit(&shared, &moved)).await.expect("the table has it");
    });
    // The process dies before the catalog knows. The next one cannot reach the table at first.
    drop((here, shared, moved));
    append(dir.path(), &[], 101..801);
    let mut here = rig(dir.path(), &[], None, false);
    let (shared, moved) = (here.lake.shared(), here.lake.moved("t"));
    moved.reachable.store(false, Relaxed);
    here.lake.block_on(async {
        seal::seal_all(&shared, &moved, i64::MAX, true).await.expect("sealed");
        assert_eq!(gather::gather(&shared, &moved).await.expect("gathered"), 7);
        while compact::compact(&shared, &moved).await.expect("merged") {}
    });
    let starts: Vec<i64> = here.lake.view("t").expect("there").files.iter().map(|file| file.start).collect();
    assert_eq!(starts, [1, 101]);
    here.flush();
    assert_eq!(here.table_rows(), 800);
    assert_eq!(here.replay(1, 4_096), offsets(1..801));
}
