//! Why rows cannot be moved.

use crate::journal::JournalError;
use crate::lake::catalog::CatalogError;
use crate::lake::columns::ColumnsError;
use crate::lake::store::StoreError;
use crate::lake::table::TableError;

/// Why rows cannot be moved. What was done until then is complete in itself, and the next attempt goes on from there.
#[derive(Debug, thiserror::Error)]
pub enum MoverError {
    /// The journal.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The catalog.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// A Parquet file.
    #[error(transparent)]
    Columns(#[from] ColumnsError),
    /// The Iceberg table.
    #[error(transparent)]
    Table(#[from] TableError),
    /// The store of the table.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Rows that were acknowledged are not there.
    #[error(
        "stream {stream:?} has no rows from offset {from} to {to} in the journal, and they are not sealed; restore the \
         journal from a backup"
    )]
    RowsMissing {
        /// The stream.
        stream: String,
        /// The first of them.
        from: i64,
        /// The offset after the last of them.
        to: i64,
    },
    /// A merged file is not what its parts were.
    #[error("merging {parts} files of log {log:?} from offset {start} to {end} gave {what}; nothing was changed")]
    Merge {
        /// The log.
        log: String,
        /// The first offset.
        start: i64,
        /// The offset after the last.
        end: i64,
        /// How many files.
        parts: usize,
        /// What is wrong.
        what: String,
    },
    /// The published location cannot be used.
    #[error("the published location {location:?} of stream {stream:?} {why}")]
    Location {
        /// The stream.
        stream: String,
        /// The location.
        location: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// No such stream here.
    #[error("stream {0:?} has no log in this lake; declare it first")]
    Unknown(String),
    /// The file system refused.
    #[error("cannot {action} {}: {source}", .path.display())]
    Io {
        /// What was being done.
        action: &'static str,
        /// To which file or directory.
        path: std::path::PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The stream's documents.
    #[error("the documents of the stream: {0}")]
    Documents(String),
    /// Background work did not come to its end.
    #[error("background work broke off: {0}")]
    Broken(String),
}

impl MoverError {
    /// What went wrong with the stream's documents, or with what they say.
    pub(super) fn documents(error: impl std::fmt::Display) -> Self {
        Self::Documents(error.to_string())
    }
}

impl MoverError {
    /// Whether the next attempt may succeed without anybody doing anything.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Table(error) => error.is_transient(),
            Self::Store(error) => error.is_transient(),
            _ => false,
        }
    }
}
