//! The catalog's file: how it is opened, its tables and their versions.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension as _};

use super::error::CatalogError;
use super::purges;

/// The catalog's file below the data root.
pub const CATALOG_FILE: &str = "lake.db";

/// `scul` in ASCII.
const APPLICATION_ID: i32 = 0x7363_756c;

/// The steps from an empty file to the current format; format `n` is what the first `n` steps make.
const FORMATS: [&str; 2] = [
    "
    CREATE TABLE meta (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        writer_epoch INTEGER NOT NULL
    ) STRICT;
    INSERT INTO meta VALUES (1, 0);
    CREATE TABLE logs (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        stream TEXT NOT NULL,
        name TEXT NOT NULL,
        location TEXT NOT NULL,
        start_offset INTEGER NOT NULL,
        sealed_end INTEGER NOT NULL,
        published_end INTEGER NOT NULL,
        created_us INTEGER NOT NULL,
        UNIQUE (stream, name)
    ) STRICT;
    CREATE TABLE files (
        log INTEGER NOT NULL REFERENCES logs(id),
        start_offset INTEGER NOT NULL,
        end_offset INTEGER NOT NULL,
        row_count INTEGER NOT NULL,
        size_bytes INTEGER NOT NULL,
        min_ts_us INTEGER NOT NULL,
        max_ts_us INTEGER NOT NULL,
        uri TEXT NOT NULL,
        path TEXT,
        local INTEGER NOT NULL,
        published INTEGER NOT NULL,
        tier TEXT NOT NULL,
        created_us INTEGER NOT NULL,
        description TEXT,
        PRIMARY KEY (log, start_offset)
    ) STRICT;
    CREATE TABLE intents (
        path TEXT PRIMARY KEY,
        log INTEGER NOT NULL REFERENCES logs(id),
        tier TEXT NOT NULL,
        start_offset INTEGER NOT NULL,
        end_offset INTEGER NOT NULL,
        description TEXT,
        created_us INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE trash (
        uri TEXT PRIMARY KEY,
        log INTEGER NOT NULL,
        due_us INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
",
    purges::TABLES,
];

/// Opens the catalog and brings it to the current format. The data root's lock keeps other processes away.
pub(super) fn open(path: &Path) -> Result<Connection, CatalogError> {
    let fail = |action| move |source| CatalogError::Sql { action, path: path.to_owned(), source };
    let connection = Connection::open(path).map_err(fail("open the file"))?;
    let number = |pragma| {
        connection.pragma_query_value(None, pragma, |row| row.get::<_, i32>(0)).map_err(fail("read the format"))
    };
    let (application_id, format) = (number("application_id")?, number("user_version")?);
    let empty = connection
        .query_row("SELECT 1 FROM sqlite_schema LIMIT 1", [], |_| Ok(()))
        .optional()
        .map_err(fail("read the tables"))?
        .is_none();
    if !(application_id == APPLICATION_ID || empty) || format > FORMATS.len() as i32 {
        return Err(CatalogError::Foreign { path: path.to_owned(), application_id, format });
    }
    configure(&connection).map_err(fail("choose settings"))?;
    for (step, tables) in FORMATS.iter().enumerate().skip(format.max(0) as usize) {
        let next = step + 1;
        let sql = format!(
            "BEGIN IMMEDIATE; {tables} PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {next}; COMMIT"
        );
        connection.execute_batch(&sql).map_err(fail("bring the tables to the current format"))?;
    }
    Ok(connection)
}

fn configure(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(Duration::from_secs(5))?;
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    // What is known of the values in a file goes with the file.
    connection.pragma_update_and_check(None, "secure_delete", true, |_| Ok(()))?;
    connection.pragma_update(None, "foreign_keys", false)?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(())
}
