//! What the batch API asks of the running broker: streams that are created and deleted over HTTP.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::error::BrokerError;
use super::streams::Streams;
use crate::batches::retention::Retention;
use crate::batches::{ApiError, Directory};
use crate::config::StreamConfig;
use crate::journal::reader::RowFilter;
use crate::journal::{Deleted, JournalError};
use crate::lake::documents::Documents;
use crate::lake::life::{self, Gone, delete_published};
use crate::session::{Catalog, ServedStream, now_us};

/// How long the peers of a stream that is deleted may take to leave.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// Where the directories of deleted streams wait to be removed, below the data root: `<UUID>/<name>`. No stream is
/// called like it.
const TRASH: &str = ".deleted";

impl Directory for Streams {
    fn open_to_this_host(&self) -> bool {
        !self.config().auth.any() && self.config().listen.ip().is_loopback()
    }

    fn catalog(&self) -> Arc<Catalog> {
        Streams::catalog(self)
    }

    fn create(&self, name: &str, schema: Option<&Value>) -> Result<Arc<ServedStream>, ApiError> {
        let taken = || ApiError::new(409, "stream_exists", format!("there is a stream {name:?} already"));
        // Of a name that the registry has, only the registry brings a stream back after a start.
        if self.is_managed(name) || Streams::catalog(self).find(name).is_some() || Streams::catalog(self).holds(name) {
            return Err(taken());
        }
        // A stream that is recorded and not served is stopped, and belongs to whoever stopped it.
        if self.record(name).map_err(|error| failed(&error))?.is_some() {
            return Err(taken());
        }
        let known = name.to_owned();
        let deleted = self.errand(move |office| office.was_deleted(&known)).map_err(|error| failed(&error))?;
        if deleted.map_err(|error| failed(&error.into()))? {
            // What a crash may have kept the deletion from: the next stream of the name begins with nothing.
            self.forget_logs(name)?;
        }
        let declared = StreamConfig { durable: true, ..StreamConfig::new(name, schema.cloned()) };
        self.start(&declared).map_err(|error| match error {
            BrokerError::Served { .. } => taken(),
            BrokerError::Deleting { .. } => ApiError::unavailable(error.to_string()),
            BrokerError::Reserved { .. } | BrokerError::Journal(JournalError::Name(_)) => {
                ApiError::new(400, "invalid_name", error.to_string())
            }
            BrokerError::Schema { .. } => ApiError::new(422, "invalid_schema", error.to_string()),
            other => failed(&other),
        })
    }

    fn delete(&self, stream: &ServedStream) -> Result<Deleted, ApiError> {
        let name = &stream.name;
        if self.config().streams.iter().any(|declared| declared.name == *name) {
            return Err(ApiError::new(
                409,
                "stream_is_configured",
                format!("the stream {name:?} is declared in the broker's configuration, which decides about it"),
            ));
        }
        let guards = self.config().registry.as_ref().map(|registry| &registry.history_guards);
        if guards.is_some_and(|guards| guards.iter().any(|guard| guard.name == *name)) {
            return Err(ApiError::new(
                409,
                "stream_is_configured",
                format!("the broker's configuration guards the history of the stream {name:?}"),
            ));
        }
        if self.is_managed(name) {
            // Its declaration would stay, bound to a stream that is no more, and no other one could have the name.
            return Err(ApiError::new(
                409,
                "stream_is_declared",
                format!(
                    "the stream {name:?} is declared through the control API; retire it there, or erase its entries"
                ),
            ));
        }
        let (Some(journal_id), Some(stream_id)) = (stream.journal_id, stream.stream_id.clone()) else {
            return Err(ApiError::new(409, "stream_not_durable", "the stream has no log"));
        };
        // Who waits for rows is told by the caller, once it is recorded what became of the stream.
        match self.take_out(name, STOP_PATIENCE, |_| {}) {
            Ok(()) => {}
            Err(BrokerError::NotServed { .. }) => return Err(ApiError::no_stream(name)),
            Err(error) => {
                // Rows that could not be sealed or published are to go anyway.
                tracing::warn!(%error, stream = name, "a stream that is deleted did not stop in order");
                self.lake().remove(journal_id);
                self.errand(move |office| office.detach(journal_id)).map_err(|error| failed(&error))?;
            }
        }
        let deleted =
            Deleted { stream_id, stream: journal_id, name: name.clone(), deleted_us: now_us(), purged_us: None };
        let recorded = deleted.clone();
        self.errand(move |office| office.delete(&recorded))
            .map_err(|error| failed(&error))?
            .map_err(|error| failed(&error.into()))?;
        self.forget_logs(name)?;
        self.move_away(&deleted)?;
        Ok(deleted)
    }

    fn find_unreplayed(&self, stream: u32, matches: RowFilter, most: usize) -> Result<Vec<i64>, ApiError> {
        self.lake().find_unreplayed(stream, matches, most).map_err(|error| unkept(&error))
    }

    fn purge_soon(&self, stream: u32) {
        self.lake().purge_soon(stream);
    }

    fn purged_through(&self, stream: u32) -> Option<i64> {
        self.lake().purged_through(stream)
    }

    fn retention(&self, stream: &ServedStream) -> Result<Retention, ApiError> {
        let documents = self.documents(&stream.name);
        let current = self.lake().block_on(documents.current()).map_err(|error| unkept(&error))?;
        let document = current.ok_or_else(|| ApiError::no_stream(&stream.name))?.document;
        let first = document.sealed_logs.first().map_or(document.live_log.start_offset, |log| log.start_offset);
        Ok(Retention {
            max_age_us: document.retention,
            first_offset: first,
            pending: document.pending.map(|pending| (pending.floor, pending.at)),
        })
    }

    fn retain(&self, stream: &ServedStream, max_age_us: Option<i64>) -> Result<(), ApiError> {
        let guards = self.config().registry.iter().flat_map(|registry| &registry.history_guards);
        if guards.into_iter().any(|guard| guard.name == stream.name) {
            let message = format!("the whole history of {:?} is guarded by the broker's configuration", stream.name);
            return Err(ApiError::new(409, "history_is_guarded", message));
        }
        let documents = self.documents(&stream.name);
        self.lake().block_on(life::retain(&documents, &stream.name, max_age_us)).map_err(|error| unkept(&error))?;
        if let Some(journal_id) = stream.journal_id {
            self.lake().retain_soon(journal_id);
        }
        Ok(())
    }

    fn clear(&self, deleted: &Deleted) -> Result<(), ApiError> {
        self.move_away(deleted)?;
        let gone = Gone {
            stream: &deleted.name,
            stream_id: &deleted.stream_id,
            home: &self.trash(deleted),
            was: &self.root().join(&deleted.name),
        };
        let published = self.lake().block_on(delete_published(self.lake().store(), &gone));
        published.map_err(|error| ApiError::unavailable(error.to_string()))?;
        match std::fs::remove_dir_all(self.trash(deleted)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(ApiError::unavailable(error.to_string())),
            _ => Ok(()),
        }
    }
}

impl Streams {
    fn documents(&self, stream: &str) -> Documents {
        Documents::new(self.lake().root(), stream, Some(Arc::new(self.lake().store().clone())))
    }

    fn trash(&self, deleted: &Deleted) -> PathBuf {
        self.root().join(TRASH).join(&deleted.stream_id)
    }

    /// Forgets the sealed files of a name whose stream is no more: the next one of the name has others.
    fn forget_logs(&self, name: &str) -> Result<(), ApiError> {
        let catalog = self.lake().catalog();
        for log in catalog.logs(name) {
            catalog.remove_log(log.id).map_err(|error| {
                tracing::error!(%error, stream = name, "the files of a deleted stream cannot be forgotten");
                ApiError::unavailable(error.to_string())
            })?;
        }
        Ok(())
    }

    /// Takes the directory of a deleted stream out of the way of the next one of its name, unless it is that one's.
    fn move_away(&self, deleted: &Deleted) -> Result<(), ApiError> {
        let fail = |error: std::io::Error| ApiError::unavailable(format!("cannot move a deleted stream away: {error}"));
        let home = self.root().join(&deleted.name);
        let trash = self.trash(deleted).join(&deleted.name);
        if self.record(&deleted.name).map_err(|error| failed(&error))?.is_some() || trash.exists() {
            return Ok(());
        }
        std::fs::create_dir_all(self.trash(deleted)).map_err(fail)?;
        match std::fs::rename(&home, &trash) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(fail(error)),
            _ => Ok(()),
        }
    }
}

fn failed(error: &BrokerError) -> ApiError {
    tracing::error!(%error, "a stream cannot be created or deleted");
    ApiError::unavailable(error.to_string())
}

fn unkept(error: &dyn std::error::Error) -> ApiError {
    tracing::error!(%error, "what is kept of a stream cannot be read or written");
    ApiError::unavailable(error.to_string())
}
