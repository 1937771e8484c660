//! A stream ends, and is taken up again.

use super::error::LifeError;
use super::estate::{Estate, Grounds};
use super::{finish, reconcile, time};
use crate::lake::documents::{Change, Document, LiveLog, Order, Retirement, default_prefix, system_schema};
use crate::lake::steps::step;

/// Ends a stream: no row follows. One that is retired already stays as it is.
///
/// Done in this order: every row into the table; the document, which makes it true; the journal, which keeps no row
/// and no mark; the mark on the table.
///
/// # Errors
/// When the stream is not there, rows cannot be moved or documents written.
pub async fn retire(estate: &mut Estate<'_>, stream: &str) -> Result<Retirement, LifeError> {
    let (record, documents, current) = estate.find(stream).await?;
    if let Some(retirement) = &current.document.retirement {
        reconcile::follow(estate.ledger, &record, &current.document)?;
        finish::mark_finished(estate.grounds.store, &current.document, time::now_us()).await?;
        return Ok(retirement.clone());
    }
    let live = current.document.live_log.clone();
    let finished = finish::finish(estate, &record, &live).await?;
    let manifest = finish::manifest_with(&documents, &current, finished.statistics).await?;
    let retirement = Retirement {
        at: time::now_us(),
        end_offset: finished.end,
        sort_by: live.sort_by.clone().filter(|columns| !columns.is_empty()),
        start_ts: live.start_ts.or(finished.ts_us.map(|ts| ts.0)),
        end_ts: finished.ts_us.map(|ts| ts.1),
    };
    let document = Document { retirement: Some(retirement.clone()), ..current.document.clone() };
    let done = documents.commit(document, manifest, Some(&current), Order::HomeFirst).await?;
    step("document committed");
    reconcile::follow(estate.ledger, &record, &done.document)?;
    step("journal follows");
    finish::mark_finished(estate.grounds.store, &done.document, time::now_us()).await?;
    Ok(retirement)
}

/// Takes a retired stream up again: a new log of the same columns, at exactly the offset where it ended. Publishers
/// begin at 1 again. Returns the new log.
///
/// # Errors
/// When the stream is not there or not retired, or documents cannot be written.
pub async fn revive(estate: &mut Estate<'_>, stream: &str) -> Result<LiveLog, LifeError> {
    let (record, documents, current) = estate.find(stream).await?;
    // What a crash in the middle of the retirement left to do; the new log must not be kept waiting by it later.
    finish::mark_finished(estate.grounds.store, &current.document, time::now_us()).await?;
    let document = revived(estate.grounds, &current.document)?;
    let done = documents.commit(document, Change::Keep, Some(&current), Order::HomeFirst).await?;
    step("document committed");
    reconcile::follow(estate.ledger, &record, &done.document)?;
    step("journal follows");
    Ok(done.document.live_log)
}

/// The document of a retired stream that goes on.
pub(super) fn revived(grounds: Grounds<'_>, document: &Document) -> Result<Document, LifeError> {
    let stream = &document.stream;
    let Some(retirement) = document.retirement.clone() else {
        return Err(LifeError::NotRetired { stream: stream.clone() });
    };
    let mut next = document.clone();
    let old = document.live_log.clone();
    let name = document.next_log_name();
    let own = default_prefix(grounds.root, stream, &old.name)?;
    let published = match old.published.clone() {
        Some(published) if published != own => published,
        _ => default_prefix(grounds.root, stream, &name)?,
    };
    next.live_log = LiveLog {
        name,
        published: Some(published),
        start_offset: retirement.end_offset,
        start_ts: None,
        schema: old.schema.clone(),
        system_schema: system_schema(),
        sort_by: Some(retirement.sort_by.unwrap_or_default()),
    };
    next.sealed_logs.push(old.seal(retirement.end_offset, retirement.start_ts, retirement.end_ts));
    next.retirement = None;
    Ok(next)
}
