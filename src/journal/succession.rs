//! One log after the other: what a migration, a retirement and a revival change in the journal.

use rusqlite::{Connection, OptionalExtension as _, params};

use super::error::JournalError;
use super::evict::{self, End};
use super::office::Office;
use super::records;
use crate::stream::record::StreamRecord;

/// Why a log cannot begin.
pub(super) enum Begin {
    /// SQLite refused.
    Sql(rusqlite::Error),
    /// Rows of the log before are there, from this offset on.
    RowsLeft(i64),
}

impl From<rusqlite::Error> for Begin {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

/// Writes down that a stream goes on as `changed` says, if none of its rows are left.
pub(super) fn begin_log(connection: &mut Connection, changed: &StreamRecord) -> Result<(), Begin> {
    let transaction = connection.transaction()?;
    let sql = format!("SELECT min(first_offset) FROM batches_{}", changed.id);
    if let Some(first) = transaction.query_row(&sql, [], |row| row.get(0))? {
        return Err(Begin::RowsLeft(first));
    }
    let sort_by = records::sort_by_text(&changed.sort_by);
    transaction.execute(
        "UPDATE streams SET log = ?2, schema = ?3, sort_by = ?4, floor = ?5 WHERE id = ?1",
        params![changed.id, changed.log, changed.schema_canonical, sort_by, changed.floor],
    )?;
    Ok(transaction.commit()?)
}

impl Office<'_> {
    /// As [`super::Journal::evict`], for a stream that is detached, and a part of it at a time: whether there is more.
    ///
    /// # Errors
    /// When the stream is unknown or SQLite refuses.
    pub fn evict(&mut self, name: &str, below: i64) -> Result<bool, JournalError> {
        let (record, last_ts_us) = self.known(name)?;
        let end = End { offset: record.end_offset, last_ts_us };
        let fail =
            |source| JournalError::Sql { action: "delete rows that were moved", path: self.path.to_owned(), source };
        let transaction = self.connection.transaction().map_err(fail)?;
        let step = evict::step(&transaction, record.id, below, end, evict::STEP).map_err(fail)?;
        transaction.commit().map_err(fail)?;
        Ok(step.more)
    }

    /// As [`super::Journal::begin_log`], for a stream that is detached.
    ///
    /// # Errors
    /// When the stream is unknown, rows are left, or SQLite refuses.
    pub fn begin_log(
        &mut self,
        name: &str,
        log: &str,
        schema_canonical: &str,
        sort_by: &[String],
        floor: Option<i64>,
    ) -> Result<(), JournalError> {
        let (record, _) = self.known(name)?;
        let changed = StreamRecord {
            log: log.to_owned(),
            schema_canonical: schema_canonical.to_owned(),
            sort_by: sort_by.to_vec(),
            floor,
            ..record
        };
        begin_log(self.connection, &changed).map_err(|error| match error {
            Begin::Sql(source) => JournalError::Sql { action: "begin a log", path: self.path.to_owned(), source },
            Begin::RowsLeft(first) => JournalError::RowsLeft { name: name.to_owned(), first },
        })
    }

    /// As [`super::Journal::forget_marks`], for a stream that is detached.
    ///
    /// # Errors
    /// When SQLite refuses.
    pub fn forget_marks(&mut self, stream: u32) -> Result<(), JournalError> {
        let fail = |source| JournalError::Sql { action: "forget publishers", path: self.path.to_owned(), source };
        self.connection.execute("DELETE FROM marks WHERE stream = ?1", [stream]).map(|_| ()).map_err(fail)
    }

    /// The name of a stream by its number.
    ///
    /// # Errors
    /// When SQLite refuses.
    pub fn name_of(&self, stream: u32) -> Result<Option<String>, JournalError> {
        let fail = |source| JournalError::Sql { action: "read a stream", path: self.path.to_owned(), source };
        let sql = "SELECT name FROM streams WHERE id = ?1";
        self.connection.query_row(sql, [stream], |row| row.get(0)).optional().map_err(fail)
    }

    fn known(&self, name: &str) -> Result<records::Recorded, JournalError> {
        let found = records::find(self.connection, self.path, name)?;
        found.ok_or(JournalError::Unknown { stream: 0 })
    }
}
