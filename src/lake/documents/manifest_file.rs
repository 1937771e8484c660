//! A manifest as the Parquet file that readers open.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray as _, BooleanArray, Float32Array, Float64Array, Int32Array, Int64Array, RecordBatch,
    StringArray, StructArray,
};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{
    DataType, Field, Fields, Float32Type, Float64Type, Int32Type, Int64Type, Schema as ArrowSchema,
};
use arrow::error::ArrowError;
use bytes::Bytes;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;

use super::manifest::{Bound, BoundKind, ColumnStatistics, LogStatistics};

/// Why a manifest cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// As a Parquet file.
    #[error(transparent)]
    Parquet(#[from] ParquetError),
    /// As columns.
    #[error(transparent)]
    Arrow(#[from] ArrowError),
    /// It lacks what every manifest has.
    #[error("it has no column {0:?} of the expected type")]
    Column(&'static str),
}

/// The bytes of a manifest with `rows`.
///
/// # Errors
/// When the columns cannot be put together.
pub fn write(rows: &[LogStatistics]) -> Result<Vec<u8>, ManifestError> {
    let mut fields = vec![
        Field::new("log", DataType::Utf8, false),
        Field::new("start_offset", DataType::Int64, false),
        Field::new("end_offset", DataType::Int64, true),
        Field::new("record_count", DataType::Int64, true),
    ];
    let mut arrays: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from_iter_values(rows.iter().map(|row| row.log.as_str()))),
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.start_offset))),
        Arc::new(Int64Array::from_iter(rows.iter().map(|row| row.end_offset))),
        Arc::new(Int64Array::from_iter(rows.iter().map(|row| row.record_count))),
    ];
    for (name, kind) in columns(rows) {
        let cells: Vec<Option<&ColumnStatistics>> = rows
            .iter()
            .map(|row| row.columns.iter().find(|column| column.name == name && column.kind == kind))
            .collect();
        let array = column(kind, &cells)?;
        fields.push(Field::new(name, array.data_type().clone(), true));
        arrays.push(Arc::new(array));
    }
    let schema = Arc::new(ArrowSchema::new(fields));
    let batch = RecordBatch::try_new(Arc::clone(&schema), arrays)?;
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    let mut writer = ArrowWriter::try_new(Vec::new(), schema, Some(properties))?;
    writer.write(&batch)?;
    Ok(writer.into_inner()?)
}

/// The rows of a manifest. Statistics that are not of the usual shape are left out.
///
/// # Errors
/// When it is no Parquet file or lacks what every manifest has.
pub fn read(bytes: Vec<u8>) -> Result<Vec<LogStatistics>, ManifestError> {
    let mut rows = Vec::new();
    for batch in ParquetRecordBatchReaderBuilder::try_new(Bytes::from(bytes))?.build()? {
        rows.append(&mut rows_of(&batch?)?);
    }
    Ok(rows)
}

/// Every column that some log has, in the order of first sight.
fn columns(rows: &[LogStatistics]) -> Vec<(&str, BoundKind)> {
    let mut found: Vec<(&str, BoundKind)> = Vec::new();
    for column in rows.iter().flat_map(|row| &row.columns) {
        let reserved = ["log", "start_offset", "end_offset", "record_count"].contains(&column.name.as_str());
        if !reserved && !found.iter().any(|(name, _)| *name == column.name) {
            found.push((&column.name, column.kind));
        }
    }
    found
}

fn column(kind: BoundKind, cells: &[Option<&ColumnStatistics>]) -> Result<StructArray, ArrowError> {
    let data_type = match kind {
        BoundKind::Int32 => DataType::Int32,
        BoundKind::Int64 => DataType::Int64,
        BoundKind::Float32 => DataType::Float32,
        BoundKind::Float64 => DataType::Float64,
        BoundKind::Bool => DataType::Boolean,
    };
    let range = |cell: &Option<&ColumnStatistics>| cell.and_then(|cell| cell.range);
    let low = bounds(kind, cells.iter().map(|cell| range(cell).map(|range| range.0)));
    let high = bounds(kind, cells.iter().map(|cell| range(cell).map(|range| range.1)));
    let nulls = Int64Array::from_iter(cells.iter().map(|cell| cell.map(|cell| cell.nulls)));
    let values = Int64Array::from_iter(cells.iter().map(|cell| cell.map(|cell| cell.values)));
    let mut fields = vec![
        Field::new("min", data_type.clone(), true),
        Field::new("max", data_type, true),
        Field::new("null_count", DataType::Int64, true),
        Field::new("value_count", DataType::Int64, true),
    ];
    let mut arrays: Vec<ArrayRef> = vec![low, high, Arc::new(nulls), Arc::new(values)];
    if matches!(kind, BoundKind::Float32 | BoundKind::Float64) {
        // What is not a number is refused before it is stored.
        fields.push(Field::new("nan_count", DataType::Int64, true));
        arrays.push(Arc::new(Int64Array::from_iter(cells.iter().map(|cell| cell.map(|_| 0)))));
    }
    let there = NullBuffer::from_iter(cells.iter().map(Option::is_some));
    StructArray::try_new(Fields::from(fields), arrays, Some(there))
}

fn bounds(kind: BoundKind, bounds: impl Iterator<Item = Option<Bound>>) -> ArrayRef {
    macro_rules! array {
        ($array:ty, $variant:ident) => {
            Arc::new(<$array>::from_iter(bounds.map(|bound| match bound {
                Some(Bound::$variant(value)) => Some(value),
                _ => None,
            })))
        };
    }
    match kind {
        BoundKind::Int32 => array!(Int32Array, Int32),
        BoundKind::Int64 => array!(Int64Array, Int64),
        BoundKind::Float32 => array!(Float32Array, Float32),
        BoundKind::Float64 => array!(Float64Array, Float64),
        BoundKind::Bool => array!(BooleanArray, Bool),
    }
}

fn rows_of(batch: &RecordBatch) -> Result<Vec<LogStatistics>, ManifestError> {
    let logs = batch.column_by_name("log").map(|array| arrow::compute::cast(array, &DataType::Utf8)).transpose()?;
    let logs = logs.as_ref().and_then(|array| array.as_string_opt::<i32>()).ok_or(ManifestError::Column("log"))?;
    let integers = |name| batch.column_by_name(name).and_then(|array| array.as_primitive_opt::<Int64Type>());
    let counts = integers("record_count").ok_or(ManifestError::Column("record_count"))?;
    let (starts, ends) = (integers("start_offset"), integers("end_offset"));
    let at = |array: Option<&Int64Array>, row: usize| {
        array.filter(|array| array.is_valid(row)).map(|array| array.value(row))
    };
    let mut rows = Vec::new();
    for row in 0..batch.num_rows() {
        let mut columns = Vec::new();
        for (place, field) in batch.schema_ref().fields().iter().enumerate() {
            let Some(array) = batch.column(place).as_struct_opt().filter(|array| array.is_valid(row)) else { continue };
            columns.extend(statistics_of(field.name(), array, row));
        }
        rows.push(LogStatistics {
            log: logs.value(row).to_owned(),
            start_offset: at(starts, row).unwrap_or(0),
            end_offset: at(ends, row),
            record_count: at(Some(counts), row),
            columns,
        });
    }
    Ok(rows)
}

fn statistics_of(name: &str, array: &StructArray, row: usize) -> Option<ColumnStatistics> {
    let (low, high) = (array.column_by_name("min")?, array.column_by_name("max")?);
    let count = |name: &str| {
        let counts = array.column_by_name(name)?.as_primitive_opt::<Int64Type>()?;
        counts.is_valid(row).then(|| counts.value(row))
    };
    let (nulls, values) = (count("null_count")?, count("value_count")?);
    let (low, kind) = bound_at(low, row)?;
    let (high, _) = bound_at(high, row)?;
    let floats = matches!(kind, BoundKind::Float32 | BoundKind::Float64);
    if floats && count("nan_count") != Some(0) {
        return None;
    }
    let range = low.zip(high);
    (range.is_some() || nulls == values).then(|| ColumnStatistics { name: name.to_owned(), kind, range, nulls, values })
}

fn bound_at(array: &ArrayRef, row: usize) -> Option<(Option<Bound>, BoundKind)> {
    let there = array.is_valid(row);
    Some(match array.data_type() {
        DataType::Int32 => {
            (there.then(|| Bound::Int32(array.as_primitive::<Int32Type>().value(row))), BoundKind::Int32)
        }
        DataType::Int64 => {
            (there.then(|| Bound::Int64(array.as_primitive::<Int64Type>().value(row))), BoundKind::Int64)
        }
        DataType::Float32 => {
            (there.then(|| Bound::Float32(array.as_primitive::<Float32Type>().value(row))), BoundKind::Float32)
        }
        DataType::Float64 => {
            (there.then(|| Bound::Float64(array.as_primitive::<Float64Type>().value(row))), BoundKind::Float64)
        }
        DataType::Boolean => (there.then(|| Bound::Bool(array.as_boolean().value(row))), BoundKind::Bool),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_survive_being_written_and_read() {
        let column =
            |name: &str, kind, range, nulls| ColumnStatistics { name: name.to_owned(), kind, range, nulls, values: 5 };
        let rows = [
            LogStatistics {
                log: "t".to_owned(),
                start_offset: 1,
                end_offset: Some(6),
                record_count: Some(5),
                columns: vec![
                    column("id", BoundKind::Int64, Some((Bound::Int64(-1), Bound::Int64(9))), 0),
                    column("px", BoundKind::Float64, Some((Bound::Float64(-0.0), Bound::Float64(1.5))), 1),
                    column("ok", BoundKind::Bool, None, 5),
                ],
            },
            LogStatistics {
                log: "t-v2".to_owned(),
                start_offset: 6,
                end_offset: None,
                record_count: None,
                columns: vec![
                    column("id", BoundKind::Int64, Some((Bound::Int64(2), Bound::Int64(2))), 0),
                    column("f", BoundKind::Float32, Some((Bound::Float32(0.5), Bound::Float32(0.5))), 0),
                    column("n", BoundKind::Int32, Some((Bound::Int32(1), Bound::Int32(2))), 0),
                ],
            },
        ];
        let bytes = write(&rows).expect("written");
        assert_eq!(read(bytes).expect("read"), rows);
        assert_eq!(read(write(&[]).expect("written")).expect("read"), []);
        assert!(read(b"PAR1".to_vec()).is_err());
    }
}
