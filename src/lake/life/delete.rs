//! What a stream that was deleted has published goes: the tables of its logs, and the documents beside them.

use std::path::Path;

use super::error::LifeError;
use super::finish::mark;
use super::time;
use crate::lake::documents::{Document, Documents, local_path};
use crate::lake::steps::step;
use crate::lake::store::Store;
use crate::lake::table::{Table, delete_all, delete_unnamed};

/// A stream that was deleted.
#[derive(Debug, Clone, Copy)]
pub struct Gone<'a> {
    /// Its name, which may be another stream's by now.
    pub stream: &'a str,
    /// Its UUID.
    pub stream_id: &'a str,
    /// Where its directory is now: `<home>/<stream>`.
    pub home: &'a Path,
    /// Where its directory was, with the tables that were in it.
    pub was: &'a Path,
}

/// Deletes everything that the stream has published outside of its directory, as its documents tell: tables first, each
/// as [`delete_all`] does, documents last. A call that was cut off is made again. Nothing outside of the directories of
/// its tables is touched, and nothing that belongs to a stream with another `stream_id`.
///
/// # Errors
/// When documents or a store cannot be read or written; what is deleted by then stays so.
pub async fn delete_published(store: &Store, gone: &Gone<'_>) -> Result<(), LifeError> {
    let documents = Documents::new(gone.home, gone.stream, Some(std::sync::Arc::new(store.clone())));
    let Some(current) = documents.current().await? else { return Ok(()) };
    let document = &current.document;
    if document.stream_id != gone.stream_id {
        return Ok(());
    }
    for (prefix, log) in logs(document) {
        // What was in its directory has been moved away with it; another stream may be there by now.
        let moved = local_path(prefix).is_some_and(|path| path.starts_with(gone.was));
        if !moved && documents.is_owned_below(prefix, gone.stream_id).await? {
            delete_table(store, prefix, log).await?;
            step("delete: a table is deleted");
        }
    }
    for (prefix, _) in logs(document) {
        documents.remove_below(prefix, gone.stream_id).await?;
    }
    Ok(())
}

async fn delete_table(store: &Store, prefix: &str, log: &str) -> Result<(), LifeError> {
    let location = format!("{prefix}/{log}");
    if Table::open(store, &location).await?.is_none() {
        // Files that were uploaded before there was a table to name them.
        delete_unnamed(store, &location).await?;
    }
    // Without the mark no table is deleted.
    mark(store, prefix, log, 0, time::now_us()).await?;
    delete_all(store, &location, false).await?;
    Ok(())
}

/// Where the tables of a stream are, and their names, the last one last.
fn logs(document: &Document) -> impl Iterator<Item = (&str, &str)> {
    let dropped = document.pending.iter().flat_map(|pending| &pending.dropped);
    let dropped = dropped.map(|log| (log.published.as_deref(), log.name.as_str()));
    let sealed = document.sealed_logs.iter().map(|log| (log.published.as_deref(), log.name.as_str()));
    let live = (document.live_log.published.as_deref(), document.live_log.name.as_str());
    let all = dropped.chain(sealed).chain([live]);
    all.filter_map(|(prefix, log)| Some((prefix?.trim_end_matches('/'), log)))
}
