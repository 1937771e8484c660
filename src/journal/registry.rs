//! Opening the journal and recording streams in it, before the writer starts.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::error::JournalError;
use super::job::CommitSink;
use super::lock::RootLock;
use super::settings::JournalSettings;
use super::sql::{self, JOURNAL_FILE};
use super::stamps;
use super::store::Store;
use super::writer::Writer;
use crate::stream::name::check_durable_name;
use crate::stream::offsets::FIRST_OFFSET;
use crate::stream::record::{StreamRecord, StreamSpec};
use crate::telemetry::{StreamCounters, Telemetry};

/// An open journal whose writer has not started: streams can be declared.
pub struct Journal {
    lock: RootLock,
    path: PathBuf,
    settings: JournalSettings,
    connection: Connection,
    streams: Vec<StreamRecord>,
    /// The stamp of the last row of each stream, by stream number.
    last_ts_us: HashMap<u32, i64>,
    /// Streams whose frames each have a transaction of their own.
    alone: Vec<u32>,
    counters: HashMap<u32, Arc<StreamCounters>>,
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal").field("path", &self.path).field("streams", &self.streams).finish_non_exhaustive()
    }
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

    /// Creates the stream, or opens it if it is recorded.
    ///
    /// # Errors
    /// When the name cannot be a durable stream's, or `schema`, `sort_by` or `exactly_once` differ from what
    /// is recorded.
    pub fn declare(&mut self, spec: &StreamSpec) -> Result<StreamRecord, JournalError> {
        check_durable_name(&spec.name)?;
        let record = match self.streams.iter().find(|stream| stream.name == spec.name) {
            Some(recorded) => {
                check_same(spec, recorded)?;
                recorded.clone()
            }
            None => self.create(spec)?,
        };
        self.alone.retain(|stream| *stream != record.id);
        if !spec.group_commit {
            self.alone.push(record.id);
        }
        Ok(record)
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
        let store = Store::new(self.connection, self.path, self.settings)?;
        let streams = self.streams.into_iter().map(|record| {
            let last_ts_us = self.last_ts_us.get(&record.id).copied();
            let group_commit = !self.alone.contains(&record.id);
            let counters = self.counters.get(&record.id).cloned();
            super::plan::StreamState::new(&record, last_ts_us, group_commit, counters)
        });
        Writer::start(self.lock, store, streams.collect(), sink, telemetry, core)
    }

    fn load(&mut self) -> Result<(), JournalError> {
        let fail = |source| JournalError::Sql { action: "read the streams", path: self.path.clone(), source };
        let mut statement = self
            .connection
            .prepare(
                "SELECT id, name, stream_id, schema, sort_by, exactly_once, first_offset, floor, end_offset,
                        created_us, last_ts_us
                 FROM streams ORDER BY id",
            )
            .map_err(fail)?;
        let rows =
            statement.query_map([], |row| Ok((read_record(row)?, row.get::<_, Option<i64>>(10)?))).map_err(fail)?;
        for row in rows {
            let (mut record, mut last_ts_us) = row.map_err(fail)?;
            let damaged = |what| JournalError::Damaged {
                path: self.path.clone(),
                what: format!("stream {:?}: {what}", record.name),
            };
            if let Some(tail) = read_tail(&self.connection, record.id).map_err(fail)? {
                let (end, ts_us) = tail.check(record.end_offset).map_err(damaged)?;
                record.end_offset = record.end_offset.max(end);
                last_ts_us = last_ts_us.max(Some(ts_us));
            }
            let highest = self
                .connection
                .query_row("SELECT max(last_offset) FROM marks WHERE stream = ?1", [record.id], |row| {
                    row.get::<_, Option<i64>>(0)
                })
                .map_err(fail)?;
            if let Some(highest) = highest.filter(|highest| *highest >= record.end_offset) {
                let what =
                    format!("a publisher's mark is at offset {highest}, the log ends before {}", record.end_offset);
                return Err(damaged(what));
            }
            if let Some(ts_us) = last_ts_us {
                self.last_ts_us.insert(record.id, ts_us);
            }
            self.streams.push(record);
        }
        Ok(())
    }

    fn create(&mut self, spec: &StreamSpec) -> Result<StreamRecord, JournalError> {
        let path = self.path.clone();
        let fail = move |source| JournalError::Sql { action: "record a stream", path: path.clone(), source };
        let mut record = StreamRecord {
            id: 0,
            name: spec.name.clone(),
            stream_id: uuid::Uuid::new_v4().hyphenated().to_string(),
            schema_canonical: spec.schema_canonical.clone(),
            sort_by: spec.sort_by.clone(),
            exactly_once: spec.exactly_once,
            first_offset: FIRST_OFFSET,
            floor: None,
            end_offset: FIRST_OFFSET,
            created_us: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as i64),
        };
        let transaction = self.connection.transaction().map_err(&fail)?;
        transaction
            .execute(
                "INSERT INTO streams
                     (name, stream_id, schema, sort_by, exactly_once, first_offset, end_offset, created_us)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
                params![
                    record.name,
                    record.stream_id,
                    record.schema_canonical,
                    sort_by_text(&record.sort_by),
                    record.exactly_once,
                    record.first_offset,
                    record.end_offset,
                    record.created_us
                ],
            )
            .map_err(&fail)?;
        record.id = u32::try_from(transaction.last_insert_rowid()).map_err(|_| JournalError::Damaged {
            path: self.path.clone(),
            what: "the numbers of streams are used up".to_owned(),
        })?;
        transaction.execute_batch(&sql::create_batches(record.id)).map_err(&fail)?;
        transaction.commit().map_err(&fail)?;
        self.streams.push(record.clone());
        Ok(record)
    }
}

/// The last batch of a stream.
struct Tail {
    first_offset: i64,
    rows: u32,
    ts_us: i64,
    stamps: Option<String>,
    body_rows: u32,
    /// The offset after the batch before it.
    end_before: Option<i64>,
}

impl Tail {
    /// The offset after the last row and its stamp.
    fn check(&self, recorded_end: i64) -> Result<(i64, i64), String> {
        let at = self.first_offset;
        if self.rows == 0 || self.body_rows != self.rows {
            return Err(format!("the batch at offset {at} holds {} rows and says {}", self.body_rows, self.rows));
        }
        if let Some(stamps) = &self.stamps {
            let last = stamps::parse(stamps, self.rows).and_then(|runs| runs.last().map(|run| run.ts_us));
            if last != Some(self.ts_us) {
                return Err(format!("the stamps of the batch at offset {at} are not those of its rows"));
            }
        }
        if self.end_before.is_some_and(|end| end > at) {
            return Err(format!("the batches around offset {at} overlap"));
        }
        let end = at
            .checked_add(i64::from(self.rows))
            .ok_or_else(|| format!("the batch at offset {at} leaves the offset space"))?;
        // After an eviction the recorded end may equal the tail's; it is above it only when offsets were skipped.
        if at < FIRST_OFFSET || (recorded_end > at && recorded_end < end) {
            return Err(format!("the batch at offset {at} does not fit the recorded end {recorded_end}"));
        }
        Ok((end, self.ts_us))
    }
}

fn read_tail(connection: &Connection, stream: u32) -> rusqlite::Result<Option<Tail>> {
    let sql = format!(
        "SELECT first_offset, count, ts_us, stamps, body FROM batches_{stream} ORDER BY first_offset DESC LIMIT 1"
    );
    let tail = connection
        .query_row(&sql, [], |row| {
            let body = row.get_ref(4)?.as_str()?.as_bytes();
            let complete = body.ends_with(b"\n");
            let lines = memchr::memchr_iter(b'\n', body).count();
            Ok(Tail {
                first_offset: row.get(0)?,
                rows: row.get(1)?,
                ts_us: row.get(2)?,
                stamps: row.get(3)?,
                body_rows: if complete { u32::try_from(lines).unwrap_or(u32::MAX) } else { 0 },
                end_before: None,
            })
        })
        .optional()?;
    let Some(mut tail) = tail else { return Ok(None) };
    let sql = format!(
        "SELECT first_offset + count FROM batches_{stream} WHERE first_offset < ?1 ORDER BY first_offset DESC LIMIT 1"
    );
    tail.end_before = connection.query_row(&sql, [tail.first_offset], |row| row.get(0)).optional()?;
    Ok(Some(tail))
}

fn read_record(row: &Row<'_>) -> rusqlite::Result<StreamRecord> {
    let sort_by: String = row.get(4)?;
    let sort_by = serde_json::from_str(&sort_by)
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(4, rusqlite::types::Type::Text, Box::new(error)))?;
    Ok(StreamRecord {
        id: row.get(0)?,
        name: row.get(1)?,
        stream_id: row.get(2)?,
        schema_canonical: row.get(3)?,
        sort_by,
        exactly_once: row.get(5)?,
        first_offset: row.get(6)?,
        floor: row.get(7)?,
        end_offset: row.get(8)?,
        created_us: row.get(9)?,
    })
}

fn sort_by_text(sort_by: &[String]) -> String {
    serde_json::Value::from(sort_by).to_string()
}

fn check_same(spec: &StreamSpec, recorded: &StreamRecord) -> Result<(), JournalError> {
    let differs = |what, declared: String, recorded: String| JournalError::Differs {
        name: spec.name.clone(),
        what,
        declared,
        recorded,
    };
    if spec.schema_canonical != recorded.schema_canonical {
        return Err(differs("schema", spec.schema_canonical.clone(), recorded.schema_canonical.clone()));
    }
    if spec.sort_by != recorded.sort_by {
        return Err(differs("sort_by", sort_by_text(&spec.sort_by), sort_by_text(&recorded.sort_by)));
    }
    if spec.exactly_once != recorded.exactly_once {
        return Err(differs("exactly_once", spec.exactly_once.to_string(), recorded.exactly_once.to_string()));
    }
    Ok(())
}
