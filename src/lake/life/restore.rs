//! Taking up a stream from its published tables on a machine that has nothing of it.
//!
//! What was published is there; what was not is lost. Offsets that the lost server may have given out are left out for
//! ever: the first new row is 2^40 above the last one known, so that no offset ever means two rows. What was erased stays
//! erased: the document of holes lies beside the stream's.

use super::error::LifeError;
use super::estate::Estate;
use super::finish::{layout, location};
use super::holes::holes;
use super::retire::revived;
use super::returned::returned;
use crate::journal::Adopted;
use crate::lake::catalog::NewLog;
use crate::lake::columns::Layout;
use crate::lake::documents::{Change, Current, Document, Documents, LiveLog};
use crate::lake::steps::step;
use crate::lake::store::Store;
use crate::lake::table::Table;
use crate::schema::Schema;

/// Offsets that are left out after the last one that a table knows of.
pub const FENCE: i64 = 1 << 40;

/// What is to be restored, and how.
#[derive(Debug, Clone)]
pub struct Wanted<'a> {
    /// The stream.
    pub stream: &'a str,
    /// The URI it was published to: with the stream's name at its end or without.
    pub published: &'a str,
    /// Whether a retired stream is taken up again; otherwise it is refused.
    pub revive: bool,
    /// Whether publishers may name themselves; documents do not say.
    pub exactly_once: bool,
    /// Whether a replica of the lost server's buffer is passed over. Rows that are only in there are lost.
    pub ignore_replica: bool,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    /// The log that takes rows now.
    pub log: String,
    /// The rows of its table.
    pub rows: u64,
    /// The offset after the last row of its table.
    pub published_end: i64,
    /// The offset of the next row.
    pub next_offset: i64,
}

/// Restores a stream. Nothing of it may be in the data root, but for what an interrupted restore left there.
///
/// Done in this order: copies of the newest files, the catalog, the document, and last the journal, which makes it true. The bucket's copy of the
/// document is written when the stream is served.
///
/// # Errors
/// When nothing is published there, what is there does not fit together, or the stream is in the data root already.
pub async fn restore(estate: &mut Estate<'_>, wanted: &Wanted<'_>) -> Result<Restored, LifeError> {
    let stream = wanted.stream;
    let documents = estate.grounds.documents(stream);
    let found = find(&documents, wanted).await?;
    // A stream of that name that never had a row was created by mistake, before it was known to be lost.
    if estate.ledger.record(stream)?.is_some_and(|record| record.end_offset > record.first_offset) {
        return Err(LifeError::Exists { stream: stream.to_owned() });
    }
    let (document, resumes) = match (&found.document.retirement, wanted.revive) {
        (Some(_), true) => (revived(estate.grounds, &found.document)?, true),
        (Some(_), false) => return Err(LifeError::RetiredThere { stream: stream.to_owned() }),
        (None, true) => return Err(LifeError::NotRetired { stream: stream.to_owned() }),
        (None, false) => (found.document.clone(), false),
    };
    let live = &document.live_log;
    let refused = |why: String| LifeError::Schema { stream: stream.to_owned(), why };
    let schema = Schema::compile(&live.schema, true).map_err(|error| refused(error.to_string()))?;
    let table = Table::open(estate.grounds.store, &location(live)).await?;
    check_replica(estate.grounds.store, wanted, live).await?;
    let mut files = Vec::new();
    let mut issued = live.start_offset - 1;
    let recorded = documents.holes(&found).await?.unwrap_or_default();
    if let Some(last) = recorded.holes.last() {
        issued = issued.max(last.end - 1);
    }
    if let Some(mut table) = table {
        check_table(&table, stream, live)?;
        files = table.files().await?;
        issued = issued.max(table.issued_through().unwrap_or(0)).max(files.last().map_or(0, |file| file.end - 1));
    }
    let published_end = files.last().map_or(live.start_offset, |file| file.end);
    let last_ts_us = files.iter().map(|file| file.ts_us.1).max();
    let exhausted = || LifeError::Exhausted { stream: stream.to_owned() };
    // A log that begins now was never written by anybody else.
    let next_offset = if resumes { issued + 1 } else { (issued + 1).checked_add(FENCE).ok_or_else(exhausted)? };
    let range = (live.start_offset, next_offset);
    let holes = holes(estate.grounds.store, &layout(stream, live)?, recorded.holes, &files, range).await?;
    let log = estate.grounds.catalog.ensure_log(&NewLog {
        stream,
        name: &live.name,
        location: &location(live),
        start_offset: live.start_offset,
    })?;
    let rows = files.iter().map(|file| file.rows).sum();
    let known = log.sealed_end;
    files.retain(|file| file.start >= known);
    let new = returned(estate.grounds, stream, live, &location(live), files).await;
    step("files copied back");
    estate.grounds.catalog.append(log.id, &new)?;
    step("files in the catalog");
    write_document(&documents, &found, &document).await?;
    step("document written");
    let first = document.sealed_logs.first().map_or(live.start_offset, |log| log.start_offset);
    estate.ledger.adopt(&Adopted {
        name: stream.to_owned(),
        stream_id: document.stream_id.clone(),
        log: live.name.clone(),
        schema_canonical: schema.canonical().to_owned(),
        sort_by: live.sort_by.clone().unwrap_or_default(),
        exactly_once: wanted.exactly_once,
        first_offset: first,
        floor: document.floor(),
        holes,
        erasures: recorded.erasures,
        end_offset: next_offset,
        last_ts_us,
    })?;
    step("journal has the stream");
    Ok(Restored { log: live.name.clone(), rows, published_end, next_offset })
}

/// The document below the prefix: in the stream's directory, or right there.
async fn find(documents: &Documents, wanted: &Wanted<'_>) -> Result<Current, LifeError> {
    let prefix = wanted.published.trim_end_matches('/');
    let below = format!("{prefix}/{}", wanted.stream);
    for place in [below.as_str(), prefix] {
        if let Some(found) = documents.current_below(place).await? {
            return Ok(found);
        }
    }
    Err(LifeError::NothingThere { stream: wanted.stream.to_owned(), published: wanted.published.to_owned() })
}

/// Only the data root's copy: a bucket gets its own when the stream is served.
async fn write_document(documents: &Documents, found: &Current, document: &Document) -> Result<(), LifeError> {
    let there = documents.current().await?;
    if there.as_ref().is_some_and(|there| there.version.is_some() && there.document == *document) {
        return Ok(());
    }
    let manifest = documents.manifest(found).await?.map_or(Change::Clear, Change::Replace);
    documents.commit_at_home(document.clone(), manifest).await?;
    Ok(())
}

/// The table has to have the columns that the document says, exactly.
fn check_table(table: &Table, stream: &str, live: &LiveLog) -> Result<(), LifeError> {
    let misfit = |why: String| LifeError::TableMisfit { location: table.location().to_owned(), why };
    if table.retired().is_some() {
        return Err(misfit(
            "it is marked as finished and the document says that it is written: the server that wrote it was stopped \
             in the middle of a migration or a retirement, which has to be completed there first"
                .to_owned(),
        ));
    }
    let wanted = layout(stream, live)?;
    let same = match table.arrow_schema() {
        Some(hex) => Layout::from_arrow_schema_hex(hex)? == wanted,
        // A table that does not say how binary columns are written has the same columns for all that.
        None => Layout::from_iceberg_schema(table.schema())? == Layout::from_iceberg_schema(&wanted.iceberg_schema()?)?,
    };
    if !same {
        return Err(misfit("its columns are not those of the document".to_owned()));
    }
    let sorted = table.sort_by().unwrap_or_else(|| table.sort_order());
    if let Some(declared) = &live.sort_by
        && sorted != *declared
    {
        return Err(misfit(format!("it is sorted by {sorted:?}, and the document says {declared:?}")));
    }
    Ok(())
}

/// A replica of the buffer holds rows that were never published. Reading it is not supported, and passing it over in
/// silence would lose them.
async fn check_replica(store: &Store, wanted: &Wanted<'_>, live: &LiveLog) -> Result<(), LifeError> {
    if wanted.ignore_replica {
        return Ok(());
    }
    let uri = format!("{}/_wal", location(live));
    let mut listing = store.list(&uri)?;
    if listing.next_page().await?.is_empty() {
        return Ok(());
    }
    Err(LifeError::Replica { stream: wanted.stream.to_owned(), uri })
}
