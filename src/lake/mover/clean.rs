//! Deleting what nobody reads any more: states of the table that are too old, files that were merged or have left the
//! local tier, and what crashes have left.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::error::MoverError;
use super::shared::{Shared, blocking, now_us};
use super::stream::Moved;
use crate::lake::catalog::Trash;
use crate::lake::columns::UNFINISHED_SUFFIX;
use crate::lake::life::{Grounds, Passed, retention_pass};
use crate::lake::table::{Expire, Sweep, Swept, Table};

/// Files that are deleted in one pass, at most.
const MAX_TRASH: usize = 500;

/// Files younger than this are not taken for left-overs: they may be in the making.
pub(super) const SAFETY_AGE: Duration = Duration::from_secs(3600);

/// Deletes files that are due.
pub(super) async fn empty_trash(shared: &Arc<Shared>) -> Result<usize, MoverError> {
    let due = shared.catalog.due_trash(MAX_TRASH)?;
    for Trash { uri, .. } in &due {
        shared.store.delete(uri).await?;
        shared.catalog.forget_trash(uri)?;
    }
    Ok(due.len())
}

/// Lets go of states of the table that were superseded too long ago.
pub(super) async fn expire(shared: &Arc<Shared>, stream: &Arc<Moved>) -> Result<(), MoverError> {
    let view = stream.view(&shared.catalog)?;
    let mut slot = stream.table.lock().await;
    if slot.is_none() {
        *slot = Table::open(&shared.store, &stream.location).await?;
    }
    let Some(table) = slot.as_mut() else { return Ok(()) };
    let expire = Expire {
        retention: stream.settings.snapshot_retention,
        keep: view.files.iter().map(|file| file.uri.clone()).collect(),
        now_ms: None,
    };
    let outcome = table.expire(&expire).await;
    if outcome.is_err() {
        *slot = None;
    }
    let expired = outcome?;
    if expired.snapshots > 0 {
        tracing::debug!(stream = stream.name, ?expired, "old states of the table are gone");
    }
    Ok(())
}

/// Cuts off rows that are kept no longer, or deletes what was cut off before. What fails is tried again an hour later.
pub(super) async fn retain(shared: &Arc<Shared>, stream: &Arc<Moved>) {
    // Nobody else takes files out of the log meanwhile, or changes its table.
    let _rewriting = stream.rewriting.lock().await;
    let _table = stream.table.lock().await;
    let grounds = Grounds { root: &shared.root, store: &shared.store, catalog: &shared.catalog };
    match retention_pass(grounds, &stream.name, now_us()).await {
        Ok(Passed::Nothing) => {}
        Ok(Passed::CutOff { floor, dropped }) => {
            tracing::info!(stream = stream.name, floor, ?dropped, "older rows are cut off; their files go in an hour");
        }
        Ok(Passed::Deleted { floor, dropped }) => {
            tracing::info!(stream = stream.name, floor, ?dropped, "files of rows that were cut off are deleted");
        }
        Err(error) => {
            tracing::warn!(stream = stream.name, %error, "retention failed and is tried again in an hour");
        }
    }
}

/// Finds files below the table that nothing refers to, and deletes them unless it is a dry run.
pub(super) async fn sweep(shared: &Arc<Shared>, stream: &Arc<Moved>, dry_run: bool) -> Result<Swept, MoverError> {
    let mut keep: HashSet<String> = stream.view(&shared.catalog)?.files.iter().map(|file| file.uri.clone()).collect();
    keep.extend(shared.catalog.trash_of(stream.log)?.into_iter().map(|trash| trash.uri));
    for intent in shared.catalog.intents()?.into_iter().filter(|intent| intent.log == stream.log) {
        keep.insert(stream.uri(intent.tier, &intent.path));
    }
    let mut slot = stream.table.lock().await;
    if slot.is_none() {
        *slot = Table::open(&shared.store, &stream.location).await?;
    }
    let Some(table) = slot.as_mut() else { return Ok(Swept::default()) };
    Ok(table.sweep(&Sweep { dry_run, min_age: SAFETY_AGE, keep, ..Sweep::default() }).await?)
}

/// Finds files of a log on this machine that nothing refers to, and deletes them unless it is a dry run. Those of a
/// table that is here, too, are the table's.
pub(super) async fn sweep_here(
    shared: &Arc<Shared>,
    stream: &Arc<Moved>,
    min_age: Duration,
    dry_run: bool,
) -> Result<Vec<PathBuf>, MoverError> {
    let (shared, stream) = (Arc::clone(shared), Arc::clone(stream));
    blocking(move || {
        let mut known: HashSet<PathBuf> =
            stream.view(&shared.catalog)?.files.iter().filter_map(|file| file.path.clone()).collect();
        known.extend(shared.catalog.intents()?.into_iter().map(|intent| intent.path));
        let trash = shared.catalog.trash_of(stream.log)?;
        known.extend(trash.iter().filter_map(|trash| trash.uri.strip_prefix("file://")).map(PathBuf::from));
        let mut orphans = Vec::new();
        for directory in stream.directories() {
            for (path, age) in list(&directory)? {
                let unfinished = path.to_string_lossy().ends_with(UNFINISHED_SUFFIX);
                let orphan = unfinished || (!stream.is_local() && !known.contains(&path));
                if orphan && age >= min_age {
                    if !dry_run {
                        remove(&path)?;
                    }
                    orphans.push(path);
                }
            }
        }
        Ok(orphans)
    })
    .await
}

/// The files of a directory and how long ago they were changed; none if there is no directory.
pub(super) fn list(directory: &Path) -> Result<Vec<(PathBuf, Duration)>, MoverError> {
    let fail = |source| MoverError::Io { action: "list", path: directory.to_owned(), source };
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(fail(error)),
    };
    let now = SystemTime::now();
    let mut files = Vec::new();
    for entry in entries {
        let entry = entry.map_err(fail)?;
        // One that is gone by now is nobody's.
        let Ok(metadata) = entry.metadata() else { continue };
        if metadata.is_file() {
            let age = metadata.modified().ok().and_then(|changed| now.duration_since(changed).ok());
            files.push((entry.path(), age.unwrap_or_default()));
        }
    }
    Ok(files)
}

/// Deletes a file; one that is not there is deleted.
pub(super) fn remove(path: &Path) -> Result<(), MoverError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(MoverError::Io { action: "delete", path: path.to_owned(), source: error })
        }
        _ => Ok(()),
    }
}
