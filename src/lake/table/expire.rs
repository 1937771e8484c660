//! Letting go of what no reader can be using any more: earlier states, the files that only they had, and old versions
//! of the metadata. Everything goes by the time at which it was *superseded*: a reader that opened the table just before
//! a change has the whole retention for what it opened.

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use iceberg::spec::SnapshotRef;

use crate::lake::steps::step;

use super::commit::{MAX_ATTEMPTS, now_ms};
use super::document::Document;
use super::error::TableError;
use super::live::Table;
use super::{manifests, names};

/// What [`Table::expire`] lets go of.
#[derive(Debug, Clone)]
pub struct Expire {
    /// How long a superseded state stays readable. An hour, unless all readers are known.
    pub retention: Duration,
    /// Data files that stay although no reader of the table needs them, by URI.
    pub keep: HashSet<String>,
    /// The time in milliseconds since 1970; without it, now.
    pub now_ms: Option<i64>,
}

impl Default for Expire {
    fn default() -> Self {
        Self { retention: Duration::from_secs(3600), keep: HashSet::new(), now_ms: None }
    }
}

/// What was let go of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Expired {
    /// Snapshots taken out of the metadata.
    pub snapshots: usize,
    /// Data files deleted, by URI.
    pub data_files: Vec<String>,
    /// Manifests, manifest lists and versions deleted.
    pub metadata_files: usize,
}

/// Objects that go with snapshots.
#[derive(Default)]
struct Garbage {
    data: BTreeSet<String>,
    metadata: BTreeSet<String>,
}

impl Table {
    /// Takes out states that were superseded longer than the retention ago, then deletes what only they had. A crash in
    /// between leaves files that [`Table::sweep`] finds. A table with branches or tags is left alone.
    ///
    /// # Errors
    /// When another writer is in the way, or the store fails.
    pub async fn expire(&mut self, expire: &Expire) -> Result<Expired, TableError> {
        let lock = self.lock().await?;
        let retention_ms = i64::try_from(expire.retention.as_millis()).unwrap_or(i64::MAX);
        let at_ms = expire.now_ms.unwrap_or_else(now_ms);
        let cutoff_ms = at_ms.saturating_sub(retention_ms);
        for _ in 0..MAX_ATTEMPTS {
            self.catch_up().await?;
            let mut document = Document::of(self.metadata_uri(), self.metadata())?;
            let ids = if document.has_branches() { Vec::new() } else { self.old_snapshots(cutoff_ms) };
            let old_versions = document.forget_versions(cutoff_ms);
            if ids.is_empty() && old_versions.is_empty() {
                return Ok(Expired::default());
            }
            let mut garbage = self.garbage(&ids).await?;
            document.remove_snapshots(&ids);
            document.follow(at_ms);
            let index = self.index.clone();
            if !self.install(document.into_metadata()?, index).await? {
                continue;
            }
            drop(lock);
            let data: Vec<String> = garbage.data.into_iter().filter(|uri| !expire.keep.contains(uri)).collect();
            self.store.delete_many(&data).await?;
            step("expired data files are deleted");
            // Only what lies in this table's own directory is this table's to delete.
            let own =
                |uri: &String| names::stem_of(uri).is_some_and(|stem| names::metadata(&self.location, stem) == *uri);
            garbage.metadata.extend(old_versions.into_iter().filter(own));
            let metadata: Vec<String> = garbage.metadata.into_iter().collect();
            self.store.delete_many(&metadata).await?;
            return Ok(Expired { snapshots: ids.len(), data_files: data, metadata_files: metadata.len() });
        }
        Err(self.contended())
    }

    /// Snapshots that were superseded before `cutoff_ms`.
    fn old_snapshots(&self, cutoff_ms: i64) -> Vec<i64> {
        let ordered = self.ordered_snapshots();
        let current = self.metadata().current_snapshot_id();
        let old = ordered.windows(2).filter(|pair| pair[1].timestamp_ms() < cutoff_ms);
        old.map(|pair| pair[0].snapshot_id()).filter(|id| Some(*id) != current).collect()
    }

    /// What only the snapshots `ids` have. A file of a table never comes back once it is gone, so it is enough to compare
    /// each of them with the one that came after it.
    async fn garbage(&self, ids: &[i64]) -> Result<Garbage, TableError> {
        let ordered = self.ordered_snapshots();
        let mut garbage = Garbage::default();
        let mut before: Option<HashSet<String>> = None;
        for pair in ordered.windows(2) {
            if !ids.contains(&pair[0].snapshot_id()) {
                before = None;
                continue;
            }
            let older = match before.take() {
                Some(older) => older,
                None => self.manifest_uris(pair[0]).await?,
            };
            let newer_manifests = manifests::read_list(&self.store, &self.location, pair[1].manifest_list()).await?;
            let id = pair[1].snapshot_id();
            for manifest in newer_manifests.iter().filter(|it| it.added_snapshot_id == id && it.has_deleted_files()) {
                let entries = manifests::read_manifest(&self.store, manifest).await?;
                let gone = entries.iter().filter(|entry| manifests::deleted_by(entry, id));
                garbage.data.extend(gone.map(|entry| entry.file_path().to_owned()));
            }
            let newer: HashSet<String> = newer_manifests.into_iter().map(|manifest| manifest.manifest_path).collect();
            garbage.metadata.extend(older.difference(&newer).cloned());
            garbage.metadata.insert(pair[0].manifest_list().to_owned());
            before = Some(newer);
        }
        self.keep_own(&mut garbage);
        Ok(garbage)
    }

    /// Whatever a table may name, only files below it are deleted.
    fn keep_own(&self, garbage: &mut Garbage) {
        let below = format!("{}/", self.location);
        garbage.data.retain(|uri| uri.starts_with(&below));
        garbage.metadata.retain(|uri| uri.starts_with(&below));
    }

    async fn manifest_uris(&self, snapshot: &SnapshotRef) -> Result<HashSet<String>, TableError> {
        let listed = manifests::read_list(&self.store, &self.location, snapshot.manifest_list()).await?;
        Ok(listed.into_iter().map(|manifest| manifest.manifest_path).collect())
    }
}
