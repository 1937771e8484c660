//! Streams as the journal's tables record them: reading, checking and creating records.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::error::JournalError;
use super::{sql, stamps};
use crate::stream::name::check_durable_name;
use crate::stream::offsets::FIRST_OFFSET;
use crate::stream::record::{StreamRecord, StreamSpec};

/// A record and the stamp of the stream's last row.
pub(super) type Recorded = (StreamRecord, Option<i64>);

const COLUMNS: &str = "id, name, stream_id, schema, sort_by, exactly_once, first_offset, floor, end_offset,
                       created_us, log, last_ts_us";

/// All streams by number, each with its end checked.
pub(super) fn all(connection: &Connection, path: &Path) -> Result<Vec<Recorded>, JournalError> {
    let fail = |source| JournalError::Sql { action: "read the streams", path: path.to_owned(), source };
    let mut statement = connection.prepare(&format!("SELECT {COLUMNS} FROM streams ORDER BY id")).map_err(fail)?;
    let rows = statement.query_map([], |row| Ok((read_record(row)?, row.get::<_, Option<i64>>(11)?))).map_err(fail)?;
    rows.map(|row| checked(connection, path, row.map_err(fail)?)).collect()
}

/// The stream of a name, with its end checked.
pub(super) fn find(connection: &Connection, path: &Path, name: &str) -> Result<Option<Recorded>, JournalError> {
    let fail = |source| JournalError::Sql { action: "read a stream", path: path.to_owned(), source };
    let found = connection
        .query_row(&format!("SELECT {COLUMNS} FROM streams WHERE name = ?1"), [name], |row| {
            Ok((read_record(row)?, row.get::<_, Option<i64>>(11)?))
        })
        .optional()
        .map_err(fail)?;
    found.map(|found| checked(connection, path, found)).transpose()
}

/// Records whether publishers of a stream may number their rows.
pub(super) fn choose_exactly_once(
    connection: &Connection,
    path: &Path,
    stream: u32,
    exactly_once: bool,
) -> Result<(), JournalError> {
    let fail = |source| JournalError::Sql { action: "record a choice", path: path.to_owned(), source };
    connection
        .execute("UPDATE streams SET exactly_once = ?2 WHERE id = ?1", params![stream, exactly_once])
        .map_err(fail)
        .map(drop)
}

/// Moves the recorded end to that of the last batch, and finds out whether the two fit.
fn checked(connection: &Connection, path: &Path, recorded: Recorded) -> Result<Recorded, JournalError> {
    let (mut record, mut last_ts_us) = recorded;
    let fail = |source| JournalError::Sql { action: "read the end of a stream", path: path.to_owned(), source };
    let damaged =
        |what| JournalError::Damaged { path: path.to_owned(), what: format!("stream {:?}: {what}", record.name) };
    let mut end_offset = record.end_offset;
    if let Some(tail) = read_tail(connection, record.id).map_err(fail)? {
        let (end, ts_us) = tail.check(record.end_offset).map_err(damaged)?;
        end_offset = end_offset.max(end);
        last_ts_us = last_ts_us.max(Some(ts_us));
    }
    let highest = connection
        .query_row("SELECT max(last_offset) FROM marks WHERE stream = ?1", [record.id], |row| {
            row.get::<_, Option<i64>>(0)
        })
        .map_err(fail)?;
    if let Some(highest) = highest.filter(|highest| *highest >= end_offset) {
        return Err(damaged(format!("a publisher's mark is at offset {highest}, the log ends before {end_offset}")));
    }
    record.end_offset = end_offset;
    Ok((record, last_ts_us))
}

/// Records a new stream and makes its table, in one transaction.
pub(super) fn create(
    connection: &mut Connection,
    path: &Path,
    spec: &StreamSpec,
) -> Result<StreamRecord, JournalError> {
    check_durable_name(&spec.name)?;
    let fail = |source| JournalError::Sql { action: "record a stream", path: path.to_owned(), source };
    let mut record = StreamRecord {
        id: 0,
        name: spec.name.clone(),
        log: spec.name.clone(),
        stream_id: uuid::Uuid::new_v4().hyphenated().to_string(),
        schema_canonical: spec.schema_canonical.clone(),
        sort_by: spec.sort_by.clone(),
        exactly_once: spec.exactly_once,
        first_offset: FIRST_OFFSET,
        floor: None,
        end_offset: FIRST_OFFSET,
        created_us: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as i64),
    };
    let transaction = connection.transaction().map_err(fail)?;
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
        .map_err(fail)?;
    record.id = u32::try_from(transaction.last_insert_rowid()).map_err(|_| JournalError::Damaged {
        path: path.to_owned(),
        what: "the numbers of streams are used up".to_owned(),
    })?;
    transaction.execute_batch(&sql::create_batches(record.id)).map_err(fail)?;
    transaction.commit().map_err(fail)?;
    Ok(record)
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
    let name: String = row.get(1)?;
    Ok(StreamRecord {
        id: row.get(0)?,
        log: row.get::<_, Option<String>>(10)?.unwrap_or_else(|| name.clone()),
        name,
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

pub(super) fn sort_by_text(sort_by: &[String]) -> String {
    serde_json::Value::from(sort_by).to_string()
}

/// Refuses a declaration that differs from what is recorded.
pub(super) fn check_same(spec: &StreamSpec, recorded: &StreamRecord) -> Result<(), JournalError> {
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
