//! Rows of other programs are held to the rules of published ones: types, nulls, finite numbers, keys.

use std::collections::HashSet;

use arrow::array::{Array, ArrayRef, AsArray as _, RecordBatch, UInt64Array};
use arrow::compute::take_record_batch;
use arrow::datatypes::{DataType, Field, FieldRef, Float32Type, Float64Type};

use super::super::conform;
use super::super::layout::Layout;
use super::source::{OpenError, Refused, check_names};

/// Makes columns of a layout of a source's batches.
#[derive(Debug, Clone)]
pub(super) struct Checker {
    /// For each declared column its field, and where it is in the source.
    columns: Vec<(FieldRef, usize)>,
}

impl Checker {
    /// A checker for a source whose columns have these names.
    pub fn new(layout: &Layout, names: &[String]) -> Result<Self, OpenError> {
        check_names(layout, names)?;
        let fields = layout.arrow().fields();
        let declared = &fields[1..fields.len() - 1];
        let columns = declared
            .iter()
            .filter_map(|field| Some((field.clone(), names.iter().position(|name| name == field.name())?)));
        Ok(Self { columns: columns.collect() })
    }

    /// The declared columns of a batch.
    pub fn columns(&self, batch: &RecordBatch) -> Result<Vec<ArrayRef>, Refused> {
        self.convert(batch).map_err(|why| match self.first_refused(batch) {
            Some((row, why)) => Refused::Row(row, why),
            None => Refused::Damaged(why),
        })
    }

    fn convert(&self, batch: &RecordBatch) -> Result<Vec<ArrayRef>, String> {
        let convert = |(field, place): &(FieldRef, usize)| {
            let array = conform::array(batch.column(*place), field)?;
            check(&array, field).map_err(|why| format!("the column {:?} {why}", field.name()))?;
            Ok(array)
        };
        self.columns.iter().map(convert).collect()
    }

    /// The first row that is refused: the batch up to it converts, and with it does not.
    fn first_refused(&self, batch: &RecordBatch) -> Option<(u64, String)> {
        let prefix = |rows: usize| {
            // A copy: a slice of a list still has all of its items.
            let indices = UInt64Array::from_iter_values(0..rows as u64);
            let prefix = take_record_batch(batch, &indices).map_err(|error| error.to_string())?;
            self.convert(&prefix).map(|_| ())
        };
        let (mut good, mut bad) = (0, batch.num_rows());
        while bad - good > 1 {
            let middle = good + (bad - good) / 2;
            if prefix(middle).is_ok() { good = middle } else { bad = middle }
        }
        let why = prefix(bad).err()?;
        Some((bad as u64 - 1, why))
    }
}

/// Checks what a type does not say.
fn check(array: &ArrayRef, field: &Field) -> Result<(), String> {
    if !field.is_nullable() && array.null_count() > 0 {
        return Err("is null, but may not be".to_owned());
    }
    if is_finite(array) && has_distinct_keys(array) {
        return Ok(());
    }
    Err(if is_finite(array) { "has a key twice".to_owned() } else { "is not a finite number".to_owned() })
}

/// Whether no number in it is infinite or NaN.
fn is_finite(array: &ArrayRef) -> bool {
    match array.data_type() {
        // What a null hides is mostly zero. If it is not, look closer.
        DataType::Float32 => {
            let values = array.as_primitive::<Float32Type>();
            all(values.values(), |value| value.is_finite()) || values.iter().flatten().all(f32::is_finite)
        }
        DataType::Float64 => {
            let values = array.as_primitive::<Float64Type>();
            all(values.values(), |value| value.is_finite()) || values.iter().flatten().all(f64::is_finite)
        }
        DataType::Struct(_) => array.as_struct().columns().iter().all(is_finite),
        DataType::List(_) => is_finite(array.as_list::<i32>().values()),
        DataType::Map(_, _) => is_finite(array.as_map().values()),
        _ => true,
    }
}

/// Whether all values pass. Without an early end, so that it becomes vector instructions.
fn all<T: Copy>(values: &[T], passes: impl Fn(T) -> bool) -> bool {
    values.chunks(1024).all(|chunk| chunk.iter().fold(true, |all, value| all & passes(*value)))
}

/// Whether no map in it has a key twice.
fn has_distinct_keys(array: &ArrayRef) -> bool {
    match array.data_type() {
        DataType::Struct(_) => array.as_struct().columns().iter().all(has_distinct_keys),
        DataType::List(_) => has_distinct_keys(array.as_list::<i32>().values()),
        DataType::Map(_, _) => {
            let map = array.as_map();
            let Some(keys) = map.keys().as_string_opt::<i32>() else { return true };
            let mut seen = HashSet::new();
            let distinct = map.offsets().windows(2).all(|ends| {
                seen.clear();
                (ends[0] as usize..ends[1] as usize).all(|place| seen.insert(keys.value(place)))
            });
            distinct && has_distinct_keys(map.values())
        }
        _ => true,
    }
}
