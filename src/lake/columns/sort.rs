//! Rows of a row group by the columns that a stream is sorted by.

use arrow::array::{AsArray as _, RecordBatch};
use arrow::compute::{SortColumn, SortOptions, concat_batches, lexsort_to_indices, take_record_batch};
use arrow::datatypes::{Int64Type, SchemaRef};
use arrow::error::ArrowError;

/// The rows of `batches` sorted by the columns at `places`, nulls last; equal rows stay in the order of offsets.
pub(super) fn by_columns(
    schema: &SchemaRef,
    batches: Vec<RecordBatch>,
    places: &[usize],
) -> Result<RecordBatch, ArrowError> {
    let rows = concat_batches(schema, &batches)?;
    drop(batches);
    let options = Some(SortOptions { descending: false, nulls_first: false });
    // The offset comes last, since the sort keeps no order by itself.
    let columns = places.iter().copied().chain([0]);
    let columns: Vec<SortColumn> =
        columns.map(|place| SortColumn { values: rows.column(place).clone(), options }).collect();
    take_record_batch(&rows, &lexsort_to_indices(&columns, None)?)
}

/// The rows of a batch in the order of the first column, the offset; `None` if they are in it.
pub(super) fn offset_order(batch: &RecordBatch) -> Option<Vec<u32>> {
    let offsets = batch.column(0).as_primitive_opt::<Int64Type>()?.values();
    if offsets.is_sorted() {
        return None;
    }
    let mut order: Vec<u32> = (0..offsets.len() as u32).collect();
    order.sort_unstable_by_key(|row| offsets[*row as usize]);
    Some(order)
}
