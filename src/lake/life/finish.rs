//! Bringing a log to its end: every row in its table, counted and described.

use std::collections::BTreeMap;

use super::error::LifeError;
use super::estate::Estate;
use super::time;
use crate::lake::columns::{Layout, LogStatistics, log_statistics, read_manifest_parquet, write_manifest_parquet};
use crate::lake::documents::{Change, Current, Document, Documents, LiveLog};
use crate::lake::steps::step;
use crate::lake::store::Store;
use crate::lake::table::{Retired, Table, TableSpec};
use crate::stream::record::StreamRecord;

/// A log whose rows are all in its table.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Finished {
    /// The offset after its last row.
    pub end: i64,
    /// The lowest and the highest stamp, in microseconds.
    pub ts_us: Option<(i64, i64)>,
    /// What the manifest says of it.
    pub statistics: LogStatistics,
}

/// Moves every row of a stream into its table, makes the table if there is none, and counts what is in it.
pub(super) async fn finish(
    estate: &mut Estate<'_>,
    record: &StreamRecord,
    live: &LiveLog,
) -> Result<Finished, LifeError> {
    estate.moving.flush(&record.name).await?;
    step("rows published");
    let layout = layout(&record.name, live)?;
    let mut table = Table::open_or_create(estate.grounds.store, &table_spec(&layout, live)?).await?;
    step("table there");
    let files = table.files_with_columns().await?;
    let known = estate.grounds.catalog.find(&record.name, &live.name)?;
    let (published, sealed) = (files.iter().map(|file| file.rows).sum::<u64>(), known.rows());
    if published < sealed || known.files.iter().any(|file| !file.published) {
        return Err(LifeError::Short { location: table.location().to_owned(), published, sealed });
    }
    let end = record.end_offset;
    let statistics = log_statistics(&layout, &live.name, live.start_offset, Some(end), &files);
    let lowest = files.iter().map(|file| file.ts_us.0).min();
    let highest = files.iter().map(|file| file.ts_us.1).max();
    Ok(Finished { end, ts_us: lowest.zip(highest), statistics })
}

/// The manifest with the row of a log that is finished.
pub(super) async fn manifest_with(
    documents: &Documents,
    current: &Current,
    statistics: LogStatistics,
) -> Result<Change, LifeError> {
    let mut rows = manifest_rows(documents, current).await?;
    rows.retain(|row| row.log != statistics.log);
    rows.push(statistics);
    written(&rows)
}

/// The rows of the manifest that a document names.
pub(super) async fn manifest_rows(documents: &Documents, current: &Current) -> Result<Vec<LogStatistics>, LifeError> {
    let Some(bytes) = documents.manifest(current).await? else { return Ok(Vec::new()) };
    let name = current.document.manifest.as_deref().unwrap_or_default();
    Ok(read_manifest_parquet(name, bytes.into())?)
}

/// A manifest with `rows`, or none if there are none.
pub(super) fn written(rows: &[LogStatistics]) -> Result<Change, LifeError> {
    if rows.is_empty() {
        return Ok(Change::Clear);
    }
    Ok(Change::Replace(write_manifest_parquet(rows)?))
}

/// Marks the table of a finished log, if it is not marked: other programs delete or cut no table without the mark.
pub(super) async fn mark(store: &Store, published: &str, log: &str, through: i64, at_us: i64) -> Result<(), LifeError> {
    let location = format!("{}/{log}", published.trim_end_matches('/'));
    let Some(mut table) = Table::open(store, &location).await? else { return Ok(()) };
    if table.retired().is_none() {
        table.retire(&Retired { through: (through > 1).then(|| through - 1), at: time::iso(at_us) }).await?;
        step("table marked");
    }
    Ok(())
}

/// Marks the table that a document says is finished, if a crash came before it was.
pub(super) async fn mark_finished(store: &Store, document: &Document, now_us: i64) -> Result<(), LifeError> {
    let live = &document.live_log;
    match (&document.retirement, document.sealed_logs.last()) {
        (Some(retirement), _) => {
            let published = live.published.as_deref().unwrap_or_default();
            mark(store, published, &live.name, retirement.end_offset, retirement.at).await
        }
        (None, Some(sealed)) => {
            mark(store, sealed.published.as_deref().unwrap_or_default(), &sealed.name, sealed.end_offset, now_us).await
        }
        (None, None) => Ok(()),
    }
}

/// The columns of a log's files.
pub(super) fn layout(stream: &str, live: &LiveLog) -> Result<Layout, LifeError> {
    Layout::from_document(&live.schema, &live.system_schema)
        .map_err(|error| LifeError::Schema { stream: stream.to_owned(), why: error.to_string() })
}

/// What the table of a log is made of.
pub(super) fn table_spec(layout: &Layout, live: &LiveLog) -> Result<TableSpec, LifeError> {
    Ok(TableSpec {
        location: location(live),
        schema: layout.iceberg_schema()?,
        sort_by: live.sort_by.clone().unwrap_or_default(),
        arrow_schema: Some(layout.arrow_schema_hex()?),
        properties: BTreeMap::new(),
    })
}

/// Where the table of a log is.
pub(super) fn location(live: &LiveLog) -> String {
    format!("{}/{}", live.published.as_deref().unwrap_or_default().trim_end_matches('/'), live.name)
}
