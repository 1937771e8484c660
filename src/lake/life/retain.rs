//! How long rows are kept: setting it, and cutting off what is older.
//!
//! Cutting off takes two passes, an hour apart. The first moves the floor in the document, so that readers stop seeing
//! what is below it; the second deletes the files, which by then nobody reads any more.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use super::error::LifeError;
use super::estate::Grounds;
use super::finish::{location, manifest_rows, mark, written};
use super::first_newer::{first_newer, first_newer_in_live};
use crate::lake::LakeError;
use crate::lake::columns::{Layout, LogStatistics};
use crate::lake::documents::{Change, Current, Document, Documents, Dropped, Order, Pending, SealedLog, local_path};
use crate::lake::steps::step;
use crate::lake::table::{Commit, Table, delete_all};

/// How long files outlive the floor that cuts them off, in microseconds.
const GRACE_US: i64 = 3_600_000_000;

/// How often a change of the window is tried when others commit in between.
const ATTEMPTS: usize = 5;

/// What a pass did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Passed {
    /// Nothing is too old, or nothing is to be deleted yet.
    Nothing,
    /// Rows below the floor are not shown any more; these logs are not in the document any more.
    CutOff {
        /// The first offset that is kept.
        floor: i64,
        /// The logs.
        dropped: Vec<String>,
    },
    /// The files of what was cut off are deleted.
    Deleted {
        /// The first offset that is kept.
        floor: i64,
        /// The logs whose files are gone.
        dropped: Vec<String>,
    },
}

/// Sets how long the rows of a stream are kept, in microseconds; for ever with `None`. No file is touched.
///
/// # Errors
/// When the stream has no document, or it cannot be written.
pub async fn retain(documents: &Documents, stream: &str, window_us: Option<i64>) -> Result<(), LifeError> {
    let mut attempt = 0;
    loop {
        attempt += 1;
        let missing = || LifeError::NoStream { stream: stream.to_owned() };
        let current = documents.current().await?.ok_or_else(missing)?;
        if current.document.retention == window_us {
            return Ok(());
        }
        let document = Document { retention: window_us, ..current.document.clone() };
        match documents.commit(document, Change::Keep, Some(&current), Order::HomeFirst).await {
            Err(LakeError::Changed { .. }) if attempt < ATTEMPTS => {}
            done => return Ok(done.map(|_| ())?),
        }
    }
}

/// One pass over a stream: cuts off what is older than its window at `now_us`, or deletes what an earlier pass has cut
/// off an hour ago.
///
/// # Errors
/// When documents, tables or files cannot be read or written. The next pass does the rest.
pub async fn retention_pass(grounds: Grounds<'_>, stream: &str, now_us: i64) -> Result<Passed, LifeError> {
    let documents = grounds.documents(stream);
    match documents.current().await? {
        Some(current) => pass(grounds, &documents, &current, now_us, false).await,
        None => Ok(Passed::Nothing),
    }
}

/// What a pass would do, under `window_us` or the window that is set.
///
/// # Errors
/// As [`retention_pass`], and when there is no such stream.
pub async fn preview(
    grounds: Grounds<'_>,
    stream: &str,
    window_us: Option<Option<i64>>,
    now_us: i64,
) -> Result<Passed, LifeError> {
    let documents = grounds.documents(stream);
    let missing = || LifeError::NoStream { stream: stream.to_owned() };
    let mut current = documents.current().await?.ok_or_else(missing)?;
    if let Some(window_us) = window_us {
        current.document.retention = window_us;
    }
    pass(grounds, &documents, &current, now_us, true).await
}

async fn pass(
    grounds: Grounds<'_>,
    documents: &Documents,
    current: &Current,
    now_us: i64,
    dry_run: bool,
) -> Result<Passed, LifeError> {
    if let Some(pending) = current.document.pending.clone() {
        if now_us < pending.at.saturating_add(GRACE_US) {
            return Ok(Passed::Nothing);
        }
        return delete(grounds, documents, current, pending, dry_run).await;
    }
    let Some(window_us) = current.document.retention.filter(|_| current.document.retirement.is_none()) else {
        return Ok(Passed::Nothing);
    };
    cut_off(grounds, documents, current, now_us, now_us.saturating_sub(window_us), dry_run).await
}

async fn cut_off(
    grounds: Grounds<'_>,
    documents: &Documents,
    current: &Current,
    now_us: i64,
    cutoff_us: i64,
    dry_run: bool,
) -> Result<Passed, LifeError> {
    let before = &current.document;
    let mut document = before.clone();
    let mut floor = None;
    let mut dropped = Vec::new();
    while floor.is_none() && !document.sealed_logs.is_empty() {
        floor = first_kept(grounds, &document.sealed_logs[0], cutoff_us).await?;
        if floor.is_none() {
            let log = document.sealed_logs.remove(0);
            dropped.push(Dropped { name: log.name, published: log.published });
        }
    }
    let floor = match floor {
        Some(floor) => floor,
        None => first_newer_in_live(grounds, &document, cutoff_us).await?,
    };
    let mut rows = manifest_rows(documents, current).await?;
    rows.retain(|row| !dropped.iter().any(|log| log.name == row.log));
    let start =
        document.sealed_logs.first_mut().map_or(&mut document.live_log.start_offset, |log| &mut log.start_offset);
    if dropped.is_empty() && floor <= *start {
        return Ok(Passed::Nothing);
    }
    let cuts = floor > *start;
    *start = floor.max(*start);
    let floor = *start;
    if cuts && let Some(cut) = document.sealed_logs.first() {
        // Its table is going to have fewer rows than it had, and readers would take it for short.
        set_count(&mut rows, &cut.name, None);
    }
    let names: Vec<String> = dropped.iter().map(|log| log.name.clone()).collect();
    if dry_run {
        return Ok(Passed::CutOff { floor, dropped: names });
    }
    document.pending = Some(Pending { floor, at: now_us, dropped });
    let manifest = if document.sealed_logs.is_empty() { Change::Clear } else { written(&rows)? };
    documents.commit(document, manifest, Some(current), Order::BucketFirst).await?;
    step("floor committed");
    Ok(Passed::CutOff { floor, dropped: names })
}

/// The first offset of a finished log that is kept; `None` if nothing of it is.
async fn first_kept(grounds: Grounds<'_>, log: &SealedLog, cutoff_us: i64) -> Result<Option<i64>, LifeError> {
    if log.start_offset == log.end_offset || log.end_ts.is_some_and(|end_ts| end_ts <= cutoff_us) {
        return Ok(None);
    }
    if !is_stamped(log) {
        return Ok(Some(log.start_offset));
    }
    let published = log.published.as_deref().unwrap_or_default();
    let location = format!("{}/{}", published.trim_end_matches('/'), log.name);
    let Some(mut table) = Table::open(grounds.store, &location).await? else {
        return Err(LifeError::NoTable { location });
    };
    let files = table.files().await?;
    let layout = Layout::from_document(&log.schema, &log.system_schema)?;
    Ok(first_newer(grounds.store, &layout, &files, cutoff_us).await?.map(|offset| offset.max(log.start_offset)))
}

/// Whether rows of a log have the moment they came.
fn is_stamped(log: &SealedLog) -> bool {
    log.system_schema["properties"].get("streamcast_ts").is_some()
}

async fn delete(
    grounds: Grounds<'_>,
    documents: &Documents,
    current: &Current,
    pending: Pending,
    dry_run: bool,
) -> Result<Passed, LifeError> {
    let names: Vec<String> = pending.dropped.iter().map(|log| log.name.clone()).collect();
    let floor = pending.floor;
    if dry_run {
        return Ok(Passed::Deleted { floor, dropped: names });
    }
    let mut document = current.document.clone();
    let stream = document.stream.clone();
    for log in &pending.dropped {
        drop_log(grounds, &stream, log, floor, pending.at).await?;
        step("log deleted");
    }
    let mut rows = manifest_rows(documents, current).await?;
    match document.sealed_logs.first() {
        Some(cut) if cut.start_offset == floor => {
            let published = cut.published.as_deref().unwrap_or_default();
            let count = cut_table(
                grounds,
                &stream,
                &format!("{}/{}", published.trim_end_matches('/'), cut.name),
                &cut.name,
                floor,
            )
            .await?;
            set_count(&mut rows, &cut.name.clone(), count.and_then(|count| i64::try_from(count).ok()));
        }
        None if document.live_log.start_offset == floor => {
            cut_table(grounds, &stream, &location(&document.live_log), &document.live_log.name, floor).await?;
        }
        _ => {}
    }
    step("table cut");
    document.pending = None;
    let manifest = if document.sealed_logs.is_empty() { Change::Clear } else { written(&rows)? };
    documents.commit(document, manifest, Some(current), Order::BucketFirst).await?;
    Ok(Passed::Deleted { floor, dropped: names })
}

/// Deletes a log that no document names any more: its table, its directory and what the catalog knows.
async fn drop_log(
    grounds: Grounds<'_>,
    stream: &str,
    log: &Dropped,
    through: i64,
    at_us: i64,
) -> Result<(), LifeError> {
    let published = log.published.as_deref().unwrap_or_default().trim_end_matches('/');
    // A log that was finished by a crashed process may lack the mark, without which no table is deleted.
    mark(grounds.store, published, &log.name, through, at_us).await?;
    delete_all(grounds.store, &format!("{published}/{}", log.name), false).await?;
    step("table deleted");
    let own = grounds.root.join(stream).join(&log.name);
    if log.name.starts_with(stream) && local_path(published).is_none_or(|path| path.starts_with(&own)) {
        remove_directory(&own)?;
    }
    if let Ok(known) = grounds.catalog.find(stream, &log.name) {
        grounds.catalog.remove_log(known.id)?;
    }
    Ok(())
}

fn remove_directory(path: &Path) -> Result<(), LakeError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(LakeError::Io { action: "delete", path: path.to_owned(), source: error })
        }
        _ => Ok(()),
    }
}

/// Takes the files that lie wholly below `floor` out of a table and the catalog. Returns how many rows are left.
async fn cut_table(
    grounds: Grounds<'_>,
    stream: &str,
    location: &str,
    log: &str,
    floor: i64,
) -> Result<Option<u64>, LifeError> {
    let Some(mut table) = Table::open(grounds.store, location).await? else { return Ok(None) };
    let commit = Commit { writer_epoch: Some(grounds.catalog.writer_epoch()), ..Commit::default() };
    table.truncate(floor, &commit).await?;
    step("files left the table");
    if let Ok(known) = grounds.catalog.find(stream, log) {
        let starts: Vec<i64> =
            known.files.iter().filter(|file| file.published && file.end <= floor).map(|file| file.start).collect();
        let now_us = super::time::now_us();
        grounds.catalog.leave_local(known.id, &starts, now_us)?;
        grounds.catalog.remove_files(known.id, &starts)?;
    }
    Ok(Some(table.row_count().await?))
}

fn set_count(rows: &mut [LogStatistics], log: &str, count: Option<i64>) {
    for row in rows.iter_mut().filter(|row| row.log == log) {
        row.record_count = count;
    }
}
