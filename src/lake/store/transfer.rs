//! Whole files to and from a store, in bounded memory.

use std::path::Path;

use super::error::StoreError;
use super::local;
use super::objects::{Store, blocking};
use super::uri::{self, Place};

impl Store {
    /// Copies the local file `from` to `uri`, over what was there, and returns its size in bytes. A large file goes to
    /// S3 in parts, of which a few are in memory; afterwards the size over there is compared.
    ///
    /// # Errors
    /// When the file cannot be read, or the object was not written, or, [`StoreError::Ambiguous`], may have been.
    pub async fn upload(&self, from: &Path, uri: &str) -> Result<u64, StoreError> {
        let from = from.to_owned();
        match uri::parse(uri)? {
            Place::Local(to) => blocking(move || local::copy(&from, &to)).await,
            Place::S3 { bucket, key } => self.bucket(&bucket)?.upload(&from, &key).await,
        }
    }

    /// Copies the object `uri` to the local file `to`, which has the whole of it or is not touched, and returns its
    /// size in bytes.
    ///
    /// # Errors
    /// When the object is not there or cannot be read, or the file cannot be written.
    pub async fn download(&self, uri: &str, to: &Path) -> Result<u64, StoreError> {
        let to = to.to_owned();
        match uri::parse(uri)? {
            Place::Local(from) => {
                let uri = uri.to_owned();
                blocking(move || match local::head(&from)? {
                    Some(_) => local::copy(&from, &to),
                    None => Err(StoreError::NotFound { uri }),
                })
                .await
            }
            Place::S3 { bucket, key } => self.bucket(&bucket)?.download(&key, &to).await,
        }
    }
}
