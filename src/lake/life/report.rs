//! What there is of a stream, for people and scripts.

use super::error::LifeError;
use super::retain::Passed;
use super::root::Root;
use crate::lake::catalog::LogView;

/// What there is of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamReport {
    /// Its name.
    pub name: String,
    /// Its UUID.
    pub stream_id: String,
    /// The offset of its next row.
    pub end_offset: i64,
    /// When it was retired, in microseconds, if it was.
    pub retired_us: Option<i64>,
    /// How long rows are kept, in microseconds; for ever if absent.
    pub retention_us: Option<i64>,
    /// The floor below which files are going to be deleted, if there is something to delete.
    pub pending_floor: Option<i64>,
    /// Offsets behind the last file; those that were left out for ever count, too.
    pub unsealed_rows: u64,
    /// The same behind the end of the table.
    pub unpublished_rows: u64,
    /// Its logs, oldest first.
    pub logs: Vec<LogReport>,
}

/// One of its logs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogReport {
    /// Its name.
    pub name: String,
    /// Where its table is.
    pub table: String,
    /// Its first offset.
    pub start_offset: i64,
    /// The offset after its last row; `None` while it is written.
    pub end_offset: Option<i64>,
    /// Its columns.
    pub columns: Vec<String>,
    /// What it is sorted by.
    pub sort_by: Vec<String>,
    /// Its files, if this data root knows them.
    pub files: Option<FilesReport>,
}

/// The files of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilesReport {
    /// How many.
    pub files: usize,
    /// How many of them replays read as the local tier.
    pub local_files: usize,
    /// Their rows.
    pub rows: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Everything before this offset is in files.
    pub sealed_end: i64,
    /// Everything before this offset is in the table.
    pub published_end: i64,
}

impl Root {
    /// The names of all streams.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.journal.streams().into_iter().map(|record| record.name).collect()
    }

    /// What there is of a stream.
    ///
    /// # Errors
    /// When there is no such stream, or its document cannot be read.
    pub fn report(&self, stream: &str) -> Result<StreamReport, LifeError> {
        let (record, current) = self.find(stream)?;
        let document = current.document;
        let files = |log: &str| self.lake.catalog().find(stream, log).ok().map(|view| files_report(&view));
        let table = |published: &Option<String>, log: &str| {
            format!("{}/{log}", published.as_deref().unwrap_or_default().trim_end_matches('/'))
        };
        let mut logs: Vec<LogReport> = document
            .sealed_logs
            .iter()
            .map(|log| LogReport {
                name: log.name.clone(),
                table: table(&log.published, &log.name),
                start_offset: log.start_offset,
                end_offset: Some(log.end_offset),
                columns: columns(&log.schema),
                sort_by: log.sort_by.clone().unwrap_or_default(),
                files: files(&log.name),
            })
            .collect();
        let live = &document.live_log;
        let known = files(&live.name);
        logs.push(LogReport {
            name: live.name.clone(),
            table: table(&live.published, &live.name),
            start_offset: live.start_offset,
            end_offset: document.retirement.as_ref().map(|retirement| retirement.end_offset),
            columns: columns(&live.schema),
            sort_by: live.sort_by.clone().unwrap_or_default(),
            files: known,
        });
        let behind = |end: Option<i64>| {
            let end = end.unwrap_or(live.start_offset);
            u64::try_from(record.end_offset - end).unwrap_or(0)
        };
        Ok(StreamReport {
            name: record.name.clone(),
            stream_id: record.stream_id.clone(),
            end_offset: record.end_offset,
            retired_us: document.retirement.as_ref().map(|retirement| retirement.at),
            retention_us: document.retention,
            pending_floor: document.pending.as_ref().map(|pending| pending.floor),
            unsealed_rows: behind(known.map(|files| files.sealed_end)),
            unpublished_rows: behind(known.map(|files| files.published_end)),
            logs,
        })
    }

    /// Does once what a broker does in the background; returns what there is to tell. With `dry_run` nothing is moved
    /// or deleted.
    ///
    /// # Errors
    /// When the stream is not there, or something could not be done.
    pub fn maintain(&mut self, stream: &str, dry_run: bool) -> Result<Vec<String>, LifeError> {
        let (record, current) = self.add(stream)?;
        let retired = current.document.retirement.is_some();
        let mut told = Vec::new();
        if dry_run {
            told.extend(tell(&self.preview_retention(stream, None)?, "would be"));
            let (swept, here) = self.lake.sweep(stream, true)?;
            let orphans = swept.orphans.iter().map(|object| object.uri.clone());
            let here = here.into_iter().map(|path| path.display().to_string());
            told.extend(orphans.chain(here).map(|file| format!("{file} belongs to nothing and would be deleted")));
            return Ok(told);
        }
        if !retired {
            let flushed = self.lake.flush(stream)?;
            self.journal.evict(record.id, flushed.sealed_end)?;
            told.push(format!(
                "{} rows sealed; everything before offset {} published",
                flushed.rows, flushed.published_end
            ));
            self.lake.compact(stream)?;
            self.lake.publish(stream)?;
        }
        told.extend(tell(&self.retention_pass(stream)?, "are"));
        self.lake.clean(stream)?;
        if self.lake.purge(stream)? {
            told.push("files with erased rows wait until nobody reads them any more".to_owned());
        }
        let (swept, here) = self.lake.sweep(stream, false)?;
        let orphans = swept.orphans.len() + here.len();
        if orphans > 0 {
            told.push(format!("{orphans} files belonged to nothing and are deleted"));
        }
        Ok(told)
    }
}

fn tell(passed: &Passed, verb: &str) -> Option<String> {
    match passed {
        Passed::Nothing => None,
        Passed::CutOff { floor, .. } => Some(format!("rows below offset {floor} {verb} cut off")),
        Passed::Deleted { floor, .. } => Some(format!("files below offset {floor} {verb} deleted")),
    }
}

fn columns(schema: &serde_json::Value) -> Vec<String> {
    schema["properties"].as_object().into_iter().flatten().map(|(name, _)| name.clone()).collect()
}

fn files_report(view: &LogView) -> FilesReport {
    FilesReport {
        files: view.files.len(),
        local_files: view.files.iter().filter(|file| file.local).count(),
        rows: view.rows(),
        bytes: view.bytes(),
        sealed_end: view.sealed_end,
        published_end: view.published_end,
    }
}
