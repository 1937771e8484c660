//! From arrays of a layout to canonical lines (wire.md section 3.3): the bytes that went out live.

use arrow::array::{
    Array, ArrayRef, AsArray as _, BinaryArray, BooleanArray, FixedSizeBinaryArray, Float32Array, Float64Array,
    Int32Array, Int64Array, StringArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{Float32Type, Float64Type, Int32Type, Int64Type};

use crate::schema::json::{push_f64, push_i64, push_string};
use crate::schema::{Column, ColumnKind, Encoding};

/// Prints the values of one column.
#[derive(Debug)]
pub(super) struct Printer {
    nulls: Option<NullBuffer>,
    values: Values,
}

#[derive(Debug)]
enum Values {
    Bool(BooleanArray),
    Int32(Int32Array),
    Int64(Int64Array),
    Float32(Float32Array),
    Float64(Float64Array),
    String(StringArray),
    Binary(BinaryArray, Encoding),
    Fixed(FixedSizeBinaryArray, Encoding),
    Struct(Vec<(Box<[u8]>, Printer)>),
    Map { offsets: OffsetBuffer<i32>, keys: StringArray, values: Box<Printer> },
    List { offsets: OffsetBuffer<i32>, items: Box<Printer> },
}

impl Printer {
    /// A printer of `array`, which has the type that a layout gives to `column`.
    ///
    /// # Errors
    /// If it has another type after all.
    pub fn of(column: &Column, array: &ArrayRef) -> Result<Self, String> {
        Self::new(&column.kind, column.nullable, array)
            .ok_or_else(|| format!("the column {:?} has the type {}", column.name, array.data_type()))
    }

    fn new(kind: &ColumnKind, nullable: bool, array: &ArrayRef) -> Option<Self> {
        let values = match kind {
            ColumnKind::Bool => Values::Bool(array.as_boolean_opt()?.clone()),
            ColumnKind::Int32 => Values::Int32(array.as_primitive_opt::<Int32Type>()?.clone()),
            ColumnKind::Int64 => Values::Int64(array.as_primitive_opt::<Int64Type>()?.clone()),
            ColumnKind::Float32 => Values::Float32(array.as_primitive_opt::<Float32Type>()?.clone()),
            ColumnKind::Float64 => Values::Float64(array.as_primitive_opt::<Float64Type>()?.clone()),
            ColumnKind::String => Values::String(array.as_string_opt::<i32>()?.clone()),
            ColumnKind::Binary { encoding, width_bytes: None | Some(0) } => {
                Values::Binary(array.as_binary_opt::<i32>()?.clone(), *encoding)
            }
            ColumnKind::Binary { encoding, .. } => Values::Fixed(array.as_fixed_size_binary_opt()?.clone(), *encoding),
            ColumnKind::Struct(fields) => {
                let arrays = array.as_struct_opt()?.columns();
                let printers =
                    fields.as_slice().iter().zip(arrays).map(|(field, array)| {
                        Some((field.lead().into(), Self::new(&field.kind, field.nullable, array)?))
                    });
                Values::Struct(printers.collect::<Option<_>>()?)
            }
            ColumnKind::Map(element) => {
                let map = array.as_map_opt()?;
                Values::Map {
                    offsets: map.offsets().clone(),
                    keys: map.keys().as_string_opt::<i32>()?.clone(),
                    values: Box::new(Self::new(&element.kind, element.nullable, map.values())?),
                }
            }
            ColumnKind::List(element) => {
                let list = array.as_list_opt::<i32>()?;
                Values::List {
                    offsets: list.offsets().clone(),
                    items: Box::new(Self::new(&element.kind, element.nullable, list.values())?),
                }
            }
        };
        // A required value inside of a null is never asked for.
        let nulls = array.nulls().filter(|nulls| nullable && nulls.null_count() > 0).cloned();
        Some(Self { nulls, values })
    }

    /// Appends the value in `row`.
    #[inline]
    pub fn push(&self, row: usize, out: &mut Vec<u8>) {
        if self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
            out.extend_from_slice(b"null");
            return;
        }
        match &self.values {
            Values::Int64(values) => push_i64(out, values.value(row)),
            Values::Float64(values) => push_finite(out, values.value(row)),
            Values::String(values) => push_string(out, values.value(row)),
            Values::Int32(values) => push_i64(out, i64::from(values.value(row))),
            Values::Float32(values) => push_finite(out, f64::from(values.value(row))),
            Values::Bool(values) => {
                out.extend_from_slice(if values.value(row) { b"true" } else { b"false" });
            }
            Values::Binary(values, encoding) => push_bytes(out, values.value(row), *encoding),
            Values::Fixed(values, encoding) => push_bytes(out, values.value(row), *encoding),
            Values::Struct(fields) => {
                for (lead, printer) in fields {
                    out.extend_from_slice(lead);
                    printer.push(row, out);
                }
                out.push(b'}');
            }
            Values::Map { offsets, keys, values } => {
                out.push(b'{');
                let (start, end) = (offsets[row] as usize, offsets[row + 1] as usize);
                for place in start..end {
                    if place > start {
                        out.push(b',');
                    }
                    push_string(out, keys.value(place));
                    out.push(b':');
                    values.push(place, out);
                }
                out.push(b'}');
            }
            Values::List { offsets, items } => {
                out.push(b'[');
                let (start, end) = (offsets[row] as usize, offsets[row + 1] as usize);
                for place in start..end {
                    if place > start {
                        out.push(b',');
                    }
                    items.push(place, out);
                }
                out.push(b']');
            }
        }
    }
}

/// Other writers may have let a NaN or an infinity through, which has no JSON.
#[inline]
fn push_finite(out: &mut Vec<u8>, value: f64) {
    if value.is_finite() {
        push_f64(out, value);
    } else {
        out.extend_from_slice(b"null");
    }
}

fn push_bytes(out: &mut Vec<u8>, bytes: &[u8], encoding: Encoding) {
    out.push(b'"');
    encoding.encode(bytes, out);
    out.push(b'"');
}
