//! Sources that have Arrow types: Parquet, and both kinds of Arrow IPC.

use std::collections::VecDeque;
use std::io::BufReader;
use std::sync::atomic::Ordering;

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use arrow::error::ArrowError;
use arrow::ipc::reader::{FileReader, StreamReader};
use bytes::Bytes;
use parquet::arrow::arrow_reader::{ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use parquet::errors::Result as ParquetResult;
use parquet::file::reader::{ChunkReader, Length};

use super::super::merge::batch_bytes;
use super::super::{plan, source};
use super::check::Checker;
use super::ipc::Pieces;
use super::source::{CHUNK_BYTES, CHUNK_ROWS, Counted, OpenError, ReadRows, Refused, Rows};

type Opened = Result<Box<dyn ReadRows>, OpenError>;

/// A Parquet file, and how many rows it has.
pub(super) fn parquet(
    file: Counted,
    checker: impl FnOnce(&[String]) -> Result<Checker, OpenError>,
) -> Result<(Box<dyn ReadRows>, u64), OpenError> {
    let pages = Pages {
        source: source::Source::open_file(file.file).map_err(OpenError::damaged)?,
        bytes_read: file.bytes_read,
    };
    // The types as Parquet has them: dictionaries and views of the writer would only have to be undone.
    let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
    let builder = ParquetRecordBatchReaderBuilder::try_new_with_options(pages, options).map_err(OpenError::damaged)?;
    let checker = checker(&names(builder.schema()))?;
    let groups = builder.metadata().row_groups();
    let rows = groups.iter().map(|group| u64::try_from(group.num_rows()).unwrap_or(0)).sum::<u64>();
    let widest =
        groups.iter().map(|group| plan::decoded_bytes(group) / u64::try_from(group.num_rows()).unwrap_or(0).max(1));
    let batch_rows = (CHUNK_BYTES / widest.max().unwrap_or(1).max(1)).clamp(1, CHUNK_ROWS as u64);
    let reader = builder.with_batch_size(batch_rows as usize).build().map_err(OpenError::damaged)?;
    Ok((Box::new(Tables::new(reader, checker)), rows))
}

/// An Arrow IPC file, or a stream.
pub(super) fn arrow(
    file: Counted,
    is_file: bool,
    checker: impl FnOnce(&[String]) -> Result<Checker, OpenError>,
) -> Opened {
    if let Some(pieces) = Pieces::open(&file, is_file).map_err(OpenError::Damaged)? {
        let checker = checker(&names(pieces.schema()))?;
        return Ok(Box::new(Tables::new(pieces, checker)));
    }
    if is_file {
        let reader = FileReader::try_new(BufReader::new(file), None).map_err(OpenError::damaged)?;
        let checker = checker(&names(&reader.schema()))?;
        return Ok(Box::new(Tables::new(reader, checker)));
    }
    let reader = StreamReader::try_new(BufReader::new(file), None).map_err(OpenError::damaged)?;
    let checker = checker(&names(&reader.schema()))?;
    Ok(Box::new(Tables::new(reader, checker)))
}

fn names(schema: &Schema) -> Vec<String> {
    schema.fields().iter().map(|field| field.name().clone()).collect()
}

/// Record batches, in pieces that are not too large.
struct Tables<R> {
    batches: R,
    checker: Checker,
    pieces: VecDeque<RecordBatch>,
}

impl<R> Tables<R> {
    fn new(batches: R, checker: Checker) -> Self {
        Self { batches, checker, pieces: VecDeque::new() }
    }
}

impl<R: Iterator<Item = Result<RecordBatch, ArrowError>> + Send> ReadRows for Tables<R> {
    fn next(&mut self) -> Rows {
        while self.pieces.is_empty() {
            match self.batches.next() {
                None => return Ok(None),
                Some(batch) => self.pieces = pieces(&batch.map_err(|error| Refused::Damaged(reason(&error)))?),
            }
        }
        let Some(piece) = self.pieces.pop_front() else { return Ok(None) };
        Ok(Some((self.checker.columns(&piece)?, piece.num_rows())))
    }
}

fn reason(error: &ArrowError) -> String {
    let text = error.to_string();
    if text.contains("decompression requires") {
        return "its batches are compressed and have dictionaries or views; write it without either, or as parquet"
            .to_owned();
    }
    text
}

fn pieces(batch: &RecordBatch) -> VecDeque<RecordBatch> {
    let rows = batch.num_rows();
    let row_bytes = (batch_bytes(batch) / rows.max(1) as u64).max(1);
    let step = (CHUNK_BYTES / row_bytes).clamp(1, CHUNK_ROWS as u64) as usize;
    (0..rows).step_by(step).map(|start| batch.slice(start, step.min(rows - start))).collect()
}

/// Pages of a Parquet file, counted.
#[derive(Debug)]
struct Pages {
    source: source::Source,
    bytes_read: std::sync::Arc<std::sync::atomic::AtomicU64>,
}

impl Length for Pages {
    fn len(&self) -> u64 {
        self.source.length()
    }
}

impl ChunkReader for Pages {
    type T = source::Reader;

    fn get_read(&self, start: u64) -> ParquetResult<source::Reader> {
        self.source.get_read(start)
    }

    fn get_bytes(&self, start: u64, length: usize) -> ParquetResult<Bytes> {
        self.bytes_read.fetch_add(length as u64, Ordering::Relaxed);
        self.source.get_bytes(start, length)
    }
}
