//! How the columns of a file are encoded, judged by its first rows.
//!
//! A dictionary of values that hardly repeat is larger than the values, and looking every value up takes more time than
//! everything else that is done to it. So a column has one only if its first rows repeat enough. Later rows do not change
//! that: a dictionary that outgrows its page ends by itself, and values without one are compressed like all others.

use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};

use arrow::array::{Array, ArrayRef, AsArray as _, RecordBatch};
use arrow::datatypes::{DataType, Float32Type, Float64Type, Int32Type, Int64Type};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use parquet::schema::types::ColumnPath;

use super::layout::{OFFSET_COLUMN, STAMP_COLUMN};

/// Rows that are looked at, at most.
const SAMPLE_ROWS: usize = 16 << 10;

/// With fewer values than this every column gets its dictionary: there is nothing to judge by, and nothing to save.
const LEAST_VALUES: usize = 512;

/// The share of values that are different above which there is no dictionary.
const MOST_DIFFERENT: f64 = 0.75;

/// Bits of the sketch that values are counted with: four times as many as values, so that few of them meet.
const SKETCH_BITS: usize = 4 * SAMPLE_ROWS;

/// How a file is written that begins with the rows of `first`.
pub(super) fn properties(first: &RecordBatch) -> WriterProperties {
    let mut builder = WriterProperties::builder()
        .set_writer_version(WriterVersion::PARQUET_1_0)
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_dictionary_enabled(true)
        .set_statistics_enabled(EnabledStatistics::Chunk)
        // Lists and maps get the names that Parquet wants.
        .set_coerce_types(true)
        .set_created_by(concat!("streamcast-uring ", env!("CARGO_PKG_VERSION")).to_owned());
    let first = first.slice(0, first.num_rows().min(SAMPLE_ROWS));
    for (field, values) in first.schema_ref().fields().iter().zip(first.columns()) {
        // Offsets and stamps rise by little from row to row, which a dictionary would only hide.
        let rising = [OFFSET_COLUMN, STAMP_COLUMN].contains(&field.name().as_str());
        let path = ColumnPath::from(vec![field.name().clone()]);
        if matches!(field.data_type(), DataType::Int32 | DataType::Int64) {
            // Differences are never much larger than the numbers, and mostly smaller.
            builder = builder.set_column_encoding(path.clone(), Encoding::DELTA_BINARY_PACKED);
        }
        if rising || !repeats(values) {
            builder = builder.set_column_dictionary_enabled(path, false);
        }
    }
    builder.build()
}

/// Whether a dictionary pays: at most three quarters of the values are different. Of nested columns it is not known.
fn repeats(values: &ArrayRef) -> bool {
    // Nulls are not stored, and what stands in their places is mostly one value.
    let count = values.len() - values.null_count();
    if count < LEAST_VALUES {
        return true;
    }
    let hasher = BuildHasherDefault::<DefaultHasher>::default();
    let mut sketch = Sketch::new();
    match values.data_type() {
        DataType::Int32 => {
            values.as_primitive::<Int32Type>().values().iter().for_each(|value| sketch.number(*value as u64))
        }
        DataType::Int64 => {
            values.as_primitive::<Int64Type>().values().iter().for_each(|value| sketch.number(*value as u64));
        }
        DataType::Float32 => {
            values
                .as_primitive::<Float32Type>()
                .values()
                .iter()
                .for_each(|value| sketch.number(value.to_bits().into()));
        }
        DataType::Float64 => {
            values.as_primitive::<Float64Type>().values().iter().for_each(|value| sketch.number(value.to_bits()));
        }
        DataType::Utf8 => values.as_string::<i32>().iter().for_each(|text| sketch.hash(hasher.hash_one(text))),
        DataType::Binary => values.as_binary::<i32>().iter().for_each(|bytes| sketch.hash(hasher.hash_one(bytes))),
        DataType::FixedSizeBinary(_) => {
            values.as_fixed_size_binary().iter().for_each(|bytes| sketch.hash(hasher.hash_one(bytes)));
        }
        _ => return true,
    }
    sketch.different() <= count as f64 * MOST_DIFFERENT
}

/// Counts different values, about: each sets a bit, and the bits that are set tell how many there were.
struct Sketch(Vec<u64>);

impl Sketch {
    fn new() -> Self {
        Self(vec![0; SKETCH_BITS / 64])
    }

    #[inline]
    fn number(&mut self, value: u64) {
        // The finalizer of MurmurHash3: numbers that differ in any bits go to places that have nothing in common.
        let value = (value ^ (value >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        let value = (value ^ (value >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        self.hash(value ^ (value >> 33));
    }

    #[inline]
    fn hash(&mut self, hash: u64) {
        let bit = hash as usize % SKETCH_BITS;
        self.0[bit / 64] |= 1 << (bit % 64);
    }

    fn different(&self) -> f64 {
        let set: u32 = self.0.iter().map(|word| word.count_ones()).sum();
        let bits = SKETCH_BITS as f64;
        // What was meant for a bit that was set already counts as well. There are never as many values as bits.
        -bits * (1.0 - f64::from(set) / bits).ln()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{BooleanArray, Float64Array, Int64Array, StringArray};
    use arrow::datatypes::{Field, Schema};

    use super::*;

    #[test]
    fn different_values_are_counted_within_a_few_in_a_hundred() {
        for different in [1_u64, 100, 5_000, SAMPLE_ROWS as u64] {
            let (mut rising, mut spread, mut texts) = (Sketch::new(), Sketch::new(), Sketch::new());
            let hasher = BuildHasherDefault::<DefaultHasher>::default();
            for index in 0..SAMPLE_ROWS as u64 {
                let value = index % different;
                rising.number(1_700_000_000_000_000 + value);
                spread.number((value as f64 / 100.0).to_bits());
                texts.hash(hasher.hash_one(Some(value.to_string().as_str())));
            }
            for found in [rising.different(), spread.different(), texts.different()] {
                assert!((found / different as f64 - 1.0).abs() < 0.05, "{found} instead of {different}");
            }
        }
    }

    fn batch(rows: usize) -> RecordBatch {
        let fields = [
            (OFFSET_COLUMN, DataType::Int64),
            ("constant", DataType::Int64),
            ("number", DataType::Int64),
            ("label", DataType::Utf8),
            ("name", DataType::Utf8),
            ("price", DataType::Float64),
            ("amount", DataType::Float64),
            ("flag", DataType::Boolean),
            ("mostly null", DataType::Float64),
            (STAMP_COLUMN, DataType::Int64),
        ];
        let fields: Vec<Field> = fields.into_iter().map(|(name, kind)| Field::new(name, kind, true)).collect();
        let ints = |of: &dyn Fn(usize) -> usize| -> ArrayRef {
            Arc::new((0..rows).map(|row| Some(of(row) as i64)).collect::<Int64Array>())
        };
        let texts = |of: usize| -> ArrayRef {
            Arc::new((0..rows).map(|row| Some(format!("text {}", row % of))).collect::<StringArray>())
        };
        let floats = |of: usize| -> ArrayRef {
            Arc::new((0..rows).map(|row| Some((row % of) as f64 / 8.0)).collect::<Float64Array>())
        };
        let columns = vec![
            ints(&|row| row),
            ints(&|_| 7),
            ints(&|row| row * 137),
            texts(100),
            texts(usize::MAX),
            floats((rows / 2).max(1)),
            floats(usize::MAX),
            Arc::new((0..rows).map(|row| Some(row % 2 == 0)).collect::<BooleanArray>()),
            Arc::new((0..rows).map(|row| (row % 4 == 0).then_some(row as f64)).collect::<Float64Array>()),
            ints(&|row| row / 100),
        ];
        RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap()
    }

    #[test]
    fn dictionaries_are_for_what_repeats() {
        let dictionaries = |rows: usize| -> Vec<bool> {
            let batch = batch(rows);
            let properties = properties(&batch);
            let names = batch.schema_ref().fields().iter().map(|field| ColumnPath::from(vec![field.name().clone()]));
            names.map(|path| properties.dictionary_enabled(&path)).collect()
        };
        let judged = [false, true, false, true, false, true, false, true, false, false];
        assert_eq!(dictionaries(3 * SAMPLE_ROWS / 2), judged);
        assert_eq!(dictionaries(4 * LEAST_VALUES), judged);
        // A quarter of the values is too few to judge one column by.
        assert_eq!(dictionaries(LEAST_VALUES), [false, true, false, true, false, true, false, true, true, false]);
        assert_eq!(dictionaries(LEAST_VALUES - 1), [false, true, true, true, true, true, true, true, true, false]);
    }

    #[test]
    fn integers_are_stored_as_differences_where_they_are_not_in_a_dictionary() {
        let properties = properties(&batch(1));
        let encoding = |name: &str| properties.encoding(&ColumnPath::from(vec![name.to_owned()]));
        assert_eq!(encoding(OFFSET_COLUMN), Some(Encoding::DELTA_BINARY_PACKED));
        assert_eq!(encoding("number"), Some(Encoding::DELTA_BINARY_PACKED));
        assert_eq!(encoding("price"), None);
    }
}
