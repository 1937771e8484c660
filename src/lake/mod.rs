//! What a durable stream shows of itself on disk for other programs: its metadata documents.
//!
//! Readers such as the Python client's snapshots start from these documents and find the published tables
//! through them. A stream has its documents from its creation on, before anything is published.

pub mod catalog;
pub mod columns;
mod data_file;
pub mod documents;
mod error;
pub mod life;
pub mod mover;
pub mod steps;
pub mod store;
pub mod table;

pub use data_file::{ColumnStats, DataFile};
pub use error::LakeError;
