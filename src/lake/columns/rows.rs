//! From stamped lines to record batches of a layout.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};

use super::build::{Builder, renew, slot_bits};
use super::error::ColumnsError;
use super::layout::Layout;
use super::scan::Cursor;
use crate::schema::json::push_string;

/// Lines of rows on their way to a [`RecordBatch`].
#[derive(Debug)]
pub(super) struct Rows {
    layout: Layout,
    leads: Vec<Box<[u8]>>,
    builders: Vec<Builder>,
    offsets: Vec<i64>,
    stamps_us: Vec<i64>,
    /// Bits of a row without anything that varies: offset, slots, stamp.
    fixed_bits: u64,
    bytes: u64,
    /// The row of an object that is any object: its text as a string in the one column.
    wrapped: Option<Vec<u8>>,
}

/// Bits of the offset of a row.
const OFFSET_BITS: u64 = 64;
/// Bits of the stamp of a row.
const STAMP_BITS: u64 = 65;

impl Rows {
    pub fn new(layout: Layout) -> Self {
        let columns = layout.schema().columns();
        let slots: u64 = columns.iter().map(|column| slot_bits(&column.kind)).sum();
        Self {
            leads: columns.iter().map(|column| column.lead().into()).collect(),
            builders: columns.iter().map(Builder::of).collect(),
            offsets: Vec::new(),
            stamps_us: Vec::new(),
            fixed_bits: OFFSET_BITS + slots + STAMP_BITS,
            bytes: 0,
            wrapped: layout.schema().is_any_object().then(Vec::new),
            layout,
        }
    }

    /// Takes a row.
    ///
    /// # Errors
    /// [`ColumnsError::Line`] if the line is not canonical; nothing taken so far is of use then.
    #[inline]
    pub fn push(&mut self, offset: i64, ts_us: i64, line: &[u8]) -> Result<(), ColumnsError> {
        let Some(mut wrapped) = self.wrapped.take() else { return self.push_row(offset, ts_us, line) };
        let pushed = match std::str::from_utf8(line) {
            Ok(text) => {
                wrapped.clear();
                wrapped.extend_from_slice(b"{\"entry\":");
                push_string(&mut wrapped, text);
                wrapped.push(b'}');
                self.push_row(offset, ts_us, &wrapped)
            }
            // Damaged, which is said below.
            Err(_) => self.push_row(offset, ts_us, line),
        };
        self.wrapped = Some(wrapped);
        pushed
    }

    #[inline]
    fn push_row(&mut self, offset: i64, ts_us: i64, line: &[u8]) -> Result<(), ColumnsError> {
        let mut bits = self.fixed_bits;
        let damaged = |at: usize, what: &str| ColumnsError::Line { offset, why: format!("{what}, at byte {at}") };
        if let Err(error) = std::str::from_utf8(line) {
            return Err(damaged(error.valid_up_to(), "it is not utf-8"));
        }
        let mut cursor = Cursor::new(line);
        for (lead, builder) in self.leads.iter().zip(&mut self.builders) {
            let taken = cursor.go_over(lead, "the next column must be here");
            taken
                .and_then(|()| builder.take(&mut cursor, &mut bits))
                .map_err(|damage| damaged(damage.at, damage.what))?;
        }
        let end = cursor.go_over(b"}", "the end of the row must be here").and_then(|()| cursor.end());
        end.map_err(|damage| damaged(damage.at, damage.what))?;
        self.offsets.push(offset);
        self.stamps_us.push(ts_us);
        self.bytes += bits.div_ceil(8);
        Ok(())
    }

    /// How many rows are here.
    pub fn len(&self) -> usize {
        self.offsets.len()
    }

    /// What they take as Arrow, as docs/storage.md estimates it.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The rows as a batch; the next one starts empty.
    ///
    /// # Errors
    /// [`ColumnsError::Line`] if they make no batch after all.
    pub fn finish(&mut self) -> Result<RecordBatch, ColumnsError> {
        let first = self.offsets.first().copied().unwrap_or_default();
        let refused = |error: arrow::error::ArrowError| ColumnsError::Line { offset: first, why: error.to_string() };
        let schema = self.layout.arrow();
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(schema.fields().len());
        columns.push(Arc::new(Int64Array::from(renew(&mut self.offsets))));
        for (builder, field) in self.builders.iter_mut().zip(&schema.fields()[1..]) {
            columns.push(builder.finish(field).map_err(refused)?);
        }
        columns.push(Arc::new(Int64Array::from(renew(&mut self.stamps_us))));
        self.bytes = 0;
        RecordBatch::try_new(schema.clone(), columns).map_err(refused)
    }
}
