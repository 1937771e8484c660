//! What is sealed: the files of every log and how far each is sealed and published, in `<root>/lake.db`.
//!
//! The journal holds the rows that are not in a file yet, the Iceberg table what readers see; this is the truth about
//! the files in between (docs/storage.md). Every change is one synced transaction, and readers work with immutable
//! views, so that a replay never waits for a merge.

mod error;
mod purges;
mod rows;
mod sql;
mod store;
mod trash;
mod view;

pub use error::CatalogError;
pub use sql::CATALOG_FILE;
pub use store::{Catalog, Intent, NewFile, NewLog};
pub use trash::Trash;
pub use view::{LogId, LogView, SealedFile, Tier};

#[cfg(test)]
mod tests;
