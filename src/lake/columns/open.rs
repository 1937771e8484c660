//! Opening a Parquet file for a layout: its footer, and readers of its row groups.

use std::sync::Arc;

use arrow::array::{AsArray as _, RecordBatch};
use arrow::datatypes::{DataType, Int64Type};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder, RowSelection,
    RowSelector,
};
use parquet::file::metadata::ParquetMetaData;

use super::layout::{Layout, OFFSET_COLUMN, STAMP_COLUMN};
use super::source::Source;
use super::{conform, facts, plan};
use crate::lake::DataFile;

/// An open file.
#[derive(Debug, Clone)]
pub(super) struct Opened {
    source: Source,
    metadata: ArrowReaderMetadata,
    layout: Layout,
    mask: ProjectionMask,
}

/// What a look at the offsets of a row group told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Probe {
    /// Whether they rise from row to row.
    pub rising: bool,
    /// How many of the first rows lie below the offset asked for.
    pub below: usize,
    /// The lowest and the highest, if there are rows.
    pub extent: Option<(i64, i64)>,
}

/// Rows that are decoded at a time when only the offsets are looked at.
const PROBE_ROWS: usize = 16 << 10;

impl Opened {
    /// Reads the footer. May panic if the file is damaged.
    pub fn open(source: Source, layout: &Layout) -> Result<Self, String> {
        // What the writer noted of its own types is of no interest: values become those of the layout.
        let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let metadata = ArrowReaderMetadata::load(&source, options).map_err(|error| error.to_string())?;
        let schema = metadata.schema();
        for name in [OFFSET_COLUMN, STAMP_COLUMN] {
            match schema.field_with_name(name).map(|field| field.data_type().clone()) {
                Ok(data_type) if data_type.is_integer() => {}
                Ok(data_type) => return Err(format!("its column {name:?} has the type {data_type}")),
                Err(_) => return Err(format!("it has no column {name:?}")),
            }
        }
        let known = schema.fields().iter().enumerate().filter(|(_, field)| layout.place(field.name()).is_some());
        let mask = ProjectionMask::roots(metadata.parquet_schema(), known.map(|(place, _)| place));
        Ok(Self { source, metadata, layout: layout.clone(), mask })
    }

    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    pub fn metadata(&self) -> &Arc<ParquetMetaData> {
        self.metadata.metadata()
    }

    /// Gets the pages of a row group in one request, if they are far away.
    pub fn fetch(&self, group: usize) -> Result<(), String> {
        match plan::byte_range(self.metadata(), group) {
            Some((start, length)) => self.source.fetch(start, length).map_err(|error| error.to_string()),
            None => Ok(()),
        }
    }

    /// Reads a row group in its own order, without the first `skipped` rows. The batches are to be given to
    /// [`Opened::conform`].
    pub fn group(&self, group: usize, skipped: usize) -> Result<ParquetRecordBatchReader, String> {
        let facts = self.metadata().row_group(group);
        let rows = usize::try_from(facts.num_rows()).map_err(|_| "it has a negative number of rows".to_owned())?;
        let mut builder =
            ParquetRecordBatchReaderBuilder::new_with_metadata(self.source.clone(), self.metadata.clone())
                .with_row_groups(vec![group])
                .with_projection(self.mask.clone())
                .with_batch_size(plan::batch_rows(facts));
        if skipped > 0 {
            let selectors =
                vec![RowSelector::skip(skipped.min(rows)), RowSelector::select(rows.saturating_sub(skipped))];
            builder = builder.with_row_selection(RowSelection::from(selectors));
        }
        builder.build().map_err(|error| error.to_string())
    }

    /// A batch as the layout has it.
    pub fn conform(&self, batch: &RecordBatch) -> Result<RecordBatch, String> {
        conform::batch(batch, &self.layout)
    }

    /// Looks at the offsets of a row group.
    pub fn probe(&self, group: usize, from: i64) -> Result<Probe, String> {
        let mut probe = Probe { rising: true, below: 0, extent: None };
        let mut last = None;
        self.column(group, OFFSET_COLUMN, |offset| {
            probe.rising &= last.is_none_or(|last| offset > last);
            probe.below += usize::from(offset < from);
            last = Some(offset);
            probe.extent = Some(probe.extent.map_or((offset, offset), |(a, b)| (offset.min(a), offset.max(b))));
        })?;
        Ok(probe)
    }

    /// Visits the values of an integer column of a row group.
    fn column(&self, group: usize, name: &str, mut visit: impl FnMut(i64)) -> Result<(), String> {
        let place = self.metadata.schema().index_of(name).map_err(|error| error.to_string())?;
        if let Some(chunk) = self.leaf(name).and_then(|leaf| self.metadata().row_group(group).columns().get(leaf)) {
            let (start, length) = chunk.byte_range();
            self.source.fetch(start, length).map_err(|error| error.to_string())?;
        }
        let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(self.source.clone(), self.metadata.clone())
            .with_row_groups(vec![group])
            .with_projection(ProjectionMask::roots(self.metadata.parquet_schema(), [place]))
            .with_batch_size(PROBE_ROWS)
            .build()
            .map_err(|error| error.to_string())?;
        for batch in reader {
            let batch = batch.map_err(|error| error.to_string())?;
            let values = arrow::compute::cast(batch.column(0), &DataType::Int64).map_err(|error| error.to_string())?;
            let values = values.as_primitive::<Int64Type>();
            if arrow::array::Array::null_count(values) > 0 {
                return Err(format!("its column {name:?} has nulls"));
            }
            values.values().iter().copied().for_each(&mut visit);
        }
        Ok(())
    }

    /// The place of a column that is not nested among the leaves of the file.
    fn leaf(&self, name: &str) -> Option<usize> {
        let leaves = facts::leaves(self.metadata().file_metadata().schema(), &self.layout);
        leaves.iter().position(|leaf| leaf.as_ref().is_some_and(|leaf| leaf.is_column(name)))
    }

    /// The lowest offset of a row whose stamp is above `ts_us`.
    pub fn first_offset_after(&self, ts_us: i64) -> Result<Option<i64>, String> {
        let (stamps, mut lowest) = (self.extents(STAMP_COLUMN)?, None);
        for (group, stamps_us) in stamps.iter().enumerate() {
            if stamps_us.is_none_or(|(_, last)| last <= ts_us) {
                continue;
            }
            let mut newer = Vec::new();
            self.column(group, STAMP_COLUMN, |stamp| newer.push(stamp > ts_us))?;
            let mut newer = newer.into_iter();
            self.column(group, OFFSET_COLUMN, |offset| {
                if newer.next() == Some(true) {
                    lowest = Some(lowest.map_or(offset, |lowest: i64| lowest.min(offset)));
                }
            })?;
        }
        Ok(lowest)
    }

    /// The offsets of all rows as runs without a gap, in order. Holds the offsets of one row group.
    pub fn offset_runs(&self) -> Result<Vec<(i64, i64)>, String> {
        let mut runs: Vec<(i64, i64)> = Vec::new();
        for group in 0..self.metadata().num_row_groups() {
            let mut offsets = Vec::new();
            self.column(group, OFFSET_COLUMN, |offset| offsets.push((offset, offset.saturating_add(1))))?;
            offsets.sort_unstable();
            runs.extend(joined(offsets));
        }
        runs.sort_unstable();
        Ok(joined(runs))
    }

    /// The lowest and highest value of an integer column in each row group: from the statistics, or else by reading it.
    pub fn extents(&self, name: &str) -> Result<Vec<Option<(i64, i64)>>, String> {
        let place = self.leaf(name);
        let groups = self.metadata().row_groups().iter().enumerate();
        groups
            .map(|(group, facts)| {
                if facts.num_rows() == 0 {
                    return Ok(None);
                }
                if let Some(known) = place.and_then(|place| facts::group_int_bounds(facts, place)) {
                    return Ok(Some(known));
                }
                let mut extent = None;
                self.column(group, name, |value| {
                    extent = Some(extent.map_or((value, value), |(a, b)| (value.min(a), value.max(b))));
                })?;
                Ok(extent)
            })
            .collect()
    }

    /// Describes the file for catalog and table.
    pub fn describe(&self, uri: &str) -> Result<DataFile, String> {
        let extent = |name: &str| {
            let all = self.extents(name)?.into_iter().flatten();
            let all = all.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
            all.ok_or_else(|| "it has no rows".to_owned())
        };
        let (offsets, ts_us) = (extent(OFFSET_COLUMN)?, extent(STAMP_COLUMN)?);
        facts::data_file(self.metadata(), &self.layout, uri.to_owned(), self.source.length(), offsets, ts_us)
    }
}

/// Ranges in order, with those that touch put together.
fn joined(ranges: Vec<(i64, i64)>) -> Vec<(i64, i64)> {
    let mut joined: Vec<(i64, i64)> = Vec::new();
    for (start, end) in ranges {
        match joined.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => joined.push((start, end)),
        }
    }
    joined
}
