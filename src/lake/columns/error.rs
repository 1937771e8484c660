//! Why rows do not become columns, or columns rows.

use std::path::{Path, PathBuf};

use parquet::errors::ParquetError;

/// Why a Parquet file cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum ColumnsError {
    /// The schema has no form as a table.
    #[error("the schema cannot be a table: {0}")]
    Layout(String),
    /// A table's or document's description of its columns makes no sense here.
    #[error("the recorded columns cannot be used: {0}")]
    Recorded(String),
    /// The file system refused.
    #[error("cannot {action} {}: {source}", .path.display())]
    Io {
        /// What was being done.
        action: &'static str,
        /// To which file or directory.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A stored line is not the canonical text of a row of this schema.
    #[error("the row at offset {offset} is damaged: {why}; restore the journal from a backup")]
    Line {
        /// The offset of the row.
        offset: i64,
        /// Where and what is wrong.
        why: String,
    },
    /// Rows do not come in the order of their offsets.
    #[error("the row at offset {offset} comes after that at offset {after}; offsets of a file must rise")]
    Order {
        /// The offset of the row.
        offset: i64,
        /// The offset of the one before it.
        after: i64,
    },
    /// A file without rows is never written.
    #[error("a file needs at least one row")]
    Empty,
    /// Parquet could not be written.
    #[error("cannot write {}: {source}", .path.display())]
    Write {
        /// The file being written.
        path: PathBuf,
        /// What the library said.
        source: ParquetError,
    },
    /// A file is damaged, or is none of ours.
    #[error("cannot read {file}: {why}")]
    File {
        /// Its path or URI.
        file: String,
        /// What is wrong with it.
        why: String,
    },
}

impl ColumnsError {
    pub(super) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }

    pub(super) fn write(path: &Path) -> impl FnOnce(ParquetError) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::Write { path, source }
    }

    pub(super) fn file(file: &str, why: impl std::fmt::Display) -> Self {
        Self::File { file: file.to_owned(), why: why.to_string() }
    }
}
