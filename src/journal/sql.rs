//! The journal's file: how it is opened, its tables and their versions.

use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension as _};

use super::error::JournalError;
use super::settings::JournalSettings;
use super::{change, erase, receipts, together};

/// The journal's file below the data root.
pub const JOURNAL_FILE: &str = "journal.db";

/// `scuj` in ASCII: tells a journal from any other SQLite file.
const APPLICATION_ID: i32 = 0x7363_756a;

/// The steps from an empty file to the current format; format `n` is what the first `n` steps make.
const FORMATS: [&str; 5] = [
    "
    CREATE TABLE streams (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        name TEXT NOT NULL UNIQUE,
        stream_id TEXT NOT NULL UNIQUE,
        schema TEXT NOT NULL,
        sort_by TEXT NOT NULL,
        exactly_once INTEGER NOT NULL,
        first_offset INTEGER NOT NULL,
        floor INTEGER,
        end_offset INTEGER NOT NULL,
        last_ts_us INTEGER,
        created_us INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE marks (
        stream INTEGER NOT NULL REFERENCES streams(id),
        publisher TEXT NOT NULL,
        last_seq INTEGER NOT NULL,
        last_offset INTEGER NOT NULL,
        PRIMARY KEY (stream, publisher)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE skipped (
        stream INTEGER NOT NULL REFERENCES streams(id),
        first_offset INTEGER NOT NULL,
        end_offset INTEGER NOT NULL,
        PRIMARY KEY (stream, first_offset)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE voided (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        commits INTEGER NOT NULL
    ) STRICT;
    INSERT INTO voided VALUES (1, 0);
",
    "
    ALTER TABLE streams ADD COLUMN log TEXT;
",
    receipts::TABLES,
    erase::TABLES,
    change::TABLES,
];

/// Creates the table of a stream's batches.
pub(super) fn create_batches(stream: u32) -> String {
    format!(
        "CREATE TABLE batches_{stream} (
            first_offset INTEGER PRIMARY KEY,
            count INTEGER NOT NULL,
            ts_us INTEGER NOT NULL,
            stamps TEXT,
            body TEXT NOT NULL
        ) STRICT"
    )
}

/// Opens the journal for writing, brings it to the current format and, if possible, leaves its log empty.
pub(super) fn open_writer(path: &Path, settings: &JournalSettings) -> Result<Connection, JournalError> {
    let fail = |action| move |source| JournalError::Sql { action, path: path.to_owned(), source };
    let connection = connect_writer(path, OpenFlags::default()).map_err(fail("open the file"))?;
    check_owner(&connection, path)?;
    configure_writer(&connection, settings).map_err(fail("choose settings"))?;
    upgrade(&connection, path)?;
    // What a crash left in the log is valid where it is; moving it only makes the next start shorter.
    if let Err(error) = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())) {
        tracing::warn!(%error, journal = %path.display(), "the write-ahead log cannot be moved into the journal yet");
    }
    Ok(connection)
}

/// Opens the journal for writing once more, after an error that the first connection may not have survived.
pub(super) fn reopen_writer(path: &Path, settings: &JournalSettings) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
    let connection = connect_writer(path, flags)?;
    configure_writer(&connection, settings)?;
    Ok(connection)
}

/// The pages of a transaction go to the log together.
fn connect_writer(path: &Path, flags: OpenFlags) -> rusqlite::Result<Connection> {
    match together::vfs() {
        Some(vfs) => Connection::open_with_flags_and_vfs(path, flags, vfs),
        None => Connection::open_with_flags(path, flags),
    }
}

/// Opens the journal for reading.
pub(super) fn open_reader(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(Duration::from_secs(2))?;
    connection.pragma_update(None, "query_only", true)?;
    Ok(connection)
}

/// Opens the journal for moving its log into the file.
pub(super) fn open_checkpointer(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(Duration::ZERO)?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    // The writer alone decides what becomes of the log at the end.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    Ok(connection)
}

fn check_owner(connection: &Connection, path: &Path) -> Result<(), JournalError> {
    let fail = |source| JournalError::Sql { action: "read the format", path: path.to_owned(), source };
    let number = |pragma| connection.pragma_query_value(None, pragma, |row| row.get::<_, i32>(0)).map_err(fail);
    let (found, version) = (number("application_id")?, number("user_version")?);
    if version > FORMATS.len() as i32 && found == APPLICATION_ID {
        return Err(JournalError::Newer { path: path.to_owned(), found: version, known: FORMATS.len() as i32 });
    }
    let empty =
        connection.query_row("SELECT 1 FROM sqlite_schema LIMIT 1", [], |_| Ok(())).optional().map_err(fail)?.is_none();
    if found == APPLICATION_ID || (empty && version == 0) {
        Ok(())
    } else {
        Err(JournalError::Foreign { path: path.to_owned(), found })
    }
}

fn configure_writer(connection: &Connection, settings: &JournalSettings) -> rusqlite::Result<()> {
    connection.busy_timeout(Duration::from_millis(settings.busy_timeout_ms))?;
    // Takes effect on a new file only.
    connection.pragma_update(None, "page_size", settings.page_size_bytes)?;
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    // Each transaction ends with a sync, before anybody is told of it; `together` relies on it, too.
    connection.pragma_update(None, "synchronous", "FULL")?;
    // The checkpointer decides when; a commit never pays for one unasked.
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    // The log keeps its length, so commits overwrite instead of extending.
    connection.pragma_update_and_check(None, "journal_size_limit", -1, |_| Ok(()))?;
    connection.pragma_update(None, "cache_size", -((settings.cache_bytes / 1024).max(64) as i64))?;
    // What is deleted within a page that is written anyway is overwritten with zeros there.
    connection.pragma_update_and_check(None, "secure_delete", "FAST", |_| Ok(()))?;
    // References are documentation for people; the writer keeps them true.
    connection.pragma_update(None, "foreign_keys", false)?;
    Ok(())
}

fn upgrade(connection: &Connection, path: &Path) -> Result<(), JournalError> {
    let fail =
        |source| JournalError::Sql { action: "bring the tables to the current format", path: path.to_owned(), source };
    let version = connection.pragma_query_value(None, "user_version", |row| row.get::<_, i32>(0)).map_err(fail)?;
    for (step, tables) in FORMATS.iter().enumerate().skip(version.max(0) as usize) {
        let next = step + 1;
        connection
            .execute_batch(&format!(
                "BEGIN IMMEDIATE; {tables} PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {next}; COMMIT"
            ))
            .map_err(fail)?;
    }
    Ok(())
}
