//! Several files of a log become fewer, larger ones with the same rows.

use std::path::Path;

use arrow::array::{Array as _, RecordBatch, UInt32Array};
use arrow::compute::take_record_batch;

use super::error::ColumnsError;
use super::guard::guarded;
use super::layout::Layout;
use super::ordered::Ordered;
use super::read::describe;
use super::source::Source;
use super::unnamed::Unnamed;
use super::write::{FileName, FileWriter, WriteOptions};
use crate::lake::DataFile;

/// Rows that are handed to the writer at a time, at most, so that row groups end where they should.
const SLICE_ROWS: u64 = 8192;

/// Writes the rows of `inputs`, which are whole files of one log in any order, to files in `directory` that are not
/// larger than `target_bytes`, but for a single row group that is. Nothing of the inputs is in memory but a row group.
///
/// The outputs are read again before they get their names: they have as many rows as the inputs, and the same extent.
/// On an error no output is left behind.
///
/// # Errors
/// [`ColumnsError::File`] for an input that is damaged or overlaps another; [`ColumnsError::Empty`] without inputs;
/// otherwise when a file cannot be written.
pub fn merge(
    inputs: &[Source],
    layout: &Layout,
    directory: &Path,
    target_bytes: u64,
    options: &WriteOptions,
) -> Result<Vec<DataFile>, ColumnsError> {
    let described = inputs.iter().map(|input| Ok((input, describe(input.clone(), layout, input.name())?)));
    let mut described = described.collect::<Result<Vec<_>, ColumnsError>>()?;
    described.sort_by_key(|(_, file)| file.start);
    for pair in described.windows(2) {
        if pair[1].1.start < pair[0].1.end {
            let why = format!("it has the offset {}, and so has {}", pair[1].1.start, pair[0].0.name());
            return Err(ColumnsError::file(pair[1].0.name(), why));
        }
    }
    let mut outputs =
        Outputs { layout, directory, target_bytes, options, open: None, group_bytes: 0, done: Vec::new() };
    for (input, _) in &described {
        copy(input, layout, &mut outputs)?;
    }
    let done = outputs.finish()?;
    let files: Vec<&DataFile> = described.iter().map(|(_, file)| file).collect();
    verify(&files, &done, layout)?;
    done.into_iter().map(place).collect()
}

fn place(unnamed: Unnamed) -> Result<DataFile, ColumnsError> {
    let name = FileName::Start.new_name(unnamed.file().start, unnamed.file().end);
    unnamed.place(&name)
}

fn copy(input: &Source, layout: &Layout, outputs: &mut Outputs<'_>) -> Result<(), ColumnsError> {
    for_each_batch(input, layout, |rows| {
        for rows in slices(&rows, outputs.options) {
            outputs.write(rows)?;
        }
        Ok(())
    })
}

/// Gives the rows of a file in the order of their offsets.
pub(super) fn for_each_batch(
    input: &Source,
    layout: &Layout,
    mut take: impl FnMut(RecordBatch) -> Result<(), ColumnsError>,
) -> Result<(), ColumnsError> {
    let damaged = |why: String| ColumnsError::file(input.name(), why);
    let mut batches = guarded(|| Ordered::open(input.clone(), layout, i64::MIN, i64::MAX)).map_err(damaged)?;
    loop {
        let next = guarded(|| {
            let Some(batch) = batches.next()? else { return Ok(None) };
            match batch.order {
                None => Ok(Some(batch.rows)),
                Some(order) => {
                    let sorted = take_record_batch(&batch.rows, &UInt32Array::from(order));
                    sorted.map(Some).map_err(|error| error.to_string())
                }
            }
        });
        match next.map_err(damaged)? {
            Some(rows) => take(rows)?,
            None => return Ok(()),
        }
    }
}

/// Cuts a batch into pieces so small that row groups end where they should.
pub(super) fn slices(rows: &RecordBatch, options: &WriteOptions) -> impl Iterator<Item = RecordBatch> + use<> {
    let row_bytes = (batch_bytes(rows) / rows.num_rows().max(1) as u64).max(1);
    let step = (options.row_group_bytes / 8 / row_bytes).clamp(1, SLICE_ROWS) as usize;
    let rows = rows.clone();
    (0..rows.num_rows()).step_by(step).map(move |start| rows.slice(start, step.min(rows.num_rows() - start)))
}

/// The files that are being made.
struct Outputs<'a> {
    layout: &'a Layout,
    directory: &'a Path,
    target_bytes: u64,
    options: &'a WriteOptions,
    open: Option<FileWriter>,
    /// What the largest row group so far took in the file.
    group_bytes: u64,
    done: Vec<Unnamed>,
}

impl Outputs<'_> {
    fn write(&mut self, rows: RecordBatch) -> Result<(), ColumnsError> {
        let writer = match &mut self.open {
            Some(writer) => writer,
            None => self.open.insert(FileWriter::create(self.layout, self.directory, self.options)?),
        };
        let before = writer.written_bytes();
        let bytes = batch_bytes(&rows);
        writer.write(rows, bytes)?;
        let written = writer.written_bytes();
        if written > before {
            self.group_bytes = self.group_bytes.max(written - before);
            if written + self.group_bytes > self.target_bytes {
                self.close()?;
            }
        }
        Ok(())
    }

    fn close(&mut self) -> Result<(), ColumnsError> {
        if let Some(writer) = self.open.take() {
            self.done.push(writer.finish()?);
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Vec<Unnamed>, ColumnsError> {
        self.close()?;
        if self.done.is_empty() { Err(ColumnsError::Empty) } else { Ok(self.done) }
    }
}

/// Compares what was written, as a reader finds it, with what was to be written.
fn verify(inputs: &[&DataFile], outputs: &[Unnamed], layout: &Layout) -> Result<(), ColumnsError> {
    let mut found = Vec::with_capacity(outputs.len());
    for output in outputs {
        let file = describe(Source::file(output.temporary())?, layout, &output.file().uri)?;
        if file != *output.file() {
            return Err(ColumnsError::file(&output.temporary().display().to_string(), "it is not what was written"));
        }
        found.push(file);
    }
    let rows = |files: &mut dyn Iterator<Item = &DataFile>| files.map(|file| file.rows).sum::<u64>();
    let (expected, written) = (rows(&mut inputs.iter().copied()), rows(&mut found.iter()));
    let extent = |first: Option<&DataFile>, last: Option<&DataFile>| Some((first?.start, last?.end));
    let same = expected == written
        && extent(inputs.first().copied(), inputs.last().copied()) == extent(found.first(), found.last())
        && found.windows(2).all(|pair| pair[0].end <= pair[1].start);
    if same {
        Ok(())
    } else {
        let name = outputs.first().map(|output| output.temporary().display().to_string()).unwrap_or_default();
        Err(ColumnsError::file(&name, format!("{written} rows were written instead of {expected}")))
    }
}

/// What a batch takes as Arrow, in bytes.
pub(super) fn batch_bytes(batch: &RecordBatch) -> u64 {
    let sizes = batch.columns().iter().map(|column| column.to_data().get_slice_memory_size());
    sizes.map(|size| size.unwrap_or(0) as u64).sum()
}
