//! Erasures through sealing, merging, publishing, purging and restoring, judged by a model.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::journal::{Erased, Errand};
use crate::lake::columns::{FileRows, Layout, Source};
use crate::lake::life::{Root, Wanted};

/// How often a purge that waits for files to be deleted is tried.
const TRIES: usize = 200;

#[derive(Debug, Clone)]
enum Op {
    Append(i64),
    Flush,
    Merge,
    Evict,
    /// Erases the rows whose places among those that are left are these parts of a thousand.
    Erase(Vec<usize>),
    EraseAll,
    Purge,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        3 => (1_i64..260).prop_map(Op::Append),
        3 => Just(Op::Flush),
        2 => Just(Op::Merge),
        1 => Just(Op::Evict),
        3 => prop::collection::vec(0_usize..1000, 1..40).prop_map(Op::Erase),
        1 => Just(Op::EraseAll),
        2 => Just(Op::Purge),
    ];
    prop::collection::vec(op, 4..14)
}

/// Erases rows as the writer does.
fn erase(root: &Path, sort_by: &[&str], offsets: Vec<i64>) {
    let (journal, record) = journal(root, sort_by);
    let (sender, _done) = unbounded();
    let writer = journal.start(Box::new(Quiet(sender)), Arc::new(Telemetry::new(1)), None).expect("starts");
    let (answer, answered) = bounded(1);
    let errand = Errand::new(move |office| {
        answer.send(office.erase(record.id, &offsets, None, 1)).unwrap_or_default();
    });
    writer.sender().send(Job::Errand(errand)).expect("runs");
    let erased = answered.recv_timeout(Duration::from_secs(60)).expect("answered").expect("recorded");
    assert!(matches!(erased, Erased::Marked(_)), "{erased:?}");
    writer.stop(Duration::from_secs(60)).expect("stops");
}

fn eager() -> MoverSettings {
    MoverSettings { snapshot_retention: Duration::ZERO, ..settings() }
}

/// Purges until nothing is left to do; files that are superseded are let go of at once, or a millisecond later.
fn purge(lake: &Lake) {
    for _ in 0..TRIES {
        if !lake.purge("t").expect("purged") {
            return;
        }
        std::thread::sleep(Duration::from_millis(3));
    }
    panic!("erased rows are still in files");
}

/// The data files below a directory.
fn data_files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).expect("listed") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(data_files(&path));
        } else if path.extension().is_some_and(|end| end == "parquet") {
            found.push(path);
        }
    }
    found
}

fn rows_of(path: &Path) -> Vec<i64> {
    let layout = Layout::new(&schema()).expect("a layout");
    let mut rows = FileRows::open(Source::file(path).expect("opens"), &layout, i64::MIN, i64::MAX).expect("opens");
    let mut offsets = Vec::new();
    while let Some(row) = rows.peek().expect("reads") {
        offsets.push(row.offset);
        rows.advance();
    }
    offsets
}

fn restored(from: &Path) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    let mut root = Root::open(dir.path(), &LakeSettings::default()).expect("opens");
    let published = format!("file://{}", from.display());
    let wanted =
        Wanted { stream: "t", published: &published, revive: false, exactly_once: false, ignore_replica: false };
    root.restore(&wanted).expect("restored");
    dir
}

fn check(sort_by: &[&str], ops: &[Op], elsewhere: bool) {
    let dir = tempfile::tempdir().expect("a directory");
    let tables = tempfile::tempdir().expect("a directory");
    let prefix = elsewhere.then(|| format!("file://{}/pub", tables.path().display()));
    let open = || rig_with(dir.path(), sort_by, prefix.as_deref(), true, eager());
    let (mut left, mut next) = (BTreeSet::new(), 1);
    for op in ops {
        match op {
            Op::Append(count) => {
                append(dir.path(), sort_by, next..next + count);
                left.extend(next..next + count);
                next += count;
            }
            Op::Erase(_) | Op::EraseAll => {
                let victims: Vec<i64> = match op {
                    Op::Erase(places) => {
                        let all: Vec<i64> = left.iter().copied().collect();
                        let chosen = places.iter().filter_map(|place| all.get(place * all.len() / 1000).copied());
                        chosen.collect::<BTreeSet<_>>().into_iter().collect()
                    }
                    _ => left.iter().copied().collect(),
                };
                left.retain(|offset| !victims.contains(offset));
                erase(dir.path(), sort_by, victims);
                next += 1;
            }
            Op::Flush => {
                open().flush();
            }
            Op::Merge => open().lake.compact("t").expect("merged"),
            Op::Evict => {
                open().lake.evict("t").expect("evicted");
            }
            Op::Purge => purge(&open().lake),
        }
    }
    let mut here = open();
    here.flush();
    purge(&here.lake);
    let want: Vec<(i64, i64)> = left.iter().map(|offset| (*offset, *offset)).collect();
    assert_eq!(here.replay(1, 4_096), want);
    let published: Vec<i64> = {
        let rows = here.lake.table("t").expect("opens").map(|mut table| here.lake.block_on(table.files()));
        let files = rows.transpose().expect("read").unwrap_or_default();
        files.iter().flat_map(|file| rows_of(Path::new(&file.uri["file://".len()..]))).collect()
    };
    assert_eq!(published, left.iter().copied().collect::<Vec<_>>());
    for path in data_files(dir.path()).into_iter().chain(data_files(tables.path())) {
        let rows = rows_of(&path);
        assert!(rows.iter().all(|offset| left.contains(offset)), "{} has erased rows: {rows:?}", path.display());
    }
    assert_eq!(here.lake.purged_through(here.record.id).is_some(), ops.iter().any(erases));
    let home = here.lake.root().to_owned();
    drop(here);
    if next > 1 {
        let dir = restored(&home);
        let there = rig(dir.path(), sort_by, None, true);
        assert_eq!(there.replay(1, 4_096), want);
        drop(there);
        // What was restored can be restored, with the offsets left out in between.
        let again = restored(dir.path());
        assert_eq!(rig(again.path(), sort_by, None, true).replay(1, 4_096), want);
    }
}

fn erases(op: &Op) -> bool {
    matches!(op, Op::Erase(_) | Op::EraseAll)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, max_shrink_iters: 60, ..ProptestConfig::default() })]

    #[test]
    fn what_is_erased_leaves_every_file_and_stays_erased(ops in ops(), sorted: bool, elsewhere: bool) {
        check(if sorted { &["id"] } else { &[] }, &ops, elsewhere);
    }
}

#[test]
fn a_restore_before_the_purge_gives_no_erased_row_and_purges_it() {
    let dir = tempfile::tempdir().expect("a directory");
    append(dir.path(), &[], 1..301);
    let mut here = rig(dir.path(), &[], None, true);
    here.flush();
    drop(here);
    erase(dir.path(), &[], (50..150).chain([300]).collect());
    let here = rig(dir.path(), &[], None, true);
    // The holes are told; the files are as they were.
    here.lake.block_on(super::super::holes::publish_holes(&here.lake.shared(), &here.lake.moved("t"))).expect("told");
    let home = here.lake.root().to_owned();
    drop(here);
    let copy = restored(&home);
    let there = rig_with(copy.path(), &[], None, true, eager());
    let want: Vec<(i64, i64)> = (1..50).chain(150..300).map(|offset| (offset, offset)).collect();
    assert_eq!(there.replay(1, 4_096), want);
    assert_eq!(there.table_rows(), 300);
    purge(&there.lake);
    assert_eq!(there.table_rows(), 199);
    assert_eq!(there.replay(1, 4_096), want);
}

#[test]
fn readers_keep_what_they_have_opened_for_their_time() {
    let dir = tempfile::tempdir().expect("a directory");
    append(dir.path(), &[], 1..301);
    let mut here = rig(dir.path(), &[], None, true);
    here.flush();
    drop(here);
    erase(dir.path(), &[], vec![7]);
    let here = rig(dir.path(), &[], None, true);
    assert!(here.lake.purge("t").expect("purged"), "files wait to be deleted");
    assert!(here.lake.purge("t").expect("purged again"));
    assert_eq!(here.table_rows(), 299);
    let files = data_files(dir.path());
    assert!(files.iter().any(|path| rows_of(path).contains(&7)), "a reader may be using it");
    let through = here.lake.purged_through(here.record.id).expect("looked");
    assert!(through < 301, "{through}");
    drop(here);
    let here = rig_with(dir.path(), &[], None, true, eager());
    std::thread::sleep(Duration::from_millis(3));
    purge(&here.lake);
    assert_eq!(here.lake.purged_through(here.record.id), Some(301));
    assert!(!data_files(dir.path()).iter().any(|path| rows_of(path).contains(&7)));
}
