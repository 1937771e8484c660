//! One object at a time: reading, writing, deleting.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use super::ambient::Ambient;
use super::config::StoreConfig;
use super::error::StoreError;
use super::listing::Listing;
use super::s3::Bucket;
use super::uri::{self, Place};
use super::{local, s3};

/// The largest object that is read as a whole, in bytes.
pub(super) const MAX_WHOLE_BYTES: u64 = 512 << 20;

/// What is known of an object without reading it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// Its absolute URI.
    pub uri: String,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// When it was written, in milliseconds since 1970, by the store's clock.
    pub modified_ms: i64,
}

/// What became of a [`Store::put_if_absent`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placed {
    /// The object is there with the bytes given. An earlier attempt of the same write counts as this one.
    Ours,
    /// The object is there with other bytes.
    Taken,
}

/// Held by [`Store::lock`] until it is dropped.
#[derive(Debug)]
pub struct Lock {
    _held: Option<File>,
}

/// Objects by absolute URI: `file:///path` (or `/path`) and `s3://bucket/key`. Clones share their connections.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

struct Inner {
    config: StoreConfig,
    ambient: Ambient,
    buckets: Mutex<HashMap<String, Bucket>>,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("config", &self.inner.config).finish_non_exhaustive()
    }
}

impl Default for Store {
    fn default() -> Self {
        Self::new(StoreConfig::default())
    }
}

impl Store {
    /// A store with `config`, completed by the process's environment. Nothing is opened yet.
    #[must_use]
    pub fn new(config: StoreConfig) -> Self {
        Self::with_ambient(config, Ambient::of_process())
    }

    pub(super) fn with_ambient(config: StoreConfig, ambient: Ambient) -> Self {
        Self { inner: Arc::new(Inner { config, ambient, buckets: Mutex::default() }) }
    }

    /// A store that can open what is below `prefix`.
    ///
    /// # Errors
    /// When `prefix` is no URI of a store, or the settings for it cannot work. The store itself is not asked.
    pub fn open(config: &StoreConfig, prefix: &str) -> Result<Self, StoreError> {
        let store = Self::new(config.clone());
        if let Place::S3 { bucket, .. } = uri::parse(prefix)? {
            store.bucket(&bucket)?;
        }
        Ok(store)
    }

    /// The whole of an object, `None` if it is not there.
    ///
    /// # Errors
    /// When the store cannot say, the bucket is missing, or the object has more than 512 MiB.
    pub async fn get(&self, uri: &str) -> Result<Option<Bytes>, StoreError> {
        match uri::parse(uri)? {
            Place::Local(path) => blocking(move || local::get(&path)).await,
            Place::S3 { bucket, key } => self.bucket(&bucket)?.get(&key).await,
        }
    }

    /// The bytes `range` of an object.
    ///
    /// # Errors
    /// When the object is not there or shorter than that, or the store cannot be read.
    pub async fn get_range(&self, uri: &str, range: Range<u64>) -> Result<Bytes, StoreError> {
        match uri::parse(uri)? {
            Place::Local(path) => blocking(move || local::get_range(&path, &range)).await,
            Place::S3 { bucket, key } => self.bucket(&bucket)?.get_range(&key, range).await,
        }
    }

    /// What is known of an object, `None` if it is not there.
    ///
    /// # Errors
    /// When the store cannot say or the bucket is missing.
    pub async fn head(&self, uri: &str) -> Result<Option<Object>, StoreError> {
        match uri::parse(uri)? {
            Place::Local(path) => blocking(move || local::head(&path)).await,
            Place::S3 { bucket, key } => self.bucket(&bucket)?.head(&key).await,
        }
    }

    /// The size of an object in bytes, `None` if it is not there.
    ///
    /// # Errors
    /// As [`Store::head`].
    pub async fn size(&self, uri: &str) -> Result<Option<u64>, StoreError> {
        Ok(self.head(uri).await?.map(|object| object.size_bytes))
    }

    /// Writes an object whole, over what was there.
    ///
    /// # Errors
    /// When it was not written, or, [`StoreError::Ambiguous`], may have been.
    pub async fn put(&self, uri: &str, bytes: Bytes) -> Result<(), StoreError> {
        match uri::parse(uri)? {
            Place::Local(path) => blocking(move || local::put(&path, &bytes)).await,
            Place::S3 { bucket, key } => self.bucket(&bucket)?.put(&key, bytes).await,
        }
    }

    /// Writes an object that is not there yet. When the store's answer is lost, or says that something is there, the
    /// object is read and compared, so that a write which took effect counts even if it was answered with an error.
    ///
    /// # Errors
    /// When it was not written, or, [`StoreError::Ambiguous`], may have been and cannot be read either.
    pub async fn put_if_absent(&self, uri: &str, bytes: Bytes) -> Result<Placed, StoreError> {
        match uri::parse(uri)? {
            Place::Local(path) => {
                blocking(move || {
                    let created = local::put_if_absent(&path, &bytes)?;
                    let ours = created || local::get(&path)?.is_some_and(|there| there == bytes);
                    Ok(if ours { Placed::Ours } else { Placed::Taken })
                })
                .await
            }
            Place::S3 { bucket, key } => self.bucket(&bucket)?.put_if_absent(&key, bytes).await,
        }
    }

    /// Deletes an object. One that is not there is deleted already.
    ///
    /// # Errors
    /// When it may still be there.
    pub async fn delete(&self, uri: &str) -> Result<(), StoreError> {
        self.delete_many(&[uri.to_owned()]).await
    }

    /// Deletes objects, in no order. Those that are not there are deleted already. When this returns, a crash does not
    /// bring them back.
    ///
    /// # Errors
    /// At the first that may still be there; others may be gone.
    pub async fn delete_many(&self, uris: &[String]) -> Result<(), StoreError> {
        let mut paths: Vec<PathBuf> = Vec::new();
        let mut keys: HashMap<String, Vec<String>> = HashMap::new();
        for uri in uris {
            match uri::parse(uri)? {
                Place::Local(path) => paths.push(path),
                Place::S3 { bucket, key } => keys.entry(bucket).or_default().push(key),
            }
        }
        if !paths.is_empty() {
            blocking(move || local::delete(&paths)).await?;
        }
        for (bucket, keys) in keys {
            self.bucket(&bucket)?.delete(keys).await?;
        }
        Ok(())
    }

    /// Removes the directories below `prefix` that hold nothing, and `prefix`. Where there are only keys, nothing.
    ///
    /// # Errors
    /// When the file system refuses.
    pub async fn delete_empty_directories(&self, prefix: &str) -> Result<(), StoreError> {
        match uri::parse(prefix)? {
            Place::Local(path) => blocking(move || local::delete_empty_directories(&path)).await,
            Place::S3 { .. } => Ok(()),
        }
    }

    /// Waits until no other process of this machine holds the lock `uri`, and holds it until the value is dropped. On S3
    /// there are no locks, and nobody waits.
    ///
    /// # Errors
    /// When the file cannot be made or locked.
    pub async fn lock(&self, uri: &str) -> Result<Lock, StoreError> {
        match uri::parse(uri)? {
            Place::Local(path) => Ok(Lock { _held: Some(blocking(move || local::lock(&path)).await?) }),
            Place::S3 { .. } => Ok(Lock { _held: None }),
        }
    }

    /// Goes through all objects below the directory `prefix`, at any depth. Nothing is asked before the first page.
    ///
    /// # Errors
    /// When `prefix` is no URI of a store or the settings cannot work.
    pub fn list(&self, prefix: &str) -> Result<Listing, StoreError> {
        match uri::parse(prefix)? {
            Place::Local(path) => Ok(Listing::local(path)),
            Place::S3 { bucket, key } => self.bucket(&bucket)?.list(&key),
        }
    }

    pub(super) fn bucket(&self, name: &str) -> Result<Bucket, StoreError> {
        let mut buckets = self.inner.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bucket) = buckets.get(name) {
            return Ok(bucket.clone());
        }
        let bucket = s3::connect(name, &self.inner.config.s3, &self.inner.ambient)?;
        buckets.insert(name.to_owned(), bucket.clone());
        Ok(bucket)
    }
}

/// Runs what blocks where it may.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => Err(StoreError::Unavailable {
            action: "work on",
            uri: "local files".to_owned(),
            why: format!("the work was broken off ({error})"),
        }),
    }
}
