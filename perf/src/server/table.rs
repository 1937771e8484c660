//! What a server has on the disk, seen from outside: the log, and an Iceberg table as any reader finds it.

use std::fs;
use std::path::Path;

use serde_json::Value;

/// Files and bytes on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Disk {
    /// Files directly in the data root: the journal, its write-ahead log, the catalog.
    pub journal_bytes: u64,
    /// Below `data` of the table.
    pub data_files: u64,
    pub data_bytes: u64,
    /// Below `metadata` of the table.
    pub metadata_files: u64,
    pub metadata_bytes: u64,
}

impl Disk {
    /// Looks at a data root and the table in it. Files that go away meanwhile are not counted.
    #[must_use]
    pub fn of(root: &Path, table: Option<&Path>) -> Self {
        let mut disk = Self::default();
        for entry in fs::read_dir(root).into_iter().flatten().flatten() {
            if let Ok(metadata) = entry.metadata()
                && metadata.is_file()
            {
                disk.journal_bytes += metadata.len();
            }
        }
        if let Some(table) = table {
            (disk.data_files, disk.data_bytes) = below(&table.join("data"));
            (disk.metadata_files, disk.metadata_bytes) = below(&table.join("metadata"));
        }
        disk
    }
}

/// Files below a directory, and their bytes.
fn below(directory: &Path) -> (u64, u64) {
    let (mut files, mut bytes) = (0, 0);
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => {
                let (more, longer) = below(&entry.path());
                (files, bytes) = (files + more, bytes + longer);
            }
            Ok(metadata) => (files, bytes) = (files + 1, bytes + metadata.len()),
            Err(_) => {}
        }
    }
    (files, bytes)
}

/// The current snapshot of a table.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TableState {
    pub rows: u64,
    pub files: u64,
    /// Number of the last commit: how many there were.
    pub commits: u64,
    /// Numbers of the commits that replaced files by others with the same rows, of those that the version names.
    pub replaced: Vec<u64>,
}

impl TableState {
    /// Reads the version that the hint names; `None` while there is no snapshot.
    #[must_use]
    pub fn read(table: &Path) -> Option<Self> {
        let metadata = table.join("metadata");
        let hint = fs::read_to_string(metadata.join("version-hint.text")).ok()?;
        let text = fs::read(metadata.join(format!("{}.metadata.json", hint.trim()))).ok()?;
        let version: Value = serde_json::from_slice(&text).ok()?;
        let current = version["current-snapshot-id"].as_i64()?;
        let snapshots = version["snapshots"].as_array()?;
        let snapshot = snapshots.iter().find(|snapshot| snapshot["snapshot-id"].as_i64() == Some(current))?;
        let count = |name: &str| snapshot["summary"][name].as_str()?.parse().ok();
        let replaces = |snapshot: &&Value| snapshot["summary"]["operation"] == "replace";
        let number = |snapshot: &Value| snapshot["sequence-number"].as_u64();
        Some(Self {
            rows: count("total-records")?,
            files: count("total-data-files")?,
            commits: version["last-sequence-number"].as_u64()?,
            replaced: snapshots.iter().filter(replaces).filter_map(number).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_and_what_it_takes() {
        let folder = tempfile::tempdir().unwrap();
        let (root, table) = (folder.path(), folder.path().join("t"));
        fs::create_dir_all(table.join("data/sealed")).unwrap();
        fs::create_dir_all(table.join("metadata")).unwrap();
        assert_eq!(TableState::read(&table), None);
        fs::write(root.join("journal.db"), [0; 100]).unwrap();
        fs::write(table.join("data/sealed/a.parquet"), [0; 10]).unwrap();
        fs::write(table.join("metadata/version-hint.text"), "00002-x\n").unwrap();
        let version = r#"{"current-snapshot-id": 7, "last-sequence-number": 9, "snapshots": [
            {"snapshot-id": 6, "sequence-number": 8,
             "summary": {"operation": "append", "total-records": "1", "total-data-files": "1"}},
            {"snapshot-id": 7, "sequence-number": 9,
             "summary": {"operation": "replace", "total-records": "20", "total-data-files": "3"}}]}"#;
        fs::write(table.join("metadata/00002-x.metadata.json"), version).unwrap();
        assert_eq!(TableState::read(&table), Some(TableState { rows: 20, files: 3, commits: 9, replaced: vec![9] }));
        let disk = Disk::of(root, Some(&table));
        assert_eq!((disk.journal_bytes, disk.data_files, disk.data_bytes, disk.metadata_files), (100, 1, 10, 2));
    }
}
