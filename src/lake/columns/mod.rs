//! Rows as columns: from the canonical lines of the journal to Parquet files, and back to the same lines.
//!
//! Everything here is synchronous and bounded in memory. A [`Layout`] says which columns a log's files have; a
//! [`Sealer`] writes lines to a file of that layout, and [`FileRows`] reads them, or those that another program wrote.

mod bounds;
mod build;
mod conform;
mod describe;
mod encodings;
mod error;
mod facts;
mod guard;
pub mod ingest;
mod ipc;
mod layout;
mod manifest;
mod merge;
mod omit;
mod open;
mod ordered;
mod plan;
mod print;
mod read;
mod rows;
mod scan;
mod seal;
mod sort;
mod source;
mod statistics;
#[cfg(test)]
mod tests;
mod unnamed;
mod write;

pub use error::ColumnsError;
pub use ipc::IpcLines;
pub use layout::{ENCODING_KEY, Layout, MAX_TABLE_NESTING, OFFSET_COLUMN, OFFSET_ID, STAMP_COLUMN};
pub use manifest::{read_manifest_parquet, write_manifest_parquet};
pub use merge::merge;
pub use omit::{Remainder, omit};
pub use read::{FileRows, StoredRow, describe, first_offset_after, offset_runs};
pub use seal::Sealer;
pub use source::{ReadRange, Source};
pub use statistics::{ColumnRange, LogStatistics, Scalar, log_statistics};
pub use unnamed::Unnamed;
pub use write::{FileName, UNFINISHED_SUFFIX, WriteOptions};
