//! Streams that come from elsewhere, and ends that move without rows: what a restore and a bulk load leave in the journal.

use rusqlite::{Connection, params};

use super::error::JournalError;
use super::registry::Journal;
use super::{records, sql};
use crate::stream::holes::{Erasure, Hole};
use crate::stream::name::check_durable_name;
use crate::stream::record::StreamRecord;

/// A stream that was written elsewhere until now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Adopted {
    /// Its name.
    pub name: String,
    /// Its UUID, which it keeps.
    pub stream_id: String,
    /// The log that takes rows now.
    pub log: String,
    /// Its columns in the canonical form of wire.md section 12.4.
    pub schema_canonical: String,
    /// Columns that sealed files are sorted by.
    pub sort_by: Vec<String>,
    /// Whether publishers may name themselves.
    pub exactly_once: bool,
    /// The offset of its first row ever.
    pub first_offset: i64,
    /// Where the current log starts, if the stream was migrated.
    pub floor: Option<i64>,
    /// Offsets before the next row's that hold no row.
    pub holes: Vec<Hole>,
    /// The erasures that left some of them; what holds their rows' bytes is looked for again.
    pub erasures: Vec<Erasure>,
    /// The offset of the next row.
    pub end_offset: i64,
    /// The stamp of the last row that is known, in microseconds; later ones are not below it.
    pub last_ts_us: Option<i64>,
}

impl Journal {
    /// Records a stream that comes from elsewhere. One of that name that never had a row is replaced.
    ///
    /// # Errors
    /// When the name cannot be a durable stream's, a stream of that name has rows, or SQLite refuses.
    pub fn adopt(&mut self, adopted: &Adopted) -> Result<StreamRecord, JournalError> {
        check_durable_name(&adopted.name)?;
        let path = self.path.clone();
        let fail = |source| JournalError::Sql { action: "take up a stream", path: path.clone(), source };
        if let Some(there) = self.streams.iter().find(|record| record.name == adopted.name)
            && there.end_offset > there.first_offset
        {
            return Err(JournalError::Taken { name: adopted.name.clone() });
        }
        let now_us = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |since| since.as_micros() as i64);
        let transaction = self.connection.transaction().map_err(fail)?;
        let write = || -> rusqlite::Result<i64> {
            let id: i64 = transaction.query_row(
                "INSERT INTO streams (name, log, stream_id, schema, sort_by, exactly_once, first_offset, floor,
                                      end_offset, last_ts_us, created_us)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
                 ON CONFLICT (name) DO UPDATE SET
                     log = excluded.log, stream_id = excluded.stream_id, schema = excluded.schema,
                     sort_by = excluded.sort_by, exactly_once = excluded.exactly_once,
                     first_offset = excluded.first_offset, floor = excluded.floor, end_offset = excluded.end_offset,
                     last_ts_us = excluded.last_ts_us
                 RETURNING id",
                params![
                    adopted.name,
                    adopted.log,
                    adopted.stream_id,
                    adopted.schema_canonical,
                    records::sort_by_text(&adopted.sort_by),
                    adopted.exactly_once,
                    adopted.first_offset,
                    adopted.floor,
                    adopted.end_offset,
                    adopted.last_ts_us,
                    now_us
                ],
                |row| row.get(0),
            )?;
            write_holes(&transaction, id, adopted)?;
            let there = self.streams.iter().any(|record| i64::from(record.id) == id);
            if let (false, Ok(id)) = (there, u32::try_from(id)) {
                transaction.execute_batch(&sql::create_batches(id))?;
            }
            Ok(id)
        };
        write().map_err(fail)?;
        transaction.commit().map_err(fail)?;
        self.reload(&adopted.name)
    }

    /// The rows up to `end`, the last of them stamped `last_ts_us`, are in files that the journal never had: the next
    /// row gets `end`. Nothing happens if that is known already.
    ///
    /// # Errors
    /// When the stream is unknown or SQLite refuses.
    pub fn advance(&mut self, stream: u32, end: i64, last_ts_us: i64) -> Result<StreamRecord, JournalError> {
        let name = self.name(stream)?;
        let fail = |source| JournalError::Sql { action: "move the end of a stream", path: self.path.clone(), source };
        self.connection
            .execute(
                "UPDATE streams SET end_offset = max(end_offset, ?2), last_ts_us = max(coalesce(last_ts_us, ?3), ?3)
                 WHERE id = ?1",
                params![stream, end, last_ts_us],
            )
            .map_err(fail)?;
        self.reload(&name)
    }

    /// Forgets how far the publishers of a stream are: each begins at 1 again.
    ///
    /// # Errors
    /// When SQLite refuses.
    pub fn forget_marks(&mut self, stream: u32) -> Result<(), JournalError> {
        let fail = |source| JournalError::Sql { action: "forget publishers", path: self.path.clone(), source };
        self.connection.execute("DELETE FROM marks WHERE stream = ?1", [stream]).map(|_| ()).map_err(fail)
    }

    fn name(&self, stream: u32) -> Result<String, JournalError> {
        let record = self.streams.iter().find(|record| record.id == stream);
        record.map(|record| record.name.clone()).ok_or(JournalError::Unknown { stream })
    }

    /// Reads a stream's record again.
    fn reload(&mut self, name: &str) -> Result<StreamRecord, JournalError> {
        let found = records::find(&self.connection, &self.path, name)?;
        let (record, last_ts_us) = found.ok_or(JournalError::Unknown { stream: 0 })?;
        if let Some(ts_us) = last_ts_us {
            self.last_ts_us.insert(record.id, ts_us);
        }
        self.streams.retain(|other| other.id != record.id);
        self.streams.push(record.clone());
        self.streams.sort_by_key(|record| record.id);
        Ok(record)
    }
}

fn write_holes(connection: &Connection, id: i64, adopted: &Adopted) -> rusqlite::Result<()> {
    let mut hole = connection.prepare_cached(
        "INSERT OR REPLACE INTO skipped (stream, first_offset, end_offset, marker) VALUES (?1, ?2, ?3, ?4)",
    )?;
    for Hole { first, end, marker } in &adopted.holes {
        hole.execute(params![id, first, end, marker])?;
    }
    let mut erasure = connection
        .prepare_cached("INSERT OR REPLACE INTO erasures (stream, marker, records, ts_us) VALUES (?1, ?2, ?3, ?4)")?;
    for Erasure { marker, records, ts_us } in &adopted.erasures {
        erasure.execute(params![id, marker, records, ts_us])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::{JournalSettings, StreamSpec, open};

    fn adopted(end_offset: i64) -> Adopted {
        Adopted {
            name: "t".to_owned(),
            stream_id: "79c6ab49-7ea5-482d-8bb0-9eef7a4b4b14".to_owned(),
            log: "t-v2".to_owned(),
            schema_canonical: r#"{"type":"object","properties":{},"required":[]}"#.to_owned(),
            sort_by: vec!["a".to_owned()],
            exactly_once: true,
            first_offset: 1,
            floor: Some(5),
            holes: vec![
                Hole { first: 3, end: 5, marker: Some(8) },
                Hole { first: 9, end: end_offset.max(10), marker: None },
            ],
            erasures: vec![Erasure { marker: 8, records: 2, ts_us: 70 }],
            end_offset,
            last_ts_us: Some(77),
        }
    }

    #[test]
    fn a_stream_from_elsewhere_goes_on_behind_its_fence() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut journal = open(dir.path(), JournalSettings::default()).expect("opened");
        let spec = StreamSpec {
            name: "t".to_owned(),
            schema_canonical: "{}".to_owned(),
            sort_by: vec![],
            exactly_once: false,
            group_commit: true,
        };
        let empty = journal.declare(&spec).expect("created");
        // It was created by mistake and never had a row.
        let record = journal.adopt(&adopted(1 << 40)).expect("taken up");
        assert_eq!((record.id, record.end_offset, record.floor), (empty.id, 1 << 40, Some(5)));
        assert_eq!((record.log.as_str(), journal.streams().len()), ("t-v2", 1));
        journal.adopt(&adopted(7)).expect_err("it has rows");
        let record = journal.advance(record.id, (1 << 40) + 3, 70).expect("moved");
        assert_eq!((record.end_offset, journal.last_ts_us(record.id)), ((1 << 40) + 3, Some(77)));
        assert_eq!(journal.advance(record.id, 4, 80).expect("known").end_offset, (1 << 40) + 3);
        journal.forget_marks(record.id).expect("none");
        drop(journal);
        let journal = open(dir.path(), JournalSettings::default()).expect("opened again");
        assert_eq!(journal.streams(), [record]);
    }
}
