//! A table that is open.

use std::collections::HashMap;

use bytes::Bytes;
use iceberg::spec::{Schema, SnapshotRef, TableMetadata};

use crate::lake::data_file::DataFile;
use crate::lake::steps::step;
use crate::lake::store::{Placed, Store};

use super::error::TableError;
use super::index::Index;
use super::spec::TableSpec;
use super::version::Version;
use super::{manifests, names, version};

/// The Iceberg table of one log, at the version that was current when it was last looked at.
///
/// Reading what the table had then never asks the store twice. Changes look at the table first ([`Table::refresh`]), so
/// a handle may be kept for as long as one likes. One writer is expected; several are kept apart, see
/// docs/storage.md, "Commits".
#[derive(Debug)]
pub struct Table {
    pub(super) store: Store,
    pub(super) location: String,
    pub(super) version: Version,
    /// The hint does not name `version`.
    pub(super) hint_is_behind: bool,
    /// The live files of the current snapshot, once they were asked for.
    pub(super) index: Option<Index>,
}

impl Table {
    /// Opens the table at `location`; `None` where there is none. Writes nothing.
    ///
    /// # Errors
    /// When the store cannot be read, or the table is damaged or of a kind that this program cannot work with.
    pub async fn open(store: &Store, location: &str) -> Result<Option<Self>, TableError> {
        let location = location.trim_end_matches('/').to_owned();
        let Some(found) = version::find(store, &location).await? else { return Ok(None) };
        let hint_is_behind = found.version.stem != found.hinted;
        Ok(Some(Self { store: store.clone(), location, version: found.version, hint_is_behind, index: None }))
    }

    /// Creates a table. Two that create the same table at the same time do not both succeed.
    ///
    /// # Errors
    /// [`TableError::Exists`] when there is one, [`TableError::Spec`] when it cannot be made so, or the store's.
    pub async fn create(store: &Store, spec: &TableSpec) -> Result<Self, TableError> {
        let location = spec.location.trim_end_matches('/').to_owned();
        let exists = || TableError::Exists { location: location.clone() };
        if version::hinted(store, &location).await?.is_some() {
            return Err(exists());
        }
        let metadata = TableSpec { location: location.clone(), ..spec.clone() }.metadata()?;
        let stem = names::first_stem();
        let uri = names::metadata(&location, &stem);
        store.put_if_absent(&uri, version::encode(&uri, &metadata)?).await?;
        step("the table's first version is written");
        let hint = Bytes::copy_from_slice(stem.as_bytes());
        match store.put_if_absent(&names::hint(&location), hint).await? {
            Placed::Ours => {}
            Placed::Taken => return Err(exists()),
        }
        let version = Version { stem, metadata };
        Ok(Self { store: store.clone(), location, version, hint_is_behind: false, index: Some(Index::default()) })
    }

    /// Opens the table that `spec` describes, or creates it.
    ///
    /// # Errors
    /// As [`Table::open`] and [`Table::create`].
    pub async fn open_or_create(store: &Store, spec: &TableSpec) -> Result<Self, TableError> {
        if let Some(table) = Self::open(store, &spec.location).await? {
            return Ok(table);
        }
        match Self::create(store, spec).await {
            Err(TableError::Exists { location }) => {
                Self::open(store, &location).await?.ok_or(TableError::Missing { location })
            }
            created => created,
        }
    }

    /// Looks for a later version; whether there was one.
    ///
    /// # Errors
    /// As [`Table::open`]; [`TableError::Missing`] when the table is gone.
    pub async fn refresh(&mut self) -> Result<bool, TableError> {
        let missing = || TableError::Missing { location: self.location.clone() };
        let hinted = version::hinted(&self.store, &self.location).await?.ok_or_else(missing)?;
        let table = self.metadata().uuid();
        let known = names::number(&self.version.stem);
        let mut later = version::follow(&self.store, &self.location, table, &self.version.stem).await?;
        // The hint of another table, or of a version that this chain does not lead to. An older one is only behind.
        if later.is_none() && hinted != self.version.stem && (names::number(&hinted) > known || !self.hint_is_behind) {
            let found = version::find(&self.store, &self.location).await?.ok_or_else(missing)?;
            let other = found.version.metadata.uuid() != table || names::number(&found.version.stem) > known;
            later = other.then_some(found.version);
        }
        self.hint_is_behind = hinted != later.as_ref().map_or(&self.version.stem, |later| &later.stem).as_str();
        let Some(current) = later else { return Ok(false) };
        if current.metadata.current_snapshot_id() != self.metadata().current_snapshot_id() {
            self.index = None;
        }
        self.version = current;
        Ok(true)
    }

    /// Completes a commit that a writer did not live to complete: looks for the current version and, where the hint is
    /// behind it, writes the hint. Whether it was. To be called when a stream is taken over.
    ///
    /// # Errors
    /// As [`Table::refresh`], or when the hint cannot be written.
    pub async fn repair(&mut self) -> Result<bool, TableError> {
        let _lock = self.lock().await?;
        self.catch_up().await
    }

    /// [`Table::repair`] for those who hold the lock.
    pub(super) async fn catch_up(&mut self) -> Result<bool, TableError> {
        self.refresh().await?;
        if !self.hint_is_behind {
            return Ok(false);
        }
        version::write_hint(&self.store, &self.location, &self.version.stem).await?;
        self.hint_is_behind = false;
        Ok(true)
    }

    /// The absolute URI of the table's directory.
    #[must_use]
    pub fn location(&self) -> &str {
        &self.location
    }

    /// The absolute URI of the current version's file.
    #[must_use]
    pub fn metadata_uri(&self) -> String {
        names::metadata(&self.location, &self.version.stem)
    }

    /// The number of the current version; it grows with every change.
    #[must_use]
    pub fn version_number(&self) -> u64 {
        names::number(&self.version.stem)
    }

    /// The table's columns.
    #[must_use]
    pub fn schema(&self) -> &Schema {
        self.version.metadata.current_schema()
    }

    /// All properties of the table.
    #[must_use]
    pub fn properties(&self) -> &HashMap<String, String> {
        self.version.metadata.properties()
    }

    /// The live files by offset, with stamps and without what is known of the other columns.
    ///
    /// # Errors
    /// When they cannot be read, or files share offsets.
    pub async fn files(&mut self) -> Result<Vec<DataFile>, TableError> {
        Ok(self.index().await?.files.iter().map(super::index::Live::data_file).collect())
    }

    /// The live files by offset, with what is known of their columns. Larger, and read anew each time.
    ///
    /// # Errors
    /// As [`Table::files`].
    pub async fn files_with_columns(&mut self) -> Result<Vec<DataFile>, TableError> {
        let listed = self.index().await?.manifests.clone();
        let mut files = Vec::new();
        for manifest in listed.iter().filter(|manifest| manifests::live_files(manifest) > 0) {
            for entry in manifests::read_manifest(&self.store, manifest).await?.iter().filter(|it| it.is_alive()) {
                let live = manifests::live(&self.version.metadata, &entry.data_file)?;
                files.push(DataFile { columns: manifests::columns(&entry.data_file), ..live.data_file() });
            }
        }
        files.sort_by_key(|file| file.start);
        Ok(files)
    }

    /// The first offset and the offset after the last; `None` for a table without files.
    ///
    /// # Errors
    /// As [`Table::files`].
    pub async fn extent(&mut self) -> Result<Option<(i64, i64)>, TableError> {
        Ok(self.index().await?.extent())
    }

    /// How many rows the table has.
    ///
    /// # Errors
    /// As [`Table::files`].
    pub async fn row_count(&mut self) -> Result<u64, TableError> {
        Ok(self.index().await?.rows())
    }

    /// How many bytes its live files have.
    ///
    /// # Errors
    /// As [`Table::files`].
    pub async fn size_bytes(&mut self) -> Result<u64, TableError> {
        Ok(self.index().await?.size_bytes())
    }

    pub(super) fn current_snapshot(&self) -> Option<&SnapshotRef> {
        self.version.metadata.current_snapshot()
    }

    pub(super) fn metadata(&self) -> &TableMetadata {
        &self.version.metadata
    }

    pub(super) async fn index(&mut self) -> Result<&mut Index, TableError> {
        if self.index.is_none() {
            let list = self.current_snapshot().map(|snapshot| snapshot.manifest_list().to_owned());
            let listed = match list {
                Some(uri) => manifests::read_list(&self.store, &self.location, &uri).await?,
                None => Vec::new(),
            };
            self.index = Some(manifests::read_index(&self.store, &self.version.metadata, listed).await?);
        }
        Ok(self.index.get_or_insert_default())
    }
}
