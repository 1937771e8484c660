//! What a crash left half: files that were noted and not recorded.

use std::sync::Arc;

use super::clean::remove;
use super::error::MoverError;
use super::evict::{LOCAL_GRACE, due_us};
use super::shared::Shared;
use super::stream::Moved;
use crate::lake::catalog::{Intent, NewFile};
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

async fn settle(shared: &Arc<Shared>, stream: &Arc<Moved>, intent: &Intent) -> Result<(), MoverError> {
    if let Some(file) = &intent.file {
        // The table was about to be told of it. Only the table knows whether it was.
        let mut table = Table::open(&shared.store, &stream.location).await?;
        let known = match &mut table {
            Some(table) => table.files().await?.iter().any(|known| known.uri == file.uri),
            None => false,
        };
        if known {
            let new = NewFile {
                file: file.clone(),
                path: Some(intent.path.clone()),
                tier: intent.tier,
                local: true,
                published: true,
            };
            shared.catalog.replace(stream.log, &[new], due_us(LOCAL_GRACE))?;
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
