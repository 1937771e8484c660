//! Why the catalog cannot be read or changed.

use std::path::PathBuf;

/// Why the catalog cannot be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// SQLite refused.
    #[error("cannot {action} in the catalog {}: {source}", .path.display())]
    Sql {
        /// What was being done.
        action: &'static str,
        /// The catalog's file.
        path: PathBuf,
        /// What SQLite said.
        source: rusqlite::Error,
    },
    /// The file is a database of something else, or of a newer version.
    #[error(
        "{} is no catalog that this version knows (application id {application_id:#x}, format {format}); run the \
         version that wrote it, or move the file away",
        .path.display()
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The application id it carries.
        application_id: i32,
        /// Its format.
        format: i32,
    },
    /// The log is not in the catalog.
    #[error("the catalog has no log {log:?} of stream {stream:?}")]
    NoLog {
        /// The stream.
        stream: String,
        /// The log.
        log: String,
    },
    /// A file does not fit to those that are there.
    #[error("a file with offsets {start} to {end} does not fit log {log:?}: {why}")]
    Misfit {
        /// The log.
        log: String,
        /// The first offset of the file.
        start: i64,
        /// The offset after its last one.
        end: i64,
        /// What is in the way.
        why: String,
    },
    /// A path that cannot be written down.
    #[error("the path of the file {} is not UTF-8", .0.display())]
    NotUtf8(PathBuf),
}
