//! What can be asked of the writer besides rows: streams that come and go while it runs.
//!
//! An errand is a function that the writer calls between two transactions, with everything queued before it
//! committed and delivered and nothing queued after it begun. Its work delays every commit, so it is short.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use rusqlite::Connection;

use super::checkpoint::Checkpointer;
use super::error::JournalError;
use super::plan::StreamState;
use super::settings::JournalSettings;
use super::{evict, receipts, records};
use crate::stream::record::{StreamRecord, StreamSpec};
use crate::telemetry::StreamCounters;

/// A function for the writer's thread.
pub struct Errand(Box<dyn FnOnce(&mut Office<'_>) + Send>);

impl Errand {
    /// Wraps `work`. It must not block, and answers through whatever it has captured.
    pub fn new(work: impl FnOnce(&mut Office<'_>) + Send + 'static) -> Self {
        Self(Box::new(work))
    }

    pub(super) fn run(self, office: &mut Office<'_>) {
        (self.0)(office);
    }
}

impl std::fmt::Debug for Errand {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Errand")
    }
}

/// The writer's side of an errand.
pub struct Office<'a> {
    pub(super) connection: &'a mut Connection,
    pub(super) path: &'a Path,
    pub(super) streams: &'a mut Vec<StreamState>,
    pub(super) index: &'a mut HashMap<u32, usize>,
    /// Who keeps the write-ahead log short.
    pub(super) checkpointer: &'a mut Checkpointer,
    pub(super) settings: &'a JournalSettings,
    /// To be set when a COMMIT has failed.
    pub(super) commit_failed: &'a mut bool,
    /// Streams whose ends have moved without rows: number, end, stamp.
    pub(super) moved: &'a mut Vec<(u32, i64, i64)>,
}

impl std::fmt::Debug for Office<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Office").field("path", &self.path).field("streams", &self.streams.len()).finish()
    }
}

impl Office<'_> {
    /// Creates the stream or finds its record, and takes its rows from here on. A stream that was detached
    /// begins again with what is recorded: its marks are read anew.
    ///
    /// # Errors
    /// When the name cannot be a durable stream's, the declaration differs from the record, or SQLite refuses.
    pub fn attach(
        &mut self,
        spec: &StreamSpec,
        counters: impl FnOnce(&StreamRecord) -> Arc<StreamCounters>,
    ) -> Result<StreamRecord, JournalError> {
        let (record, last_ts_us) = match records::find(self.connection, self.path, &spec.name)? {
            Some((record, last_ts_us)) => {
                records::check_same(spec, &record)?;
                (record, last_ts_us)
            }
            None => (records::create(self.connection, self.path, spec)?, None),
        };
        let fail =
            |source| JournalError::Sql { action: "read what is kept of a stream", path: self.path.to_owned(), source };
        let validator_version = receipts::validator_version(self.connection, record.id).map_err(fail)?;
        let counters = counters(&record);
        let first = evict::first_kept(self.connection, record.id).map_err(fail)?;
        counters.lake.evicted(first.unwrap_or(record.end_offset));
        let state = StreamState {
            validator_version,
            ..StreamState::new(&record, last_ts_us, spec.group_commit, Some(counters))
        };
        match self.index.get(&record.id) {
            Some(place) => self.streams[*place] = state,
            None => {
                self.index.insert(record.id, self.streams.len());
                self.streams.push(state);
            }
        }
        Ok(record)
    }

    /// Takes no more rows for a stream: frames that come later are refused.
    pub fn detach(&mut self, stream: u32) {
        if let Some(place) = self.index.remove(&stream) {
            // The place of the last one is given to it, so that no place is ever empty.
            self.streams.swap_remove(place);
            if let Some(moved) = self.streams.get(place) {
                self.index.insert(moved.id, place);
            }
        }
    }

    /// Records whether publishers of a stream that is not served may number their rows. Marks are kept either way.
    ///
    /// # Errors
    /// When SQLite refuses.
    pub fn choose_exactly_once(&mut self, stream: u32, exactly_once: bool) -> Result<(), JournalError> {
        records::choose_exactly_once(self.connection, self.path, stream, exactly_once)
    }

    /// What is recorded of a stream now.
    ///
    /// # Errors
    /// When SQLite refuses or the record is damaged.
    pub fn record(&self, name: &str) -> Result<Option<StreamRecord>, JournalError> {
        Ok(records::find(self.connection, self.path, name)?.map(|(record, _)| record))
    }
}
