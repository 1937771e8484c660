//! What changes about a stream besides its rows: its validator, and that it is no more (docs/batches.md).

use rusqlite::{Connection, OptionalExtension as _, params};

use super::error::JournalError;
use super::office::Office;

pub(super) const TABLES: &str = "
    CREATE TABLE deleted (
        stream_id TEXT PRIMARY KEY,
        stream INTEGER NOT NULL,
        name TEXT NOT NULL,
        deleted_us INTEGER NOT NULL,
        purged_us INTEGER
    ) STRICT, WITHOUT ROWID;
";

/// Batches that one step of a deletion deletes.
const STEP_BATCHES: i64 = 256;

/// A stream that is no more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deleted {
    /// The UUID that it had.
    pub stream_id: String,
    /// The number that it had.
    pub stream: u32,
    /// The name that it had.
    pub name: String,
    /// When it was deleted, in microseconds.
    pub deleted_us: i64,
    /// When its storage was gone, in microseconds.
    pub purged_us: Option<i64>,
}

impl Office<'_> {
    /// Gives a stream another validator, or none. Rows that were checked by the one before and are not committed yet
    /// are sent back. Returns the new version.
    ///
    /// # Errors
    /// When SQLite refuses.
    pub fn set_validator(&mut self, stream: u32, source: Option<&str>) -> Result<u64, JournalError> {
        let fail = |source| JournalError::Sql { action: "record a validator", path: self.path.to_owned(), source };
        let version = self
            .connection
            .query_row(
                "INSERT INTO validators (stream, version, source) VALUES (?1, 1, ?2)
                 ON CONFLICT DO UPDATE SET version = version + 1, source = excluded.source RETURNING version",
                params![stream, source],
                |row| row.get::<_, i64>(0),
            )
            .map_err(fail)? as u64;
        if let Some(place) = self.index.get(&stream) {
            self.streams[*place].validator_version = version;
        }
        Ok(version)
    }

    /// Forgets a stream that is detached: its name is free, its number is never given again. Its rows are still there
    /// and go with [`Office::purge_deleted`].
    ///
    /// # Errors
    /// When SQLite refuses.
    pub fn delete(&mut self, deleted: &Deleted) -> Result<(), JournalError> {
        let fail = |source| JournalError::Sql { action: "delete a stream", path: self.path.to_owned(), source };
        let Deleted { stream_id, stream, name, deleted_us, .. } = deleted;
        let transaction = self.connection.transaction().map_err(fail)?;
        transaction
            .execute(
                "INSERT INTO deleted (stream_id, stream, name, deleted_us) VALUES (?1, ?2, ?3, ?4)",
                params![stream_id, stream, name, deleted_us],
            )
            .map_err(fail)?;
        for table in ["marks", "skipped", "validators", "erasures"] {
            transaction.execute(&format!("DELETE FROM {table} WHERE stream = ?1"), [stream]).map_err(fail)?;
        }
        transaction.execute("DELETE FROM streams WHERE id = ?1", [stream]).map_err(fail)?;
        transaction.commit().map_err(fail)
    }

    /// Whether a stream of this name was deleted.
    ///
    /// # Errors
    /// When SQLite refuses.
    pub fn was_deleted(&self, name: &str) -> Result<bool, JournalError> {
        let fail = |source| JournalError::Sql { action: "read deletions", path: self.path.to_owned(), source };
        let found = self.connection.query_row("SELECT 1 FROM deleted WHERE name = ?1 LIMIT 1", [name], |_| Ok(()));
        Ok(found.optional().map_err(fail)?.is_some())
    }

    /// Whether something of a deleted stream of this name is left.
    ///
    /// # Errors
    /// When SQLite refuses.
    pub fn is_deleting(&self, name: &str) -> Result<bool, JournalError> {
        let fail = |source| JournalError::Sql { action: "read deletions", path: self.path.to_owned(), source };
        let sql = "SELECT 1 FROM deleted WHERE name = ?1 AND purged_us IS NULL LIMIT 1";
        Ok(self.connection.query_row(sql, [name], |_| Ok(())).optional().map_err(fail)?.is_some())
    }

    /// Deletes some rows and receipts of a deleted stream; true while there are more.
    ///
    /// # Errors
    /// When SQLite refuses. The step may be repeated.
    pub fn purge_deleted(&mut self, stream: u32) -> Result<bool, JournalError> {
        let fail = |source| JournalError::Sql { action: "purge a deleted stream", path: self.path.to_owned(), source };
        let exists = |connection: &Connection| {
            let name = format!("batches_{stream}");
            connection.query_row("SELECT 1 FROM sqlite_schema WHERE name = ?1", [name], |_| Ok(())).optional()
        };
        let receipts = self
            .connection
            .execute(
                "DELETE FROM receipts WHERE (stream, operation, key) IN
                 (SELECT stream, operation, key FROM receipts WHERE stream = ?1 LIMIT ?2)",
                params![stream, STEP_BATCHES],
            )
            .map_err(fail)?;
        if receipts > 0 {
            return Ok(true);
        }
        if exists(self.connection).map_err(fail)?.is_none() {
            return Ok(false);
        }
        let sql = format!(
            "DELETE FROM batches_{stream} WHERE first_offset IN
             (SELECT first_offset FROM batches_{stream} ORDER BY first_offset LIMIT ?1)"
        );
        if self.connection.execute(&sql, [STEP_BATCHES]).map_err(fail)? > 0 {
            return Ok(true);
        }
        self.connection.execute_batch(&format!("DROP TABLE batches_{stream}")).map_err(fail)?;
        Ok(false)
    }

    /// Notes that nothing of a deleted stream is left.
    ///
    /// # Errors
    /// When SQLite refuses.
    pub fn note_deleted(&mut self, stream_id: &str, now_us: i64) -> Result<(), JournalError> {
        let fail = |source| JournalError::Sql { action: "note a deletion", path: self.path.to_owned(), source };
        self.connection
            .execute("UPDATE deleted SET purged_us = ?2 WHERE stream_id = ?1", params![stream_id, now_us])
            .map(drop)
            .map_err(fail)
    }
}

/// All streams that are no more.
pub(super) fn deleted(connection: &Connection) -> rusqlite::Result<Vec<Deleted>> {
    let mut statement = connection.prepare("SELECT stream_id, stream, name, deleted_us, purged_us FROM deleted")?;
    let rows = statement.query_map([], |row| {
        Ok(Deleted {
            stream_id: row.get(0)?,
            stream: row.get(1)?,
            name: row.get(2)?,
            deleted_us: row.get(3)?,
            purged_us: row.get(4)?,
        })
    })?;
    rows.collect()
}
