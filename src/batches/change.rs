//! Creating streams, changing their validators, deleting them.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use serde_json::Value;

use super::error::ApiError;
use super::name;
use super::service::{Check, Service, Stream};
use super::validator::Validator;
use crate::journal::Deleted;
use crate::session::now_us;

/// How long a step of background work that failed is left alone.
pub(super) const TRY_AGAIN: Duration = Duration::from_secs(30);

impl Service {
    /// Creates a stream and serves it.
    ///
    /// # Errors
    /// 400 for a name or validator that is none, 409 if the name is taken, 422 if the schema is none.
    pub async fn create(
        self: &Arc<Self>,
        name: &str,
        validator: Option<String>,
        schema: Option<Value>,
    ) -> Result<Arc<Stream>, ApiError> {
        if !name::is_name(name) {
            return Err(ApiError::new(
                400,
                "invalid_name",
                "a name begins with a letter or digit and goes on with letters, digits, _, . and -, 128 in all",
            ));
        }
        if let Some(source) = validator.clone() {
            self.compile(source).await?;
        }
        let (service, owned) = (Arc::clone(self), name.to_owned());
        Self::to_the_end(async move {
            let directory = service.directory();
            let served = service.changing(move || directory.create(&owned, schema.as_ref())).await?;
            let stream = service.find(&served.name)?;
            if validator.is_some() {
                // A crash before this leaves a stream without entries and without its validator; the answer is not given.
                service.set_validator(&stream, validator).await?;
            }
            Ok(stream)
        })
        .await
    }

    /// Gives a stream another validator, or none.
    ///
    /// # Errors
    /// 400 for one that does not compile.
    pub async fn set_validator(self: &Arc<Self>, stream: &Arc<Stream>, source: Option<String>) -> Result<(), ApiError> {
        let validator = match source.clone() {
            Some(source) => Some(self.compile(source).await?),
            None => None,
        };
        let (service, stream) = (Arc::clone(self), Arc::clone(stream));
        Self::to_the_end(async move { service.record_validator(&stream, source, validator).await }).await
    }

    async fn record_validator(
        &self,
        stream: &Stream,
        source: Option<String>,
        validator: Option<Validator>,
    ) -> Result<(), ApiError> {
        let (id, recorded) = (stream.journal_id, source.clone());
        let version = self.errand(move |office| office.set_validator(id, recorded.as_deref())).await?;
        self.recorded
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .validators
            .entry(id)
            .and_modify(|known| {
                if known.0 < version {
                    *known = (version, source.clone());
                }
            })
            .or_insert_with(|| (version, source.clone()));
        stream.set_check(Check { version, source, validator });
        Ok(())
    }

    /// The parser of expressions recurses, so it runs where there is a stack for it.
    async fn compile(&self, source: String) -> Result<Validator, ApiError> {
        self.apart(move || Validator::compile(&source)).await
    }

    /// Deletes a stream: out of service and out of its name at once, its storage later.
    ///
    /// # Errors
    /// 409 if others decide about the stream.
    pub async fn delete(self: &Arc<Self>, stream: &Arc<Stream>) -> Result<(), ApiError> {
        let (service, stream) = (Arc::clone(self), Arc::clone(stream));
        Self::to_the_end(async move {
            let (directory, served) = (service.directory(), Arc::clone(&stream.served));
            let deleted = service.changing(move || directory.delete(&served)).await;
            if let Ok(deleted) = &deleted {
                service.recorded.lock().unwrap_or_else(PoisonError::into_inner).deleted.push(deleted.clone());
                service.forget(&stream);
            }
            // Only now: whoever is woken is told that it is deleted, or that it went out of service and no further.
            if service.still_served(&stream).is_err() {
                stream.served.is_over.store(true, SeqCst);
                service.answers.wake(stream.journal_id);
            }
            tokio::spawn(service.clear(deleted?));
            Ok(())
        })
        .await
    }

    /// Goes on with what an earlier process has left to do. To be called once, where requests are served.
    pub fn resume(self: &Arc<Self>) {
        let (unpurged, deleted) = {
            let mut recorded = self.recorded.lock().unwrap_or_else(PoisonError::into_inner);
            let unfinished = recorded.deleted.iter().filter(|deleted| deleted.purged_us.is_none()).cloned();
            let unfinished: Vec<Deleted> = unfinished.collect();
            (std::mem::take(&mut recorded.unpurged), unfinished)
        };
        for deleted in deleted {
            tokio::spawn(Arc::clone(self).clear(deleted));
        }
        for stream in unpurged {
            self.purge(stream);
        }
    }

    /// Takes the storage of a deleted stream away, until it is gone.
    async fn clear(self: Arc<Self>, deleted: Deleted) {
        while let Err(error) = self.try_clear(&deleted).await {
            tracing::warn!(%error, stream = deleted.name, "a deleted stream cannot be cleared yet");
            tokio::time::sleep(TRY_AGAIN).await;
        }
        let mut recorded = self.recorded.lock().unwrap_or_else(PoisonError::into_inner);
        for known in recorded.deleted.iter_mut().filter(|known| known.stream_id == deleted.stream_id) {
            known.purged_us = Some(now_us());
        }
    }

    async fn try_clear(&self, deleted: &Deleted) -> Result<(), ApiError> {
        let stream = deleted.stream;
        while self.errand(move |office| office.purge_deleted(stream)).await? {
            // Others have their turn.
            tokio::task::yield_now().await;
        }
        let (directory, owned) = (self.directory(), deleted.clone());
        self.changing(move || directory.clear(&owned)).await?;
        let stream_id = deleted.stream_id.clone();
        self.errand(move |office| office.note_deleted(&stream_id, now_us())).await
    }
}
