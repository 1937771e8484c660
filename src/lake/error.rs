//! Why a stream's metadata documents cannot be written.

use std::path::PathBuf;

use super::store::StoreError;

/// Why a stream's metadata documents cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum LakeError {
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
    /// The path cannot be written in a document.
    #[error("the data root {} cannot be named in metadata documents, because its path {why}; choose another", .root.display())]
    Root {
        /// The data root.
        root: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A document is there and does not make sense.
    #[error("the metadata document {} is damaged: {what}; restore it from a backup", .path.display())]
    Damaged {
        /// The document.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// A document is there and belongs to another stream, or to an earlier one of the same name.
    #[error(
        "the metadata document {} describes the stream with {what} {found}, but the journal records {recorded}; restore the journal that belongs to it, or move the directory away",
        .path.display()
    )]
    Foreign {
        /// The document.
        path: PathBuf,
        /// What differs.
        what: &'static str,
        /// As the document has it.
        found: String,
        /// As the journal has it.
        recorded: String,
    },
    /// Another version was committed in between.
    #[error("the metadata document of stream {stream:?} was changed by somebody else meanwhile; try again")]
    Changed {
        /// The stream.
        stream: String,
    },
    /// Tables are in a bucket and there is no way to it.
    #[error("the tables of stream {stream:?} are in a bucket, and no object store is set up")]
    NoStore {
        /// The stream.
        stream: String,
    },
    /// A prefix that readers cannot open.
    #[error("the published location {prefix:?} {why}")]
    Prefix {
        /// As it was declared.
        prefix: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The tables are elsewhere.
    #[error(
        "stream {stream:?} is declared to publish to {declared}, but its tables are at {recorded}, where they stay for its life"
    )]
    Elsewhere {
        /// The stream.
        stream: String,
        /// As it was declared, with the stream's name.
        declared: String,
        /// Where the tables are.
        recorded: String,
    },
    /// The data root was moved after tables had been written.
    #[error(
        "the data root of stream {stream:?} was at {} and is now at {}, but its tables name their files by absolute paths; move it back, or make the old path lead here",
        .was.display(),
        .is.display()
    )]
    Moved {
        /// The stream.
        stream: String,
        /// Where the root was.
        was: PathBuf,
        /// Where it is.
        is: PathBuf,
    },
    /// A bucket cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl LakeError {
    /// Whether a bucket was only not to be reached: the next attempt may succeed without anybody doing anything.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Store(error) if error.is_transient())
    }
}
