//! What a Parquet footer says of a file, as the catalog and the table want it (docs/storage.md).

use arrow::datatypes::{DataType, Field};
use parquet::basic::Repetition;
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};
use parquet::file::statistics::Statistics;
use parquet::schema::types::{Type, TypePtr};

use super::bounds::{Bound, Bounds};
use super::layout::{Layout, field_id};
use crate::lake::{ColumnStats, DataFile};

/// Describes a file of this layout, whose offsets and stamps are between these.
pub(super) fn data_file(
    metadata: &ParquetMetaData,
    layout: &Layout,
    uri: String,
    size_bytes: u64,
    offsets: (i64, i64),
    ts_us: (i64, i64),
) -> Result<DataFile, String> {
    let leaves = leaves(metadata.file_metadata().schema(), layout);
    let groups = metadata.row_groups();
    let columns = leaves.iter().enumerate();
    Ok(DataFile {
        uri,
        start: offsets.0,
        end: offsets.1.checked_add(1).ok_or("its last offset is out of range")?,
        rows: groups.iter().map(|group| group.num_rows() as u64).sum(),
        size_bytes,
        ts_us,
        split_offsets: groups.iter().filter_map(group_start).collect(),
        columns: columns.filter_map(|(place, leaf)| Some(column(groups, place, leaf.as_ref()?))).collect(),
    })
}

/// The lowest and highest value of an integer column of one row group.
pub(super) fn group_int_bounds(group: &RowGroupMetaData, place: usize) -> Option<(i64, i64)> {
    match group.columns().get(place)?.statistics()? {
        Statistics::Int64(values) => Some((*values.min_opt()?, *values.max_opt()?)),
        Statistics::Int32(values) => Some((i64::from(*values.min_opt()?), i64::from(*values.max_opt()?))),
        _ => None,
    }
}

/// Where the first page of a row group is.
fn group_start(group: &RowGroupMetaData) -> Option<i64> {
    let first = group.columns().first()?;
    Some(first.dictionary_page_offset().map_or(first.data_page_offset(), |offset| offset.min(first.data_page_offset())))
}

fn column(groups: &[RowGroupMetaData], place: usize, leaf: &Leaf) -> ColumnStats {
    let chunks = groups.iter().filter_map(|group| group.columns().get(place));
    let mut stats = ColumnStats { field_id: leaf.id, size_bytes: 0, values: 0, nulls: 0, lower: None, upper: None };
    let mut bounds = leaf.top.as_ref().map(|field| Bounds::of(field.data_type()));
    for chunk in chunks {
        stats.size_bytes += chunk.compressed_size() as u64;
        stats.values += chunk.num_values() as u64;
        let nulls = chunk.statistics().and_then(Statistics::null_count_opt).unwrap_or(0);
        stats.nulls += nulls;
        if nulls < chunk.num_values() as u64
            && let Some(bounds) = &mut bounds
        {
            bounds.widen(chunk.statistics());
        }
    }
    if let Some(bounds) = bounds {
        (stats.lower, stats.upper) = (bounds.lower().map(Bound::into_bytes), bounds.upper().map(Bound::into_bytes));
    }
    stats
}

/// A leaf of a file that the layout knows.
pub(super) struct Leaf {
    /// Its field id in the layout.
    pub id: i32,
    /// The column, if the leaf is one itself.
    top: Option<Field>,
}

impl Leaf {
    /// Whether it is the column called `name`.
    pub fn is_column(&self, name: &str) -> bool {
        self.top.as_ref().is_some_and(|field| field.name() == name)
    }
}

/// For every leaf of a file, in order, what it is in the layout. Columns are found by name and what is inside of them
/// by shape, since files of other writers have no field ids.
pub(super) fn leaves(schema: &Type, layout: &Layout) -> Vec<Option<Leaf>> {
    let mut found = Vec::new();
    for part in schema.get_fields() {
        let field = layout.place(part.name()).map(|place| layout.arrow().field(place));
        walk(part, field, true, &mut found);
    }
    found
}

fn walk(part: &TypePtr, field: Option<&Field>, top: bool, found: &mut Vec<Option<Leaf>>) {
    if part.is_primitive() {
        let leaf = field.and_then(|field| Some(Leaf { id: field_id(field)?, top: top.then(|| field.clone()) }));
        found.push(leaf.filter(|_| field.is_some_and(|field| !field.data_type().is_nested())));
        return;
    }
    let parts = part.get_fields();
    match field.map(Field::data_type) {
        Some(DataType::Struct(fields)) => {
            for part in parts {
                let field = fields.find(part.name()).map(|(_, field)| field.as_ref());
                walk(part, field, false, found);
            }
        }
        Some(DataType::List(item)) => match repeated(parts) {
            Some([element]) => walk(element, Some(item), false, found),
            _ => unknown(part, found),
        },
        Some(DataType::Map(entries, _)) => match (repeated(parts), entries.data_type()) {
            (Some([key, value]), DataType::Struct(fields)) => {
                walk(key, Some(&fields[0]), false, found);
                walk(value, Some(&fields[1]), false, found);
            }
            _ => unknown(part, found),
        },
        _ => unknown(part, found),
    }
}

/// What is inside the repeated group that lists and maps have.
fn repeated(parts: &[TypePtr]) -> Option<&[TypePtr]> {
    match parts {
        [group] if group.is_group() && group.get_basic_info().repetition() == Repetition::REPEATED => {
            Some(group.get_fields())
        }
        _ => None,
    }
}

/// Leaves that the layout does not have.
fn unknown(part: &TypePtr, found: &mut Vec<Option<Leaf>>) {
    if part.is_primitive() {
        found.push(None);
    } else {
        part.get_fields().iter().for_each(|part| unknown(part, found));
    }
}
