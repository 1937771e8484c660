//! The Iceberg table of one log (docs/storage.md, "Published tables").

mod append;
mod commit;
mod delete;
mod document;
mod error;
mod expire;
mod history;
mod index;
mod live;
mod manifests;
mod names;
mod properties;
mod purge;
mod replace;
mod snapshots;
mod spec;
mod sweep;
mod version;

pub use commit::{Commit, Committed};
pub use delete::{Deletion, delete_all, delete_unnamed};
pub use error::TableError;
pub use expire::{Expire, Expired};
pub use live::Table;
pub use properties::Retired;
pub use snapshots::SnapshotInfo;
pub use spec::TableSpec;
pub use sweep::{Sweep, Swept};

#[cfg(test)]
mod tests;
