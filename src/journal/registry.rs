//! Opening the journal and recording streams in it, before the writer starts.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::{Connection, params};

use super::change::{self, Deleted};
use super::error::JournalError;
use super::evict::{self, End};
use super::job::CommitSink;
use super::lock::RootLock;
use super::plan::StreamState;
use super::settings::JournalSettings;
use super::sql::{self, JOURNAL_FILE};
use super::store::Store;
use super::succession::{self, Begin};
use super::writer::Writer;
use super::{holes, purge, receipts, records};
use crate::stream::name::check_durable_name;
use crate::stream::record::{StreamRecord, StreamSpec};
use crate::telemetry::{StreamCounters, Telemetry};

/// An open journal whose writer has not started: streams can be declared.
pub struct Journal {
    lock: RootLock,
    pub(super) path: PathBuf,
    settings: JournalSettings,
    pub(super) connection: Connection,
    pub(super) streams: Vec<StreamRecord>,
    /// The stamp of the last row of each stream, by stream number.
    pub(super) last_ts_us: HashMap<u32, i64>,
    /// Streams whose frames each have a transaction of their own.
    alone: Vec<u32>,
    counters: HashMap<u32, Arc<StreamCounters>>,
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal").field("path", &self.path).field("streams", &self.streams).finish_non_exhaustive()
    }
}

/// What is recorded for the batch API (docs/batches.md), by the streams' numbers.
#[derive(Debug, Default)]
pub struct Recorded {
    /// The validators: version and expression.
    pub validators: HashMap<u32, (u64, Option<String>)>,
    /// How many offsets hold no row.
    pub left_out: HashMap<u32, i64>,
    /// Streams with erasures whose rows may not be gone yet.
    pub unpurged: Vec<u32>,
    /// Streams that are no more.
    pub deleted: Vec<Deleted>,
}

/// Takes the data root `root` (made if it is missing) for this process and opens its journal: recovers what
/// a crash left, brings the tables to the current format and checks the end of every stream.
///
/// # Errors
/// When another process holds the root, the file system or SQLite refuses, or the journal is of a newer
/// version, foreign or damaged.
pub fn open(root: &Path, settings: JournalSettings) -> Result<Journal, JournalError> {
    let lock = RootLock::acquire(root)?;
    let path = lock.root().join(JOURNAL_FILE);
    let connection = sql::open_writer(&path, &settings)?;
    let mut journal = Journal {
        lock,
        path,
        settings,
        connection,
        streams: Vec::new(),
        last_ts_us: HashMap::new(),
        alone: Vec::new(),
        counters: HashMap::new(),
    };
    journal.load()?;
    Ok(journal)
}

impl Journal {
    /// The data root as an absolute path.
    #[must_use]
    pub fn root(&self) -> &Path {
        self.lock.root()
    }

    /// The journal's file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// All streams that are recorded, by number, whether declared in this process or not.
    #[must_use]
    pub fn streams(&self) -> Vec<StreamRecord> {
        self.streams.clone()
    }

    /// What is recorded of a stream.
    #[must_use]
    pub fn record(&self, name: &str) -> Option<&StreamRecord> {
        self.streams.iter().find(|stream| stream.name == name)
    }

    /// Creates the stream, or opens it if it is recorded.
    ///
    /// # Errors
    /// When the name cannot be a durable stream's, or `schema`, `sort_by` or `exactly_once` differ from what
    /// is recorded.
    pub fn declare(&mut self, spec: &StreamSpec) -> Result<StreamRecord, JournalError> {
        check_durable_name(&spec.name)?;
        let record = match self.streams.iter().find(|stream| stream.name == spec.name) {
            Some(recorded) => {
                records::check_same(spec, recorded)?;
                recorded.clone()
            }
            None => {
                let record = records::create(&mut self.connection, &self.path, spec)?;
                self.streams.push(record.clone());
                record
            }
        };
        self.alone.retain(|stream| *stream != record.id);
        if !spec.group_commit {
            self.alone.push(record.id);
        }
        Ok(record)
    }

    /// Records whether publishers of a stream may number their rows. Marks are kept either way.
    ///
    /// # Errors
    /// When the stream is unknown or SQLite refuses.
    pub fn choose_exactly_once(&mut self, stream: u32, exactly_once: bool) -> Result<(), JournalError> {
        let record =
            self.streams.iter_mut().find(|record| record.id == stream).ok_or(JournalError::Unknown { stream })?;
        records::choose_exactly_once(&self.connection, &self.path, stream, exactly_once)?;
        record.exactly_once = exactly_once;
        Ok(())
    }

    /// Gives the writer the counters of a stream.
    pub fn attach_counters(&mut self, stream: u32, counters: Arc<StreamCounters>) {
        self.counters.insert(stream, counters);
    }

    /// Leaves out the next `offsets` offsets of a stream for ever: no row will have them. Used when a log is
    /// taken up again elsewhere and its last offsets are not known. Returns the new end.
    ///
    /// # Errors
    /// When the stream is unknown, has no room for so many offsets, or SQLite refuses.
    pub fn skip_offsets(&mut self, stream: u32, offsets: u64) -> Result<i64, JournalError> {
        let fail = |path: &Path| {
            let path = path.to_owned();
            move |source| JournalError::Sql { action: "skip offsets", path, source }
        };
        let record =
            self.streams.iter_mut().find(|record| record.id == stream).ok_or(JournalError::Unknown { stream })?;
        let first = record.end_offset;
        let end = i64::checked_add_unsigned(first, offsets)
            .ok_or_else(|| JournalError::OffsetsExhausted { name: record.name.clone(), rows: offsets })?;
        let transaction = self.connection.transaction().map_err(fail(&self.path))?;
        transaction
            .execute(
                "INSERT INTO skipped (stream, first_offset, end_offset) VALUES (?1, ?2, ?3)",
                params![stream, first, end],
            )
            .and_then(|_| transaction.execute("UPDATE streams SET end_offset = ?2 WHERE id = ?1", params![stream, end]))
            .map_err(fail(&self.path))?;
        transaction.commit().map_err(fail(&self.path))?;
        record.end_offset = end;
        Ok(end)
    }

    /// Deletes the batches of a stream that lie wholly below `below`, whose rows are safe elsewhere, before the writer
    /// starts. Afterwards it is done with [`super::Job::Evict`].
    ///
    /// # Errors
    /// When the stream is unknown or SQLite refuses; what was deleted until then stays deleted.
    pub fn evict(&mut self, stream: u32, below: i64) -> Result<(), JournalError> {
        let record = self.streams.iter().find(|record| record.id == stream).ok_or(JournalError::Unknown { stream })?;
        let end = End { offset: record.end_offset, last_ts_us: self.last_ts_us.get(&stream).copied() };
        let path = self.path.clone();
        let fail = |source| JournalError::Sql { action: "delete rows that were moved", path: path.clone(), source };
        loop {
            let transaction = self.connection.transaction().map_err(fail)?;
            let step = evict::step(&transaction, stream, below, end, evict::OFFLINE_STEP).map_err(fail)?;
            transaction.commit().map_err(fail)?;
            if !step.more {
                break;
            }
        }
        // Nothing else moves the write-ahead log while the writer has not started.
        self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).map_err(fail)
    }

    /// The stamp of the last row of a stream, in microseconds.
    #[must_use]
    pub fn last_ts_us(&self, stream: u32) -> Option<i64> {
        self.last_ts_us.get(&stream).copied()
    }

    /// Goes on with a stream in a new log of another shape, from its present end on (docs/storage.md). The rows of the
    /// log before must have left the journal. Doing it again changes nothing.
    ///
    /// # Errors
    /// When the stream is unknown, rows are left, or SQLite refuses.
    pub fn begin_log(
        &mut self,
        stream: u32,
        log: &str,
        schema_canonical: &str,
        sort_by: &[String],
        floor: Option<i64>,
    ) -> Result<StreamRecord, JournalError> {
        let path = self.path.clone();
        let fail = |source| JournalError::Sql { action: "begin a log", path: path.clone(), source };
        let record =
            self.streams.iter_mut().find(|record| record.id == stream).ok_or(JournalError::Unknown { stream })?;
        let changed = StreamRecord {
            log: log.to_owned(),
            schema_canonical: schema_canonical.to_owned(),
            sort_by: sort_by.to_vec(),
            floor,
            ..record.clone()
        };
        if changed == *record {
            return Ok(changed);
        }
        succession::begin_log(&mut self.connection, &changed).map_err(|error| match error {
            Begin::Sql(source) => fail(source),
            Begin::RowsLeft(first) => JournalError::RowsLeft { name: changed.name.clone(), first },
        })?;
        *record = changed.clone();
        Ok(changed)
    }

    /// Starts the writer on a thread of its own, pinned to `core` if given. It delivers to `sink`.
    ///
    /// # Errors
    /// When the write-ahead log cannot be made ready or a thread cannot start.
    pub fn start(
        self,
        sink: Box<dyn CommitSink>,
        telemetry: Arc<Telemetry>,
        core: Option<usize>,
    ) -> Result<Writer, JournalError> {
        let validators = self.validators()?;
        let fail = |source| JournalError::Sql { action: "find the first row", path: self.path.clone(), source };
        for record in &self.streams {
            if let Some(counters) = self.counters.get(&record.id) {
                let first = evict::first_kept(&self.connection, record.id).map_err(fail)?;
                counters.lake.evicted(first.unwrap_or(record.end_offset));
            }
        }
        let store = Store::new(self.connection, self.path, self.settings)?;
        let streams = self.streams.into_iter().map(|record| {
            let last_ts_us = self.last_ts_us.get(&record.id).copied();
            let group_commit = !self.alone.contains(&record.id);
            let counters = self.counters.get(&record.id).cloned();
            let validator_version = validators.get(&record.id).map_or(0, |(version, _)| *version);
            StreamState { validator_version, ..StreamState::new(&record, last_ts_us, group_commit, counters) }
        });
        Writer::start(self.lock, store, streams.collect(), sink, telemetry, core)
    }

    /// The validators that are recorded: version and expression, by the stream's number (docs/batches.md).
    ///
    /// # Errors
    /// When SQLite refuses.
    pub fn validators(&self) -> Result<HashMap<u32, (u64, Option<String>)>, JournalError> {
        let fail = |source| JournalError::Sql { action: "read the validators", path: self.path.clone(), source };
        receipts::validators(&self.connection).map_err(fail)
    }

    /// What the batch API has to know at start.
    ///
    /// # Errors
    /// When SQLite refuses.
    pub fn recorded(&self) -> Result<Recorded, JournalError> {
        let fail = |source| JournalError::Sql { action: "read what is recorded", path: self.path.clone(), source };
        Ok(Recorded {
            validators: self.validators()?,
            left_out: holes::totals(&self.connection).map_err(fail)?.into_iter().collect(),
            unpurged: purge::unpurged(&self.connection).map_err(fail)?,
            deleted: change::deleted(&self.connection).map_err(fail)?,
        })
    }

    fn load(&mut self) -> Result<(), JournalError> {
        for (record, last_ts_us) in records::all(&self.connection, &self.path)? {
            if let Some(ts_us) = last_ts_us {
                self.last_ts_us.insert(record.id, ts_us);
            }
            self.streams.push(record);
        }
        Ok(())
    }
}
