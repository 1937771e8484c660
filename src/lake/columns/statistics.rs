//! What is known of the columns of a whole log, put together from its files (docs/storage.md).

use arrow::datatypes::DataType;

use super::layout::{Layout, OFFSET_COLUMN};
use crate::lake::{ColumnStats, DataFile};

/// A value of a column that readers can rule out whole logs by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scalar {
    /// Of a boolean column.
    Bool(bool),
    /// Of a 32-bit integer column.
    Int32(i32),
    /// Of a 64-bit integer column.
    Int64(i64),
    /// Of a 32-bit float column.
    Float32(f32),
    /// Of a double column.
    Float64(f64),
}

/// One row of the manifest: what is known of a log.
#[derive(Debug, Clone, PartialEq)]
pub struct LogStatistics {
    /// The log's name.
    pub log: String,
    /// Its first offset.
    pub start_offset: i64,
    /// The offset after its last; none if it is still written.
    pub end_offset: Option<i64>,
    /// How many rows its table has; none if that is not known.
    pub record_count: Option<i64>,
    /// What is known of its columns. One that is missing is not known, and rules out nothing.
    pub columns: Vec<ColumnRange>,
}

/// What is known of one column of a log.
#[derive(Debug, Clone, PartialEq)]
pub struct ColumnRange {
    /// Its name.
    pub name: String,
    /// Its type: one that has a [`Scalar`].
    pub data_type: DataType,
    /// Its lowest and highest value; none if all are null.
    pub range: Option<(Scalar, Scalar)>,
    /// How many are null.
    pub nulls: i64,
    /// How many there are, nulls included.
    pub values: i64,
}

impl Scalar {
    /// From Iceberg's single-value form.
    fn from_bytes(data_type: &DataType, bytes: &[u8]) -> Option<Self> {
        Some(match data_type {
            DataType::Boolean => Self::Bool(*bytes.first()? != 0),
            DataType::Int32 => Self::Int32(i32::from_le_bytes(bytes.try_into().ok()?)),
            DataType::Int64 => Self::Int64(i64::from_le_bytes(bytes.try_into().ok()?)),
            DataType::Float32 => Self::Float32(f32::from_le_bytes(bytes.try_into().ok()?)),
            DataType::Float64 => Self::Float64(f64::from_le_bytes(bytes.try_into().ok()?)),
            _ => return None,
        })
    }

    fn below(self, other: Self) -> bool {
        match (self, other) {
            (Self::Bool(a), Self::Bool(b)) => !a & b,
            (Self::Int32(a), Self::Int32(b)) => a < b,
            (Self::Int64(a), Self::Int64(b)) => a < b,
            (Self::Float32(a), Self::Float32(b)) => a.total_cmp(&b).is_lt(),
            (Self::Float64(a), Self::Float64(b)) => a.total_cmp(&b).is_lt(),
            _ => false,
        }
    }
}

/// Whether columns of this type are in the manifest.
pub(super) fn is_prunable(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Boolean | DataType::Int32 | DataType::Int64 | DataType::Float32 | DataType::Float64)
}

/// What `files`, which are all of a log's, say of it.
#[must_use]
pub fn log_statistics(
    layout: &Layout,
    log: &str,
    start_offset: i64,
    end_offset: Option<i64>,
    files: &[DataFile],
) -> LogStatistics {
    let fields = layout.arrow().fields().iter().enumerate();
    let known = fields.filter(|(_, field)| field.name() != OFFSET_COLUMN && is_prunable(field.data_type()));
    let columns = known.filter_map(|(place, field)| {
        let mut column = ColumnRange {
            name: field.name().clone(),
            data_type: field.data_type().clone(),
            range: None,
            nulls: 0,
            values: 0,
        };
        let id = Layout::field_id(place);
        files.iter().try_for_each(|file| column.take(file.columns.iter().find(|stats| stats.field_id == id)?))?;
        Some(column)
    });
    LogStatistics {
        log: log.to_owned(),
        start_offset,
        end_offset,
        record_count: Some(files.iter().map(|file| file.rows as i64).sum()),
        columns: columns.collect(),
    }
}

impl ColumnRange {
    /// Takes in a file; none if it does not say enough, and then nothing is known.
    fn take(&mut self, stats: &ColumnStats) -> Option<()> {
        self.nulls = self.nulls.checked_add(i64::try_from(stats.nulls).ok()?)?;
        self.values = self.values.checked_add(i64::try_from(stats.values).ok()?)?;
        if stats.nulls >= stats.values {
            return Some(());
        }
        let lower = Scalar::from_bytes(&self.data_type, stats.lower.as_deref()?)?;
        let upper = Scalar::from_bytes(&self.data_type, stats.upper.as_deref()?)?;
        self.range = Some(match self.range {
            None => (lower, upper),
            Some((lowest, highest)) => {
                (if lower.below(lowest) { lower } else { lowest }, if highest.below(upper) { upper } else { highest })
            }
        });
        Some(())
    }
}
