//! Finding files below a table that nothing refers to: what attempts, crashes and lost races have left.

use std::collections::HashSet;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};
use std::time::Duration;

use iceberg::spec::SnapshotRef;

use crate::lake::store::Object;

use super::commit::now_ms;
use super::error::TableError;
use super::live::Table;
use super::{manifests, names};

/// What [`Table::sweep`] may delete.
#[derive(Debug, Clone)]
pub struct Sweep {
    /// Only tell what would be deleted.
    pub dry_run: bool,
    /// Files younger than this stay: they may belong to a change that is under way. At least an hour.
    pub min_age: Duration,
    /// Files that stay although the table does not refer to them, such as sealed ones that are not published yet.
    pub keep: HashSet<String>,
    /// The most files deleted at once.
    pub max_files: usize,
    /// The time in milliseconds since 1970; without it, now.
    pub now_ms: Option<i64>,
}

impl Default for Sweep {
    fn default() -> Self {
        let min_age = Duration::from_secs(3600);
        Self { dry_run: true, min_age, keep: HashSet::new(), max_files: 1000, now_ms: None }
    }
}

/// What was found, and deleted unless it was a dry run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Swept {
    /// Files that nothing refers to and that are old enough.
    pub orphans: Vec<Object>,
    /// Whether there are more than `max_files`.
    pub more: bool,
    /// Files that were looked at.
    pub seen: usize,
}

/// URIs by a hash of 64 bits. Should two be the same, a file that could go stays.
#[derive(Default)]
struct Reachable(HashSet<u64>);

impl Reachable {
    fn add(&mut self, uri: &str) -> bool {
        self.0.insert(hash(uri))
    }

    fn has(&self, uri: &str) -> bool {
        self.0.contains(&hash(uri))
    }
}

fn hash(uri: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    uri.strip_prefix("file://").unwrap_or(uri).hash(&mut hasher);
    hasher.finish()
}

impl Table {
    /// Looks at every file below the table and deletes those that are in none of its states, that are older than
    /// `min_age`, and that `keep` does not have. Versions of the metadata in the log stay.
    ///
    /// # Errors
    /// When the table or the store cannot be read, or a file not deleted.
    pub async fn sweep(&mut self, sweep: &Sweep) -> Result<Swept, TableError> {
        // Looked at first: what is written from now on is younger than the minimum age.
        let now_ms = sweep.now_ms.unwrap_or_else(now_ms);
        let min_age_ms = i64::try_from(sweep.min_age.as_millis()).unwrap_or(i64::MAX);
        self.repair().await?;
        let reachable = self.reachable().await?;
        let mut swept = Swept::default();
        for directory in ["metadata", "data"] {
            let mut listing = self.store.list(&format!("{}/{directory}", self.location))?;
            loop {
                let page = listing.next_page().await?;
                if page.is_empty() {
                    break;
                }
                swept.seen += page.len();
                for object in page {
                    let old = object.modified_ms.saturating_add(min_age_ms) < now_ms;
                    let marker = object.uri.ends_with("/.lock") || object.uri.ends_with('/');
                    if !old || marker || sweep.keep.contains(&object.uri) || reachable.has(&object.uri) {
                        continue;
                    }
                    if swept.orphans.len() == sweep.max_files {
                        swept.more = true;
                        break;
                    }
                    swept.orphans.push(object);
                }
                if swept.more {
                    break;
                }
            }
        }
        if !sweep.dry_run {
            let uris: Vec<String> = swept.orphans.iter().map(|object| object.uri.clone()).collect();
            self.store.delete_many(&uris).await?;
        }
        Ok(swept)
    }

    async fn reachable(&self) -> Result<Reachable, TableError> {
        let mut reachable = Reachable::default();
        reachable.add(&names::hint(&self.location));
        reachable.add(&self.metadata_uri());
        for page in self.pages().await? {
            for entry in page.metadata_log() {
                reachable.add(&entry.metadata_file);
            }
            for snapshot in page.snapshots() {
                self.reach(&mut reachable, snapshot).await?;
            }
        }
        Ok(reachable)
    }

    /// Adds what a snapshot has. One that is deleted, or half deleted, has less; the current one must be whole.
    async fn reach(&self, reachable: &mut Reachable, snapshot: &SnapshotRef) -> Result<(), TableError> {
        let list = snapshot.manifest_list();
        if !reachable.add(list) {
            return Ok(());
        }
        let whole = Some(snapshot.snapshot_id()) == self.metadata().current_snapshot_id();
        let listed = if whole {
            Some(manifests::read_list(&self.store, &self.location, list).await?)
        } else {
            manifests::find_list(&self.store, &self.location, list).await?
        };
        for manifest in listed.into_iter().flatten() {
            if !reachable.add(&manifest.manifest_path) {
                continue;
            }
            let entries = if whole {
                Some(manifests::read_manifest(&self.store, &manifest).await?)
            } else {
                manifests::find_manifest(&self.store, &manifest).await?
            };
            for entry in entries.iter().flatten().filter(|entry| entry.is_alive()) {
                reachable.add(entry.file_path());
            }
        }
        Ok(())
    }
}
