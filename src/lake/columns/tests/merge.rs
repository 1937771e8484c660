//! Merged files have the rows of their inputs.

use super::support::{Stored, assert_same, path, read_file, schema, seal, stored};
use crate::lake::DataFile;
use crate::lake::columns::{ColumnsError, Layout, Source, WriteOptions, merge};

const SPECS: &str = r#"{"id":{"type":"integer"},"name":{"type":["string","null"]},
    "tags":{"type":"array","items":{"type":"number"}}}"#;

fn rows(start: i64, count: i64) -> Vec<Stored> {
    stored(
        start,
        (start..start + count)
            .map(|i| format!(r#"{{"id":{},"name":"n{}","tags":[{:?}]}}"#, i * 7919 % 10_007, i % 97, i as f64)),
    )
}

fn sources(files: &[DataFile]) -> Vec<Source> {
    files.iter().map(|file| Source::file(path(file)).expect("opens")).collect()
}

#[test]
fn small_files_become_one() {
    for sort_by in [vec![], vec!["name".to_owned(), "id".to_owned()]] {
        let directory = tempfile::tempdir().expect("a directory");
        let layout = Layout::new(&schema(SPECS)).expect("a layout");
        let options = WriteOptions { row_group_bytes: 200_000, ..WriteOptions::new(&sort_by) };
        // Offsets 2,001 to 2,010 were skipped.
        let parts = [rows(1, 2000), rows(2011, 1), rows(2012, 5000), rows(7012, 300)];
        let mut files: Vec<DataFile> =
            parts.iter().map(|part| seal(&layout, directory.path(), &options, part)).collect();
        files.reverse();
        let merged = merge(&sources(&files), &layout, directory.path(), u64::MAX, &options).expect("merged");
        let [file] = &merged[..] else { panic!("{merged:?}") };
        assert_eq!((file.start, file.end, file.rows), (1, 7312, 7301));
        assert!(file.split_offsets.len() > 1);
        assert_same(&read_file(&layout, file, i64::MIN, i64::MAX), &parts.concat());

        let target = file.size_bytes / 3;
        let merged = merge(&sources(&files), &layout, directory.path(), target, &options).expect("merged");
        assert!(merged.len() > 2 && merged.iter().all(|file| file.size_bytes <= target * 3 / 2), "{merged:?}");
        let all: Vec<Stored> = merged.iter().flat_map(|file| read_file(&layout, file, i64::MIN, i64::MAX)).collect();
        assert_same(&all, &parts.concat());
    }
}

#[test]
fn inputs_that_make_no_sense_are_refused_and_leave_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let layout = Layout::new(&schema(SPECS)).expect("a layout");
    let options = WriteOptions::new(&[]);
    let files = [rows(1, 10), rows(10, 10)].map(|rows| seal(&layout, directory.path(), &options, &rows));
    let refused = merge(&sources(&files), &layout, directory.path(), u64::MAX, &options);
    assert!(matches!(&refused, Err(ColumnsError::File { why, .. }) if why.contains("offset 10")), "{refused:?}");
    assert!(matches!(merge(&[], &layout, directory.path(), u64::MAX, &options), Err(ColumnsError::Empty)));
    assert_eq!(std::fs::read_dir(directory.path()).expect("there").count(), 2);
}
