//! Validation and canonical text of a row in one pass (wire.md sections 3.3, 3.4 and 13).
//!
//! A row is written from its values as they are stored, so that a replay has the same bytes. The encoder says
//! only *that* a row does not fit; [`super::explain`] finds out why, for the few that do not.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::convert::Infallible;

use super::columns::{ColumnKind, Columns, Element, Schema};
use super::json::{push_f64, push_i64, push_plain_string, push_string};
use super::node::{Node, View, Wide};

/// The largest integer a double column takes: every integer up to it is a double (wire.md section 13.2).
pub(super) const FLOAT64_INTEGERS: u64 = 1 << 53;
/// The same for a 32-bit float column.
pub(super) const FLOAT32_INTEGERS: u64 = 1 << 24;
/// The largest magnitude a 32-bit float column takes; it rounds to the largest finite 32-bit float.
pub(super) const FLOAT32_LIMIT: f64 = 3.402_823_5e38;

/// From this many keys on an object finds its duplicates by hashing.
const HASHED_KEYS: usize = 16;

/// Up to this many columns of a row or struct are sorted out without an allocation.
const STACK_SLOTS: usize = 32;

/// A row or value does not fit its schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Invalid;

/// Top-level columns take some values of other types; nested ones do not (wire.md section 13.4).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Top,
    Nested,
}

/// Writes canonical text. `plain` promises that no string of the document needs an escape.
#[derive(Debug)]
struct Writer<'w> {
    out: &'w mut Vec<u8>,
    plain: bool,
}

/// Appends the canonical text of a row with declared columns, without a line feed.
///
/// `plain` promises that no string of the row needs an escape, which holds if its source had no backslash.
///
/// # Errors
/// [`Invalid`] if the row breaks a rule of wire.md section 13; `out` then ends in a torn row.
pub fn push_row<'a, N: Node<'a>>(
    out: &mut Vec<u8>,
    schema: &Schema,
    row: N::Entries,
    plain: bool,
) -> Result<(), Invalid> {
    Writer { out, plain }.columns::<N>(&schema.columns, row, Level::Top)
}

/// Appends the canonical text of any value: a row without declared columns.
pub fn push_any<'a, N: Node<'a>>(out: &mut Vec<u8>, value: N, plain: bool) {
    Writer { out, plain }.any(value);
}

impl Writer<'_> {
    /// A row or struct. Its keys may come in any order and more than once; the last value of a key counts.
    #[inline]
    fn columns<'a, N: Node<'a>>(
        &mut self,
        columns: &Columns,
        entries: N::Entries,
        level: Level,
    ) -> Result<(), Invalid> {
        let count = columns.as_slice().len();
        if count <= STACK_SLOTS {
            self.columns_in::<N>(columns, entries, level, &mut [None; STACK_SLOTS][..count])
        } else {
            self.columns_in::<N>(columns, entries, level, &mut vec![None; count])
        }
    }

    /// `slots` takes the value found for each column.
    #[inline]
    fn columns_in<'a, N: Node<'a>>(
        &mut self,
        columns: &Columns,
        entries: N::Entries,
        level: Level,
        slots: &mut [Option<N>],
    ) -> Result<(), Invalid> {
        let list = columns.as_slice();
        // Most publishers write the columns in declared order, so the next one is tried first.
        let mut expected = 0;
        for (key, value) in entries {
            if list.get(expected).is_none_or(|column| !is_same(&column.name, key)) {
                expected = columns.find(key).ok_or(Invalid)?;
            }
            slots[expected] = Some(value);
            expected += 1;
        }
        for (column, slot) in list.iter().zip(slots) {
            self.out.extend_from_slice(&column.lead);
            match slot {
                Some(value) => self.value(&column.kind, column.nullable, *value, level)?,
                None if column.nullable => self.out.extend_from_slice(b"null"),
                None => return Err(Invalid),
            }
        }
        self.out.push(b'}');
        Ok(())
    }

    #[inline]
    fn value<'a, N: Node<'a>>(
        &mut self,
        kind: &ColumnKind,
        nullable: bool,
        value: N,
        level: Level,
    ) -> Result<(), Invalid> {
        match (kind, value.view()) {
            (ColumnKind::Int64, View::Int(value)) => push_i64(self.out, value),
            (ColumnKind::Float64, View::Float(value)) => push_f64(self.out, value),
            (ColumnKind::String, View::String(text)) => self.string(text),
            (ColumnKind::Int32, View::Int(value)) => {
                i32::try_from(value).map_err(|_| Invalid)?;
                push_i64(self.out, value);
            }
            (_, View::Null) => {
                if !nullable {
                    return Err(Invalid);
                }
                self.out.extend_from_slice(b"null");
            }
            (ColumnKind::Bool, View::Bool(value)) => self.bool(value),
            (ColumnKind::Float64, View::Int(value)) => {
                self.float(value.unsigned_abs() <= FLOAT64_INTEGERS, value as f64)?;
            }
            (ColumnKind::Float32, View::Float(value)) => {
                self.float(value.abs() <= FLOAT32_LIMIT, f64::from(value as f32))?;
            }
            (ColumnKind::Float32, View::Int(value)) => {
                self.float(value.unsigned_abs() <= FLOAT32_INTEGERS, value as f64)?;
            }
            (ColumnKind::Binary { encoding, width_bytes }, View::String(text)) => {
                let mut bytes = Vec::new();
                encoding.decode(text, &mut bytes).ok_or(Invalid)?;
                if width_bytes.is_some_and(|width| width as usize != bytes.len()) {
                    return Err(Invalid);
                }
                self.out.push(b'"');
                encoding.encode(&bytes, self.out);
                self.out.push(b'"');
            }
            (ColumnKind::Struct(fields), View::Object(entries)) => {
                self.columns::<N>(fields, entries, Level::Nested)?;
            }
            (ColumnKind::Map(values), View::Object(entries)) => self.map::<N>(values, entries)?,
            (ColumnKind::List(items), View::Array(list)) => {
                self.out.push(b'[');
                for (index, item) in list.enumerate() {
                    if index > 0 {
                        self.out.push(b',');
                    }
                    self.value(&items.kind, items.nullable, item, Level::Nested)?;
                }
                self.out.push(b']');
            }
            (kind, view) if level == Level::Top => self.coerced::<N>(kind, view)?,
            _ => return Err(Invalid),
        }
        Ok(())
    }

    /// What only a top-level column takes: booleans as numbers, 0 and 1 as booleans.
    fn coerced<'a, N: Node<'a>>(&mut self, kind: &ColumnKind, view: View<'a, N>) -> Result<(), Invalid> {
        match (kind, view) {
            (ColumnKind::Bool, View::Int(value @ (0 | 1))) => self.bool(value == 1),
            (ColumnKind::Int32 | ColumnKind::Int64, View::Bool(value)) => push_i64(self.out, i64::from(value)),
            (ColumnKind::Float32 | ColumnKind::Float64, View::Bool(value)) => push_f64(self.out, f64::from(value)),
            _ => return Err(Invalid),
        }
        Ok(())
    }

    fn float(&mut self, fits: bool, value: f64) -> Result<(), Invalid> {
        if !fits {
            return Err(Invalid);
        }
        push_f64(self.out, value);
        Ok(())
    }

    fn map<'a, N: Node<'a>>(&mut self, values: &Element, entries: N::Entries) -> Result<(), Invalid> {
        self.out.push(b'{');
        each_once(entries, |index, key, value| {
            if index > 0 {
                self.out.push(b',');
            }
            self.string(key);
            self.out.push(b':');
            self.value(&values.kind, values.nullable, value, Level::Nested)
        })?;
        self.out.push(b'}');
        Ok(())
    }

    fn any<'a, N: Node<'a>>(&mut self, value: N) {
        match value.view() {
            View::Null => self.out.extend_from_slice(b"null"),
            View::Bool(value) => self.bool(value),
            View::Int(value) => push_i64(self.out, value),
            View::Wide(Wide::Unsigned(value)) => {
                self.out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
            }
            View::Wide(Wide::Digits(digits)) => self.out.extend_from_slice(digits.as_bytes()),
            View::Float(value) => push_f64(self.out, value),
            View::String(text) => self.string(text),
            View::Array(items) => {
                self.out.push(b'[');
                for (index, item) in items.enumerate() {
                    if index > 0 {
                        self.out.push(b',');
                    }
                    self.any(item);
                }
                self.out.push(b']');
            }
            View::Object(entries) => {
                self.out.push(b'{');
                let Ok(()) = each_once(entries, |index, key, value| {
                    if index > 0 {
                        self.out.push(b',');
                    }
                    self.string(key);
                    self.out.push(b':');
                    self.any(value);
                    Ok::<_, Infallible>(())
                });
                self.out.push(b'}');
            }
        }
    }

    fn bool(&mut self, value: bool) {
        self.out.extend_from_slice(if value { b"true" } else { b"false" });
    }

    #[inline]
    fn string(&mut self, text: &str) {
        if self.plain {
            push_plain_string(self.out, text);
        } else {
            push_string(self.out, text);
        }
    }
}

/// Whether two keys are the same. Most are short, and then this takes less time than a call that compares any length.
#[inline]
fn is_same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len() != b.len() {
        return false;
    }
    match a.len() {
        0..4 => a.iter().eq(b),
        4..8 => a.first_chunk::<4>() == b.first_chunk() && a.last_chunk::<4>() == b.last_chunk(),
        8..=16 => a.first_chunk::<8>() == b.first_chunk() && a.last_chunk::<8>() == b.last_chunk(),
        _ => a == b,
    }
}

/// Calls `visit(index, key, value)` for each key once: at the place where it first appears, with its last value.
fn each_once<'a, N, E>(
    entries: impl ExactSizeIterator<Item = (&'a str, N)> + Clone,
    mut visit: impl FnMut(usize, &'a str, N) -> Result<(), E>,
) -> Result<(), E> {
    if !has_duplicates(entries.clone()) {
        return entries.enumerate().try_for_each(|(index, (key, value))| visit(index, key, value));
    }
    let mut places: HashMap<&str, usize> = HashMap::with_capacity(entries.len());
    let mut list: Vec<(&'a str, N)> = Vec::with_capacity(entries.len());
    for (key, value) in entries {
        match places.entry(key) {
            Entry::Occupied(place) => list[*place.get()].1 = value,
            Entry::Vacant(place) => {
                place.insert(list.len());
                list.push((key, value));
            }
        }
    }
    list.into_iter().enumerate().try_for_each(|(index, (key, value))| visit(index, key, value))
}

fn has_duplicates<'a, N>(mut entries: impl ExactSizeIterator<Item = (&'a str, N)> + Clone) -> bool {
    if entries.len() >= HASHED_KEYS {
        let mut seen = HashSet::with_capacity(entries.len());
        return entries.any(|(key, _)| !seen.insert(key));
    }
    while let Some((key, _)) = entries.next() {
        if entries.clone().any(|(other, _)| other == key) {
            return true;
        }
    }
    false
}
