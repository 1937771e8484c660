//! Where tables are kept: the local file system and S3, by absolute URI (docs/storage.md, "Object stores").

mod ambient;
mod config;
mod error;
mod listing;
mod local;
mod objects;
mod reason;
mod s3;
mod transfer;
mod uri;

pub use config::{S3Config, Secret, StoreConfig};
pub use error::StoreError;
pub use listing::Listing;
pub use objects::{Lock, Object, Placed, Store};
