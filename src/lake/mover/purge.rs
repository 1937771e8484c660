//! Purging: files with erased rows are written anew without them, here and in the table (docs/storage.md, "Purging").
//!
//! A file has such rows as long as it has more rows than offsets that are no holes: nothing else has to be known of it.
//! The rest is written, noted and uploaded before the table is told; the table takes it for the file in one commit; then
//! the catalog does. A crash in between is settled as that of a merge is. When no file of the log has such rows any more,
//! everything else that lies below the table is condemned: superseded files may hold them until they are deleted, which
//! is when no reader can be using them any more. The rows are gone when the last condemned file is.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;

use super::clean::{empty_trash, expire, list};
use super::error::MoverError;
use super::finished;
use super::publish::{commit, open, publish};
use super::repair::{conclude, repair};
use super::seal::view_numbers;
use super::shared::{Shared, blocking};
use super::source::source_of;
use super::stream::Moved;
use crate::lake::catalog::{SealedFile, Tier};
use crate::lake::columns::{FileName, omit};
use crate::lake::data_file::DataFile;
use crate::lake::steps::step;
use crate::lake::table::Table;

/// Purges every log of a stream as far as it can be done now. With `look`, what waits to be deleted is looked for.
/// Returns whether anything is left to do.
pub(super) async fn purge(shared: &Arc<Shared>, stream: &Arc<Moved>, look: bool) -> Result<bool, MoverError> {
    let id = stream.id;
    let Some(newest) = shared.read(|reader| Ok(reader.last_unpurged(id)?))? else { return Ok(false) };
    let (logs, is_over) = finished::logs(shared, stream, newest).await?;
    let mut through = purge_log(shared, stream, newest, (look, is_over)).await?;
    for log in logs {
        through = through.min(purge_log(shared, &log, newest, (look, true)).await?);
    }
    if through >= newest {
        shared.cursors.close(id);
        let worker = Arc::clone(shared);
        blocking(move || Ok(worker.catalog.empty_log()?)).await?;
    }
    stream.purged_through.fetch_max(through, Relaxed);
    Ok(through < newest)
}

/// Purges one log. Returns the latest erasure of whose rows nothing is left in its files.
async fn purge_log(
    shared: &Arc<Shared>,
    stream: &Arc<Moved>,
    newest: i64,
    (look, is_over): (bool, bool),
) -> Result<i64, MoverError> {
    let log = stream.log;
    let begun = shared.catalog.rewritten_through(log)?.is_some_and(|through| through >= newest);
    if !begun {
        let changes = is_over && next_with_holes(shared, stream, i64::MIN).await?.is_some();
        if changes {
            finished::before(shared, stream).await?;
        }
        rewrite_all(shared, stream).await?;
        if is_over {
            finished::after(shared, stream, changes).await?;
        }
        condemn(shared, stream, newest).await?;
    }
    if (look || !begun) && shared.catalog.first_condemned(log)?.is_some() {
        empty_trash(shared).await?;
        expire(shared, stream).await?;
        acquit(shared, stream).await?;
    }
    Ok(shared.catalog.first_condemned(log)?.map_or(newest, |marker| marker - 1))
}

async fn rewrite_all(shared: &Arc<Shared>, stream: &Arc<Moved>) -> Result<(), MoverError> {
    let worker = Arc::clone(stream);
    // A seal that read rows before they were erased records its file before this goes on.
    blocking(move || {
        drop(worker.sealing.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(())
    })
    .await?;
    // A file that the table may or may not have cannot be exchanged.
    publish(shared, stream).await?;
    let mut from = i64::MIN;
    loop {
        let _rewriting = stream.rewriting.lock().await;
        repair(shared, stream).await?;
        let Some(file) = next_with_holes(shared, stream, from).await? else { return Ok(()) };
        rewrite(shared, stream, &file).await?;
        from = file.end;
    }
}

/// The next published file that reaches beyond `from` and has more rows than offsets that are no holes.
async fn next_with_holes(
    shared: &Arc<Shared>,
    stream: &Arc<Moved>,
    from: i64,
) -> Result<Option<Arc<SealedFile>>, MoverError> {
    let (shared, stream) = (Arc::clone(shared), Arc::clone(stream));
    blocking(move || {
        let view = stream.view(&shared.catalog)?;
        shared.read(|reader| {
            for file in view.files.iter().filter(|file| file.end > from && file.published) {
                let holes = reader.skipped_between(stream.id, file.start, file.end)?;
                if file.rows.saturating_add(holes) > file.end.abs_diff(file.start) {
                    return Ok(Some(Arc::clone(file)));
                }
            }
            Ok(None)
        })
    })
    .await
}

/// Exchanges a file for one without the rows in holes, or for none.
async fn rewrite(shared: &Arc<Shared>, stream: &Arc<Moved>, file: &Arc<SealedFile>) -> Result<(), MoverError> {
    // panics: never, the semaphore is not closed
    let _permit = shared.merges.acquire().await.expect("the semaphore is open");
    let rest = write_rest(shared, stream, file).await?;
    if let Some((data, path)) = &rest
        && !stream.is_local()
    {
        shared.store.upload(path, &data.uri).await?;
        step("purge: the rest is uploaded");
    }
    let range = (file.start, file.end);
    let mut slot = stream.table.lock().await;
    let table = open(shared, stream, &mut slot).await?;
    let files: Vec<DataFile> = rest.iter().map(|(data, _)| data.clone()).collect();
    if let Err(error) = table.purge(range.0..range.1, &files, &commit(shared, stream)).await {
        // What became of it is found out before the next attempt.
        *slot = None;
        return Err(error.into());
    }
    step("purge: the table has the rest");
    let view = match rest {
        Some((data, path)) => conclude(shared, stream, range, (data, Tier::Compacted, &path), Duration::ZERO)?,
        None => shared.catalog.replace(stream.log, range, &[], super::evict::due_us(Duration::ZERO))?,
    };
    step("purge: the catalog has the rest");
    stream.counters.lake.saw(&view_numbers(&view));
    Ok(())
}

/// Writes the rows of a file that are not in holes, and notes in the catalog what came of it; `None` if there are none.
async fn write_rest(
    shared: &Arc<Shared>,
    stream: &Arc<Moved>,
    file: &Arc<SealedFile>,
) -> Result<Option<(DataFile, PathBuf)>, MoverError> {
    let (shared, stream, file, handle) = (Arc::clone(shared), Arc::clone(stream), Arc::clone(file), Handle::current());
    blocking(move || {
        let source = source_of(&shared.store, Some(&handle), &file)?;
        let directory = stream.directory(Tier::Compacted);
        let rest = shared.read(|reader| {
            let mut in_hole = reader.in_hole(stream.id);
            let mut is_erased = |offset| in_hole(offset).map_err(|error| error.to_string());
            Ok(omit(&source, &stream.layout, &directory, &stream.options, &mut is_erased)?)
        })?;
        if rest.omitted == 0 {
            let what = format!("{} has more rows than the stream has offsets there", file.uri);
            return Err(MoverError::Broken(what));
        }
        step("purge: the rest is written");
        let Some(unnamed) = rest.file else { return Ok(None) };
        let name = FileName::Start.new_name(unnamed.file().start, unnamed.file().end);
        let path = directory.join(&name);
        shared.catalog.intend(stream.log, Tier::Compacted, &path, (file.start, file.end))?;
        step("purge: the rest is noted");
        let mut data = unnamed.place(&name)?;
        data.uri = stream.uri(Tier::Compacted, &path);
        step("purge: the rest has its name");
        shared.catalog.describe_intent(&path, &data)?;
        step("purge: the rest is described");
        Ok(Some((data, path)))
    })
    .await
}

/// Notes which files may hold rows that erasures up to `newest` took: all that are not the log's any more.
async fn condemn(shared: &Arc<Shared>, stream: &Arc<Moved>, newest: i64) -> Result<(), MoverError> {
    let _rewriting = stream.rewriting.lock().await;
    // Nothing is gathered meanwhile.
    let mut slot = stream.table.lock().await;
    let mut found = lying_about(shared, stream, &mut slot).await?;
    // Asked afterwards: a file is noted before it has its name.
    let view = stream.view(&shared.catalog)?;
    let mut needed: HashSet<String> = view.files.iter().filter_map(|file| Some(uri_of(file.path.as_ref()?))).collect();
    for intent in shared.catalog.intents()?.iter().filter(|intent| intent.log == stream.log) {
        needed.insert(uri_of(&intent.path));
        needed.insert(stream.uri(intent.tier, &intent.path));
    }
    needed.extend(view.files.iter().map(|file| file.uri.clone()));
    found.retain(|uri| !needed.contains(uri));
    shared.catalog.condemn(stream.log, newest, &found)?;
    step("purge: what may hold erased rows is noted");
    Ok(())
}

/// Forgets condemned files that are deleted.
async fn acquit(shared: &Arc<Shared>, stream: &Arc<Moved>) -> Result<(), MoverError> {
    let there: HashSet<String> =
        lying_about(shared, stream, &mut *stream.table.lock().await).await?.into_iter().collect();
    let gone: Vec<String> =
        shared.catalog.condemned(stream.log)?.into_iter().filter(|uri| !there.contains(uri)).collect();
    Ok(shared.catalog.forget_condemned(stream.log, &gone)?)
}

/// The files of a log that its table does not need, in the table's store and here; those here that are in use included.
async fn lying_about(
    shared: &Arc<Shared>,
    stream: &Arc<Moved>,
    slot: &mut Option<Table>,
) -> Result<Vec<String>, MoverError> {
    let mut found = Vec::new();
    if slot.is_none() {
        *slot = Table::open(&shared.store, &stream.location).await?;
    }
    if let Some(table) = slot.as_mut() {
        found = table.superseded().await?;
    }
    if !stream.is_local() {
        let worker = Arc::clone(stream);
        let here = blocking(move || {
            let mut paths = Vec::new();
            for directory in worker.directories() {
                paths.extend(list(&directory)?.into_iter().map(|(path, _)| uri_of(&path)));
            }
            Ok(paths)
        });
        found.extend(here.await?.into_iter().filter(|uri| uri.ends_with(".parquet")));
    }
    Ok(found)
}

fn uri_of(path: &std::path::Path) -> String {
    format!("file://{}", path.display())
}
