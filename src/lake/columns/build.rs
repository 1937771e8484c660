//! From canonical lines to Arrow arrays, a value at a time.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, BooleanBufferBuilder, FixedSizeBinaryArray, ListArray, MapArray,
    NullBufferBuilder, PrimitiveArray, StringArray, StructArray,
};
use arrow::buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{ArrowPrimitiveType, DataType, Field, Float32Type, Float64Type, Int32Type, Int64Type};
use arrow::error::ArrowError;

use super::scan::{Cursor, Damage};
use crate::schema::{Column, ColumnKind, Encoding};

/// The values of one column so far.
#[derive(Debug)]
pub(super) struct Builder {
    nullable: bool,
    nulls: NullBufferBuilder,
    values: Values,
}

#[derive(Debug)]
enum Values {
    Bool(BooleanBufferBuilder),
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    Float32(Vec<f32>),
    Float64(Vec<f64>),
    String(Runs),
    Binary { encoding: Encoding, runs: Runs },
    Fixed { encoding: Encoding, width: usize, bytes: Vec<u8> },
    Struct { leads: Vec<Box<[u8]>>, fields: Vec<Builder> },
    Map { ends: Vec<i32>, keys: Runs, values: Box<Builder> },
    List { ends: Vec<i32>, items: Box<Builder> },
}

/// Byte strings behind each other.
#[derive(Debug)]
struct Runs {
    ends: Vec<i32>,
    bytes: Vec<u8>,
}

const TOO_MUCH: &str = "the value before this is too large for one file";

impl Runs {
    fn new() -> Self {
        Self { ends: vec![0], bytes: Vec::new() }
    }

    /// Ends a byte string; its length in bytes.
    #[inline]
    fn close(&mut self, cursor: &Cursor<'_>) -> Result<u64, Damage> {
        let before = self.ends[self.ends.len() - 1];
        let Ok(end) = i32::try_from(self.bytes.len()) else { return cursor.fail(TOO_MUCH) };
        self.ends.push(end);
        Ok((end - before) as u64)
    }

    fn take(&mut self) -> (OffsetBuffer<i32>, Buffer) {
        (offsets(&mut self.ends), Buffer::from_vec(renew(&mut self.bytes)))
    }
}

/// The offsets collected in `ends`, which starts over.
fn offsets(ends: &mut Vec<i32>) -> OffsetBuffer<i32> {
    let taken = renew(ends);
    ends.push(0);
    OffsetBuffer::new(ScalarBuffer::from(taken))
}

/// The values, which start over with room for as many: batches are mostly of one size.
pub(super) fn renew<T>(values: &mut Vec<T>) -> Vec<T> {
    let room = Vec::with_capacity(values.len());
    std::mem::replace(values, room)
}

/// Bits that one value of a column takes, whatever it is: docs/storage.md on the size of a row.
pub(super) fn slot_bits(kind: &ColumnKind) -> u64 {
    match kind {
        ColumnKind::Bool => 2,
        ColumnKind::Int32 | ColumnKind::Float32 => 33,
        ColumnKind::Int64 | ColumnKind::Float64 => 65,
        ColumnKind::Binary { width_bytes: Some(width), .. } => 8 * u64::from(*width) + 1,
        ColumnKind::String | ColumnKind::Binary { .. } | ColumnKind::Map(_) | ColumnKind::List(_) => 33,
        ColumnKind::Struct(fields) => 1 + fields.as_slice().iter().map(|field| slot_bits(&field.kind)).sum::<u64>(),
    }
}

impl Builder {
    pub fn of(column: &Column) -> Self {
        Self::new(&column.kind, column.nullable)
    }

    fn new(kind: &ColumnKind, nullable: bool) -> Self {
        let values = match kind {
            ColumnKind::Bool => Values::Bool(BooleanBufferBuilder::new(0)),
            ColumnKind::Int32 => Values::Int32(Vec::new()),
            ColumnKind::Int64 => Values::Int64(Vec::new()),
            ColumnKind::Float32 => Values::Float32(Vec::new()),
            ColumnKind::Float64 => Values::Float64(Vec::new()),
            ColumnKind::String => Values::String(Runs::new()),
            ColumnKind::Binary { encoding, width_bytes: None | Some(0) } => {
                Values::Binary { encoding: *encoding, runs: Runs::new() }
            }
            ColumnKind::Binary { encoding, width_bytes: Some(width) } => {
                Values::Fixed { encoding: *encoding, width: *width as usize, bytes: Vec::new() }
            }
            ColumnKind::Struct(fields) => Values::Struct {
                leads: fields.as_slice().iter().map(|field| field.lead().into()).collect(),
                fields: fields.as_slice().iter().map(Self::of).collect(),
            },
            ColumnKind::Map(element) => Values::Map {
                ends: vec![0],
                keys: Runs::new(),
                values: Box::new(Self::new(&element.kind, element.nullable)),
            },
            ColumnKind::List(element) => {
                Values::List { ends: vec![0], items: Box::new(Self::new(&element.kind, element.nullable)) }
            }
        };
        Self { nullable, nulls: NullBufferBuilder::new(0), values }
    }

    /// Takes the value that stands at the cursor. Adds to `bits` what it takes beyond its slot.
    ///
    /// After an error the builder is of no use.
    #[inline]
    pub fn take(&mut self, cursor: &mut Cursor<'_>, bits: &mut u64) -> Result<(), Damage> {
        if cursor.peek() == Some(b'n') {
            return self.take_null(cursor);
        }
        match &mut self.values {
            Values::Int64(values) => values.push(cursor.int()?),
            Values::Float64(values) => values.push(cursor.float()?),
            Values::String(runs) => {
                cursor.string(&mut runs.bytes)?;
                *bits += 8 * runs.close(cursor)?;
            }
            Values::Int32(values) => {
                let Ok(value) = i32::try_from(cursor.int()?) else {
                    return cursor.fail("an integer of 32 bits must be before this");
                };
                values.push(value);
            }
            Values::Float32(values) => values.push(narrow(cursor)?),
            Values::Bool(values) => values.append(cursor.bool()?),
            Values::Binary { encoding, runs } => {
                decode(*encoding, cursor, &mut runs.bytes)?;
                *bits += 8 * runs.close(cursor)?;
            }
            Values::Fixed { encoding, width, bytes } => {
                let before = bytes.len();
                decode(*encoding, cursor, bytes)?;
                if bytes.len() - before != *width {
                    return cursor.fail("a value of another length must be before this");
                }
            }
            Values::Struct { leads, fields } => {
                for (lead, field) in leads.iter().zip(fields) {
                    cursor.go_over(lead, "the next field of an object must be here")?;
                    field.take(cursor, bits)?;
                }
                cursor.go_over(b"}", "the end of an object must be here")?;
            }
            Values::Map { ends, keys, values } => {
                let before = keys.ends.len();
                cursor.go_over(b"{", "an object must be here")?;
                if !cursor.eat_byte(b'}') {
                    loop {
                        cursor.string(&mut keys.bytes)?;
                        *bits += 8 * keys.close(cursor)?;
                        cursor.go_over(b":", "a colon must be here")?;
                        values.take(cursor, bits)?;
                        *bits += values.item_bits() + 34;
                        if !cursor.eat_byte(b',') {
                            break;
                        }
                    }
                    cursor.go_over(b"}", "the end of an object must be here")?;
                }
                close_list(ends, keys.ends.len() - before, cursor)?;
            }
            Values::List { ends, items } => {
                let mut count = 0;
                cursor.go_over(b"[", "an array must be here")?;
                if !cursor.eat_byte(b']') {
                    loop {
                        items.take(cursor, bits)?;
                        *bits += items.item_bits();
                        count += 1;
                        if !cursor.eat_byte(b',') {
                            break;
                        }
                    }
                    cursor.go_over(b"]", "the end of an array must be here")?;
                }
                close_list(ends, count, cursor)?;
            }
        }
        self.nulls.append_non_null();
        Ok(())
    }

    #[cold]
    fn take_null(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Damage> {
        if !self.nullable {
            return cursor.fail("a value that is not null must be here");
        }
        cursor.go_over(b"null", "null must be here")?;
        self.push_null();
        Ok(())
    }

    /// Appends a null, and nulls to the fields of a struct.
    fn push_null(&mut self) {
        match &mut self.values {
            Values::Bool(values) => values.append(false),
            Values::Int32(values) => values.push(0),
            Values::Int64(values) => values.push(0),
            Values::Float32(values) => values.push(0.0),
            Values::Float64(values) => values.push(0.0),
            Values::String(Runs { ends, .. })
            | Values::Binary { runs: Runs { ends, .. }, .. }
            | Values::Map { ends, .. }
            | Values::List { ends, .. } => ends.push(ends[ends.len() - 1]),
            Values::Fixed { width, bytes, .. } => bytes.resize(bytes.len() + *width, 0),
            Values::Struct { fields, .. } => {
                // Also to required ones: nobody sees the fields of a null struct.
                fields.iter_mut().for_each(Self::push_null);
            }
        }
        self.nulls.append_null();
    }

    /// Bits of the slot of an item of a list or map.
    fn item_bits(&self) -> u64 {
        match &self.values {
            Values::Bool(_) => 2,
            Values::Int32(_) | Values::Float32(_) => 33,
            Values::Int64(_) | Values::Float64(_) => 65,
            Values::Fixed { width, .. } => 8 * *width as u64 + 1,
            Values::String(_) | Values::Binary { .. } | Values::Map { .. } | Values::List { .. } => 33,
            Values::Struct { fields, .. } => 1 + fields.iter().map(Self::item_bits).sum::<u64>(),
        }
    }
}

impl Builder {
    /// The array of the values so far, for a column of this layout; the builder starts over.
    ///
    /// # Errors
    /// If a string is not UTF-8 after all.
    pub fn finish(&mut self, field: &Field) -> Result<ArrayRef, ArrowError> {
        let nulls = self.nulls.finish();
        Ok(match &mut self.values {
            Values::Bool(values) => Arc::new(BooleanArray::new(values.finish(), nulls)),
            Values::Int32(values) => primitive::<Int32Type>(values, nulls),
            Values::Int64(values) => primitive::<Int64Type>(values, nulls),
            Values::Float32(values) => primitive::<Float32Type>(values, nulls),
            Values::Float64(values) => primitive::<Float64Type>(values, nulls),
            Values::String(runs) => {
                let (offsets, bytes) = runs.take();
                Arc::new(StringArray::try_new(offsets, bytes, nulls)?)
            }
            Values::Binary { runs, .. } => {
                let (offsets, bytes) = runs.take();
                Arc::new(BinaryArray::try_new(offsets, bytes, nulls)?)
            }
            Values::Fixed { width, bytes, .. } => {
                let bytes = Buffer::from_vec(renew(bytes));
                Arc::new(FixedSizeBinaryArray::try_new(*width as i32, bytes, nulls)?)
            }
            Values::Struct { fields, .. } => {
                let DataType::Struct(types) = field.data_type() else { return Err(other_type(field)) };
                let arrays = fields.iter_mut().zip(types).map(|(builder, field)| builder.finish(field));
                Arc::new(StructArray::try_new(types.clone(), arrays.collect::<Result<_, _>>()?, nulls)?)
            }
            Values::Map { ends, keys, values } => {
                let DataType::Map(entries, _) = field.data_type() else { return Err(other_type(field)) };
                let DataType::Struct(parts) = entries.data_type() else { return Err(other_type(field)) };
                let (key_offsets, bytes) = keys.take();
                let keys: ArrayRef = Arc::new(StringArray::try_new(key_offsets, bytes, None)?);
                let both = StructArray::try_new(parts.clone(), vec![keys, values.finish(&parts[1])?], None)?;
                Arc::new(MapArray::try_new(entries.clone(), offsets(ends), both, nulls, false)?)
            }
            Values::List { ends, items } => {
                let DataType::List(item) = field.data_type() else { return Err(other_type(field)) };
                Arc::new(ListArray::try_new(item.clone(), offsets(ends), items.finish(item)?, nulls)?)
            }
        })
    }
}

fn other_type(field: &Field) -> ArrowError {
    ArrowError::SchemaError(format!("the column {:?} is not built as {}", field.name(), field.data_type()))
}

fn primitive<T: ArrowPrimitiveType>(values: &mut Vec<T::Native>, nulls: Option<NullBuffer>) -> ArrayRef {
    Arc::new(PrimitiveArray::<T>::new(ScalarBuffer::from(renew(values)), nulls))
}

/// Ends a list or map of `count` items.
fn close_list(ends: &mut Vec<i32>, count: usize, cursor: &Cursor<'_>) -> Result<(), Damage> {
    let end = i32::try_from(count).ok().and_then(|count| ends[ends.len() - 1].checked_add(count));
    let Some(end) = end else { return cursor.fail(TOO_MUCH) };
    ends.push(end);
    Ok(())
}

/// A 32-bit float, which is written as the double it widens to.
fn narrow(cursor: &mut Cursor<'_>) -> Result<f32, Damage> {
    let value = cursor.float()?;
    if f64::from(value as f32).to_bits() != value.to_bits() {
        return cursor.fail("a 32-bit float must be before this");
    }
    Ok(value as f32)
}

fn decode(encoding: Encoding, cursor: &mut Cursor<'_>, out: &mut Vec<u8>) -> Result<(), Damage> {
    let text = cursor.plain_string()?;
    let decoded = std::str::from_utf8(text).ok().and_then(|text| encoding.decode(text, out));
    match decoded {
        Some(()) => Ok(()),
        None => cursor.fail("encoded bytes must be before this"),
    }
}
