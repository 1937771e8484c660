//! Arrays as other writers have them become arrays of a layout: same values, our types and names.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray as _, FixedSizeBinaryArray, ListArray, MapArray, RecordBatch, StructArray, new_null_array,
};
use arrow::buffer::OffsetBuffer;
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Field, Fields, Float64Type};
use arrow::error::ArrowError;

use super::layout::Layout;

/// The columns of a batch as a layout has them, found by name. A nullable column that is not there is null.
pub(super) fn batch(batch: &RecordBatch, layout: &Layout) -> Result<RecordBatch, String> {
    let schema = layout.arrow();
    let columns = schema.fields().iter().map(|field| match batch.column_by_name(field.name()) {
        Some(column) => array(column, field),
        None => absent(field, batch.num_rows()),
    });
    RecordBatch::try_new(schema.clone(), columns.collect::<Result<_, _>>()?).map_err(|error| error.to_string())
}

fn absent(field: &Field, rows: usize) -> Result<ArrayRef, String> {
    if field.is_nullable() {
        Ok(new_null_array(field.data_type(), rows))
    } else {
        Err(format!("the column {:?} is missing", field.name()))
    }
}

/// An array as `field` has it.
pub(super) fn array(array: &ArrayRef, field: &Field) -> Result<ArrayRef, String> {
    if array.data_type() == field.data_type() {
        return Ok(array.clone());
    }
    let refused = |error: ArrowError| format!("the column {:?}: {error}", field.name());
    match (array.data_type(), field.data_type()) {
        (DataType::Struct(_), DataType::Struct(fields)) => structure(array.as_struct(), fields, field),
        (DataType::List(_), DataType::List(item)) => {
            let list = array.as_list::<i32>();
            let (offsets, items) = trimmed(list.offsets(), list.values());
            let items = self::array(&items, item)?;
            let list = ListArray::try_new(item.clone(), offsets, items, list.nulls().cloned());
            Ok(Arc::new(list.map_err(refused)?))
        }
        (DataType::Map(_, _), DataType::Map(entries, _)) => {
            let map = array.as_map();
            let DataType::Struct(parts) = entries.data_type() else { return Err(no_form(array, field)) };
            let (offsets, keys) = trimmed(map.offsets(), map.keys());
            let (_, values) = trimmed(map.offsets(), map.values());
            let keys = self::array(&keys, &parts[0])?;
            let values = self::array(&values, &parts[1])?;
            let both = StructArray::try_new(parts.clone(), vec![keys, values], None).map_err(refused)?;
            let map = MapArray::try_new(entries.clone(), offsets, both, map.nulls().cloned(), false);
            Ok(Arc::new(map.map_err(refused)?))
        }
        (DataType::LargeList(_) | DataType::FixedSizeList(_, _), DataType::List(item)) => {
            let inner = match array.data_type() {
                DataType::LargeList(inner) | DataType::FixedSizeList(inner, _) => inner.clone(),
                _ => item.clone(),
            };
            self::array(&cast(array, &DataType::List(inner)).map_err(refused)?, field)
        }
        (DataType::Binary | DataType::LargeBinary | DataType::BinaryView, DataType::FixedSizeBinary(width)) => {
            fixed(&cast(array, &DataType::Binary).map_err(refused)?, *width, field)
        }
        (from, to) if from.is_nested() || to.is_nested() => Err(no_form(array, field)),
        (_, to) => cast(array, to).map_err(refused),
    }
}

fn no_form(array: &ArrayRef, field: &Field) -> String {
    format!("the column {:?} is {} and does not become {}", field.name(), array.data_type(), field.data_type())
}

/// Of the items of lists those that are in them: a slice of an array still has the items of all of it.
fn trimmed(offsets: &OffsetBuffer<i32>, items: &ArrayRef) -> (OffsetBuffer<i32>, ArrayRef) {
    let (first, last) = (offsets[0], offsets[offsets.len() - 1]);
    if first == 0 && last as usize == items.len() {
        return (offsets.clone(), items.clone());
    }
    let moved: Vec<i32> = offsets.iter().map(|end| end - first).collect();
    (OffsetBuffer::new(moved.into()), items.slice(first as usize, (last - first) as usize))
}

/// A cast that never makes a null of a value, nor another number of a number; only doubles are rounded to floats.
fn cast(array: &ArrayRef, to: &DataType) -> Result<ArrayRef, ArrowError> {
    let strict = |array: &ArrayRef, to: &DataType| {
        cast_with_options(array, to, &CastOptions { safe: false, ..CastOptions::default() })
    };
    let from = array.data_type();
    let made = strict(array, to)?;
    if (from.is_floating() && to.is_integer()) || (from.is_integer() && to.is_floating()) {
        let back = strict(&made, from)?;
        let (before, after) = (strict(array, &DataType::Float64)?, strict(&back, &DataType::Float64)?);
        let pairs = before.as_primitive::<Float64Type>().iter().zip(after.as_primitive::<Float64Type>());
        let integers = from
            .is_integer()
            .then(|| Ok::<_, ArrowError>(strict(array, &DataType::Int64)? == strict(&back, &DataType::Int64)?));
        if !pairs.into_iter().all(|(before, after)| before == after) || !integers.transpose()?.unwrap_or(true) {
            return Err(ArrowError::CastError(format!("a value has no equal among {to}")));
        }
    }
    Ok(made)
}

fn structure(array: &StructArray, fields: &Fields, field: &Field) -> Result<ArrayRef, String> {
    if let Some(unknown) = array.column_names().into_iter().find(|name| fields.find(name).is_none()) {
        return Err(format!("the column {:?} has no field {unknown:?}", field.name()));
    }
    let columns = fields.iter().map(|field| match array.column_by_name(field.name()) {
        Some(column) => self::array(column, field),
        None => absent(field, array.len()),
    });
    let columns = columns.collect::<Result<_, _>>()?;
    let array = StructArray::try_new_with_length(fields.clone(), columns, array.nulls().cloned(), array.len());
    Ok(Arc::new(array.map_err(|error| format!("the column {:?}: {error}", field.name()))?))
}

fn fixed(array: &ArrayRef, width: i32, field: &Field) -> Result<ArrayRef, String> {
    let values = array.as_binary::<i32>();
    let refused = |error: ArrowError| format!("the column {:?}: {error}", field.name());
    let array = FixedSizeBinaryArray::try_from_sparse_iter_with_size(values.iter(), width).map_err(refused)?;
    Ok(Arc::new(array))
}
