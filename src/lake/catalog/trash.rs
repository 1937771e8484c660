//! Files that nobody names any more and that readers of an older state may still have open: deleted when they are due.

use rusqlite::params;

use super::error::CatalogError;
use super::store::{Catalog, now_us};
use super::view::LogId;

/// A file to be deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trash {
    /// Where it is.
    pub uri: String,
    /// The log it belonged to.
    pub log: LogId,
}

impl Catalog {
    /// Files that are due, at most `count` of them, those that wait longest first.
    ///
    /// # Errors
    /// When SQLite refuses.
    pub fn due_trash(&self, count: usize) -> Result<Vec<Trash>, CatalogError> {
        let connection = self.lock();
        let read = || -> rusqlite::Result<Vec<Trash>> {
            let sql = "SELECT uri, log FROM trash WHERE due_us <= ?1 ORDER BY due_us LIMIT ?2";
            let mut statement = connection.prepare_cached(sql)?;
            let rows = statement.query_map(params![now_us(), count as i64], |row| {
                Ok(Trash { uri: row.get(0)?, log: LogId(row.get(1)?) })
            })?;
            rows.collect()
        };
        read().map_err(self.fail("read what is to be deleted"))
    }

    /// Everything of a log that waits to be deleted, due or not.
    ///
    /// # Errors
    /// When SQLite refuses.
    pub fn trash_of(&self, log: LogId) -> Result<Vec<Trash>, CatalogError> {
        let connection = self.lock();
        let read = || -> rusqlite::Result<Vec<Trash>> {
            let mut statement = connection.prepare_cached("SELECT uri FROM trash WHERE log = ?1")?;
            let rows = statement.query_map([log.0], |row| Ok(Trash { uri: row.get(0)?, log }))?;
            rows.collect()
        };
        read().map_err(self.fail("read what is to be deleted"))
    }

    /// Has a file deleted from `due_us` on.
    ///
    /// # Errors
    /// When SQLite refuses.
    pub fn discard(&self, trash: &Trash, due_us: i64) -> Result<(), CatalogError> {
        let sql = "INSERT OR REPLACE INTO trash (uri, log, due_us) VALUES (?1, ?2, ?3)";
        let written = self.lock().execute(sql, params![trash.uri, trash.log.0, due_us]);
        written.map(|_| ()).map_err(self.fail("note what is to be deleted"))
    }

    /// A file is deleted.
    ///
    /// # Errors
    /// When SQLite refuses.
    pub fn forget_trash(&self, uri: &str) -> Result<(), CatalogError> {
        let deleted = self.lock().execute("DELETE FROM trash WHERE uri = ?1", [uri]);
        deleted.map(|_| ()).map_err(self.fail("forget what was deleted"))
    }
}
