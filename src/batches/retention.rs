//! How long the rows of a stream are kept, seen and set while it is served.

use std::sync::Arc;
use std::time::Duration;

use super::error::ApiError;
use super::service::{Service, Stream};

/// How long rows are kept, and what is cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// How long a row is kept, in microseconds; for ever if absent.
    pub max_age_us: Option<i64>,
    /// The first offset that is kept.
    pub first_offset: i64,
    /// The floor below which files are going to be deleted, and when it was set, in microseconds.
    pub pending: Option<(i64, i64)>,
}

impl Service {
    /// How long the rows of a stream are kept.
    ///
    /// # Errors
    /// 503 when its documents cannot be read.
    pub async fn retention(&self, stream: &Arc<Stream>) -> Result<Retention, ApiError> {
        let (directory, stream) = (self.directory(), Arc::clone(stream));
        self.apart(move || directory.retention(&stream.served)).await
    }

    /// Sets how long the rows of a stream are kept; for ever with `None`. What is too old is cut off soon.
    ///
    /// # Errors
    /// 409 for a stream whose whole history is guarded, 503 when its documents cannot be written.
    pub async fn retain(&self, stream: &Arc<Stream>, max_age: Option<Duration>) -> Result<Retention, ApiError> {
        let max_age_us = max_age.map(|age| i64::try_from(age.as_micros()).unwrap_or(i64::MAX));
        let (directory, stream) = (self.directory(), Arc::clone(stream));
        self.changing(move || {
            directory.retain(&stream.served, max_age_us)?;
            directory.retention(&stream.served)
        })
        .await
    }
}
