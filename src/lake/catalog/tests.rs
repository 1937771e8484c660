//! The catalog through its life: what was recorded is found again, and nothing overlaps.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::*;
use crate::lake::data_file::DataFile;

fn file(root: &Path, start: i64, end: i64) -> NewFile {
    let path = root.join(format!("t/t/published/t/data/sealed/{start}-{end}.parquet"));
    NewFile {
        file: DataFile {
            uri: format!("file://{}", path.display()),
            start,
            end,
            rows: (end - start) as u64,
            size_bytes: 1000,
            ts_us: (start * 10, end * 10),
            split_offsets: vec![4],
            columns: Vec::new(),
        },
        path: Some(path),
        tier: Tier::Sealed,
        local: true,
        published: false,
    }
}

/// A file that the table will have elsewhere.
fn remote(root: &Path, start: i64, end: i64) -> NewFile {
    let mut new = file(root, start, end);
    new.file.uri = format!("s3://bucket/t/t/data/sealed/{start}-{end}.parquet");
    new
}

fn open(root: &Path) -> (Catalog, LogId) {
    let catalog = Catalog::open(root).expect("opens");
    let location = format!("file://{}/t/t/published/t", root.display());
    let log =
        catalog.ensure_log(&NewLog { stream: "t", name: "t", location: &location, start_offset: 1 }).expect("recorded");
    (catalog, log.id)
}

fn ranges(view: &LogView) -> Vec<(i64, i64, bool, bool)> {
    view.files.iter().map(|file| (file.start, file.end, file.local, file.published)).collect()
}

#[test]
fn files_and_watermarks_are_there_after_opening_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let (catalog, log) = open(dir.path());
    let epoch = catalog.writer_epoch();
    let intent = file(dir.path(), 1, 6);
    let path = intent.path.clone().expect("local");
    catalog.intend(log, Tier::Sealed, &path, (1, 6)).expect("noted");
    let noted = &catalog.intents().expect("read")[0];
    assert_eq!((noted.log, noted.tier, &noted.path, &noted.file), (log, Tier::Sealed, &path, &None));
    catalog.append(log, std::slice::from_ref(&intent)).expect("recorded");
    assert_eq!(catalog.intents().expect("read"), []);
    catalog.append(log, &[file(dir.path(), 8, 11)]).expect("recorded, after a hole");
    assert_eq!(catalog.data_files(log, &[1, 8, 9]).expect("read").len(), 2);
    assert_eq!(catalog.data_files(log, &[1]).expect("read")[0], intent.file);
    let view = catalog.mark_published(log, &[1], 6).expect("marked");
    assert_eq!((view.sealed_end, view.published_end), (11, 6));
    assert_eq!(catalog.data_files(log, &[1]).expect("read"), []);
    drop(catalog);

    let (catalog, log) = open(dir.path());
    assert!(catalog.writer_epoch() > epoch);
    let view = catalog.find("t", "t").expect("there");
    assert_eq!((view.id, view.sealed_end, view.published_end), (log, 11, 6));
    assert_eq!(ranges(&view), [(1, 6, true, true), (8, 11, true, false)]);
    assert!(matches!(catalog.find("t", "t-v2"), Err(CatalogError::NoLog { .. })));
    for (start, end) in [(5, 12), (10, 20), (11, 11), (12, 11)] {
        let error = catalog.append(log, &[file(dir.path(), start, end)]).expect_err("overlaps");
        assert!(matches!(error, CatalogError::Misfit { .. }), "{error}");
    }
    assert_eq!(catalog.logs("t"), [view]);
}

#[test]
fn a_merged_file_takes_the_place_of_whole_files_and_what_is_left_waits_to_be_deleted() {
    let dir = tempfile::tempdir().expect("a directory");
    let (catalog, log) = open(dir.path());
    for (start, end) in [(1, 5), (5, 9), (9, 13)] {
        catalog.append(log, &[remote(dir.path(), start, end)]).expect("recorded");
    }
    catalog.mark_published(log, &[1], 5).expect("marked");
    let merged = NewFile { tier: Tier::Compacted, published: true, ..remote(dir.path(), 1, 9) };
    let path = merged.path.clone().expect("local");
    catalog.intend(log, Tier::Compacted, &path, (1, 9)).expect("noted");
    catalog.describe_intent(&path, &merged.file).expect("described");
    assert_eq!(catalog.intents().expect("read")[0].file, Some(merged.file.clone()));
    for (start, end) in [(1, 8), (2, 9), (13, 20)] {
        let error =
            catalog.replace(log, (start, end), &[remote(dir.path(), start, end)], 0).expect_err("no whole files");
        assert!(matches!(error, CatalogError::Misfit { .. }), "{error}");
    }
    let range = (merged.file.start, merged.file.end);
    let view = catalog.replace(log, range, &[merged], 1).expect("replaced");
    assert_eq!(ranges(&view), [(1, 9, true, true), (9, 13, true, false)]);
    assert_eq!(catalog.intents().expect("read"), []);
    let due: Vec<_> = catalog.due_trash(10).expect("read").into_iter().map(|trash| trash.uri).collect();
    let local =
        |start, end| format!("file://{}/t/t/published/t/data/sealed/{start}-{end}.parquet", dir.path().display());
    assert_eq!(due, [local(1, 5), local(5, 9)]);
    assert_eq!(catalog.trash_of(log).expect("read").len(), 2);
    catalog.forget_trash(&due[0]).expect("forgotten");
    assert_eq!(catalog.due_trash(10).expect("read").len(), 1);
}

#[test]
fn only_published_files_leave_the_local_tier_and_shared_ones_stay_on_disk() {
    let dir = tempfile::tempdir().expect("a directory");
    let (catalog, log) = open(dir.path());
    catalog
        .append(log, &[remote(dir.path(), 1, 5), file(dir.path(), 5, 9), file(dir.path(), 9, 13)])
        .expect("recorded");
    catalog.mark_published(log, &[1, 5], 9).expect("marked");
    let view = catalog.leave_local(log, &[1, 5, 9], 1).expect("evicted");
    assert_eq!(ranges(&view), [(1, 5, false, true), (5, 9, false, true), (9, 13, true, false)]);
    assert_eq!(view.files[0].path, None);
    assert!(view.files[1].is_shared());
    assert_eq!(catalog.due_trash(10).expect("read").len(), 1);
    let readable = |file: &SealedFile| file.local;
    assert_eq!(view.file_at_or_above(1, readable).map(|(index, _)| index), Some(2));
    assert_eq!(view.file_at_or_above(6, |_| true).map(|(index, _)| index), Some(1));
    assert_eq!(view.file_at_or_above(13, |_| true), None);
    catalog.remove_log(log).expect("removed");
    assert_eq!(catalog.logs("t"), []);
}

#[test]
fn a_moved_root_keeps_its_files() {
    let dir = tempfile::tempdir().expect("a directory");
    let (old, new) = (dir.path().join("old"), dir.path().join("new"));
    std::fs::create_dir(&old).expect("made");
    let (catalog, log) = open(&old);
    catalog.append(log, &[file(&old, 1, 5)]).expect("recorded");
    drop(catalog);
    std::fs::rename(&old, &new).expect("moved");
    let (catalog, log) = open(&new);
    let view = catalog.log(log).expect("there");
    assert_eq!(view.files[0].path, Some(new.join("t/t/published/t/data/sealed/1-5.parquet")));
    assert!(view.location.contains("/new/"), "{}", view.location);
    let outside = PathBuf::from("/elsewhere/x.parquet");
    catalog.intend(log, Tier::Sealed, &outside, (5, 6)).expect("noted");
    assert_eq!(catalog.intents().expect("read")[0].path, outside);
}

#[test]
fn ten_thousand_files_open_within_a_second() {
    let dir = tempfile::tempdir().expect("a directory");
    let (catalog, log) = open(dir.path());
    let files: Vec<_> = (0..10_000).map(|index| file(dir.path(), index * 10 + 1, index * 10 + 11)).collect();
    catalog.append(log, &files).expect("recorded");
    drop(catalog);
    let before = computed();
    let catalog = Catalog::open(dir.path()).expect("opens");
    let took = computed() - before;
    assert_eq!(catalog.log(log).expect("there").files.len(), 10_000);
    assert!(took < Duration::from_secs(1), "{took:?}");
}

/// For how long this thread has had a core: what others do with the machine meanwhile does not count.
fn computed() -> Duration {
    let line = std::fs::read_to_string("/proc/thread-self/schedstat").expect("a line");
    Duration::from_nanos(line.split(' ').next().and_then(|first| first.parse().ok()).expect("nanoseconds"))
}

#[test]
fn another_database_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let connection = rusqlite::Connection::open(dir.path().join(CATALOG_FILE)).expect("opens");
    connection.execute_batch("CREATE TABLE x (y)").expect("made");
    assert!(matches!(Catalog::open(dir.path()), Err(CatalogError::Foreign { .. })));
}
