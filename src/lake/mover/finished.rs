//! Logs that are over, as far as purging needs them: their files come into the catalog if they are not there, and what
//! the manifest says of them follows the files.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::error::MoverError;
use super::shared::Shared;
use super::stream::{LakeStream, Moved};
use crate::lake::catalog::{NewFile, Tier};
use crate::lake::documents::{Documents, SealedLog};
use crate::lake::life::{self, Grounds};
use crate::lake::table::Table;
use crate::schema::Schema;
use crate::stream::record::StreamRecord;
use crate::telemetry::StreamCounters;

/// The logs of a stream that are over and may have files with rows that erasures up to `newest` took, and whether the
/// stream's last log is over as well.
pub(super) async fn logs(
    shared: &Arc<Shared>,
    stream: &Arc<Moved>,
    newest: i64,
) -> Result<(Vec<Arc<Moved>>, bool), MoverError> {
    // One at a time: whoever finds files that the catalog does not have adds them.
    let _rewriting = stream.rewriting.lock().await;
    let documents = Documents::new(&shared.root, &stream.name, None);
    let current = documents.current().await.map_err(MoverError::documents)?;
    let Some(document) = current.map(|current| current.document) else { return Ok((Vec::new(), false)) };
    let mut logs = Vec::new();
    for log in &document.sealed_logs {
        if !is_purged(shared, &stream.name, &log.name, newest)? {
            logs.push(finished(shared, stream, log).await?);
        }
    }
    Ok((logs, document.retirement.is_some()))
}

fn is_purged(shared: &Shared, stream: &str, log: &str, newest: i64) -> Result<bool, MoverError> {
    let Ok(known) = shared.catalog.find(stream, log) else { return Ok(false) };
    let rewritten = shared.catalog.rewritten_through(known.id)?.is_some_and(|through| through >= newest);
    Ok(rewritten && shared.catalog.first_condemned(known.id)?.is_none())
}

async fn finished(shared: &Arc<Shared>, stream: &Arc<Moved>, log: &SealedLog) -> Result<Arc<Moved>, MoverError> {
    let schema = Schema::compile(&log.schema, true).map_err(MoverError::documents)?;
    let record = StreamRecord {
        id: stream.id,
        name: stream.name.clone(),
        stream_id: String::new(),
        log: log.name.clone(),
        schema_canonical: schema.canonical().to_owned(),
        sort_by: log.sort_by.clone().unwrap_or_default(),
        exactly_once: false,
        first_offset: log.start_offset,
        floor: None,
        end_offset: log.end_offset,
        created_us: 0,
    };
    let moved = Arc::new(Moved::new(
        &shared.root,
        &shared.catalog,
        &LakeStream {
            record: &record,
            schema: &schema,
            published: log.published.as_deref().unwrap_or_default(),
            start_offset: log.start_offset,
            replay_published: false,
            settings: stream.settings.clone(),
            counters: Arc::new(StreamCounters::new(&stream.name, true, Some(log.end_offset))),
        },
    )?);
    moved.stopped.store(stream.stopped.load(Relaxed), Relaxed);
    let known = moved.view(&shared.catalog)?;
    let Some(mut table) = Table::open(&shared.store, &moved.location).await? else { return Ok(moved) };
    let files = table.files().await?.into_iter().filter(|file| file.start >= known.sealed_end);
    let new: Vec<NewFile> =
        files.map(|file| NewFile { file, path: None, tier: Tier::Ingested, local: false, published: true }).collect();
    if !new.is_empty() {
        shared.catalog.append(moved.log, &new)?;
    }
    Ok(moved)
}

/// The table of a log that is over is going to have fewer rows than its manifest says, and readers would take it for
/// short.
pub(super) async fn before(shared: &Arc<Shared>, log: &Moved) -> Result<(), MoverError> {
    life::forget_count(grounds(shared), &log.name, &log.log_name).await.map_err(MoverError::documents)
}

/// The manifest says of a log that is over what its files say now; without `changed`, only if it says less.
pub(super) async fn after(shared: &Arc<Shared>, log: &Moved, changed: bool) -> Result<(), MoverError> {
    life::count_anew(grounds(shared), &log.name, &log.log_name, changed).await.map_err(MoverError::documents)
}

fn grounds(shared: &Shared) -> Grounds<'_> {
    Grounds { root: &shared.root, store: &shared.store, catalog: &shared.catalog }
}
