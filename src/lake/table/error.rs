//! Why a table cannot be read or changed.

use crate::lake::store::StoreError;

/// Why a table cannot be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What is there does not make sense.
    #[error("the table file {uri} is damaged: {what}; restore it from a backup")]
    Damaged {
        /// The file.
        uri: String,
        /// What is wrong with it.
        what: String,
    },
    /// The table has something in it that this program does not write and cannot carry on.
    #[error("the table {location} {what}; it was written by another program and can only be read by others")]
    Foreign {
        /// The table.
        location: String,
        /// What it has.
        what: String,
    },
    /// A table that is to be created is there.
    #[error("a table exists at {location}; open it, or choose another place")]
    Exists {
        /// The table.
        location: String,
    },
    /// There is no table.
    #[error("there is no table at {location}")]
    Missing {
        /// Where it would be.
        location: String,
    },
    /// The description of a table cannot be used.
    #[error("the table {location} cannot be created: {why}")]
    Spec {
        /// The table.
        location: String,
        /// What is wrong with the description.
        why: String,
    },
    /// The files of a commit do not fit the table. Nothing was changed.
    #[error("{uri} with offsets {start} to {end} does not fit the table {location}: {why}")]
    Misfit {
        /// The file.
        uri: String,
        /// Its first offset.
        start: i64,
        /// The offset after its last.
        end: i64,
        /// The table.
        location: String,
        /// What is wrong.
        why: String,
    },
    /// Others change the table at the same time.
    #[error(
        "the table {location} was changed by another writer {times} times in a row; stop the other server of this stream"
    )]
    Contended {
        /// The table.
        location: String,
        /// How often.
        times: usize,
    },
    /// A later server of the stream has written to the table.
    #[error("the table {location} belongs to a later server of the stream (epoch {found}, here {ours}); stop this one")]
    Fenced {
        /// The table.
        location: String,
        /// The epoch that the table records.
        found: u64,
        /// The epoch of the commit.
        ours: u64,
    },
    /// A table may only be deleted when its log is finished.
    #[error(
        "the table {location} is not marked as retired (property litelink.retired), so it is not deleted; retire its log first"
    )]
    NotRetired {
        /// The table.
        location: String,
    },
    /// There is no such snapshot, or no longer.
    #[error("the table {location} has no snapshot {snapshot_id}; it may have expired")]
    NoSnapshot {
        /// The table.
        location: String,
        /// The snapshot.
        snapshot_id: i64,
    },
    /// The library of the format refused.
    #[error("cannot {action} of the table {location}: {source}")]
    Format {
        /// What was being done.
        action: &'static str,
        /// The table.
        location: String,
        /// What the library said.
        source: Box<iceberg::Error>,
    },
}

impl TableError {
    /// Whether the same call may succeed later without anybody doing anything.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Store(error) => error.is_transient(),
            Self::Contended { .. } => true,
            _ => false,
        }
    }

    pub(super) fn format(action: &'static str, location: &str) -> impl FnOnce(iceberg::Error) -> Self + use<> {
        let location = location.to_owned();
        move |source| Self::Format { action, location, source: Box::new(source) }
    }
}
