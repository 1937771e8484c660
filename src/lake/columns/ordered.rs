//! The rows of a file as batches of the layout, in the order of their offsets.

use std::collections::VecDeque;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use parquet::arrow::arrow_reader::ParquetRecordBatchReader;

use super::layout::{Layout, OFFSET_COLUMN};
use super::open::Opened;
use super::plan::{self, Cluster};
use super::sort;
use super::source::Source;

/// Reads batches. Everything it does may panic if the file is damaged, and it is of no use after that or an error.
#[derive(Debug)]
pub(super) struct Ordered {
    opened: Opened,
    clusters: VecDeque<Cluster>,
    from: i64,
    /// The rest of the row group that is being read.
    reader: Option<ParquetRecordBatchReader>,
}

/// Rows of which some may lie outside of the offsets asked for.
#[derive(Debug)]
pub(super) struct OrderedBatch {
    /// The rows, all columns of the layout.
    pub rows: RecordBatch,
    /// Their order by offset, if they are in another.
    pub order: Option<Vec<u32>>,
}

/// The most that row groups out of order may take in memory.
const MAX_SORTED_BYTES: u64 = 1 << 30;

impl Ordered {
    /// Opens a file for its rows with offsets of `from..until`.
    pub fn open(source: Source, layout: &Layout, from: i64, until: i64) -> Result<Self, String> {
        let opened = Opened::open(source, layout)?;
        let clusters = plan::clusters(&opened.extents(OFFSET_COLUMN)?, from, until).into();
        Ok(Self { opened, clusters, from, reader: None })
    }

    pub fn opened(&self) -> &Opened {
        &self.opened
    }

    /// The next rows; none at the end.
    pub fn next(&mut self) -> Result<Option<OrderedBatch>, String> {
        loop {
            if let Some(reader) = &mut self.reader {
                if let Some(rows) = reader.next() {
                    let rows = self.opened.conform(&rows.map_err(|error| error.to_string())?)?;
                    return Ok(Some(OrderedBatch { rows, order: None }));
                }
                self.reader = None;
            }
            let Some(cluster) = self.clusters.pop_front() else { return Ok(None) };
            if let [group] = cluster.groups[..] {
                self.opened.fetch(group)?;
                let probe = self.opened.probe(group, self.from)?;
                if probe.rising {
                    self.reader = Some(self.opened.group(group, probe.below)?);
                    continue;
                }
            }
            return self.sorted(&cluster).map(Some);
        }
    }

    /// The rows of groups that are not in order.
    fn sorted(&self, cluster: &Cluster) -> Result<OrderedBatch, String> {
        let sizes = cluster.groups.iter().map(|group| plan::decoded_bytes(self.opened.metadata().row_group(*group)));
        if sizes.sum::<u64>() > MAX_SORTED_BYTES {
            return Err(format!(
                "its rows from offset {} to {} are out of order and too many to sort",
                cluster.extent.0, cluster.extent.1
            ));
        }
        let mut batches = Vec::new();
        for group in &cluster.groups {
            self.opened.fetch(*group)?;
            for rows in self.opened.group(*group, 0)? {
                batches.push(self.opened.conform(&rows.map_err(|error| error.to_string())?)?);
            }
        }
        let rows = concat_batches(self.opened.layout().arrow(), &batches).map_err(|error| error.to_string())?;
        Ok(OrderedBatch { order: sort::offset_order(&rows), rows })
    }
}
