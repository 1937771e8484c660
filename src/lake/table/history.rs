//! Earlier versions of a table's metadata, as long as they are there.
//!
//! A version names the newest of those before it, and the newest snapshots ([`RECENT`](super::spec::RECENT)). The oldest
//! that it names tells what came before that, and so on. So a version is of one size however many there are, and all
//! that are kept can be found from the current one.

use std::collections::BTreeMap;

use iceberg::spec::{SnapshotRef, TableMetadata};

use super::error::TableError;
use super::live::Table;
use super::{names, version};

/// What lies before a point in time.
#[derive(Debug, Default)]
pub(super) struct Passed {
    /// Versions that were superseded before it and are still there, oldest first, by URI.
    pub versions: Vec<String>,
    /// Snapshots from the current one of the oldest of these on, as far as they tell.
    pub snapshots: Vec<SnapshotRef>,
}

impl Table {
    /// The versions that were superseded before `cutoff_ms`, and their snapshots.
    pub(super) async fn passed(&self, cutoff_ms: i64) -> Result<Passed, TableError> {
        let mut passed = Passed::default();
        let Some((mut next, after)) = self.newest_before(cutoff_ms).await? else { return Ok(passed) };
        let mut snapshots: Vec<SnapshotRef> = after;
        let mut oldest = i64::MAX;
        while let Some(metadata) = self.earlier(&next).await? {
            oldest = metadata.current_snapshot().map_or(i64::MIN, |snapshot| snapshot.sequence_number());
            snapshots.extend(metadata.snapshots().cloned());
            snapshots = ordered(snapshots.iter());
            let before = metadata.metadata_log().last().map(|entry| entry.metadata_file.clone());
            let before = before.filter(|before| is_before(before, &next));
            passed.versions.push(next);
            let Some(before) = before else { break };
            next = before;
        }
        passed.versions.reverse();
        // The oldest also names some whose own versions are gone, and they with them.
        passed.snapshots = snapshots.into_iter().filter(|snapshot| snapshot.sequence_number() >= oldest).collect();
        Ok(passed)
    }

    /// The URI of the newest version that was superseded before `cutoff_ms`, and the snapshots that the one after it
    /// names.
    async fn newest_before(&self, cutoff_ms: i64) -> Result<Option<(String, Vec<SnapshotRef>)>, TableError> {
        let mut page = self.metadata().clone();
        loop {
            let log = page.metadata_log();
            // An entry was superseded when the next one was made, the last one when the page was.
            let until = log.iter().skip(1).map(|entry| entry.timestamp_ms).chain([page.last_updated_ms()]);
            if let Some(at) = until.enumerate().filter(|(_, until_ms)| *until_ms < cutoff_ms).map(|(at, _)| at).last() {
                let after = match log.get(at + 1) {
                    Some(after) => self.earlier(&after.metadata_file).await?,
                    None => Some(page.clone()),
                };
                let after = after.map(|after| after.snapshots().cloned().collect()).unwrap_or_default();
                return Ok(log.get(at).map(|entry| (entry.metadata_file.clone(), after)));
            }
            let Some(earlier) = self.page_before(&page).await? else { return Ok(None) };
            page = earlier;
        }
    }

    /// Versions from which, together, all states can be told that are still there: the current one first.
    pub(super) async fn pages(&self) -> Result<Vec<TableMetadata>, TableError> {
        let mut pages = vec![self.metadata().clone()];
        while let Some(last) = pages.last()
            && let Some(earlier) = self.page_before(last).await?
        {
            pages.push(earlier);
        }
        Ok(pages)
    }

    /// The oldest version that `page` names, if it is still there.
    async fn page_before(&self, page: &TableMetadata) -> Result<Option<TableMetadata>, TableError> {
        let Some(first) = page.metadata_log().first() else { return Ok(None) };
        let Some(earlier) = self.earlier(&first.metadata_file).await? else { return Ok(None) };
        // Whatever is written there, this comes to an end.
        let goes_back =
            earlier.metadata_log().first().is_none_or(|it| is_before(&it.metadata_file, &first.metadata_file));
        Ok(Some(earlier).filter(|_| goes_back))
    }

    /// An earlier version; `None` if it is not there, or not a version of this table.
    async fn earlier(&self, uri: &str) -> Result<Option<TableMetadata>, TableError> {
        // Only what lies in this table's own directory is this table's.
        if names::stem_of(uri).is_none_or(|stem| names::metadata(&self.location, stem) != uri) {
            return Ok(None);
        }
        let Some(bytes) = self.store.get(uri).await? else { return Ok(None) };
        let metadata = version::decode(&self.location, uri, bytes).await?;
        Ok(Some(metadata).filter(|metadata| metadata.uuid() == self.metadata().uuid()))
    }
}

/// Whether a version has a lower number than another.
fn is_before(one: &str, other: &str) -> bool {
    let number = |uri| names::stem_of(uri).map(names::number);
    number(one) < number(other)
}

/// Snapshots by the order of their changes, each once.
pub(super) fn ordered<'a>(snapshots: impl Iterator<Item = &'a SnapshotRef>) -> Vec<SnapshotRef> {
    let by_id: BTreeMap<i64, &SnapshotRef> = snapshots.map(|snapshot| (snapshot.snapshot_id(), snapshot)).collect();
    let mut all: Vec<SnapshotRef> = by_id.into_values().cloned().collect();
    all.sort_by_key(|snapshot| (snapshot.sequence_number(), snapshot.timestamp_ms()));
    all
}
