//! A stream whose rows are moved.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64};
use std::sync::{Arc, Mutex};

use super::error::MoverError;
use super::settings::MoverSettings;
use crate::lake::catalog::{Catalog, LogId, LogView, NewLog, Tier};
use crate::lake::columns::{Layout, WriteOptions};
use crate::lake::table::{Table, TableSpec};
use crate::schema::Schema;
use crate::stream::record::StreamRecord;
use crate::telemetry::StreamCounters;

/// A stream as it comes into the lake.
pub struct LakeStream<'a> {
    /// What the journal records of it.
    pub record: &'a StreamRecord,
    /// Its columns.
    pub schema: &'a Schema,
    /// The published prefix of its current log, as its document has it.
    pub published: &'a str,
    /// The first offset of its current log, as its document has it.
    pub start_offset: i64,
    /// Whether replays read the published table, too (wire.md section 7.2).
    pub replay_published: bool,
    /// What is chosen for it.
    pub settings: MoverSettings,
    /// What is counted of it.
    pub counters: Arc<StreamCounters>,
}

/// A stream and everything that is needed to move its rows.
pub(super) struct Moved {
    pub id: u32,
    pub name: String,
    pub log: LogId,
    pub log_name: String,
    pub layout: Layout,
    pub options: WriteOptions,
    pub settings: MoverSettings,
    pub location: String,
    /// The directory above the files' own, `data/` of the table or of the log.
    data: PathBuf,
    pub replay_published: AtomicBool,
    pub counters: Arc<StreamCounters>,
    /// Bytes of frames that were counted before rows began to be counted as unsealed, less what is unsealed.
    pub sealed_frame_bytes: AtomicI64,
    /// Held while rows are sealed.
    pub sealing: Mutex<()>,
    /// Held while files are merged or leave the local tier.
    pub rewriting: tokio::sync::Mutex<()>,
    /// The table once it is open; held while it is changed.
    pub table: tokio::sync::Mutex<Option<Table>>,
    /// The table may have been told of files before this offset, whether or not an answer came: until the catalog has
    /// them as published, they stay as they are. Files that an earlier process left count as told.
    pub told_end: AtomicI64,
    /// Whether the table could be reached when it was last tried.
    pub reachable: AtomicBool,
    /// The end of the log as the table has it.
    pub issued_through: AtomicI64,
    /// Whether everything is to be sealed, however little it is.
    pub flush_due: AtomicBool,
    /// Whether rows that are too old are to be looked for at the next turn.
    pub retain_due: AtomicBool,
    /// The latest erasure of whose rows nothing is left in files, as far as this process has found out.
    pub purged_through: AtomicI64,
    /// Tells the task that purges that there is something to do.
    pub erased: tokio::sync::Notify,
    /// Whether the bucket may lack documents that the data root has.
    pub documents_due: AtomicBool,
    /// The end of the last hole that the document of holes has, as far as this process knows.
    pub holes_published: AtomicI64,
    /// Whether its tasks are ending.
    pub stopped: AtomicBool,
    /// Tells tasks that wait for their next turn that there is none.
    pub left: tokio::sync::Notify,
}

impl Moved {
    pub(super) fn new(root: &Path, catalog: &Catalog, stream: &LakeStream<'_>) -> Result<Self, MoverError> {
        let record = stream.record;
        let log_name = &record.log;
        let location = format!("{}/{log_name}", stream.published.trim_end_matches('/'));
        let data = match location.strip_prefix("file://") {
            Some(path) if path.starts_with('/') => PathBuf::from(path).join("data"),
            None if location.starts_with("s3://") => root.join(&record.name).join(log_name).join("data"),
            _ => {
                let why = "is neither file:///… nor s3://…";
                return Err(MoverError::Location { stream: record.name.clone(), location, why });
            }
        };
        let log =
            NewLog { stream: &record.name, name: log_name, location: &location, start_offset: stream.start_offset };
        let view = catalog.ensure_log(&log)?;
        let layout = Layout::new(stream.schema)?;
        layout.sort_places(&record.sort_by)?;
        Ok(Self {
            id: record.id,
            name: record.name.clone(),
            log: view.id,
            log_name: log_name.clone(),
            options: WriteOptions::new(&record.sort_by),
            layout,
            settings: stream.settings.clone(),
            data,
            location,
            replay_published: AtomicBool::new(stream.replay_published),
            counters: Arc::clone(&stream.counters),
            sealed_frame_bytes: AtomicI64::new(0),
            sealing: Mutex::new(()),
            rewriting: tokio::sync::Mutex::new(()),
            table: tokio::sync::Mutex::new(None),
            told_end: AtomicI64::new(view.sealed_end),
            reachable: AtomicBool::new(true),
            issued_through: AtomicI64::new(i64::MIN),
            flush_due: AtomicBool::new(false),
            retain_due: AtomicBool::new(false),
            purged_through: AtomicI64::new(i64::MIN),
            erased: tokio::sync::Notify::new(),
            documents_due: AtomicBool::new(stream.published.starts_with("s3://")),
            holes_published: AtomicI64::new(i64::MIN),
            stopped: AtomicBool::new(false),
            left: tokio::sync::Notify::new(),
        })
    }

    /// Where files of a tier are written.
    pub(super) fn directory(&self, tier: Tier) -> PathBuf {
        self.data.join(tier.as_str())
    }

    /// The directories that files are written to.
    pub(super) fn directories(&self) -> [PathBuf; 3] {
        [Tier::Sealed, Tier::Compacted, Tier::Ingested].map(|tier| self.directory(tier))
    }

    /// Where the table has the file that is at `path` here.
    pub(super) fn uri(&self, tier: Tier, path: &Path) -> String {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        format!("{}/data/{}/{name}", self.location, tier.as_str())
    }

    /// Whether the table names the files as they lie here.
    pub(super) fn is_local(&self) -> bool {
        self.location.starts_with("file://")
    }

    pub(super) fn view(&self, catalog: &Catalog) -> Result<Arc<LogView>, MoverError> {
        catalog.log(self.log).ok_or_else(|| MoverError::Unknown(self.name.clone()))
    }

    pub(super) fn table_spec(&self) -> Result<TableSpec, MoverError> {
        Ok(TableSpec {
            location: self.location.clone(),
            schema: self.layout.iceberg_schema()?,
            sort_by: self.options.sort_by.clone(),
            arrow_schema: Some(self.layout.arrow_schema_hex()?),
            properties: std::collections::BTreeMap::new(),
        })
    }
}
