//! Deleting what is safe elsewhere: the end stays, space is used again, replays go on over the seam.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::support::{Event, PATIENCE, Rig, block_texts, rows, settings, spec, texts};
use crate::journal::{Append, Archive, Job, JournalError, RowReader, open};
use crate::stream::replay::{NotReplayable, Requested, Resolution, ResolveRequest};

/// Rows kept in memory: offset, then stamp and row.
#[derive(Default)]
struct Kept(Mutex<BTreeMap<i64, (i64, Vec<u8>)>>);

impl Archive for Kept {
    fn stretch_at_or_above(&self, _stream: u32, offset: i64) -> Result<Option<(i64, i64)>, String> {
        let kept = self.0.lock().expect("no panic");
        let Some(first) = kept.range(offset..).next().map(|(first, _)| *first) else { return Ok(None) };
        let last = kept.last_key_value().map_or(first, |(last, _)| *last);
        Ok(Some((first, last + 1)))
    }

    fn rows(
        &self,
        _stream: u32,
        from: i64,
        until: i64,
        take: &mut dyn FnMut(i64, i64, &[u8]) -> bool,
    ) -> Result<(), String> {
        let kept = self.0.lock().expect("no panic");
        let _ = kept.range(from..until).all(|(offset, (ts_us, line))| take(*offset, *ts_us, line));
        Ok(())
    }
}

fn keep(rig_path: &std::path::Path, kept: &Kept, until: i64) {
    let reader = RowReader::open(rig_path).expect("opens");
    let mut all = kept.0.lock().expect("no panic");
    reader
        .rows(1, 0, until, |offset, ts_us, line| {
            all.insert(offset, (ts_us, line.to_vec()));
            true
        })
        .expect("read");
}

/// Sends frames of `per_frame` rows of about 100 bytes and returns what went out live.
fn publish(rig: &Rig, frames: usize, per_frame: usize) -> Vec<String> {
    let mut live = Vec::new();
    for frame in 0..frames {
        let texts: Vec<String> =
            (0..per_frame).map(|row| format!(r#"{{"f":{frame},"r":{row},"t":"{:080}"}}"#, row)).collect();
        rig.append(1, 1, 1_000 + frame as i64, &texts);
        // One by one, so that there are as many batches.
        while let Event::Commit(commit) = rig.event() {
            live.extend(commit.blocks.iter().flat_map(|(_, block, _, _)| block_texts(block)));
            if !commit.outcomes.is_empty() {
                break;
            }
        }
    }
    live
}

fn first_in_journal(path: &std::path::Path) -> Option<i64> {
    let mut first = None;
    let reader = RowReader::open(path).expect("opens");
    reader
        .rows(1, 0, i64::MAX, |offset, _, _| {
            first = Some(offset);
            false
        })
        .expect("read");
    first
}

fn wait_for_first(path: &std::path::Path, first: Option<i64>) {
    let began = Instant::now();
    while first_in_journal(path) != first {
        assert!(began.elapsed() < PATIENCE, "the journal begins at {:?}", first_in_journal(path));
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

#[test]
fn rows_that_left_are_replayed_from_elsewhere_and_the_end_stays() {
    let dir = tempfile::tempdir().expect("a directory");
    let kept = Arc::new(Kept::default());
    let rig = Rig::start_over(dir.path(), &[spec("a")], settings(), Arc::clone(&kept) as Arc<dyn Archive>);
    let path = dir.path().join("journal.db");
    let live = publish(&rig, 40, 7);
    // In the middle of a batch: the batch stays.
    keep(&path, &kept, 100);
    rig.send(Job::Evict { stream: 1, below: 100 });
    wait_for_first(&path, Some(99));
    for max_bytes in [1, 1000, 1 << 20] {
        let (frames, _) = rig.replay(1, 1, 281, max_bytes);
        assert_eq!(texts(&frames), live);
        let (frames, _) = rig.replay(1, 60, 281, max_bytes);
        assert_eq!(texts(&frames), live[59..]);
    }
    let resolve = |offset| {
        rig.resolve(
            1,
            ResolveRequest { offset: Requested::At(offset), frontier: 281, floor: None, max_replay: Some(250) },
        )
    };
    let too_old = NotReplayable::TooOld { offset: 5, behind: 276, max_replay: 250 };
    assert_eq!(resolve(5), Resolution::Refuse(too_old));
    assert_eq!(resolve(50), Resolution::Serve { start: 50 });
    // Everything, with an offset that is higher than there are rows.
    keep(&path, &kept, 281);
    rig.send(Job::Evict { stream: 1, below: 10_000 });
    wait_for_first(&path, None);
    assert_eq!(resolve(100), Resolution::Serve { start: 100 });
    assert_eq!(resolve(281), Resolution::Serve { start: 281 });
    let (frames, _) = rig.replay(1, 1, 281, 4096);
    assert_eq!(texts(&frames), live);
    kept.0.lock().expect("no panic").retain(|offset, _| *offset >= 200);
    assert_eq!(resolve(100), Resolution::Refuse(NotReplayable::Evicted { offset: 100, earliest: 200 }));
    rig.stop();

    let mut journal = open(dir.path(), settings()).expect("opens");
    assert_eq!(journal.streams()[0].end_offset, 281);
    assert_eq!(journal.last_ts_us(1), Some(1_039));
    journal.evict(1, 500).expect("nothing to do");
    drop(journal);
    let rig = Rig::start(dir.path(), &[spec("a")]);
    // Stamps do not fall although no row is left to tell the last one.
    rig.send(Job::Append(Append {
        stream: 1,
        token: 1,
        claim: None,
        first_seq: None,
        rows: rows(&["{}"]),
        ts_us: 7,
        insert: None,
    }));
    let Event::Commit(commit) = rig.event() else { panic!("a commit") };
    assert_eq!(block_texts(&commit.blocks[0].1), [r#"[281,1039,{}]"#]);
    rig.stop();
}

#[test]
fn the_file_keeps_its_size_while_rows_come_and_go() {
    let dir = tempfile::tempdir().expect("a directory");
    let rig = Rig::start(dir.path(), &[spec("a")]);
    let path = dir.path().join("journal.db");
    let mut sizes = Vec::new();
    let mut end = 1;
    for _ in 0..12 {
        publish(&rig, 20, 400);
        end += 20 * 400;
        rig.send(Job::Evict { stream: 1, below: end });
        wait_for_first(&path, None);
        sizes.push(std::fs::metadata(&path).expect("there").len());
    }
    assert_eq!(end, 96_001);
    // Some 900 KB come and go each time.
    assert!(*sizes.last().expect("twelve") < 6 << 20, "{sizes:?}");
    rig.stop();
}

#[test]
fn a_stopped_journal_is_emptied_and_goes_on_under_another_shape() {
    let dir = tempfile::tempdir().expect("a directory");
    let rig = Rig::start(dir.path(), &[spec("a")]);
    publish(&rig, 10, 3);
    rig.stop();
    let mut journal = open(dir.path(), settings()).expect("opens");
    let wider = r#"{"type":"object","properties":{"b":{}},"required":[]}"#;
    journal.evict(1, 9).expect("deleted");
    let error = journal.begin_log(1, "a-v2", wider, &["b".to_owned()], Some(31)).expect_err("rows are left");
    assert!(matches!(error, JournalError::RowsLeft { first: 7, .. }), "{error}");
    journal.evict(1, 31).expect("deleted");
    for _ in 0..2 {
        let record = journal.begin_log(1, "a-v2", wider, &["b".to_owned()], Some(31)).expect("begun");
        assert_eq!((record.log.as_str(), record.floor, record.end_offset), ("a-v2", Some(31), 31));
    }
    drop(journal);
    let journal = open(dir.path(), settings()).expect("opens");
    let record = &journal.streams()[0];
    assert_eq!((record.name.as_str(), record.log.as_str(), record.end_offset), ("a", "a-v2", 31));
    assert_eq!((record.schema_canonical.as_str(), record.sort_by.as_slice()), (wider, &["b".to_owned()][..]));
}
