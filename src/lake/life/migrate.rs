//! A stream goes on under other columns: a new log behind the old one, without a hole between them.

use super::error::LifeError;
use super::estate::Estate;
use super::{finish, plan, reconcile, time};
use crate::lake::columns::Layout;
use crate::lake::documents::{Document, Order, default_prefix};
use crate::lake::steps::step;
use crate::schema::Schema;

/// What a migration came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Migrated {
    /// The log that takes rows now.
    pub log: String,
    /// Its first offset.
    pub start_offset: i64,
    /// Whether it is a new one.
    pub changed: bool,
}

/// Begins a new log with the columns `schema`, sorted by `sort_by` or as before. Nothing happens if the stream is like
/// that already.
///
/// Done in this order: every row into the table; the document, which makes it true; the journal; the mark on the old
/// table. After a crash the stream is as before until the document is there, and as after from then on.
///
/// # Errors
/// When the stream is not there, is retired, or may not become so, and when rows cannot be moved or documents written.
pub async fn migrate(
    estate: &mut Estate<'_>,
    stream: &str,
    schema: &Schema,
    sort_by: Option<&[String]>,
) -> Result<Migrated, LifeError> {
    let (record, documents, current) = estate.find(stream).await?;
    Layout::new(schema)?;
    let Some(plan) = plan::migration(&current.document, schema, sort_by, record.end_offset)? else {
        finish::mark_finished(estate.grounds.store, &current.document, time::now_us()).await?;
        let live = current.document.live_log;
        return Ok(Migrated { log: live.name, start_offset: live.start_offset, changed: false });
    };
    let live = current.document.live_log.clone();
    let finished = finish::finish(estate, &record, &live).await?;
    let manifest = finish::manifest_with(&documents, &current, finished.statistics.clone()).await?;
    let mut next = plan.live_log;
    next.start_offset = finished.end;
    // Tables go on where the old ones are, but for the place below a log's own directory.
    let own = default_prefix(estate.grounds.root, stream, &live.name)?;
    next.published = match live.published.clone() {
        Some(published) if published != own => Some(published),
        _ => Some(default_prefix(estate.grounds.root, stream, &next.name)?),
    };
    let mut document: Document = current.document.clone();
    let stamps = finished.ts_us;
    document.sealed_logs.push(live.seal(finished.end, stamps.map(|ts| ts.0), stamps.map(|ts| ts.1)));
    document.live_log = next;
    let done = documents.commit(document, manifest, Some(&current), Order::HomeFirst).await?;
    step("document committed");
    reconcile::follow(estate.ledger, &record, &done.document)?;
    step("journal follows");
    finish::mark_finished(estate.grounds.store, &done.document, time::now_us()).await?;
    let live = done.document.live_log;
    Ok(Migrated { log: live.name, start_offset: live.start_offset, changed: true })
}
