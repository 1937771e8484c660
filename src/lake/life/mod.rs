//! The life of a stream (docs/storage.md, "The life of a stream"): migrated, retired, revived, trimmed, restored.
//!
//! Each step has one moment at which it becomes true: the commit of the document, or, for a restore, the record in the
//! journal. What a crash leaves before that is as if nothing had happened, and what is left to do after it is done by
//! [`reconcile`] when the data root is opened, or by asking for the same step again.

mod delete;
mod error;
mod estate;
mod finish;
mod first_newer;
mod holes;
mod ingest;
mod ledger;
mod migrate;
mod moving;
mod plan;
mod reconcile;
mod recount;
mod report;
mod restore;
mod retain;
mod retire;
mod returned;
mod root;
mod time;

pub use delete::{Gone, delete_published};
pub use error::LifeError;
pub use estate::{Estate, Grounds, Moving};
pub use ingest::{Load, LoadError, Loaded, Loading};
pub use ledger::Ledger;
pub use migrate::{Migrated, migrate};
pub use moving::{LakeMoving, add};
pub use reconcile::{follow_files, reconcile};
pub use recount::{count_anew, forget_count};
pub use report::{FilesReport, LogReport, StreamReport};
pub use restore::{FENCE, Restored, Wanted, restore};
pub use retain::{Passed, preview, retain, retention_pass};
pub use retire::{retire, revive};
pub use root::{Chosen, Published, Root};

#[cfg(test)]
mod tests;
