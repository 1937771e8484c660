//! What a crash left half: files that were noted and not recorded.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::clean::remove;
use super::error::MoverError;
use super::evict::{LOCAL_GRACE, due_us};
use super::shared::Shared;
use super::stream::Moved;
use crate::lake::catalog::{Intent, LogView, NewFile, Tier};
use crate::lake::data_file::DataFile;
use crate::lake::table::Table;

/// Settles every file of a stream's log that an earlier process noted. Merging begins only after this, because a merge
/// that the table knows and the catalog does not has to be completed first.
pub(super) async fn repair(shared: &Arc<Shared>, stream: &Arc<Moved>) -> Result<(), MoverError> {
    let left = shared.catalog.intents()?;
    for intent in left.into_iter().filter(|intent| intent.log == stream.log && intent.created_us < shared.opened_us) {
        settle(shared, stream, &intent).await?;
    }
    Ok(())
}

/// Records a file that the table has in the place of those of `range`. It is kept here if all of these are.
pub(super) fn conclude(
    shared: &Shared,
    stream: &Moved,
    range: (i64, i64),
    (file, tier, path): (DataFile, Tier, &Path),
    grace: Duration,
) -> Result<Arc<LogView>, MoverError> {
    let view = stream.view(&shared.catalog)?;
    let mut replaced = view.files.iter().filter(|file| file.start < range.1 && file.end > range.0);
    let local = replaced.all(|file| file.local);
    let kept = local || stream.is_local();
    let new = NewFile { file, path: kept.then(|| path.to_owned()), tier, local, published: true };
    let view = shared.catalog.replace(stream.log, range, &[new], due_us(grace))?;
    if !kept {
        remove(path)?;
        shared.catalog.forget_intent(path)?;
    }
    Ok(view)
}

async fn settle(shared: &Arc<Shared>, stream: &Arc<Moved>, intent: &Intent) -> Result<(), MoverError> {
    if let Some(file) = &intent.file {
        // The table was about to be told of it. Only the table knows whether it was.
        let mut table = Table::open(&shared.store, &stream.location).await?;
        let known = match &mut table {
            Some(table) => table.files().await?.iter().any(|known| known.uri == file.uri),
            None => false,
        };
        if known {
            conclude(shared, stream, intent.range, (file.clone(), intent.tier, &intent.path), LOCAL_GRACE)?;
            tracing::info!(stream = stream.name, file = file.uri, "a merge that a crash interrupted is completed");
            return Ok(());
        }
        shared.store.delete(&file.uri).await?;
    }
    let recorded = stream.view(&shared.catalog)?.files.iter().any(|file| file.path.as_ref() == Some(&intent.path));
    if !recorded {
        remove(&intent.path)?;
    }
    shared.catalog.forget_intent(&intent.path)?;
    tracing::info!(stream = stream.name, path = %intent.path.display(), "a file that a crash left is deleted");
    Ok(())
}
