//! What the manifest says of a log that is over follows its files when erased rows leave them.

use super::error::LifeError;
use super::estate::Grounds;
use super::finish::{layout, manifest_rows, written};
use crate::lake::columns::{LogStatistics, log_statistics};
use crate::lake::documents::{Current, Documents, LiveLog, Order};
use crate::lake::steps::step;
use crate::lake::table::Table;

/// The manifest does not say any more how many rows a log has, if it did.
///
/// # Errors
/// When documents cannot be read or written.
pub async fn forget_count(grounds: Grounds<'_>, stream: &str, log: &str) -> Result<(), LifeError> {
    let documents = grounds.documents(stream);
    let Some((current, mut rows, place)) = row_of(&documents, log).await? else { return Ok(()) };
    if rows[place].record_count.take().is_some() {
        commit(&documents, &current, &rows).await?;
        step("recount: the count is open");
    }
    Ok(())
}

/// The manifest says of a log what the files of its table say now; without `changed`, only if it does not say how many
/// rows there are.
///
/// # Errors
/// When documents or the table cannot be read or written.
pub async fn count_anew(grounds: Grounds<'_>, stream: &str, log: &str, changed: bool) -> Result<(), LifeError> {
    let documents = grounds.documents(stream);
    let Some((current, mut rows, place)) = row_of(&documents, log).await? else { return Ok(()) };
    if !changed && rows[place].record_count.is_some() {
        return Ok(());
    }
    let document = &current.document;
    let sealed = document.sealed_logs.iter().find(|sealed| sealed.name == log);
    let found: LiveLog = match sealed {
        Some(sealed) => LiveLog {
            name: sealed.name.clone(),
            published: sealed.published.clone(),
            start_offset: sealed.start_offset,
            start_ts: sealed.start_ts,
            schema: sealed.schema.clone(),
            system_schema: sealed.system_schema.clone(),
            sort_by: sealed.sort_by.clone(),
        },
        None if document.live_log.name == log => document.live_log.clone(),
        None => return Ok(()),
    };
    let Some(mut table) = Table::open(grounds.store, &super::finish::location(&found)).await? else { return Ok(()) };
    let files = table.files_with_columns().await?;
    let (start, end) = (rows[place].start_offset, rows[place].end_offset);
    rows[place] = log_statistics(&layout(stream, &found)?, log, start, end, &files);
    commit(&documents, &current, &rows).await?;
    step("recount: the log is counted");
    Ok(())
}

/// The current document, the rows of its manifest, and which of them is that of `log`.
async fn row_of(documents: &Documents, log: &str) -> Result<Option<(Current, Vec<LogStatistics>, usize)>, LifeError> {
    let Some(current) = documents.current().await? else { return Ok(None) };
    let rows = manifest_rows(documents, &current).await?;
    let place = rows.iter().position(|row| row.log == log);
    Ok(place.map(|place| (current, rows, place)))
}

async fn commit(documents: &Documents, current: &Current, rows: &[LogStatistics]) -> Result<(), LifeError> {
    let document = current.document.clone();
    // Readers must not be promised rows that are about to go.
    documents.commit(document, written(rows)?, Some(current), Order::BucketFirst).await?;
    Ok(())
}
