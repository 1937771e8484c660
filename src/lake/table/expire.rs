//! Letting go of what no reader can be using any more: earlier states, the files that only they had, and old versions
//! of the metadata. Everything goes by the time at which it was *superseded*: a reader that opened the table just before
//! a change has the whole retention for what it opened.
//!
//! What is there is told by versions, the newest by the current one and the rest by those before it (history.rs). So
//! versions that are too old are read once more, what only they had is deleted, and then they are, the oldest first:
//! whatever a crash leaves of that is found again.

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use iceberg::spec::SnapshotRef;

use crate::lake::steps::step;

use super::commit::{MAX_ATTEMPTS, now_ms};
use super::document::Document;
use super::error::TableError;
use super::history::{Passed, ordered};
use super::live::Table;
use super::manifests;

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
    /// Takes out states that were superseded longer than the retention ago, then deletes what only they had. What a crash
    /// in between leaves is deleted by the next call. A table with branches or tags is left alone.
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
            let branches = document.has_branches();
            let passed = self.passed(cutoff_ms).await?;
            // Those that the current version names go first: whoever reads it never finds them half deleted.
            let named = if branches { Vec::new() } else { self.old_snapshots(cutoff_ms) };
            let forgotten = document.forget_versions(cutoff_ms);
            if named.is_empty() && forgotten.is_empty() && passed.versions.is_empty() {
                return Ok(Expired::default());
            }
            let (old, states) = if branches { (HashSet::new(), Vec::new()) } else { self.states(&passed, cutoff_ms) };
            let garbage = self.garbage(&states, &old).await?;
            if !named.is_empty() || !forgotten.is_empty() {
                document.remove_snapshots(&named);
                document.follow(at_ms);
                let index = self.index.clone();
                if !self.install(document.into_metadata()?, index).await? {
                    continue;
                }
            }
            drop(lock);
            return self.delete(garbage, passed, old.len(), &expire.keep).await;
        }
        Err(self.contended())
    }

    /// Deletes data files, then manifests and lists, then versions.
    async fn delete(
        &self,
        garbage: Garbage,
        passed: Passed,
        snapshots: usize,
        keep: &HashSet<String>,
    ) -> Result<Expired, TableError> {
        let data_files: Vec<String> = garbage.data.into_iter().filter(|uri| !keep.contains(uri)).collect();
        self.store.delete_many(&data_files).await?;
        step("expired data files are deleted");
        let metadata: Vec<String> = garbage.metadata.into_iter().collect();
        self.store.delete_many(&metadata).await?;
        step("expired manifests are deleted");
        self.store.delete_many(&passed.versions).await?;
        Ok(Expired { snapshots, data_files, metadata_files: metadata.len() + passed.versions.len() })
    }

    /// Snapshots that the current version names and that were superseded before `cutoff_ms`.
    fn old_snapshots(&self, cutoff_ms: i64) -> Vec<i64> {
        let current = self.metadata().current_snapshot_id();
        superseded(&self.ordered_snapshots(), cutoff_ms).filter(|id| Some(*id) != current).collect()
    }

    /// All snapshots that are known, oldest first, and which of them were superseded before `cutoff_ms`.
    fn states(&self, passed: &Passed, cutoff_ms: i64) -> (HashSet<i64>, Vec<SnapshotRef>) {
        let states = ordered(passed.snapshots.iter().chain(self.metadata().snapshots()));
        let current = self.metadata().current_snapshot_id();
        let old = superseded(&states.iter().collect::<Vec<_>>(), cutoff_ms).filter(|id| Some(*id) != current).collect();
        (old, states)
    }

    /// What only the `old` ones of `states` have. A file of a table never comes back once it is gone, so it is enough to
    /// compare each of them with the one that came after it. What is deleted already is passed over: data goes before the
    /// manifests that tell of it.
    async fn garbage(&self, states: &[SnapshotRef], old: &HashSet<i64>) -> Result<Garbage, TableError> {
        let mut garbage = Garbage::default();
        let mut before: Option<HashSet<String>> = None;
        for pair in states.windows(2) {
            if !old.contains(&pair[0].snapshot_id()) {
                before = None;
                continue;
            }
            garbage.metadata.insert(pair[0].manifest_list().to_owned());
            let older = match before.take() {
                Some(older) => older,
                None => self.manifest_uris(pair[0].manifest_list()).await?,
            };
            let found = manifests::find_list(&self.store, &self.location, pair[1].manifest_list()).await?;
            let Some(newer_manifests) = found else { continue };
            let id = pair[1].snapshot_id();
            for manifest in newer_manifests.iter().filter(|it| it.added_snapshot_id == id && it.has_deleted_files()) {
                let entries = manifests::find_manifest(&self.store, manifest).await?.unwrap_or_default();
                let gone = entries.iter().filter(|entry| manifests::deleted_by(entry, id));
                garbage.data.extend(gone.map(|entry| entry.file_path().to_owned()));
            }
            let newer: HashSet<String> = newer_manifests.into_iter().map(|manifest| manifest.manifest_path).collect();
            garbage.metadata.extend(older.difference(&newer).cloned());
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

    async fn manifest_uris(&self, list: &str) -> Result<HashSet<String>, TableError> {
        let listed = manifests::find_list(&self.store, &self.location, list).await?.unwrap_or_default();
        Ok(listed.into_iter().map(|manifest| manifest.manifest_path).collect())
    }
}

/// Those of `ordered` that were superseded before `cutoff_ms`.
fn superseded<'a>(ordered: &'a [&'a SnapshotRef], cutoff_ms: i64) -> impl Iterator<Item = i64> + 'a {
    let old = ordered.windows(2).filter(move |pair| pair[1].timestamp_ms() < cutoff_ms);
    old.map(|pair| pair[0].snapshot_id())
}
