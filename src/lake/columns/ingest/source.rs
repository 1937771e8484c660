//! A file with rows for a stream, in any of the formats that are known.

use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::ArrayRef;

use super::super::guard::guarded;
use super::super::layout::{Layout, OFFSET_COLUMN, STAMP_COLUMN};
use super::check::Checker;
use super::error::IngestError;
use super::{csv, lines, tables};

/// The formats of sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Parquet.
    Parquet,
    /// An Arrow IPC file, also called Feather.
    ArrowFile,
    /// An Arrow IPC stream.
    ArrowStream,
    /// Comma-separated values, with a header. An empty cell is null where the column takes null.
    Csv,
    /// JSON objects, one a line, as they would be published.
    Ndjson,
}

/// Some rows of a source.
#[derive(Debug, Clone)]
pub struct Chunk {
    /// The declared columns of the layout, in declared order.
    pub columns: Vec<ArrayRef>,
    /// How many rows.
    pub rows: usize,
    /// The number of the first one in the source, counted from 0.
    pub first_row: u64,
}

/// The most bytes that a chunk is meant to take; a single row may take more.
pub(super) const CHUNK_BYTES: u64 = 16 << 20;

/// The most rows of a chunk.
pub(super) const CHUNK_ROWS: usize = 64 << 10;

/// Some rows from a reader, all columns of the layout but offset and stamp.
pub(super) type Rows = Result<Option<(Vec<ArrayRef>, usize)>, Refused>;

/// What a reader found wrong.
pub(super) enum Refused {
    /// The file.
    Damaged(String),
    /// A row of those that were being read, counted from 0.
    Row(u64, String),
}

/// Reads chunk after chunk.
pub(super) trait ReadRows: Send {
    fn next(&mut self) -> Rows;
}

/// A source. It is an iterator over chunks; after an error there are none.
pub struct Source {
    path: PathBuf,
    format: Format,
    reader: Option<Box<dyn ReadRows>>,
    next_row: u64,
    rows_total: Option<u64>,
    bytes_total: u64,
    bytes_read: Arc<AtomicU64>,
}

impl Source {
    /// Opens a file; without `format` it is recognised.
    ///
    /// # Errors
    /// If it cannot be opened, is in no format that is known, or its columns are not those of the layout: all of them,
    /// in any order, and no others.
    pub fn open(path: &Path, format: Option<Format>, layout: &Layout) -> Result<Self, IngestError> {
        let io = |action| move |source| IngestError::Io { action, path: path.to_owned(), source };
        let mut file = File::open(path).map_err(io("open"))?;
        let bytes_total = file.metadata().map_err(io("look at"))?.len();
        let mut start = [0; 8];
        let length = read_start(&mut file, &mut start).map_err(io("read"))?;
        file.rewind().map_err(io("read"))?;
        let Some(format) = format.or_else(|| recognise(path, &start[..length])) else {
            let why = "it is not recognised; name its format: parquet, arrow, csv or ndjson".to_owned();
            return Err(IngestError::Damaged { path: path.to_owned(), why });
        };
        let bytes_read = Arc::new(AtomicU64::new(0));
        let counted = Counted { file, bytes_read: Arc::clone(&bytes_read) };
        let mut rows_total = None;
        let opened = guarded(|| {
            let checker = |names: &[String]| Checker::new(layout, names);
            Ok::<_, String>(match format {
                Format::Parquet => tables::parquet(counted, checker).map(|(reader, rows)| {
                    rows_total = Some(rows);
                    reader
                }),
                Format::ArrowFile => tables::arrow(counted, true, checker),
                Format::ArrowStream => tables::arrow(counted, false, checker),
                Format::Csv => csv::open(counted, layout),
                Format::Ndjson => Ok(lines::open(counted, layout)),
            })
        });
        let damaged = |why| IngestError::Damaged { path: path.to_owned(), why };
        let reader = opened.map_err(damaged)?.map_err(|error| match error {
            OpenError::Damaged(why) => damaged(why),
            OpenError::Columns(why) => IngestError::Columns { path: path.to_owned(), why },
        })?;
        Ok(Self {
            path: path.to_owned(),
            format,
            reader: Some(reader),
            next_row: 0,
            rows_total,
            bytes_total,
            bytes_read,
        })
    }

    /// The format that was named or recognised.
    #[must_use]
    pub fn format(&self) -> Format {
        self.format
    }

    /// How many rows it has, if the file says so.
    #[must_use]
    pub fn rows_total(&self) -> Option<u64> {
        self.rows_total
    }

    /// Its size in bytes.
    #[must_use]
    pub fn bytes_total(&self) -> u64 {
        self.bytes_total
    }

    /// Bytes that were read so far, for progress; some may be read twice. It goes on while the source is elsewhere.
    #[must_use]
    pub fn bytes_read(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.bytes_read)
    }
}

impl Iterator for Source {
    type Item = Result<Chunk, IngestError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            // Taken out, so that nothing goes on after an error or a panic.
            let mut reader = self.reader.take()?;
            let mut refused = None;
            let read = guarded(|| {
                reader.next().map_err(|why| match why {
                    Refused::Damaged(why) => why,
                    Refused::Row(row, why) => {
                        refused = Some((row, why));
                        String::new()
                    }
                })
            });
            let path = self.path.clone();
            if let Some((row, why)) = refused {
                return Some(Err(IngestError::Row { path, row: self.next_row + row + 1, why }));
            }
            let (columns, rows) = match read {
                Err(why) => return Some(Err(IngestError::Damaged { path, why })),
                Ok(found) => found?,
            };
            self.reader = Some(reader);
            if rows > 0 {
                let chunk = Chunk { columns, rows, first_row: self.next_row };
                self.next_row += rows as u64;
                return Some(Ok(chunk));
            }
        }
    }
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Source").field("path", &self.path).field("format", &self.format).finish_non_exhaustive()
    }
}

/// Why a source is not opened.
pub(super) enum OpenError {
    Damaged(String),
    Columns(String),
}

impl OpenError {
    pub fn damaged(error: impl std::fmt::Display) -> Self {
        Self::Damaged(error.to_string())
    }
}

/// Refuses columns other than those of the layout.
pub(super) fn check_names(layout: &Layout, names: &[String]) -> Result<(), OpenError> {
    let refuse = |why: String| Err(OpenError::Columns(why));
    let mut seen = std::collections::HashSet::new();
    for name in names {
        if [OFFSET_COLUMN, STAMP_COLUMN].contains(&name.as_str()) {
            return refuse(format!("the column {name:?} is written by the log; leave it out"));
        }
        if layout.place(name).is_none() {
            return refuse(format!("the stream has no column {name:?}"));
        }
        if !seen.insert(name.as_str()) {
            return refuse(format!("the column {name:?} is there twice"));
        }
    }
    match layout.schema().columns().iter().find(|column| !seen.contains(column.name.as_str())) {
        Some(missing) => refuse(format!("the column {:?} is missing", missing.name)),
        None => Ok(()),
    }
}

fn read_start(file: &mut File, start: &mut [u8]) -> std::io::Result<usize> {
    let mut length = 0;
    while length < start.len() {
        match file.read(&mut start[length..])? {
            0 => break,
            count => length += count,
        }
    }
    Ok(length)
}

fn recognise(path: &Path, start: &[u8]) -> Option<Format> {
    if start.starts_with(b"PAR1") {
        return Some(Format::Parquet);
    }
    if start.starts_with(b"ARROW1") {
        return Some(Format::ArrowFile);
    }
    if start.starts_with(&[0xff; 4]) {
        return Some(Format::ArrowStream);
    }
    match path.extension().and_then(std::ffi::OsStr::to_str).map(str::to_ascii_lowercase).as_deref() {
        Some("csv") => Some(Format::Csv),
        Some("ndjson" | "jsonl" | "json") => Some(Format::Ndjson),
        _ => start.trim_ascii_start().starts_with(b"{").then_some(Format::Ndjson),
    }
}

/// A file that tells how much of it was read.
#[derive(Debug)]
pub(super) struct Counted {
    pub file: File,
    pub bytes_read: Arc<AtomicU64>,
}

impl std::io::Read for Counted {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let count = self.file.read(out)?;
        self.bytes_read.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

impl std::io::Seek for Counted {
    fn seek(&mut self, to: std::io::SeekFrom) -> std::io::Result<u64> {
        self.file.seek(to)
    }
}
