//! How far the erased rows of a log are purged from files (docs/storage.md, "Purging").

use rusqlite::{OptionalExtension as _, params};

use super::error::CatalogError;
use super::store::Catalog;
use super::view::LogId;

pub(super) const TABLES: &str = "
    CREATE TABLE purges (
        log INTEGER PRIMARY KEY,
        through INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE condemned (
        log INTEGER NOT NULL,
        uri TEXT NOT NULL,
        marker INTEGER NOT NULL,
        PRIMARY KEY (log, uri)
    ) STRICT, WITHOUT ROWID;
";

impl Catalog {
    /// The latest erasure of whose rows no file of the log holds any, and whose left-over files are all condemned.
    ///
    /// # Errors
    /// When SQLite refuses.
    pub fn rewritten_through(&self, log: LogId) -> Result<Option<i64>, CatalogError> {
        let sql = "SELECT through FROM purges WHERE log = ?1";
        let through = self.lock().query_row(sql, [log.0], |row| row.get(0)).optional();
        through.map_err(self.fail("read how far a log is purged"))
    }

    /// No file of the log holds rows that erasures up to `marker` took; `uris` are files that are not the log's any more
    /// and may hold some until they are deleted.
    ///
    /// # Errors
    /// When SQLite refuses.
    pub fn condemn(&self, log: LogId, marker: i64, uris: &[String]) -> Result<(), CatalogError> {
        let mut connection = self.lock();
        let mut write = || -> rusqlite::Result<()> {
            let transaction = connection.transaction()?;
            {
                let mut insert = transaction
                    .prepare_cached("INSERT OR IGNORE INTO condemned (log, uri, marker) VALUES (?1, ?2, ?3)")?;
                for uri in uris {
                    insert.execute(params![log.0, uri, marker])?;
                }
            }
            transaction.execute(
                "INSERT INTO purges (log, through) VALUES (?1, ?2)
                 ON CONFLICT DO UPDATE SET through = max(through, excluded.through)",
                params![log.0, marker],
            )?;
            transaction.commit()
        };
        write().map_err(self.fail("note files with erased rows"))
    }

    /// The condemned files of a log that are not known to be deleted.
    ///
    /// # Errors
    /// When SQLite refuses.
    pub fn condemned(&self, log: LogId) -> Result<Vec<String>, CatalogError> {
        let connection = self.lock();
        let read = || -> rusqlite::Result<Vec<String>> {
            let mut statement = connection.prepare_cached("SELECT uri FROM condemned WHERE log = ?1")?;
            statement.query_map([log.0], |row| row.get(0))?.collect()
        };
        read().map_err(self.fail("read files with erased rows"))
    }

    /// The earliest erasure that a condemned file of a log was listed for.
    ///
    /// # Errors
    /// When SQLite refuses.
    pub fn first_condemned(&self, log: LogId) -> Result<Option<i64>, CatalogError> {
        let sql = "SELECT min(marker) FROM condemned WHERE log = ?1";
        self.lock().query_row(sql, [log.0], |row| row.get(0)).map_err(self.fail("read files with erased rows"))
    }

    /// Condemned files are deleted.
    ///
    /// # Errors
    /// When SQLite refuses.
    pub fn forget_condemned(&self, log: LogId, uris: &[String]) -> Result<(), CatalogError> {
        let mut connection = self.lock();
        let mut write = || -> rusqlite::Result<()> {
            let transaction = connection.transaction()?;
            for uri in uris {
                transaction
                    .prepare_cached("DELETE FROM condemned WHERE log = ?1 AND uri = ?2")?
                    .execute(params![log.0, uri])?;
            }
            transaction.commit()
        };
        write().map_err(self.fail("forget files with erased rows"))
    }

    /// Moves the write-ahead log into the file and empties it, so that nothing of what was deleted is left in it.
    ///
    /// # Errors
    /// When SQLite refuses.
    pub fn empty_log(&self) -> Result<(), CatalogError> {
        let emptied = self.lock().query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        emptied.map_err(self.fail("empty the write-ahead log"))
    }
}
