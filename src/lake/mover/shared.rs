//! What all tasks of a lake have in common.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::sync::Semaphore;

use super::error::MoverError;
use super::replay::Cursors;
use super::settings::LakeSettings;
use super::stream::Moved;
use crate::journal::{Job, JobSender, RowReader};
use crate::lake::catalog::Catalog;
use crate::lake::store::Store;
use crate::telemetry::Telemetry;

/// Connections for reading the journal that are kept open.
const MAX_IDLE_READERS: usize = 4;

/// Files that are sealed at the same time, over all streams.
const MAX_SEALS: usize = 2;

pub(super) struct Shared {
    pub root: PathBuf,
    pub journal: PathBuf,
    pub catalog: Catalog,
    pub store: Store,
    pub streams: RwLock<HashMap<u32, Arc<Moved>>>,
    /// The writer, while one runs.
    pub jobs: OnceLock<JobSender>,
    pub telemetry: OnceLock<Arc<Telemetry>>,
    /// When this process opened the catalog, in microseconds: what was noted before is another's.
    pub opened_us: i64,
    /// Merges one at a time: each may take all the memory that is meant for it.
    pub merges: Semaphore,
    /// Gatherings one at a time: they do not wait for merges, which take longer, and have a bound of their own.
    pub gathers: Semaphore,
    pub seals: Semaphore,
    pub cursors: Cursors,
    readers: Mutex<Vec<RowReader>>,
}

impl Shared {
    pub(super) fn open(root: &Path, journal: &Path, settings: &LakeSettings) -> Result<Self, MoverError> {
        Ok(Self {
            root: root.to_owned(),
            journal: journal.to_owned(),
            catalog: Catalog::open(root)?,
            store: Store::new(settings.store.clone()),
            streams: RwLock::default(),
            jobs: OnceLock::new(),
            telemetry: OnceLock::new(),
            opened_us: now_us(),
            merges: Semaphore::new(1),
            gathers: Semaphore::new(1),
            seals: Semaphore::new(MAX_SEALS),
            cursors: Cursors::default(),
            readers: Mutex::default(),
        })
    }

    pub(super) fn stream(&self, id: u32) -> Option<Arc<Moved>> {
        self.streams.read().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()
    }

    pub(super) fn named(&self, name: &str) -> Result<Arc<Moved>, MoverError> {
        let streams = self.streams.read().unwrap_or_else(PoisonError::into_inner);
        let found = streams.values().find(|stream| stream.name == name);
        found.cloned().ok_or_else(|| MoverError::Unknown(name.to_owned()))
    }

    pub(super) fn all(&self) -> Vec<Arc<Moved>> {
        let mut all: Vec<_> = self.streams.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        all.sort_by_key(|stream| stream.id);
        all
    }

    /// Does something with a connection for reading the journal.
    pub(super) fn read<T>(&self, read: impl FnOnce(&RowReader) -> Result<T, MoverError>) -> Result<T, MoverError> {
        let idle = self.readers.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let reader = match idle {
            Some(reader) => reader,
            None => RowReader::open(&self.journal)?,
        };
        let outcome = read(&reader);
        if outcome.is_ok() {
            let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
            if readers.len() < MAX_IDLE_READERS {
                readers.push(reader);
            }
        }
        outcome
    }

    /// Closes the connections for reading, which would keep the journal's log from being folded in.
    pub(super) fn close_readers(&self) {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Looks how large the journal's file is.
    pub(super) fn measure(&self) {
        if let (Some(telemetry), Ok(metadata)) = (self.telemetry.get(), std::fs::metadata(&self.journal)) {
            telemetry.writer.journal_bytes.store(metadata.len(), Relaxed);
        }
    }

    /// Has the writer delete what is sealed. Without a writer the caller does that.
    pub(super) fn evict_journal(&self, stream: &Moved, below: i64) {
        if let Some(jobs) = self.jobs.get() {
            // A writer that has stopped leaves the rows for the next start.
            let _ = jobs.send(Job::Evict { stream: stream.id, below });
        }
    }
}

/// The wall clock in microseconds.
pub(super) fn now_us() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as i64)
}

/// Runs what blocks where it may.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, MoverError> + Send + 'static,
) -> Result<T, MoverError> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(MoverError::Broken(error.to_string())))
}
