//! The rows of a Parquet file as they went out live, in the order of their offsets.

use arrow::array::{AsArray as _, RecordBatch, StringArray};
use arrow::datatypes::Int64Type;

use super::error::ColumnsError;
use super::guard::guarded;
use super::layout::Layout;
use super::open::Opened;
use super::ordered::{Ordered, OrderedBatch};
use super::print::Printer;
use super::source::Source;
use crate::lake::DataFile;

/// Reads rows from one file, which may be of another writer: without field ids, with other names inside of lists and
/// maps, with narrower integers, without columns that may be null.
///
/// Rows of a file that is sorted by something else come in the order of offsets too. Then a row group is in memory,
/// otherwise no more than a few pages and some hundred KiB of lines.
#[derive(Debug)]
pub struct FileRows {
    name: String,
    batches: Ordered,
    from: i64,
    until: i64,
    batch: Option<Batch>,
    lines: Lines,
    last_offset: Option<i64>,
    failed: bool,
}

/// A row of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredRow<'a> {
    /// Its offset.
    pub offset: i64,
    /// When it was taken, in microseconds.
    pub ts_us: i64,
    /// Its canonical text, without a line feed.
    pub line: &'a [u8],
}

/// Decoded rows.
#[derive(Debug)]
struct Batch {
    rows: RecordBatch,
    /// The rows' texts, where they are any objects.
    any_objects: Option<StringArray>,
    leads: Vec<Box<[u8]>>,
    printers: Vec<Printer>,
    /// Their order by offset, if they are in another.
    order: Option<Vec<u32>>,
    next: usize,
}

/// Printed rows, read from the front.
#[derive(Debug, Default)]
struct Lines {
    rows: Vec<(i64, i64, usize)>,
    text: Vec<u8>,
    next: usize,
}

/// Rows and bytes that are printed at a time.
const LINES_ROWS: usize = 1024;
const LINES_BYTES: usize = 256 << 10;

/// Describes a file for the catalog and the table, from its footer. Offsets and stamps are read if the footer does not
/// say them.
///
/// # Errors
/// [`ColumnsError::File`] if it is damaged, has no rows, or lacks a required column.
pub fn describe(source: Source, layout: &Layout, uri: &str) -> Result<DataFile, ColumnsError> {
    let name = source.name().to_owned();
    guarded(|| Opened::open(source, layout)?.describe(uri)).map_err(|why| ColumnsError::file(&name, why))
}

/// The lowest offset of a row that came after `ts_us` (microseconds); none if there is no such row. Only stamps and
/// offsets are read, and only of row groups that may have one.
///
/// # Errors
/// [`ColumnsError::File`] if it is damaged.
pub fn first_offset_after(source: Source, layout: &Layout, ts_us: i64) -> Result<Option<i64>, ColumnsError> {
    let name = source.name().to_owned();
    let found = guarded(|| Opened::open(source, layout)?.first_offset_after(ts_us));
    found.map_err(|why| ColumnsError::file(&name, why))
}

/// The offsets of all rows of a file, as runs `[start, end)` without a gap, in order. Nothing else of it is read.
///
/// # Errors
/// [`ColumnsError::File`] if it is damaged.
pub fn offset_runs(source: Source, layout: &Layout) -> Result<Vec<(i64, i64)>, ColumnsError> {
    let name = source.name().to_owned();
    guarded(|| Opened::open(source, layout)?.offset_runs()).map_err(|why| ColumnsError::file(&name, why))
}

impl FileRows {
    /// Opens a file for its rows with offsets of `from..until`.
    ///
    /// # Errors
    /// [`ColumnsError::File`] if it is damaged, or is no file of such rows.
    pub fn open(source: Source, layout: &Layout, from: i64, until: i64) -> Result<Self, ColumnsError> {
        let name = source.name().to_owned();
        let batches = guarded(|| Ordered::open(source, layout, from, until));
        let batches = batches.map_err(|why| ColumnsError::file(&name, why))?;
        Ok(Self { name, batches, from, until, batch: None, lines: Lines::default(), last_offset: None, failed: false })
    }

    /// The next row, which stays the next one until [`FileRows::advance`]. None at the end.
    ///
    /// # Errors
    /// [`ColumnsError::File`] if the file is damaged; from then on always.
    #[inline]
    pub fn peek(&mut self) -> Result<Option<StoredRow<'_>>, ColumnsError> {
        if self.lines.is_empty() {
            self.fill()?;
        }
        Ok(self.lines.first())
    }

    /// Goes behind the row that [`FileRows::peek`] gave.
    #[inline]
    pub fn advance(&mut self) {
        self.lines.next += 1;
    }

    /// Prints the next rows. There are none at the end of the file.
    fn fill(&mut self) -> Result<(), ColumnsError> {
        if self.failed {
            return Err(ColumnsError::file(&self.name, "it could not be read before"));
        }
        // Whatever was going on when something failed or panicked is not gone on with.
        self.failed = true;
        guarded(|| self.fill_lines()).map_err(|why| ColumnsError::file(&self.name, why))?;
        self.failed = false;
        Ok(())
    }

    fn fill_lines(&mut self) -> Result<(), String> {
        self.lines.clear();
        while self.lines.is_empty() {
            match &mut self.batch {
                Some(batch) => {
                    if !batch.print(&mut self.lines, self.from..self.until, &mut self.last_offset)? {
                        self.batch = None;
                    }
                }
                None => match self.batches.next()? {
                    Some(next) => self.batch = Some(Batch::new(next, self.batches.opened().layout())?),
                    None => return Ok(()),
                },
            }
        }
        Ok(())
    }
}

impl Batch {
    fn new(batch: OrderedBatch, layout: &Layout) -> Result<Self, String> {
        let columns = layout.schema().columns();
        let arrays = &batch.rows.columns()[1..];
        let printers = columns.iter().zip(arrays).map(|(column, array)| Printer::of(column, array));
        let any_objects = layout.schema().is_any_object().then(|| arrays[0].as_string_opt::<i32>().cloned()).flatten();
        Ok(Self {
            any_objects,
            printers: printers.collect::<Result<_, _>>()?,
            leads: columns.iter().map(|column| column.lead().into()).collect(),
            order: batch.order,
            rows: batch.rows,
            next: 0,
        })
    }

    /// Prints some rows whose offsets are in `wanted`; false if none is left.
    fn print(
        &mut self,
        lines: &mut Lines,
        wanted: std::ops::Range<i64>,
        last_offset: &mut Option<i64>,
    ) -> Result<bool, String> {
        let count = self.rows.num_rows();
        let offsets = self.rows.column(0).as_primitive::<Int64Type>().values();
        let stamps_us = self.rows.column(self.rows.num_columns() - 1).as_primitive::<Int64Type>().values();
        let end = count.min(self.next + LINES_ROWS);
        while self.next < end && lines.text.len() < LINES_BYTES {
            let row = self.order.as_ref().map_or(self.next, |order| order[self.next] as usize);
            self.next += 1;
            let offset = offsets[row];
            if !wanted.contains(&offset) {
                continue;
            }
            if let Some(last) = last_offset.filter(|last| offset <= *last) {
                return Err(format!("its offset {offset} comes after {last}"));
            }
            *last_offset = Some(offset);
            if let Some(texts) = &self.any_objects {
                lines.text.extend_from_slice(texts.value(row).as_bytes());
            } else {
                for (lead, printer) in self.leads.iter().zip(&self.printers) {
                    lines.text.extend_from_slice(lead);
                    printer.push(row, &mut lines.text);
                }
                lines.text.push(b'}');
            }
            lines.rows.push((offset, stamps_us[row], lines.text.len()));
        }
        Ok(self.next < count || !lines.rows.is_empty())
    }
}

impl Lines {
    fn clear(&mut self) {
        self.rows.clear();
        self.text.clear();
        self.next = 0;
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.next >= self.rows.len()
    }

    #[inline]
    fn first(&self) -> Option<StoredRow<'_>> {
        let (offset, ts_us, end) = *self.rows.get(self.next)?;
        let start = self.next.checked_sub(1).map_or(0, |before| self.rows[before].2);
        Some(StoredRow { offset, ts_us, line: &self.text[start..end] })
    }
}
