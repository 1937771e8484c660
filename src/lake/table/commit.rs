//! What all changes of a table have in common.

use std::collections::{BTreeMap, HashMap};
use std::time::{SystemTime, UNIX_EPOCH};

use iceberg::spec::{MAIN_BRANCH, ManifestFile, Operation, Snapshot, Summary, TableMetadata, TableMetadataBuilder};
use uuid::Uuid;

use crate::lake::steps::step;
use crate::lake::store::Lock;

use super::document::Document;
use super::error::TableError;
use super::index::{Index, Live};
use super::live::Table;
use super::properties::{ISSUED_THROUGH, WRITER_EPOCH};
use super::spec::{KEEP_VERSIONS, RECENT};
use super::{manifests, names, version};

/// How often a change starts over because another writer was first.
pub(super) const MAX_ATTEMPTS: usize = 5;

/// The offsets that a snapshot added or replaced, as `start-end`.
pub(super) const OFFSETS: &str = "streamcast.offsets";
/// The epoch of the server that made a snapshot.
pub(super) const EPOCH: &str = "streamcast.writer-epoch";

/// What goes with a change of a table.
#[derive(Debug, Clone, Default)]
pub struct Commit {
    /// The last offset that the log has given out (`litelink.issued_through`). What the table records never falls.
    pub issued_through: Option<i64>,
    /// Grows with every server that takes the log over. A table that records a higher one refuses the change.
    pub writer_epoch: Option<u64>,
    /// Further properties to set in the same step.
    pub properties: BTreeMap<String, String>,
    /// The time of the change in milliseconds since 1970; without it, now. Snapshots never go back in time.
    pub now_ms: Option<i64>,
}

/// What a change came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    /// The number of the version that has it.
    pub version: u64,
    /// The snapshot that was made; `None` if nothing was to be done.
    pub snapshot_id: Option<i64>,
    /// Files added.
    pub added: usize,
    /// Files removed.
    pub removed: usize,
    /// The table's first offset and the offset after its last.
    pub extent: Option<(i64, i64)>,
}

/// A snapshot in the making. Its names are new with every attempt.
pub(super) struct Draft {
    pub snapshot_id: i64,
    parent_id: Option<i64>,
    sequence_number: i64,
    attempt: Uuid,
    timestamp_ms: i64,
    manifests: usize,
}

/// What a draft becomes.
pub(super) struct Change {
    pub operation: Operation,
    pub manifests: Vec<ManifestFile>,
    pub added: Vec<Live>,
    pub removed: Vec<Live>,
    /// The live files afterwards.
    pub files: Vec<Live>,
    /// The offsets it is about.
    pub range: (i64, i64),
}

impl Draft {
    pub(super) fn new(metadata: &TableMetadata, commit: &Commit) -> Self {
        let attempt = Uuid::new_v4();
        let (high, low) = Uuid::new_v4().as_u64_pair();
        Self {
            // Positive, and random enough never to come twice in a table.
            snapshot_id: i64::try_from((high ^ low) >> 1).unwrap_or(1).max(1),
            parent_id: metadata.current_snapshot_id(),
            sequence_number: metadata.next_sequence_number(),
            attempt,
            timestamp_ms: commit.now_ms.unwrap_or_else(now_ms).max(metadata.last_updated_ms()),
            manifests: 0,
        }
    }

    pub(super) fn manifest_uri(&mut self, location: &str) -> String {
        let uri = names::manifest(location, self.attempt, self.manifests);
        self.manifests += 1;
        uri
    }
}

/// Milliseconds since 1970, by the clock of this machine.
pub(super) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    i64::try_from(since).unwrap_or(i64::MAX)
}

impl Table {
    /// Keeps other processes of this machine from changing the table meanwhile.
    pub(super) async fn lock(&self) -> Result<Lock, TableError> {
        Ok(self.store.lock(&format!("{}/.lock", names::metadata_directory(&self.location))).await?)
    }

    pub(super) fn contended(&self) -> TableError {
        TableError::Contended { location: self.location.clone(), times: MAX_ATTEMPTS }
    }

    pub(super) fn check_epoch(&self, commit: &Commit) -> Result<(), TableError> {
        match (self.writer_epoch(), commit.writer_epoch) {
            (Some(found), Some(ours)) if found > ours => {
                Err(TableError::Fenced { location: self.location.clone(), found, ours })
            }
            _ => Ok(()),
        }
    }

    /// The properties that `commit` asks for and the table does not have.
    pub(super) fn wanted_properties(&self, commit: &Commit) -> BTreeMap<String, Option<String>> {
        let mut wanted = commit.properties.clone();
        if let Some(through) = commit.issued_through {
            let through = self.issued_through().map_or(through, |recorded| recorded.max(through));
            wanted.insert(ISSUED_THROUGH.to_owned(), through.to_string());
        }
        if let Some(epoch) = commit.writer_epoch {
            wanted.insert(WRITER_EPOCH.to_owned(), epoch.to_string());
        }
        wanted.retain(|key, value| self.properties().get(key) != Some(value));
        wanted.into_iter().map(|(key, value)| (key, Some(value))).collect()
    }

    /// Writes a version with other properties; `false` if another writer was first.
    pub(super) async fn install_properties(
        &mut self,
        changes: &BTreeMap<String, Option<String>>,
        at_ms: Option<i64>,
    ) -> Result<bool, TableError> {
        let mut document = Document::of(self.metadata_uri(), self.metadata())?;
        document.follow(at_ms.unwrap_or_else(now_ms));
        document.set_properties(changes);
        let metadata = document.into_metadata()?;
        let index = self.index.clone();
        self.install(metadata, index).await
    }

    /// Writes the list and the version of a snapshot; `None` if another writer was first.
    pub(super) async fn install_snapshot(
        &mut self,
        draft: Draft,
        change: Change,
        commit: &Commit,
    ) -> Result<Option<Committed>, TableError> {
        // What was removed by an earlier snapshot needs no manifest any more.
        let listed: Vec<_> = change
            .manifests
            .into_iter()
            .filter(|it| manifests::live_files(it) > 0 || it.added_snapshot_id == draft.snapshot_id)
            .collect();
        let list = names::manifest_list(&self.location, draft.snapshot_id, draft.attempt);
        let numbers = (draft.snapshot_id, draft.parent_id, draft.sequence_number);
        manifests::write_list(&self.store, self.metadata(), numbers, &list, &listed).await?;
        step("the table's manifests are written");
        // Read back what a reader will find, with the numbers that the list gave to the new manifests.
        let listed = manifests::read_list(&self.store, &self.location, &list).await?;
        let index = Index { files: change.files, manifests: listed };
        let mut summary = summary(&change.added, &change.removed, &index);
        summary.insert(OFFSETS.to_owned(), format!("{}-{}", change.range.0, change.range.1));
        summary.extend(commit.writer_epoch.map(|epoch| (EPOCH.to_owned(), epoch.to_string())));
        let snapshot = Snapshot::builder()
            .with_snapshot_id(draft.snapshot_id)
            .with_parent_snapshot_id(draft.parent_id)
            .with_sequence_number(draft.sequence_number)
            .with_timestamp_ms(draft.timestamp_ms)
            .with_manifest_list(list)
            .with_summary(Summary { operation: change.operation, additional_properties: summary })
            .with_schema_id(self.metadata().current_schema_id())
            .build();
        let mut properties: HashMap<_, _> =
            self.wanted_properties(commit).into_iter().filter_map(|(key, value)| Some((key, value?))).collect();
        properties.extend(KEEP_VERSIONS.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
        let beyond_recent = self.beyond_recent()?;
        let builder = self.metadata().clone().into_builder(Some(self.metadata_uri()));
        let built = builder
            .remove_snapshots(&beyond_recent)
            .set_properties(properties)
            .and_then(|builder| builder.set_branch_snapshot(snapshot, MAIN_BRANCH))
            .and_then(TableMetadataBuilder::build);
        let metadata = built.map_err(self.format("add a snapshot"))?.metadata;
        let extent = index.extent();
        if !self.install(metadata, Some(index)).await? {
            return Ok(None);
        }
        Ok(Some(Committed {
            version: self.version_number(),
            snapshot_id: Some(draft.snapshot_id),
            added: change.added.len(),
            removed: change.removed.len(),
            extent,
        }))
    }

    /// Writes the next version and then the hint; `false` if another writer was first. When the hint fails the change is
    /// made all the same, and the error says that readers may not see it yet; the next change or [`Table::repair`]
    /// writes the hint.
    pub(super) async fn install(&mut self, metadata: TableMetadata, index: Option<Index>) -> Result<bool, TableError> {
        let installed = version::install(&self.store, &self.location, &self.version.stem, metadata).await?;
        let Some(version) = installed else { return Ok(false) };
        self.version = version;
        self.index = index;
        self.hint_is_behind = true;
        step("the table's version is written");
        version::write_hint(&self.store, &self.location, &self.version.stem).await?;
        self.hint_is_behind = false;
        step("the table's hint is written");
        Ok(true)
    }

    /// The snapshots that a version with another one names no longer: those before it do. A table with branches or tags
    /// keeps its snapshots.
    fn beyond_recent(&self) -> Result<Vec<i64>, TableError> {
        let ordered = self.ordered_snapshots();
        let beyond = ordered.len().saturating_sub(RECENT - 1);
        if beyond == 0 || Document::of(self.metadata_uri(), self.metadata())?.has_branches() {
            return Ok(Vec::new());
        }
        let current = self.metadata().current_snapshot_id();
        Ok(ordered[..beyond].iter().map(|it| it.snapshot_id()).filter(|id| Some(*id) != current).collect())
    }

    /// What there is when nothing was to be done.
    pub(super) async fn unchanged(&mut self) -> Result<Committed, TableError> {
        let extent = self.extent().await?;
        Ok(Committed { version: self.version_number(), snapshot_id: None, added: 0, removed: 0, extent })
    }

    pub(super) fn format(&self, action: &'static str) -> impl FnOnce(iceberg::Error) -> TableError + use<> {
        TableError::format(action, &self.location)
    }
}

/// The counts that Iceberg has in a snapshot's summary.
fn summary(added: &[Live], removed: &[Live], after: &Index) -> HashMap<String, String> {
    let rows = |files: &[Live]| files.iter().map(|file| file.rows).sum::<u64>();
    let bytes = |files: &[Live]| files.iter().map(|file| file.size_bytes).sum::<u64>();
    let mut summary = HashMap::new();
    let mut put = |key: &str, value: u64| summary.insert(key.to_owned(), value.to_string());
    if !added.is_empty() {
        put("added-data-files", added.len() as u64);
        put("added-records", rows(added));
        put("added-files-size", bytes(added));
    }
    if !removed.is_empty() {
        put("deleted-data-files", removed.len() as u64);
        put("deleted-records", rows(removed));
        put("removed-files-size", bytes(removed));
    }
    put("total-data-files", after.files.len() as u64);
    put("total-records", after.rows());
    put("total-files-size", after.size_bytes());
    put("total-delete-files", 0);
    put("total-position-deletes", 0);
    put("total-equality-deletes", 0);
    summary
}
