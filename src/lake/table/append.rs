//! Adding files at the end.

use iceberg::spec::{ManifestEntry, ManifestFile, Operation};

use crate::lake::data_file::DataFile;

use super::commit::{Change, Commit, Committed, Draft, MAX_ATTEMPTS};
use super::error::TableError;
use super::index::{Fit, Live};
use super::live::Table;
use super::manifests::{self, FULL_MANIFEST_BYTES, MAX_FILES_PER_MANIFEST, NewEntry};

impl Table {
    /// Adds `files` after those that are there, in one commit. Files whose offsets are there already are left out, so
    /// that a call whose answer was lost, or that a crash cut off, can simply be made again; when nothing is left, only
    /// the properties are set, if they differ.
    ///
    /// # Errors
    /// [`TableError::Misfit`] when files overlap each other or those that are there, [`TableError::Fenced`], or the
    /// store's. After an error that is transient the files may or may not be in the table; call again.
    pub async fn append(&mut self, files: &[DataFile], commit: &Commit) -> Result<Committed, TableError> {
        check_order(&self.location, files)?;
        let _lock = self.lock().await?;
        for _ in 0..MAX_ATTEMPTS {
            self.catch_up().await?;
            self.check_epoch(commit)?;
            let new = self.not_there_yet(files).await?;
            let done = if new.is_empty() { self.settle(commit).await? } else { self.try_append(&new, commit).await? };
            if let Some(committed) = done {
                return Ok(committed);
            }
        }
        Err(self.contended())
    }

    /// Sets the properties of `commit` and nothing else; `None` if another writer was first.
    pub(super) async fn settle(&mut self, commit: &Commit) -> Result<Option<Committed>, TableError> {
        let wanted = self.wanted_properties(commit);
        if !wanted.is_empty() && !self.install_properties(&wanted, commit.now_ms).await? {
            return Ok(None);
        }
        self.unchanged().await.map(Some)
    }

    async fn not_there_yet<'a>(&mut self, files: &'a [DataFile]) -> Result<Vec<&'a DataFile>, TableError> {
        let location = self.location.clone();
        let index = self.index().await?;
        let mut new = Vec::new();
        for file in files {
            match index.fit(file.start, file.end) {
                Fit::After => new.push(file),
                Fit::Covered => {}
                Fit::Misfit(why) => return Err(misfit(&location, file, why)),
            }
        }
        Ok(new)
    }

    async fn try_append(&mut self, files: &[&DataFile], commit: &Commit) -> Result<Option<Committed>, TableError> {
        let mut draft = Draft::new(self.metadata(), commit);
        let added: Vec<Live> = files.iter().map(|file| Live::of(file)).collect();
        let mut new = Vec::with_capacity(files.len());
        for file in files {
            new.push(manifests::entry(&self.location, self.schema(), file)?);
        }
        let index = self.index().await?;
        let (mut listed, mut all) = (index.manifests.clone(), index.files.clone());
        listed.retain(|manifest| manifests::live_files(manifest) > 0);
        let mut entries = Vec::new();
        for small in manifests::absorb(&mut listed, new.len()) {
            let there = manifests::read_manifest(&self.store, &small).await?;
            entries.extend(there.into_iter().filter(ManifestEntry::is_alive).map(NewEntry::Existing));
        }
        entries.extend(new.into_iter().map(NewEntry::Added));
        listed.extend(self.write_manifests(&mut draft, entries).await?);
        all.extend(added.iter().cloned());
        let range = (added.first().map_or(0, |file| file.start), added.last().map_or(0, |file| file.end));
        let change =
            Change { operation: Operation::Append, manifests: listed, added, removed: Vec::new(), files: all, range };
        self.install_snapshot(draft, change, commit).await
    }

    /// Writes entries to as many manifests as it takes.
    pub(super) async fn write_manifests(
        &self,
        draft: &mut Draft,
        entries: Vec<NewEntry>,
    ) -> Result<Vec<ManifestFile>, TableError> {
        let (mut written, mut some, mut bytes) = (Vec::new(), Vec::new(), 0);
        let mut entries = entries.into_iter().peekable();
        while let Some(entry) = entries.next() {
            bytes += entry.estimated_bytes();
            some.push(entry);
            if some.len() < MAX_FILES_PER_MANIFEST && bytes < FULL_MANIFEST_BYTES && entries.peek().is_some() {
                continue;
            }
            let uri = draft.manifest_uri(&self.location);
            let (files, snapshot_id) = (std::mem::take(&mut some), draft.snapshot_id);
            written.push(manifests::write_manifest(&self.store, self.metadata(), snapshot_id, &uri, files).await?);
            bytes = 0;
        }
        Ok(written)
    }
}

/// Refuses files that are empty or do not follow one another.
pub(super) fn check_order(location: &str, files: &[DataFile]) -> Result<(), TableError> {
    if let Some(empty) = files.iter().find(|file| file.start >= file.end || file.rows == 0) {
        return Err(misfit(location, empty, "it has no rows"));
    }
    if let Some(dense) = files.iter().find(|file| file.rows > file.end.abs_diff(file.start)) {
        return Err(misfit(location, dense, "it has more rows than offsets"));
    }
    match files.windows(2).find(|pair| pair[1].start < pair[0].end) {
        Some(pair) => Err(misfit(location, &pair[1], "it begins before the file ahead of it ends")),
        None => Ok(()),
    }
}

pub(super) fn misfit(location: &str, file: &DataFile, why: &str) -> TableError {
    TableError::Misfit {
        uri: file.uri.clone(),
        start: file.start,
        end: file.end,
        location: location.to_owned(),
        why: why.to_owned(),
    }
}
