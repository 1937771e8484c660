//! `manifest.parquet`: statistics of a stream's finished logs, by which readers leave out logs (docs/storage.md).

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray as _, BooleanArray, Float32Array, Float64Array, Int32Array, Int64Array, RecordBatch,
    StringArray, StructArray,
};
use arrow::buffer::NullBuffer;
use arrow::compute::{cast, concat_batches};
use arrow::datatypes::{
    DataType, Field, Fields, Float32Type, Float64Type, Int32Type, Int64Type, Schema as ArrowSchema,
};
use bytes::Bytes;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::{ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;

use super::error::ColumnsError;
use super::guard::guarded;
use super::statistics::{ColumnRange, LogStatistics, Scalar, is_prunable};

/// The columns that say which log a row is about. A column of a stream with one of these names has no statistics.
const KEYS: [&str; 4] = ["log", "start_offset", "end_offset", "record_count"];

/// The manifest as a file: one row a log, in this order.
///
/// # Errors
/// [`ColumnsError::Layout`] if the library refuses.
pub fn write_manifest_parquet(logs: &[LogStatistics]) -> Result<Vec<u8>, ColumnsError> {
    let refused = |why: String| ColumnsError::Layout(why);
    let batch = to_batch(logs).map_err(|error| refused(error.to_string()))?;
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    let mut out = Vec::new();
    let written = ArrowWriter::try_new(&mut out, batch.schema(), Some(properties)).and_then(|mut writer| {
        writer.write(&batch)?;
        writer.close()
    });
    written.map_err(|error| refused(error.to_string()))?;
    Ok(out)
}

/// Reads a manifest; `name` is for messages.
///
/// # Errors
/// [`ColumnsError::File`] if it is damaged, or no manifest.
pub fn read_manifest_parquet(name: &str, bytes: Bytes) -> Result<Vec<LogStatistics>, ColumnsError> {
    guarded(|| {
        let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let builder = ParquetRecordBatchReaderBuilder::try_new_with_options(bytes, options);
        let builder = builder.map_err(|error| error.to_string())?;
        let schema = builder.schema().clone();
        let batches = builder.build().map_err(|error| error.to_string())?.collect::<Result<Vec<_>, _>>();
        let batches = batches.map_err(|error| error.to_string())?;
        from_batch(&concat_batches(&schema, &batches).map_err(|error| error.to_string())?)
    })
    .map_err(|why| ColumnsError::file(name, why))
}

fn to_batch(logs: &[LogStatistics]) -> Result<RecordBatch, arrow::error::ArrowError> {
    let mut fields = vec![
        Field::new(KEYS[0], DataType::Utf8, false),
        Field::new(KEYS[1], DataType::Int64, false),
        Field::new(KEYS[2], DataType::Int64, true),
        Field::new(KEYS[3], DataType::Int64, true),
    ];
    let mut arrays: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from_iter_values(logs.iter().map(|log| &log.log))),
        Arc::new(Int64Array::from_iter_values(logs.iter().map(|log| log.start_offset))),
        Arc::new(Int64Array::from_iter(logs.iter().map(|log| log.end_offset))),
        Arc::new(Int64Array::from_iter(logs.iter().map(|log| log.record_count))),
    ];
    for column in distinct(logs) {
        let found: Vec<Option<&ColumnRange>> = logs
            .iter()
            .map(|log| log.columns.iter().find(|c| c.name == column.name && c.data_type == column.data_type))
            .collect();
        let array = structs(&column.data_type, &found)?;
        fields.push(Field::new(&column.name, array.data_type().clone(), true));
        arrays.push(Arc::new(array));
    }
    RecordBatch::try_new(Arc::new(ArrowSchema::new(fields)), arrays)
}

/// The columns of all logs, each name once.
fn distinct(logs: &[LogStatistics]) -> Vec<&ColumnRange> {
    let mut seen = std::collections::HashSet::from(KEYS);
    let all = logs.iter().flat_map(|log| &log.columns);
    all.filter(|column| is_prunable(&column.data_type) && seen.insert(column.name.as_str())).collect()
}

fn structs(data_type: &DataType, found: &[Option<&ColumnRange>]) -> Result<StructArray, arrow::error::ArrowError> {
    let bound = |highest: bool| {
        let ranges = found.iter().map(move |column| column.and_then(|column| column.range));
        scalars(data_type, ranges.map(move |range| range.map(|(min, max)| if highest { max } else { min })))
    };
    let counts = |count: fn(&ColumnRange) -> i64| -> ArrayRef {
        Arc::new(Int64Array::from_iter(found.iter().map(|column| column.map(count))))
    };
    let mut fields = vec![
        Field::new("min", data_type.clone(), true),
        Field::new("max", data_type.clone(), true),
        Field::new("null_count", DataType::Int64, true),
        Field::new("value_count", DataType::Int64, true),
    ];
    let mut arrays = vec![bound(false), bound(true), counts(|column| column.nulls), counts(|column| column.values)];
    if data_type.is_floating() {
        // A NaN is no value of any row.
        fields.push(Field::new("nan_count", DataType::Int64, true));
        arrays.push(counts(|_| 0));
    }
    let known: Vec<bool> = found.iter().map(Option::is_some).collect();
    StructArray::try_new(Fields::from(fields), arrays, Some(NullBuffer::from(known)))
}

fn scalars(data_type: &DataType, values: impl Iterator<Item = Option<Scalar>>) -> ArrayRef {
    match data_type {
        DataType::Boolean => Arc::new(BooleanArray::from_iter(values.map(|value| match value {
            Some(Scalar::Bool(value)) => Some(value),
            _ => None,
        }))),
        DataType::Int32 => Arc::new(Int32Array::from_iter(values.map(|value| match value {
            Some(Scalar::Int32(value)) => Some(value),
            _ => None,
        }))),
        DataType::Float32 => Arc::new(Float32Array::from_iter(values.map(|value| match value {
            Some(Scalar::Float32(value)) => Some(value),
            _ => None,
        }))),
        DataType::Float64 => Arc::new(Float64Array::from_iter(values.map(|value| match value {
            Some(Scalar::Float64(value)) => Some(value),
            _ => None,
        }))),
        _ => Arc::new(Int64Array::from_iter(values.map(|value| match value {
            Some(Scalar::Int64(value)) => Some(value),
            _ => None,
        }))),
    }
}

fn from_batch(batch: &RecordBatch) -> Result<Vec<LogStatistics>, String> {
    let key = |name: &str, data_type: &DataType| {
        let column = batch.column_by_name(name).ok_or_else(|| format!("it has no column {name:?}"))?;
        cast(column, data_type).map_err(|error| error.to_string())
    };
    let logs = key(KEYS[0], &DataType::Utf8)?;
    let [starts, ends, counts] =
        [key(KEYS[1], &DataType::Int64)?, key(KEYS[2], &DataType::Int64)?, key(KEYS[3], &DataType::Int64)?];
    let int = |array: &ArrayRef, row: usize| array.is_valid(row).then(|| array.as_primitive::<Int64Type>().value(row));
    let schema = batch.schema();
    let columns: Vec<(&Field, &StructArray)> = schema
        .fields()
        .iter()
        .zip(batch.columns())
        .filter_map(|(field, array)| Some((field.as_ref(), array.as_struct_opt()?)))
        .collect();
    (0..batch.num_rows())
        .map(|row| {
            if logs.is_null(row) {
                return Err("it has a row without a log".to_owned());
            }
            Ok(LogStatistics {
                log: logs.as_string::<i32>().value(row).to_owned(),
                start_offset: int(&starts, row).ok_or("it has a row without a start offset")?,
                end_offset: int(&ends, row),
                record_count: int(&counts, row),
                columns: columns.iter().filter_map(|(field, array)| range(field.name(), array, row)).collect(),
            })
        })
        .collect()
}

/// One column of one log; none if it is null, or makes no sense and thus says nothing.
fn range(name: &str, array: &StructArray, row: usize) -> Option<ColumnRange> {
    if array.is_null(row) {
        return None;
    }
    let (min, max) = (array.column_by_name("min")?, array.column_by_name("max")?);
    let count = |name: &str| {
        let counts = array.column_by_name(name)?.as_primitive_opt::<Int64Type>()?;
        counts.is_valid(row).then(|| counts.value(row))
    };
    let (nulls, values) = (count("null_count")?, count("value_count")?);
    let range = match (scalar(min, row), scalar(max, row)) {
        (Some(min), Some(max)) => Some((min, max)),
        // Without a range only a column without values is known.
        _ if nulls >= values => None,
        _ => return None,
    };
    Some(ColumnRange { name: name.to_owned(), data_type: min.data_type().clone(), range, nulls, values })
}

fn scalar(array: &ArrayRef, row: usize) -> Option<Scalar> {
    if array.is_null(row) {
        return None;
    }
    Some(match array.data_type() {
        DataType::Boolean => Scalar::Bool(array.as_boolean().value(row)),
        DataType::Int32 => Scalar::Int32(array.as_primitive::<Int32Type>().value(row)),
        DataType::Int64 => Scalar::Int64(array.as_primitive::<Int64Type>().value(row)),
        DataType::Float32 => Scalar::Float32(array.as_primitive::<Float32Type>().value(row)),
        DataType::Float64 => Scalar::Float64(array.as_primitive::<Float64Type>().value(row)),
        _ => return None,
    })
}
