//! Files in the place of others that have rows which are to be gone for good, and what holds such rows afterwards.

use std::collections::HashSet;
use std::ops::Range;

use iceberg::spec::Operation;

use crate::lake::data_file::DataFile;

use super::append::misfit;
use super::commit::{Commit, Committed};
use super::error::TableError;
use super::index::Live;
use super::live::Table;
use super::manifests;
use super::replace::check_names;

impl Table {
    /// Puts `files` in the place of all files inside `range`, without some of their rows, in one commit: a snapshot that
    /// overwrites, or one that deletes if there are none. Where they are in place already nothing is done, so that a
    /// call can be made again.
    ///
    /// # Errors
    /// [`TableError::Misfit`] when a file lies across an end of the range, or the new files are outside of it or have
    /// more rows than the old, [`TableError::Fenced`], or the store's.
    pub async fn purge(
        &mut self,
        range: Range<i64>,
        files: &[DataFile],
        commit: &Commit,
    ) -> Result<Committed, TableError> {
        let operation = if files.is_empty() { Operation::Delete } else { Operation::Overwrite };
        self.exchange(operation, range, files, check_purge, commit).await
    }

    /// Files with rows, or with bounds of their values, below the table that its current snapshot does not need: those
    /// of earlier snapshots, and what belongs to none.
    ///
    /// # Errors
    /// When the table or its store cannot be read.
    pub async fn superseded(&mut self) -> Result<Vec<String>, TableError> {
        self.refresh().await?;
        let list = self.current_snapshot().map(|snapshot| snapshot.manifest_list().to_owned());
        let index = self.index().await?;
        let mut needed: HashSet<String> = index.files.iter().map(|file| file.uri.to_string()).collect();
        needed.extend(index.manifests.iter().map(|manifest| manifest.manifest_path.clone()));
        needed.extend(list);
        let mut found = Vec::new();
        let mut listing = self.store.list(&self.location)?;
        loop {
            let page = listing.next_page().await?;
            if page.is_empty() {
                return Ok(found);
            }
            let uris = page.into_iter().map(|object| object.uri);
            found.extend(uris.filter(|uri| manifests::may_tell_values(uri) && !needed.contains(uri)));
        }
    }
}

fn check_purge(location: &str, range: &Range<i64>, old: &[Live], new: &[DataFile]) -> Result<(), TableError> {
    if let Some(across) = old.iter().find(|file| file.start < range.start || file.end > range.end) {
        return Err(misfit(location, &across.data_file(), "it is not wholly inside the range that is to be purged"));
    }
    let Some(first) = new.first() else { return Ok(()) };
    let (before, after) =
        (old.iter().map(|file| file.rows).sum::<u64>(), new.iter().map(|file| file.rows).sum::<u64>());
    if after > before {
        let why = format!("it has {after} rows, and those that it is to replace have {before}");
        return Err(misfit(location, first, &why));
    }
    if let Some(outside) = new.iter().find(|file| file.start < range.start || file.end > range.end) {
        return Err(misfit(location, outside, "it is outside of the range that is to be purged"));
    }
    check_names(location, old, new)
}
