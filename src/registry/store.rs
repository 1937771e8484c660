//! The registry's database: declarations, operations, receipts. Every write is one transaction that is synced when the
//! call returns.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension as _, Row, Transaction, params};

use super::definition::Definition;
use super::error::RegistryError;
use super::record::{Desired, Kind, Operation, Record, Status};
use crate::schema::json::{self, Json};

/// The registry's file below the data root.
pub const REGISTRY_FILE: &str = "registry.db";

/// `scur` in ASCII: tells a registry from any other SQLite file.
const APPLICATION_ID: i32 = 0x7363_7572;
const FORMAT: i32 = 1;

/// Operations, and with them receipts, that are remembered. Pending ones are kept beyond that.
pub const KEPT_OPERATIONS: i64 = 10_000;

const TABLES: &str = "
    CREATE TABLE broker (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        broker_id TEXT NOT NULL,
        collection INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE streams (
        name TEXT PRIMARY KEY,
        definition TEXT NOT NULL,
        desired TEXT NOT NULL,
        revision INTEGER NOT NULL,
        stream_id TEXT,
        pending TEXT,
        profile_revision TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE operations (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        name TEXT NOT NULL,
        kind TEXT NOT NULL,
        revision INTEGER NOT NULL,
        target TEXT NOT NULL,
        status TEXT NOT NULL,
        no_op INTEGER NOT NULL,
        principal TEXT NOT NULL,
        key TEXT NOT NULL,
        digest BLOB NOT NULL,
        UNIQUE (principal, key)
    ) STRICT;
";

/// The answer to an accepted call, kept for the same call under the same key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// Nothing had to change: 200 and not 202.
    pub no_op: bool,
    /// The operation.
    pub operation_id: String,
    /// The stream's revision with it.
    pub revision: u64,
}

/// Under which name a receipt is kept, and what it is for.
#[derive(Debug, Clone, Copy)]
pub struct ReceiptKey<'a> {
    /// Who called.
    pub principal: &'a str,
    /// The field `Idempotency-Key`.
    pub key: &'a str,
    /// SHA-256 of everything that makes a call the same one.
    pub digest: [u8; 32],
}

/// What a registry holds when it is opened.
pub struct Loaded {
    /// The streams by name.
    pub records: Vec<Record>,
    /// Their pending operations in the order they were accepted.
    pub pending: Vec<Operation>,
    /// The number of the last accepted change of any stream.
    pub collection: u64,
}

/// The open database.
pub struct Store {
    connection: Connection,
    path: PathBuf,
}

impl Store {
    /// Opens the registry of a data root, and makes it if it is not there.
    ///
    /// # Errors
    /// When SQLite refuses, the file is something else, belongs to another broker or is damaged.
    pub fn open(root: &Path, broker_id: &str) -> Result<(Self, Loaded), RegistryError> {
        let path = root.join(REGISTRY_FILE);
        let fail = |action| {
            let path = path.clone();
            move |source| RegistryError::Sql { action, path, source }
        };
        let connection = Connection::open(&path).map_err(fail("open the database"))?;
        connection.busy_timeout(Duration::from_secs(2)).map_err(fail("open the database"))?;
        let mut store = Self { connection, path: path.clone() };
        store.prepare(broker_id)?;
        let loaded = store.load()?;
        Ok((store, loaded))
    }

    fn prepare(&mut self, broker_id: &str) -> Result<(), RegistryError> {
        let path = self.path.clone();
        let fail = move |source| RegistryError::Sql { action: "read the head", path: path.clone(), source };
        let foreign = |what: String| RegistryError::Foreign { path: self.path.clone(), what };
        let head = |name: &str| self.connection.query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, i32>(0));
        let (application, format) = match (head("application_id"), head("user_version")) {
            (Ok(application), Ok(format)) => (application, format),
            (Err(error), _) | (_, Err(error))
                if error.sqlite_error_code() == Some(rusqlite::ErrorCode::NotADatabase) =>
            {
                return Err(foreign("it is no database".to_owned()));
            }
            (Err(error), _) | (_, Err(error)) => return Err(fail(error)),
        };
        let tables: i64 =
            self.connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(&fail)?;
        if application != APPLICATION_ID && (application != 0 || format != 0 || tables != 0) {
            return Err(foreign("it is the database of another program".to_owned()));
        }
        if format > FORMAT {
            return Err(foreign(format!("its format is {format}, a later one than {FORMAT}")));
        }
        self.connection.pragma_update(None, "journal_mode", "wal").map_err(&fail)?;
        self.connection.pragma_update(None, "synchronous", "full").map_err(&fail)?;
        if format < FORMAT {
            let transaction = self.connection.transaction().map_err(&fail)?;
            transaction.execute_batch(TABLES).map_err(&fail)?;
            transaction.execute("INSERT INTO broker VALUES (1, ?1, 0)", [broker_id]).map_err(&fail)?;
            transaction.pragma_update(None, "application_id", APPLICATION_ID).map_err(&fail)?;
            transaction.pragma_update(None, "user_version", FORMAT).map_err(&fail)?;
            transaction.commit().map_err(&fail)?;
        }
        let recorded: String =
            self.connection.query_row("SELECT broker_id FROM broker", [], |row| row.get(0)).map_err(&fail)?;
        if recorded != broker_id {
            return Err(RegistryError::OtherBroker {
                path: self.path.clone(),
                recorded,
                configured: broker_id.to_owned(),
            });
        }
        Ok(())
    }

    fn load(&self) -> Result<Loaded, RegistryError> {
        let fail = |source| RegistryError::Sql { action: "read the streams", path: self.path.clone(), source };
        let mut statement = self
            .connection
            .prepare(
                "SELECT name, definition, desired, revision, stream_id, pending, profile_revision
                 FROM streams ORDER BY name",
            )
            .map_err(fail)?;
        let rows = statement.query_map([], |row| Ok((row.get::<_, String>(0)?, read_record(row)?))).map_err(fail)?;
        let mut records = Vec::new();
        for row in rows {
            let (name, record) = row.map_err(fail)?;
            records.push(record.ok_or_else(|| self.damaged(format!("the stream {name:?}")))?);
        }
        let mut statement = self
            .connection
            .prepare(
                "SELECT o.id, o.name, o.kind, o.revision, o.target, o.status
                 FROM operations o JOIN streams s ON s.pending = o.id ORDER BY o.number",
            )
            .map_err(fail)?;
        let rows = statement.query_map([], |row| Ok((row.get::<_, String>(0)?, read_operation(row)?))).map_err(fail)?;
        let mut pending = Vec::new();
        for row in rows {
            let (id, operation) = row.map_err(fail)?;
            pending.push(operation.ok_or_else(|| self.damaged(format!("the operation {id}")))?);
        }
        let named = records.iter().filter(|record| record.pending.is_some()).count();
        if named != pending.len() {
            return Err(self.damaged("a stream waits for an operation that is not there".to_owned()));
        }
        let collection =
            self.connection.query_row("SELECT collection FROM broker", [], |row| row.get::<_, i64>(0)).map_err(fail)?;
        let collection = u64::try_from(collection).unwrap_or(0);
        Ok(Loaded { records, pending, collection })
    }

    /// The receipt that is kept under a key.
    ///
    /// # Errors
    /// When SQLite refuses.
    pub fn receipt(&self, principal: &str, key: &str) -> Result<Option<([u8; 32], Receipt)>, RegistryError> {
        self.connection
            .prepare_cached("SELECT digest, no_op, id, revision FROM operations WHERE principal = ?1 AND key = ?2")
            .and_then(|mut statement| {
                statement
                    .query_row([principal, key], |row| {
                        let receipt =
                            Receipt { no_op: row.get(1)?, operation_id: row.get(2)?, revision: unsigned(row, 3)? };
                        Ok((row.get(0)?, receipt))
                    })
                    .optional()
            })
            .map_err(|source| self.sql("read a receipt", source))
    }

    /// An operation by its id.
    ///
    /// # Errors
    /// When SQLite refuses or the row is damaged.
    pub fn operation(&self, id: &str) -> Result<Option<Operation>, RegistryError> {
        let found = self
            .connection
            .prepare_cached("SELECT id, name, kind, revision, target, status FROM operations WHERE id = ?1")
            .and_then(|mut statement| statement.query_row([id], read_operation).optional())
            .map_err(|source| self.sql("read an operation", source))?;
        match found {
            None => Ok(None),
            Some(Some(operation)) => Ok(Some(operation)),
            Some(None) => Err(self.damaged(format!("the operation {id}"))),
        }
    }

    /// Keeps an accepted change with its receipt.
    ///
    /// # Errors
    /// When SQLite refuses; nothing is kept then.
    pub fn accept(
        &mut self,
        record: &Record,
        operation: &Operation,
        receipt: ReceiptKey<'_>,
        no_op: bool,
    ) -> Result<(), RegistryError> {
        let path = self.path.clone();
        let write = |transaction: &Transaction<'_>| {
            put_record(transaction, record)?;
            transaction.execute(
                "INSERT INTO operations (id, name, kind, revision, target, status, no_op, principal, key, digest)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
                params![
                    operation.id,
                    operation.name,
                    operation.kind.word(),
                    signed(operation.revision),
                    operation.target.to_text(),
                    operation.status.word(),
                    no_op,
                    receipt.principal,
                    receipt.key,
                    receipt.digest,
                ],
            )?;
            let newest = transaction.last_insert_rowid();
            transaction.execute(
                "DELETE FROM operations WHERE number <= ?1
                     AND id NOT IN (SELECT pending FROM streams WHERE pending IS NOT NULL)",
                [newest - KEPT_OPERATIONS],
            )?;
            if !no_op {
                transaction.execute("UPDATE broker SET collection = collection + 1", [])?;
            }
            Ok(())
        };
        self.transact(write).map_err(|source| RegistryError::Sql { action: "keep a change", path, source })
    }

    /// Keeps what has become of a stream, and of an operation on it.
    ///
    /// # Errors
    /// When SQLite refuses; nothing is kept then.
    pub fn update(&mut self, record: &Record, operation: Option<&Operation>) -> Result<(), RegistryError> {
        let path = self.path.clone();
        let write = |transaction: &Transaction<'_>| {
            put_record(transaction, record)?;
            if let Some(operation) = operation {
                transaction.execute(
                    "UPDATE operations SET status = ?2 WHERE id = ?1",
                    params![operation.id, operation.status.word()],
                )?;
            }
            Ok(())
        };
        self.transact(write).map_err(|source| RegistryError::Sql { action: "keep a step", path, source })
    }

    fn transact(&mut self, write: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<()>) -> rusqlite::Result<()> {
        let transaction = self.connection.transaction()?;
        write(&transaction)?;
        transaction.commit()
    }

    fn sql(&self, action: &'static str, source: rusqlite::Error) -> RegistryError {
        RegistryError::Sql { action, path: self.path.clone(), source }
    }

    fn damaged(&self, what: String) -> RegistryError {
        RegistryError::Damaged { path: self.path.clone(), what: format!("{what} cannot be read") }
    }
}

fn put_record(transaction: &Transaction<'_>, record: &Record) -> rusqlite::Result<usize> {
    transaction.execute(
        "INSERT OR REPLACE INTO streams VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        params![
            record.name,
            record.definition.to_json().to_text(),
            record.desired.word(),
            signed(record.revision),
            record.stream_id,
            record.pending,
            record.profile_revision,
        ],
    )
}

fn read_record(row: &Row<'_>) -> rusqlite::Result<Option<Record>> {
    let definition = parse(&row.get::<_, String>(1)?).as_ref().and_then(Definition::read_kept);
    let (Some(definition), Some(desired)) = (definition, Desired::parse(&row.get::<_, String>(2)?)) else {
        return Ok(None);
    };
    Ok(Some(Record {
        name: row.get(0)?,
        definition,
        desired,
        revision: unsigned(row, 3)?,
        stream_id: row.get(4)?,
        pending: row.get(5)?,
        profile_revision: row.get(6)?,
    }))
}

fn read_operation(row: &Row<'_>) -> rusqlite::Result<Option<Operation>> {
    let kind = Kind::parse(&row.get::<_, String>(2)?);
    let target = parse(&row.get::<_, String>(4)?);
    let status = Status::parse(&row.get::<_, String>(5)?);
    let (Some(kind), Some(target), Some(status)) = (kind, target, status) else { return Ok(None) };
    let (id, name, revision) = (row.get(0)?, row.get(1)?, unsigned(row, 3)?);
    Ok(Some(Operation { id, name, kind, revision, target, status }))
}

fn parse(text: &str) -> Option<Json> {
    json::parse(text.as_bytes()).ok()
}

/// SQLite's integers are signed; counts stay far below the bound.
fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn unsigned(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    Ok(u64::try_from(row.get::<_, i64>(column)?).unwrap_or(0))
}
