//! Documents of a stream in its bucket: those that a start could not write there, and that of holes, which follows the
//! journal, so that a stream that is restored knows what was erased.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::error::MoverError;
use super::shared::{Shared, blocking};
use super::stream::Moved;
use crate::lake::documents::{Documents, Holes};

/// Writes what the bucket lacks of the data root's documents, once after a start.
pub(super) async fn complete_documents(shared: &Arc<Shared>, stream: &Arc<Moved>) -> Result<(), MoverError> {
    if !stream.documents_due.load(Relaxed) {
        return Ok(());
    }
    // Retention, which commits documents, holds it as well.
    let _rewriting = stream.rewriting.lock().await;
    let documents = Documents::new(&shared.root, &stream.name, Some(Arc::new(shared.store.clone())));
    documents.complete_current().await.map_err(MoverError::documents)?;
    stream.documents_due.store(false, Relaxed);
    Ok(())
}

/// Publishes which offsets of a stream hold no rows, if that has changed.
pub(super) async fn publish_holes(shared: &Arc<Shared>, stream: &Arc<Moved>) -> Result<(), MoverError> {
    let id = stream.id;
    let Some(last) = shared.read(|reader| Ok(reader.last_hole(id)?))? else { return Ok(()) };
    if stream.holes_published.load(Relaxed) == last {
        return Ok(());
    }
    let documents = Documents::new(&shared.root, &stream.name, Some(Arc::new(shared.store.clone())));
    let Some(current) = documents.current().await.map_err(MoverError::documents)? else { return Ok(()) };
    let worker = Arc::clone(shared);
    let (holes, erasures) = blocking(move || worker.read(|reader| Ok(reader.holes(id)?))).await?;
    let holes = Holes { stream_id: current.document.stream_id.clone(), holes, erasures };
    documents.write_holes(&current.document, &holes).await.map_err(MoverError::documents)?;
    stream.holes_published.store(last, Relaxed);
    Ok(())
}
