//! Why the journal cannot be opened, changed or stopped.

use std::path::PathBuf;

use crate::stream::name::NameError;

/// Why the journal cannot be opened, changed or stopped. Failures of single transactions are no errors of
/// this kind: they are answered to the publishers as [`crate::journal::Outcome::CommitFailed`].
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The journal cannot be asked at the moment.
    #[error("the journal cannot be changed now: {why}")]
    Unavailable {
        /// Why.
        why: String,
    },
    /// A stream of that name is there and has rows.
    #[error("the journal has a stream {name:?} with rows already; move its data root away first")]
    Taken {
        /// The name.
        name: String,
    },
    /// Another process serves this data root.
    #[error(
        "the data root {} is in use by process {holder}: one process serves a data root at a time; stop that \
         process or choose another root",
        .root.display()
    )]
    InUse {
        /// The data root.
        root: PathBuf,
        /// The process that holds it, `unknown` if it did not say.
        holder: String,
    },
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
    /// SQLite refused.
    #[error("cannot {action} in the journal {}: {source}", .path.display())]
    Sql {
        /// What was being done.
        action: &'static str,
        /// The journal's file.
        path: PathBuf,
        /// What SQLite said.
        source: rusqlite::Error,
    },
    /// The file is a database of something else.
    #[error(
        "{} is not a journal of streamcast-uring (application id {found:#x}); move it away or choose another root",
        .path.display()
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The application id it carries.
        found: i32,
    },
    /// The journal was written by a newer version.
    #[error(
        "the journal {} has format {found} and this version knows formats up to {known}; run the version that wrote it",
        .path.display()
    )]
    Newer {
        /// The journal's file.
        path: PathBuf,
        /// Its format.
        found: i32,
        /// The newest format known here.
        known: i32,
    },
    /// What the journal holds contradicts itself.
    #[error("the journal {} is damaged: {what}; restore it from a backup", .path.display())]
    Damaged {
        /// The journal's file.
        path: PathBuf,
        /// What does not fit, with the stream's name.
        what: String,
    },
    /// The name cannot be a directory.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The declaration differs from what is recorded.
    #[error(
        "stream {name:?} is declared with {what} {declared}, but the journal records {recorded}; declare it as \
         recorded, migrate it (schema and sort_by: `migrate`), or give the new declaration another name"
    )]
    Differs {
        /// The stream.
        name: String,
        /// What differs: `schema`, `sort_by` or `exactly_once`.
        what: &'static str,
        /// As declared.
        declared: String,
        /// As recorded.
        recorded: String,
    },
    /// A log cannot be closed while rows of it are in the journal.
    #[error("stream {name:?} has rows from offset {first} on in the journal; seal them first")]
    RowsLeft {
        /// The stream.
        name: String,
        /// The first of them.
        first: i64,
    },
    /// No such stream in this journal.
    #[error("the journal records no stream with the number {stream}")]
    Unknown {
        /// The number asked for.
        stream: u32,
    },
    /// The offset space is used up.
    #[error("stream {name:?} has no room for {rows} more offsets")]
    OffsetsExhausted {
        /// The stream.
        name: String,
        /// How many were asked for.
        rows: u64,
    },
    /// A thread did not start.
    #[error("cannot start the thread {name}: {source}")]
    Thread {
        /// The thread's name.
        name: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The writer did not finish in time.
    #[error("the writer did not commit what was queued within {seconds:.1} s")]
    StopTimeout {
        /// The time it was given.
        seconds: f64,
    },
    /// The writer thread panicked; what was queued was not committed.
    #[error("the writer thread panicked; restart the process")]
    WriterPanicked,
}
