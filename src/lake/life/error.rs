//! Why a step in the life of a stream cannot be made.

use crate::journal::JournalError;
use crate::lake::LakeError;
use crate::lake::catalog::CatalogError;
use crate::lake::columns::ColumnsError;
use crate::lake::columns::ingest::IngestError;
use crate::lake::mover::MoverError;
use crate::lake::store::StoreError;
use crate::lake::table::TableError;

/// Why a step in the life of a stream cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum LifeError {
    /// The journal.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The documents.
    #[error(transparent)]
    Lake(#[from] LakeError),
    /// There is no such stream in the data root.
    #[error("there is no stream {stream:?} in the data root; `streams` lists what there is")]
    NoStream {
        /// The stream.
        stream: String,
    },
    /// It gets no more rows.
    #[error("stream {stream:?} is retired; take it up again with `revive` first")]
    Retired {
        /// The stream.
        stream: String,
    },
    /// There is nothing to revive.
    #[error("stream {stream:?} is not retired, so there is nothing to revive")]
    NotRetired {
        /// The stream.
        stream: String,
    },
    /// The columns are refused.
    #[error("the schema for stream {stream:?} is refused: {why}")]
    Schema {
        /// The stream.
        stream: String,
        /// Why.
        why: String,
    },
    /// It cannot be sorted so.
    #[error("stream {stream:?} cannot be sorted by {column:?}, which {why}; choose the columns with --sort-by")]
    SortBy {
        /// The stream.
        stream: String,
        /// The column.
        column: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A column would get another type.
    #[error(
        "column {column:?} of stream {stream:?} has the type {before} in log {log:?} and cannot become {after}: readers \
         put all logs together, so a type is for life; use another name"
    )]
    TypeChange {
        /// The stream.
        stream: String,
        /// The column.
        column: String,
        /// A log that has it.
        log: String,
        /// Its type there.
        before: String,
        /// The type asked for.
        after: String,
    },
    /// Tables.
    #[error(transparent)]
    Table(#[from] TableError),
    /// The store of the tables.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The files of logs.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// Rows as columns.
    #[error(transparent)]
    Columns(#[from] ColumnsError),
    /// Rows cannot be moved.
    #[error(transparent)]
    Mover(#[from] MoverError),
    /// A source of a bulk load.
    #[error(transparent)]
    Ingest(#[from] IngestError),
    /// Work was broken off.
    #[error("the rows of stream {stream:?} cannot be moved into its table: {why}")]
    Moving {
        /// The stream.
        stream: String,
        /// Why.
        why: String,
    },
    /// The table does not have what it should.
    #[error("the table {location} has {published} rows, and {sealed} are sealed; nothing was changed, try again")]
    Short {
        /// The table.
        location: String,
        /// Its rows.
        published: u64,
        /// The rows of all files.
        sealed: u64,
    },
    /// A finished log has no table.
    #[error("there is no table at {location}, although the log is finished; bring it back, or move the document away")]
    NoTable {
        /// Where it should be.
        location: String,
    },
    /// Nothing can be restored from there.
    #[error("there is no metadata document of stream {stream:?} at {published} or below it; nothing was restored")]
    NothingThere {
        /// The stream.
        stream: String,
        /// Where it was looked for.
        published: String,
    },
    /// The stream is here.
    #[error("stream {stream:?} is in the data root already; a stream is restored where nothing of it is left")]
    Exists {
        /// The stream.
        stream: String,
    },
    /// It ended before it was lost.
    #[error("stream {stream:?} is retired; say `--revive` to take it up again")]
    RetiredThere {
        /// The stream.
        stream: String,
    },
    /// A table is not what the document says.
    #[error("the table {location} cannot be taken up: {why}")]
    TableMisfit {
        /// The table.
        location: String,
        /// What is wrong.
        why: String,
    },
    /// A replica of the buffer is there.
    #[error(
        "there is a replica of the buffer of stream {stream:?} at {uri}, which cannot be read here: rows that were never \
         published are only in there. Restore it with the program that wrote it, or give them up with `--ignore-replica`"
    )]
    Replica {
        /// The stream.
        stream: String,
        /// Where it is.
        uri: String,
    },
    /// No offsets are left.
    #[error("the offsets of stream {stream:?} are used up")]
    Exhausted {
        /// The stream.
        stream: String,
    },
}
