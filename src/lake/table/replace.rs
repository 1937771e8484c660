//! Files in the place of others, and files taken away, in one snapshot: no reader ever sees a hole.

use std::collections::HashSet;
use std::ops::Range;

use iceberg::spec::{ManifestEntry, ManifestFile, Operation};

use crate::lake::data_file::DataFile;

use super::append::{check_order, misfit};
use super::commit::{Change, Commit, Committed, Draft, MAX_ATTEMPTS};
use super::error::TableError;
use super::index::{Index, Live};
use super::live::Table;
use super::manifests::{self, NewEntry};

/// Whether files (the last) may take the place of those inside a range; the table's location is for the error.
pub(super) type Check = fn(&str, &Range<i64>, &[Live], &[DataFile]) -> Result<(), TableError>;

impl Table {
    /// Puts `files` in the place of all files inside `range`, with the same number of rows, in one commit. Where they
    /// are in place already nothing is done, so that a call can be made again.
    ///
    /// # Errors
    /// [`TableError::Misfit`] when a file lies across an end of the range, the new files are outside of it or have not
    /// the offsets and rows of the old, [`TableError::Fenced`], or the store's.
    pub async fn replace(
        &mut self,
        range: Range<i64>,
        files: &[DataFile],
        commit: &Commit,
    ) -> Result<Committed, TableError> {
        self.exchange(Operation::Replace, range, files, check_replacement, commit).await
    }

    /// Puts `files` in the place of all files inside `range` if `check` lets it, in one commit of the kind `operation`.
    /// Where they are in place already nothing is done.
    pub(super) async fn exchange(
        &mut self,
        operation: Operation,
        range: Range<i64>,
        files: &[DataFile],
        check: Check,
        commit: &Commit,
    ) -> Result<Committed, TableError> {
        check_order(&self.location, files)?;
        let _lock = self.lock().await?;
        for _ in 0..MAX_ATTEMPTS {
            self.catch_up().await?;
            self.check_epoch(commit)?;
            let location = self.location.clone();
            let index = self.index().await?;
            let old = &index.files[index.touching(&range)];
            let same = old.iter().map(|file| &*file.uri).eq(files.iter().map(|file| file.uri.as_str()));
            let done = if same {
                self.settle(commit).await?
            } else {
                check(&location, &range, old, files)?;
                self.try_change(operation.clone(), range.clone(), files, commit).await?
            };
            if let Some(committed) = done {
                return Ok(committed);
            }
        }
        Err(self.contended())
    }

    /// Takes away all files that end at or before `floor`, in one commit. The first offset afterwards may be lower than
    /// `floor`, because files are not split.
    ///
    /// # Errors
    /// [`TableError::Fenced`], or the store's.
    pub async fn truncate(&mut self, floor: i64, commit: &Commit) -> Result<Committed, TableError> {
        let _lock = self.lock().await?;
        for _ in 0..MAX_ATTEMPTS {
            self.catch_up().await?;
            self.check_epoch(commit)?;
            let index = self.index().await?;
            let gone = index.files.partition_point(|file| file.end <= floor);
            let range = index.files[..gone].first().zip(index.files[..gone].last()).map(|(a, b)| a.start..b.end);
            let done = match range {
                Some(range) => self.try_change(Operation::Delete, range, &[], commit).await?,
                None => self.settle(commit).await?,
            };
            if let Some(committed) = done {
                return Ok(committed);
            }
        }
        Err(self.contended())
    }

    async fn try_change(
        &mut self,
        operation: Operation,
        range: Range<i64>,
        files: &[DataFile],
        commit: &Commit,
    ) -> Result<Option<Committed>, TableError> {
        let mut draft = Draft::new(self.metadata(), commit);
        let added: Vec<Live> = files.iter().map(Live::of).collect();
        let mut new = Vec::with_capacity(files.len());
        for file in files {
            new.push((file.start, NewEntry::Added(manifests::entry(&self.location, self.schema(), file)?)));
        }
        let index = self.index().await?.clone();
        let removed: Vec<Live> = index.files[index.touching(&range)].to_vec();
        let mut after = Index { files: index.files, manifests: Vec::new() };
        after.splice(&range, added.iter().cloned());
        let (kept, mut entries) = self.take_apart(index.manifests, &removed, new.len()).await?;
        entries.extend(new);
        entries.sort_by_key(|(start, _)| *start);
        let written = self.write_manifests(&mut draft, entries.into_iter().map(|(_, entry)| entry).collect()).await?;
        let listed = kept.into_iter().chain(written).collect();
        let change = Change {
            operation,
            manifests: listed,
            added,
            removed,
            files: after.files,
            range: (range.start, range.end),
        };
        self.install_snapshot(draft, change, commit).await
    }

    /// Splits manifests into those that stay as they are, and the entries of those that have to be written anew with
    /// `new` more: the ones with files that go, and small ones ([`manifests::absorb`]).
    async fn take_apart(
        &self,
        listed: Vec<ManifestFile>,
        removed: &[Live],
        new: usize,
    ) -> Result<(Vec<ManifestFile>, Vec<(i64, NewEntry)>), TableError> {
        let gone: HashSet<&str> = removed.iter().map(|file| &*file.uri).collect();
        let (mut kept, mut entries, mut found) = (Vec::new(), Vec::new(), 0);
        // Files that go are mostly late ones, and once all are found the rest need not be read.
        for manifest in listed.into_iter().rev().filter(|manifest| manifests::live_files(manifest) > 0) {
            if found == gone.len() {
                kept.push(manifest);
                continue;
            }
            let there = manifests::read_manifest(&self.store, &manifest).await?;
            let leaving = there.iter().filter(|it| it.is_alive() && gone.contains(it.file_path())).count();
            if leaving == 0 {
                kept.push(manifest);
                continue;
            }
            found += leaving;
            self.take_entries(there, &gone, &mut entries)?;
        }
        kept.reverse();
        for small in manifests::absorb(&mut kept, entries.len() - found + new) {
            let there = manifests::read_manifest(&self.store, &small).await?;
            self.take_entries(there, &gone, &mut entries)?;
        }
        Ok((kept, entries))
    }

    fn take_entries(
        &self,
        there: Vec<ManifestEntry>,
        gone: &HashSet<&str>,
        entries: &mut Vec<(i64, NewEntry)>,
    ) -> Result<(), TableError> {
        for entry in there.into_iter().filter(ManifestEntry::is_alive) {
            let start = manifests::live(self.metadata(), &entry.data_file)?.start;
            let goes = gone.contains(entry.file_path());
            entries.push((start, if goes { NewEntry::Deleted(entry) } else { NewEntry::Existing(entry) }));
        }
        Ok(())
    }
}

fn check_replacement(location: &str, range: &Range<i64>, old: &[Live], new: &[DataFile]) -> Result<(), TableError> {
    if let Some(across) = old.iter().find(|file| file.start < range.start || file.end > range.end) {
        return Err(misfit(location, &across.data_file(), "it is not wholly inside the range that is to be replaced"));
    }
    let Some(first) = new.first() else {
        let why = "nothing was given in its place; truncate the table instead";
        return old.first().map_or(Ok(()), |file| Err(misfit(location, &file.data_file(), why)));
    };
    let (Some(old_first), Some(old_last)) = (old.first(), old.last()) else {
        return Err(misfit(location, first, "there is nothing in the range that is to be replaced"));
    };
    let spans = first.start == old_first.start && new.last().is_some_and(|last| last.end == old_last.end);
    let rows = (old.iter().map(|file| file.rows).sum::<u64>(), new.iter().map(|file| file.rows).sum::<u64>());
    if !spans || rows.0 != rows.1 {
        let why = format!(
            "the files it is to replace have {} rows from {} to {}, the new ones {} from {} to {}",
            rows.0,
            old_first.start,
            old_last.end,
            rows.1,
            first.start,
            new.last().map_or(first.end, |last| last.end)
        );
        return Err(misfit(location, first, &why));
    }
    check_names(location, old, new)
}

/// No new file has the name of an old one.
pub(super) fn check_names(location: &str, old: &[Live], new: &[DataFile]) -> Result<(), TableError> {
    match new.iter().find(|file| old.iter().any(|old| *old.uri == file.uri)) {
        Some(same) => Err(misfit(location, same, "it has the name of a file that it is to replace")),
        None => Ok(()),
    }
}
