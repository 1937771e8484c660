//! Why a bulk source is refused.

use std::path::PathBuf;

use super::super::ColumnsError;

/// Why a bulk source is refused.
#[derive(Debug, thiserror::Error)]
pub enum IngestError {
    /// The file system refused.
    #[error("cannot {action} {}: {source}", .path.display())]
    Io {
        /// What was being done.
        action: &'static str,
        /// To which file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// It is in no format that is known, or damaged.
    #[error("cannot read {}: {why}", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// Its columns are not those of the stream.
    #[error("the columns of {} do not fit the stream: {why}", .path.display())]
    Columns {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// One of its rows does not fit the stream.
    #[error("row {row} of {} does not fit the stream: {why}", .path.display())]
    Row {
        /// The file.
        path: PathBuf,
        /// Which row, counted from 1.
        row: u64,
        /// What is wrong with it.
        why: String,
    },
    /// What was read cannot be written.
    #[error(transparent)]
    Write(#[from] ColumnsError),
}
