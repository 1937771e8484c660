//! Earlier states of a table.

use iceberg::spec::SnapshotRef;

use crate::lake::data_file::DataFile;

use super::commit::{EPOCH, OFFSETS};
use super::error::TableError;
use super::live::Table;
use super::manifests;

/// One state of a table that readers may still look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotInfo {
    /// Its id.
    pub snapshot_id: i64,
    /// Its place in the order of changes.
    pub sequence_number: i64,
    /// When it was made, in milliseconds since 1970.
    pub timestamp_ms: i64,
    /// `append`, `replace`, `delete` or `overwrite`.
    pub operation: &'static str,
    /// The offsets that it added, replaced or took away; `None` if another program made it.
    pub offsets: Option<(i64, i64)>,
    /// The epoch of the server that made it, if that gave one.
    pub writer_epoch: Option<u64>,
    /// Rows in all.
    pub total_records: Option<u64>,
    /// Files in all.
    pub total_files: Option<u64>,
}

impl Table {
    /// The states that were not expired, oldest first.
    #[must_use]
    pub fn snapshots(&self) -> Vec<SnapshotInfo> {
        self.ordered_snapshots().into_iter().map(info).collect()
    }

    /// The live files of an earlier state, by offset.
    ///
    /// # Errors
    /// [`TableError::NoSnapshot`] when it has expired, or when it cannot be read.
    pub async fn files_at(&self, snapshot_id: i64) -> Result<Vec<DataFile>, TableError> {
        let snapshot = self.metadata().snapshot_by_id(snapshot_id);
        let snapshot =
            snapshot.ok_or_else(|| TableError::NoSnapshot { location: self.location.clone(), snapshot_id })?;
        let listed = manifests::read_list(&self.store, &self.location, snapshot.manifest_list()).await?;
        let index = manifests::read_index(&self.store, self.metadata(), listed).await?;
        Ok(index.files.iter().map(super::index::Live::data_file).collect())
    }

    pub(super) fn ordered_snapshots(&self) -> Vec<&SnapshotRef> {
        let mut all: Vec<_> = self.metadata().snapshots().collect();
        all.sort_by_key(|snapshot| (snapshot.sequence_number(), snapshot.timestamp_ms()));
        all
    }
}

fn info(snapshot: &SnapshotRef) -> SnapshotInfo {
    let summary = &snapshot.summary().additional_properties;
    let number = |key: &str| summary.get(key)?.parse().ok();
    let offsets = summary.get(OFFSETS).and_then(|text| {
        let (start, end) = text.split_once('-')?;
        Some((start.parse().ok()?, end.parse().ok()?))
    });
    SnapshotInfo {
        snapshot_id: snapshot.snapshot_id(),
        sequence_number: snapshot.sequence_number(),
        timestamp_ms: snapshot.timestamp_ms(),
        operation: operation(snapshot),
        offsets,
        writer_epoch: number(EPOCH),
        total_records: number("total-records"),
        total_files: number("total-data-files"),
    }
}

fn operation(snapshot: &SnapshotRef) -> &'static str {
    use iceberg::spec::Operation;
    match snapshot.summary().operation {
        Operation::Append => "append",
        Operation::Replace => "replace",
        Operation::Overwrite => "overwrite",
        Operation::Delete => "delete",
    }
}
