//! Writing one Parquet file: under a temporary name, row group by row group, and then under its own.

use std::fs::File;
use std::path::{Path, PathBuf};

use arrow::array::{AsArray as _, RecordBatch};
use arrow::datatypes::Int64Type;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::{
    ArrowColumnWriter, ArrowLeafColumn, ArrowRowGroupWriterFactory, ArrowWriterOptions, compute_leaves,
};
use parquet::errors::ParquetError;
use parquet::file::writer::SerializedFileWriter;

use streamcast_shards::manner::give_way;

use super::encodings;
use super::error::ColumnsError;
use super::facts;
use super::layout::Layout;
use super::sort;
use super::unnamed::{Unnamed, make_directory, remove};

/// How files are written.
#[derive(Debug, Clone)]
pub struct WriteOptions {
    /// The columns that rows are sorted by inside each row group, ascending, nulls last; empty for the order of offsets.
    pub sort_by: Vec<String>,
    /// A row group ends when its rows take this many bytes as Arrow.
    pub row_group_bytes: u64,
    /// Threads that encode the columns of a large batch, 1 for none but the caller's.
    pub threads: usize,
}

/// The size of a row group in the order of offsets, which is written and read as a stream.
const ROW_GROUP_BYTES: u64 = 64 << 20;

/// The size of a sorted row group. Whoever reads it in the order of offsets holds all of it.
const SORTED_ROW_GROUP_BYTES: u64 = 8 << 20;

impl WriteOptions {
    /// The usual options for rows sorted by `sort_by`.
    #[must_use]
    pub fn new(sort_by: &[String]) -> Self {
        let row_group_bytes = if sort_by.is_empty() { ROW_GROUP_BYTES } else { SORTED_ROW_GROUP_BYTES };
        Self { sort_by: sort_by.to_vec(), row_group_bytes, threads: 1 }
    }
}

/// What a file's name says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileName {
    /// `<start>-<end>-<8 hex>.parquet`: from a seal; the end is exclusive.
    Extent,
    /// `<start>-<8 hex>.parquet`: from a merge or a bulk load, whose names are chosen before the end is known.
    Start,
}

impl FileName {
    /// A new name for a file of `[start, end)`.
    #[must_use]
    pub fn new_name(self, start: i64, end: i64) -> String {
        let token = token();
        match self {
            Self::Extent => format!("{start}-{end}-{token}.parquet"),
            Self::Start => format!("{start}-{token}.parquet"),
        }
    }
}

/// Eight random hexadecimal digits.
fn token() -> String {
    let mut token = uuid::Uuid::new_v4().simple().to_string();
    token.truncate(8);
    token
}

/// The end of the names of files that are being written. What is left of one after a crash is of no use.
pub const UNFINISHED_SUFFIX: &str = ".parquet.tmp";

/// Batches from this many rows on are encoded by several threads, if there may be several.
const PARALLEL_ROWS: usize = 8192;

/// What every Parquet file begins with.
const MAGIC_BYTES: u64 = 4;

/// A Parquet file in the making. Dropped unfinished, it is deleted.
pub(super) struct FileWriter {
    layout: Layout,
    sort_places: Vec<usize>,
    row_group_bytes: u64,
    threads: usize,
    directory: PathBuf,
    temporary: PathBuf,
    file: File,
    /// From the first rows on, which decide how columns are encoded.
    started: Option<Started>,
    group: Option<Group>,
    offsets: Option<(i64, i64)>,
    ts_us: Option<(i64, i64)>,
}

/// What writes the file.
struct Started {
    writer: SerializedFileWriter<File>,
    factory: ArrowRowGroupWriterFactory,
}

/// A row group in the making.
struct Group {
    columns: Vec<ArrowColumnWriter>,
    bytes: u64,
    /// The rows of a group that has yet to be sorted.
    unsorted: Vec<RecordBatch>,
}

impl FileWriter {
    /// Starts a file in `directory`, which is made if it is not there.
    pub fn create(layout: &Layout, directory: &Path, options: &WriteOptions) -> Result<Self, ColumnsError> {
        let sort_places = layout.sort_places(&options.sort_by)?;
        make_directory(directory)?;
        let temporary = directory.join(format!(".{}{UNFINISHED_SUFFIX}", token()));
        let file = File::create_new(&temporary).map_err(ColumnsError::io("create", &temporary))?;
        Ok(Self {
            layout: layout.clone(),
            sort_places,
            row_group_bytes: options.row_group_bytes.max(1),
            threads: options.threads.max(1),
            directory: directory.to_owned(),
            temporary,
            file,
            started: None,
            group: None,
            offsets: None,
            ts_us: None,
        })
    }

    /// Bytes of the file that are written; those of the open row group are not counted.
    pub fn written_bytes(&self) -> u64 {
        self.started.as_ref().map_or(MAGIC_BYTES, |started| started.writer.bytes_written() as u64)
    }

    /// Begins the file, whose first rows these are.
    fn start(&self, first: &RecordBatch) -> Result<Started, ColumnsError> {
        let file = self.file.try_clone().map_err(ColumnsError::io("open", &self.temporary))?;
        let options = ArrowWriterOptions::new().with_properties(encodings::properties(first));
        let started = ArrowWriter::try_new_with_options(file, self.layout.arrow().clone(), options)
            .and_then(ArrowWriter::into_serialized_writer);
        let (writer, factory) = started.map_err(ColumnsError::write(&self.temporary))?;
        Ok(Started { writer, factory })
    }

    /// Takes rows in the order of their offsets, which take `bytes` as Arrow. A row group ends behind the batch that
    /// fills it.
    pub fn write(&mut self, batch: RecordBatch, bytes: u64) -> Result<(), ColumnsError> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        self.note(&batch)?;
        let started = match self.started.take() {
            Some(started) => started,
            None => self.start(&batch)?,
        };
        let Started { writer, factory } = self.started.insert(started);
        let group = match &mut self.group {
            Some(group) => group,
            none => {
                let columns = factory.create_column_writers(writer.flushed_row_groups().len());
                let columns = columns.map_err(ColumnsError::write(&self.temporary))?;
                none.insert(Group { columns, bytes: 0, unsorted: Vec::new() })
            }
        };
        group.bytes += bytes;
        let full = group.bytes >= self.row_group_bytes;
        if self.sort_places.is_empty() {
            encode(&mut group.columns, &batch, self.threads).map_err(ColumnsError::write(&self.temporary))?;
        } else {
            group.unsorted.push(batch);
        }
        if full { self.end_group() } else { Ok(()) }
    }

    fn note(&mut self, batch: &RecordBatch) -> Result<(), ColumnsError> {
        let ints = |place: usize| batch.column(place).as_primitive_opt::<Int64Type>().map(|values| values.values());
        for offset in ints(0).into_iter().flatten().copied() {
            self.offsets = Some(match self.offsets {
                Some((_, after)) if offset <= after => return Err(ColumnsError::Order { offset, after }),
                Some((first, _)) => (first, offset),
                None => (offset, offset),
            });
        }
        for ts_us in ints(self.layout.stamp_place()).into_iter().flatten().copied() {
            self.ts_us = Some(self.ts_us.map_or((ts_us, ts_us), |(a, b)| (a.min(ts_us), b.max(ts_us))));
        }
        Ok(())
    }

    /// Ends the open row group, if there is one.
    pub fn end_group(&mut self) -> Result<(), ColumnsError> {
        let Some(group) = self.group.take() else { return Ok(()) };
        let failed = ColumnsError::write(&self.temporary);
        self.write_group(group).map_err(failed)
    }

    fn write_group(&mut self, mut group: Group) -> Result<(), ParquetError> {
        if !group.unsorted.is_empty() {
            let batches = std::mem::take(&mut group.unsorted);
            let sorted = sort::by_columns(self.layout.arrow(), batches, &self.sort_places)?;
            encode(&mut group.columns, &sorted, self.threads)?;
        }
        let Some(Started { writer, .. }) = &mut self.started else { return Ok(()) };
        let mut row_group = writer.next_row_group()?;
        for column in group.columns {
            column.close()?.append_to_row_group(&mut row_group)?;
        }
        row_group.close()?;
        Ok(())
    }

    /// Ends the file. It is complete and on disk, but it has no name yet.
    pub fn finish(mut self) -> Result<Unnamed, ColumnsError> {
        self.end_group()?;
        let (Some(offsets), Some(ts_us)) = (self.offsets, self.ts_us) else { return Err(ColumnsError::Empty) };
        let Some(started) = &mut self.started else { return Err(ColumnsError::Empty) };
        let metadata = started.writer.finish().map_err(ColumnsError::write(&self.temporary))?;
        self.file.sync_all().map_err(ColumnsError::io("sync", &self.temporary))?;
        let size = self.file.metadata().map_err(ColumnsError::io("look at", &self.temporary))?.len();
        let name = self.temporary.display().to_string();
        let file = facts::data_file(&metadata, &self.layout, String::new(), size, offsets, ts_us)
            .map_err(|why| ColumnsError::file(&name, why))?;
        // From now on the file belongs to the value returned.
        Ok(Unnamed::new(self.directory.clone(), std::mem::take(&mut self.temporary), file))
    }
}

impl Drop for FileWriter {
    fn drop(&mut self) {
        if !self.temporary.as_os_str().is_empty() {
            remove(&self.temporary);
        }
    }
}

impl std::fmt::Debug for FileWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileWriter").field("temporary", &self.temporary).finish_non_exhaustive()
    }
}

/// Rows of a column that are encoded in one piece: some tens of microseconds.
const PIECE_ROWS: usize = 2048;

/// Encodes a batch, leaf by leaf.
fn encode(writers: &mut [ArrowColumnWriter], batch: &RecordBatch, threads: usize) -> Result<(), ParquetError> {
    if threads < 2 || batch.num_rows() < PARALLEL_ROWS || writers.len() < 2 {
        return (0..batch.num_rows()).step_by(PIECE_ROWS).try_for_each(|start| {
            let piece = batch.slice(start, PIECE_ROWS.min(batch.num_rows() - start));
            writers.iter_mut().zip(&leaves(&piece)?).try_for_each(|(writer, leaf)| {
                give_way();
                writer.write(leaf)
            })
        });
    }
    let leaves = leaves(batch)?;
    // Whoever is free takes the next column, for some take much longer than others.
    let jobs = std::sync::Mutex::new(writers.iter_mut().zip(&leaves));
    let next = || jobs.lock().ok()?.next();
    let work = || {
        while let Some((writer, leaf)) = next() {
            writer.write(leaf)?;
        }
        Ok::<_, ParquetError>(())
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let own = work();
        others.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(panicked()))).fold(own, Result::and)
    })
}

/// What the columns of a batch consist of.
fn leaves(batch: &RecordBatch) -> Result<Vec<ArrowLeafColumn>, ParquetError> {
    let mut leaves = Vec::with_capacity(batch.num_columns());
    for (field, column) in batch.schema_ref().fields().iter().zip(batch.columns()) {
        leaves.extend(compute_leaves(field, column)?);
    }
    Ok(leaves)
}

fn panicked() -> ParquetError {
    ParquetError::General("a thread that encoded a column panicked".to_owned())
}
