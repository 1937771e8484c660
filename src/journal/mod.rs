//! The journal: one SQLite database per data root, written by one thread with one sync per group of frames.
//!
//! - [`open`] takes the data root and recovers; [`Journal::declare`] records streams; [`Journal::start`]
//!   hands everything to the writer thread.
//! - The writer takes all frames that are queued, commits them in one transaction over all streams, and only
//!   then encodes and delivers them ([`CommitSink`]).
//! - [`reader`] reads rows back for replays, on threads and connections of its own.
//!
//! The journal knows rows as lines of bytes; it does not look into them.

mod adopt;
mod archive;
mod awake;
mod change;
mod checkpoint;
mod encode;
mod erase;
mod error;
mod evict;
mod gather;
mod holes;
mod insert;
mod job;
mod lock;
mod office;
mod page;
mod plan;
mod purge;
pub mod reader;
mod receipts;
mod records;
mod registry;
mod rows;
mod scan;
mod settings;
mod sql;
mod stamps;
mod store;
mod succession;
mod thread;
mod together;
mod writer;

pub use adopt::Adopted;
pub use archive::{Archive, NoArchive};
pub use change::Deleted;
pub use erase::{Erased, Marker};
pub use error::JournalError;
pub use insert::Insert;
pub use job::{Append, ClaimRef, CommitSink, GroupCommit, Job, Outcome};
pub use lock::{LOCK_FILE, RootLock};
pub use office::{Errand, Office};
pub use receipts::{Keyed, MAX_RECEIPTS, Operation, RECEIPT_KEPT_US, Receipt};
pub use registry::{Journal, Recorded, open};
pub use rows::RowReader;
pub use settings::JournalSettings;
pub use sql::JOURNAL_FILE;
pub use writer::{JobSender, Writer};

pub use crate::stream::record::{StreamRecord, StreamSpec};

#[cfg(test)]
mod tests;
