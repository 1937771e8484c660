//! Loading files into a stream: their rows get the next offsets and go straight into files of the log.
//!
//! A file of the log becomes part of the stream when the catalog has it; the journal follows. So there is never an
//! offset that was given out and has no row. What fails leaves the files before it in place.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;

use super::error::LifeError;
use super::time;
use crate::lake::catalog::{Catalog, LogView, NewFile, Tier};
use crate::lake::columns::ingest::{ChunkWriter, Format, ReadAhead, Source};
use crate::lake::columns::{ColumnsError, FileName, Layout, WriteOptions};
use crate::lake::documents::{LiveLog, local_path};
use crate::lake::steps::step;

/// A file of the log is ended at this size on disk.
const FILE_BYTES: u64 = 512 << 20;

/// What is to be loaded.
#[derive(Debug, Clone)]
pub struct Load<'a> {
    /// The stream.
    pub stream: &'a str,
    /// The files, in order.
    pub sources: &'a [PathBuf],
    /// Their format; `None` to recognise it.
    pub format: Option<Format>,
    /// Rows of the first file that are passed over, because they are loaded already.
    pub skip_rows: u64,
}

/// How far a load has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Loading {
    /// Rows that were read.
    pub rows: u64,
    /// Bytes of the sources that were read.
    pub bytes: u64,
    /// Bytes of all sources.
    pub bytes_total: u64,
}

/// What is loaded for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loaded {
    /// The offset of the first row.
    pub start: i64,
    /// The offset after the last row; `start` if there is none.
    pub end: i64,
    /// The source that is not loaded to its end, by its place; the number of sources if all are.
    pub source: usize,
    /// Rows of that source which are loaded, those that were passed over included.
    pub source_rows: u64,
}

/// A load that ended early. What is loaded stays.
#[derive(Debug, thiserror::Error)]
#[error("{cause}")]
pub struct LoadError {
    /// What is loaded; `None` if the load had not begun.
    pub loaded: Option<Loaded>,
    /// Why it ended.
    pub cause: Box<LifeError>,
}

impl<E: Into<LifeError>> From<E> for LoadError {
    fn from(cause: E) -> Self {
        Self { loaded: None, cause: Box::new(cause.into()) }
    }
}

/// Where loaded rows go.
pub(super) struct Target<'a> {
    pub root: &'a Path,
    pub catalog: &'a Catalog,
    pub log: &'a LogView,
    pub live: &'a LiveLog,
    pub layout: &'a Layout,
    /// The offset of the next row.
    pub end: i64,
    /// The stamp of the last row there is, in microseconds.
    pub last_ts_us: i64,
}

/// Opens every source, so that one whose columns do not fit is refused before anything is loaded.
pub(super) fn open(load: &Load<'_>, layout: &Layout) -> Result<Vec<Source>, LifeError> {
    load.sources.iter().map(|path| Ok(Source::open(path, load.format, layout)?)).collect()
}

/// Loads `sources` and calls `committed` with the end and the stamp of each file of the log that became part of it.
pub(super) fn run(
    target: &Target<'_>,
    load: &Load<'_>,
    sources: Vec<Source>,
    committed: &mut dyn FnMut(i64, i64) -> Result<(), LifeError>,
    progress: &mut dyn FnMut(Loading),
) -> Result<Loaded, LoadError> {
    let mut loader = Loader {
        target,
        options: options(target.live),
        directory: directory(target),
        writer: None,
        next: target.end,
        stamp_us: 0,
        loaded: Loaded { start: target.end, end: target.end, source: 0, source_rows: load.skip_rows },
    };
    let outcome = loader.all(load, sources, committed, progress);
    let loaded = loader.loaded;
    outcome.map(|()| loaded).map_err(|cause| LoadError { loaded: Some(loaded), cause: Box::new(cause) })
}

/// Where the files go: into the table, if that is on this machine.
fn directory(target: &Target<'_>) -> PathBuf {
    let own = || target.root.join(&target.log.stream).join(&target.live.name);
    local_path(&target.log.location).unwrap_or_else(own).join("data").join(Tier::Ingested.as_str())
}

fn options(live: &LiveLog) -> WriteOptions {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    WriteOptions { threads, ..WriteOptions::new(live.sort_by.as_deref().unwrap_or_default()) }
}

struct Loader<'a> {
    target: &'a Target<'a>,
    options: WriteOptions,
    directory: PathBuf,
    /// The file that is being written.
    writer: Option<ChunkWriter>,
    /// The offset of the next row.
    next: i64,
    /// The stamp of the file that is being written.
    stamp_us: i64,
    loaded: Loaded,
}

impl Loader<'_> {
    fn all(
        &mut self,
        load: &Load<'_>,
        sources: Vec<Source>,
        committed: &mut dyn FnMut(i64, i64) -> Result<(), LifeError>,
        progress: &mut dyn FnMut(Loading),
    ) -> Result<(), LifeError> {
        let mut loading = Loading { bytes_total: sources.iter().map(Source::bytes_total).sum(), ..Loading::default() };
        let count = sources.len();
        for (place, source) in sources.into_iter().enumerate() {
            let (before, size, read) = (loading.bytes, source.bytes_total(), source.bytes_read());
            let mut skip = if place == 0 { load.skip_rows } else { 0 };
            let mut rows = 0;
            let reader = ReadAhead::start(source)
                .map_err(|error| LifeError::Moving { stream: load.stream.to_owned(), why: error.to_string() })?;
            for chunk in reader {
                let mut chunk = chunk?;
                let passed_over = usize::try_from(skip).unwrap_or(usize::MAX).min(chunk.rows);
                rows += chunk.rows as u64;
                skip -= passed_over as u64;
                if passed_over < chunk.rows {
                    for column in &mut chunk.columns {
                        *column = column.slice(passed_over, chunk.rows - passed_over);
                    }
                    chunk.rows -= passed_over;
                    self.take(&chunk)?;
                    loading.rows += chunk.rows as u64;
                }
                loading.bytes = before + read.load(Relaxed).min(size);
                progress(loading);
                if self.writer.as_ref().is_some_and(|writer| writer.written_bytes() >= FILE_BYTES) {
                    self.commit((place, rows), committed)?;
                }
            }
            loading.bytes = before + size;
            progress(loading);
        }
        self.commit((count, 0), committed)
    }

    fn take(&mut self, chunk: &crate::lake::columns::ingest::Chunk) -> Result<(), LifeError> {
        let writer = match &mut self.writer {
            Some(writer) => writer,
            None => {
                self.stamp_us = time::now_us().max(self.target.last_ts_us).max(self.stamp_us);
                self.writer.insert(ChunkWriter::create(self.target.layout, &self.directory, &self.options)?)
            }
        };
        let end = self.next.checked_add(chunk.rows as i64);
        let end = end.ok_or_else(|| LifeError::Exhausted { stream: self.target.log.stream.clone() })?;
        writer.push(chunk, self.next, self.stamp_us)?;
        self.next = end;
        Ok(())
    }

    /// Makes the file that is being written part of the log. `at` is the source and how many of its rows were taken.
    fn commit(
        &mut self,
        at: (usize, u64),
        committed: &mut dyn FnMut(i64, i64) -> Result<(), LifeError>,
    ) -> Result<(), LifeError> {
        let Some(writer) = self.writer.take() else {
            (self.loaded.source, self.loaded.source_rows) = at;
            return Ok(());
        };
        let Target { catalog, log, .. } = *self.target;
        let unnamed = match writer.finish() {
            Err(ColumnsError::Empty) => return Ok(()),
            finished => finished?,
        };
        let (start, end) = (unnamed.file().start, unnamed.file().end);
        let name = FileName::Start.new_name(start, end);
        let path = self.directory.join(&name);
        catalog.intend(log.id, Tier::Ingested, &path, (start, end))?;
        let mut file = unnamed.place(&name)?;
        step("loaded file written");
        file.uri = format!("{}/data/{}/{name}", log.location, Tier::Ingested.as_str());
        let new = NewFile { file, path: Some(path), tier: Tier::Ingested, local: true, published: false };
        catalog.append(log.id, &[new])?;
        step("loaded file in the catalog");
        self.loaded.end = end;
        (self.loaded.source, self.loaded.source_rows) = at;
        committed(end, self.stamp_us)?;
        step("journal goes on behind it");
        Ok(())
    }
}
