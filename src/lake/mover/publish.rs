//! Publishing: sealed files become part of the Iceberg table.
//!
//! Files are uploaded under their own names where the table is elsewhere, then one commit adds all of them, then the
//! catalog marks them. Every step can be made again: an upload overwrites the same bytes, and the table leaves out
//! files whose offsets it has.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::error::MoverError;
use super::seal::view_numbers;
use super::shared::Shared;
use super::stream::Moved;
use crate::lake::steps::step;
use crate::lake::table::{Commit, Table};

/// Files that one commit adds, at most.
const MAX_FILES_PER_COMMIT: usize = 512;

/// Publishes everything that is sealed. Returns whether the table changed.
pub(super) async fn publish(shared: &Arc<Shared>, stream: &Arc<Moved>) -> Result<bool, MoverError> {
    let mut table = stream.table.lock().await;
    let outcome = publish_all(shared, stream, &mut table).await;
    stream.reachable.store(outcome.is_ok(), Relaxed);
    if outcome.is_err() {
        // Whatever it was, the next attempt looks at the table anew.
        *table = None;
    }
    outcome
}

async fn publish_all(shared: &Arc<Shared>, stream: &Arc<Moved>, slot: &mut Option<Table>) -> Result<bool, MoverError> {
    let mut changed = false;
    loop {
        let view = stream.view(&shared.catalog)?;
        let waiting: Vec<_> =
            view.files.iter().filter(|file| !file.published).take(MAX_FILES_PER_COMMIT).cloned().collect();
        let Some(last) = waiting.last() else { break };
        let published_end = last.end;
        let starts: Vec<i64> = waiting.iter().map(|file| file.start).collect();
        for file in &waiting {
            if let Some(path) = file.path.as_deref().filter(|_| !file.is_shared()) {
                shared.store.upload(path, &file.uri).await?;
                step("publish: a file is uploaded");
            }
        }
        let mut files = shared.catalog.data_files(stream.log, &starts)?;
        for (file, known) in files.iter_mut().zip(&waiting) {
            file.uri.clone_from(&known.uri);
        }
        if files.len() != waiting.len() {
            return Err(MoverError::Broken(format!(
                "the catalog describes {} of {} files of log {:?}",
                files.len(),
                waiting.len(),
                stream.log_name
            )));
        }
        let table = open(shared, stream, slot).await?;
        stream.told_end.fetch_max(published_end, Relaxed);
        table.append(&files, &commit(shared, stream)).await?;
        step("publish: the table has the files");
        let view = shared.catalog.mark_published(stream.log, &starts, published_end)?;
        step("publish: the catalog knows");
        stream.counters.lake.saw(&view_numbers(&view));
        changed = true;
    }
    if let Some(table) = slot.as_ref() {
        stream.issued_through.store(table.issued_through().unwrap_or(i64::MIN), Relaxed);
    }
    Ok(changed)
}

/// The table, opened or created.
pub(super) async fn open<'a>(
    shared: &Shared,
    stream: &Moved,
    slot: &'a mut Option<Table>,
) -> Result<&'a mut Table, MoverError> {
    let table = match slot.take() {
        Some(table) => table,
        None => Table::open_or_create(&shared.store, &stream.table_spec()?).await?,
    };
    Ok(slot.insert(table))
}

/// What goes with every change of the table.
pub(super) fn commit(shared: &Shared, stream: &Moved) -> Commit {
    let end_offset = stream.counters.end_offset.load(Relaxed);
    Commit {
        issued_through: Some(end_offset - 1).filter(|issued| *issued >= 0),
        writer_epoch: Some(shared.catalog.writer_epoch()),
        ..Commit::default()
    }
}

/// Notes since when rows wait to be in the table.
pub(super) fn look_at_lag(shared: &Shared, stream: &Moved) -> Result<(), MoverError> {
    let view = stream.view(&shared.catalog)?;
    let mut numbers = view_numbers(&view);
    if numbers.unpublished_since_us.is_none() {
        let sealed_end = view.sealed_end;
        let since_us = shared.read(|reader| Ok(reader.ts_us_at(stream.id, sealed_end)?))?;
        numbers.unpublished_since_us = Some(since_us.unwrap_or(0));
    }
    stream.counters.lake.saw(&numbers);
    Ok(())
}
