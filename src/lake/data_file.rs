//! A sealed Parquet file as the catalog, the table and the replay know it.

use serde::{Deserialize, Serialize};

/// One immutable Parquet file: the rows of `[start, end)` of one log, in full.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataFile {
    /// Where it is: `file:///absolute/path` (raw, not percent-encoded) or `s3://bucket/key`.
    pub uri: String,
    /// The offset of its first row.
    pub start: i64,
    /// The offset after its last row.
    pub end: i64,
    /// How many rows it has: `end - start` less the offsets that were skipped.
    pub rows: u64,
    /// Its exact size in bytes.
    pub size_bytes: u64,
    /// The lowest and the highest `streamcast_ts` in it, in microseconds.
    pub ts_us: (i64, i64),
    /// The byte positions at which its row groups start.
    pub split_offsets: Vec<i64>,
    /// What is known of its columns, nested leaves included, by field id.
    pub columns: Vec<ColumnStats>,
}

/// Statistics of one leaf column of a file, as an Iceberg manifest has them (docs/storage.md).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ColumnStats {
    /// The Iceberg field id of the leaf.
    pub field_id: i32,
    /// Compressed bytes in the file.
    pub size_bytes: u64,
    /// Values, nulls included.
    pub values: u64,
    /// Nulls.
    pub nulls: u64,
    /// Lower bound in Iceberg's single-value form; top-level primitives only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lower: Option<Vec<u8>>,
    /// Upper bound, inclusive, in Iceberg's single-value form; top-level primitives only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upper: Option<Vec<u8>>,
}
