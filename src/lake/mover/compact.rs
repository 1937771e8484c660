//! Merging: neighbouring small files become one, here and in the table.
//!
//! The merged file is written, verified and described in the catalog before the table is told; the table replaces the
//! parts in one commit; then the catalog does. A crash in between is settled at the next start by asking the table.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::error::MoverError;
use super::evict::{LOCAL_GRACE, due_us};
use super::plan::{Kind, Part, next_merge};
use super::publish::{commit, open};
use super::repair::repair;
use super::seal::view_numbers;
use super::shared::{Shared, blocking};
use super::stream::Moved;
use crate::lake::catalog::{LogView, NewFile, SealedFile, Tier};
use crate::lake::columns::{Source, merge};
use crate::lake::data_file::DataFile;
use crate::lake::steps::step;

/// Merges once, if there is something to merge. Returns whether there was.
pub(super) async fn compact(shared: &Arc<Shared>, stream: &Arc<Moved>) -> Result<bool, MoverError> {
    let _rewriting = stream.rewriting.lock().await;
    repair(shared, stream).await?;
    let view = stream.view(&shared.catalog)?;
    let reachable = stream.reachable.load(Relaxed);
    let told_end = stream.told_end.load(Relaxed);
    let parts: Vec<Part> = view.files.iter().map(|file| part(file, reachable, told_end)).collect();
    let settings = &stream.settings;
    let Some(range) = next_merge(&parts, settings.target_compact_bytes, settings.compact_min_files) else {
        return Ok(false);
    };
    let inputs = view.files[range].to_vec();
    // panics: never, the semaphore is not closed
    let _permit = shared.merges.acquire().await.expect("the semaphore is open");
    if inputs[0].published {
        merge_published(shared, stream, &view, &inputs).await?;
    } else {
        merge_unpublished(shared, stream, &view, &inputs).await?;
    }
    stream.counters.lake.merged_files_total.fetch_add(inputs.len() as u64, Relaxed);
    Ok(true)
}

/// While the table can be reached, files are published first: then the table needs to be told only once. A file of which
/// it may have been told stays as it is until it is known to be there.
fn part(file: &SealedFile, reachable: bool, told_end: i64) -> Part {
    let kind = match (file.path.is_some() && file.local, file.published) {
        (true, true) if reachable => Kind::Published,
        (true, false) if !reachable && file.start >= told_end => Kind::Unpublished,
        _ => Kind::Fixed,
    };
    Part { size_bytes: file.size_bytes, kind }
}

async fn merge_published(
    shared: &Arc<Shared>,
    stream: &Arc<Moved>,
    view: &LogView,
    inputs: &[Arc<SealedFile>],
) -> Result<(), MoverError> {
    let new = write(shared, stream, view, inputs).await?;
    let Some(path) = new.path.as_deref() else { return Ok(()) };
    if !stream.is_local() {
        shared.store.upload(path, &new.file.uri).await?;
        step("compact: the file is uploaded");
    }
    let mut slot = stream.table.lock().await;
    let table = open(shared, stream, &mut slot).await?;
    let range = new.file.start..new.file.end;
    if let Err(error) = table.replace(range, std::slice::from_ref(&new.file), &commit(shared, stream)).await {
        // What became of it is found out before the next merge.
        *slot = None;
        return Err(error.into());
    }
    step("compact: the table has the file");
    let range = (new.file.start, new.file.end);
    let new = NewFile { published: true, ..new };
    let view = shared.catalog.replace(stream.log, range, &[new], due_us(LOCAL_GRACE))?;
    step("compact: the catalog has the file");
    stream.counters.lake.saw(&view_numbers(&view));
    Ok(())
}

async fn merge_unpublished(
    shared: &Arc<Shared>,
    stream: &Arc<Moved>,
    view: &LogView,
    inputs: &[Arc<SealedFile>],
) -> Result<(), MoverError> {
    // Nothing is published meanwhile, so that no part gets into the table.
    let _table = stream.table.lock().await;
    let now = stream.view(&shared.catalog)?;
    let told_end = stream.told_end.load(Relaxed);
    let still = |input: &Arc<SealedFile>| {
        now.files.iter().any(|file| file.uri == input.uri && !file.published && file.start >= told_end)
    };
    if !inputs.iter().all(still) {
        return Ok(());
    }
    let new = write(shared, stream, view, inputs).await?;
    let range = (new.file.start, new.file.end);
    let view = shared.catalog.replace(stream.log, range, &[new], due_us(LOCAL_GRACE))?;
    step("compact: the catalog has the file");
    stream.counters.lake.saw(&view_numbers(&view));
    Ok(())
}

/// Writes the merged file and notes in the catalog what it is.
pub(super) async fn write(
    shared: &Arc<Shared>,
    stream: &Arc<Moved>,
    view: &LogView,
    inputs: &[Arc<SealedFile>],
) -> Result<NewFile, MoverError> {
    let paths: Vec<PathBuf> = inputs.iter().filter_map(|file| file.path.clone()).collect();
    let worker = Arc::clone(stream);
    let mut files = blocking(move || {
        let sources = paths.iter().map(|path| Source::file(path)).collect::<Result<Vec<_>, _>>()?;
        let directory = worker.directory(Tier::Compacted);
        Ok(merge(&sources, &worker.layout, &directory, u64::MAX, &worker.options)?)
    })
    .await?;
    step("compact: the file is written");
    let checked = check(view, inputs, &files);
    let path = files.first().and_then(|file| file.uri.strip_prefix("file://")).map(PathBuf::from);
    let (Ok(()), Some(path)) = (&checked, path) else {
        for file in &files {
            shared.store.delete(&file.uri).await?;
        }
        return Err(checked.err().unwrap_or_else(|| MoverError::Broken("a merged file has no path".to_owned())));
    };
    let mut file = files.swap_remove(0);
    file.uri = stream.uri(Tier::Compacted, &path);
    shared.catalog.intend(stream.log, Tier::Compacted, &path, (file.start, file.end))?;
    shared.catalog.describe_intent(&path, &file)?;
    step("compact: the file is noted");
    Ok(NewFile { file, path: Some(path), tier: Tier::Compacted, local: true, published: false })
}

/// Whether one file has all the rows of its parts.
fn check(view: &LogView, inputs: &[Arc<SealedFile>], outputs: &[DataFile]) -> Result<(), MoverError> {
    let (Some(first), Some(last)) = (inputs.first(), inputs.last()) else { return Ok(()) };
    let rows: u64 = inputs.iter().map(|file| file.rows).sum();
    let what = match outputs {
        [file] if (file.start, file.end, file.rows) == (first.start, last.end, rows) => return Ok(()),
        [file] => format!("{} rows from {} to {} instead of {rows}", file.rows, file.start, file.end),
        more => format!("{} files", more.len()),
    };
    Err(MoverError::Merge { log: view.name.clone(), start: first.start, end: last.end, parts: inputs.len(), what })
}
