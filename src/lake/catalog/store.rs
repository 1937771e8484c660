//! The catalog: changes in transactions, and the views that follow them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, OptionalExtension as _, Transaction, params};

use super::error::CatalogError;
use super::rows::{self, FILE_COLUMNS};
use super::sql::{self, CATALOG_FILE};
use super::view::{LogId, LogView, Tier};
use crate::lake::data_file::DataFile;

/// A log that comes into the catalog.
#[derive(Debug, Clone)]
pub struct NewLog<'a> {
    /// The stream.
    pub stream: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Where its table is: the published prefix and the name.
    pub location: &'a str,
    /// The first offset it may hold.
    pub start_offset: i64,
}

/// A file that comes into the catalog.
#[derive(Debug, Clone)]
pub struct NewFile {
    /// What is known of it; `uri` is where the table has it or will have it.
    pub file: DataFile,
    /// Where it is on this machine; `None` if only the table's store has it.
    pub path: Option<PathBuf>,
    /// Where it came from.
    pub tier: Tier,
    /// Whether replays read it as part of the local tier.
    pub local: bool,
    /// Whether the table has it.
    pub published: bool,
}

/// A file that was to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Intent {
    /// The log.
    pub log: LogId,
    /// Where its rows come from.
    pub tier: Tier,
    /// Where it is, if it is there.
    pub path: PathBuf,
    /// The offsets that it is for: those of the files that it is to replace.
    pub range: (i64, i64),
    /// What it holds, once it was complete and a table was about to be told of it.
    pub file: Option<DataFile>,
    /// When it was noted, in microseconds.
    pub created_us: i64,
}

/// The open catalog. Shared by all tasks of a process; the data root's lock keeps other processes away.
pub struct Catalog {
    pub(super) root: PathBuf,
    path: PathBuf,
    connection: Mutex<Connection>,
    logs: RwLock<HashMap<LogId, Arc<LogView>>>,
    writer_epoch: u64,
}

impl std::fmt::Debug for Catalog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Catalog").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Catalog {
    /// Opens the catalog below the data root `root`, an absolute path, and begins a new writer epoch.
    ///
    /// # Errors
    /// When SQLite refuses, or the file is of something else.
    pub fn open(root: &Path) -> Result<Self, CatalogError> {
        let path = root.join(CATALOG_FILE);
        let connection = sql::open(&path)?;
        let fail = |source| CatalogError::Sql { action: "begin a writer epoch", path: path.clone(), source };
        let epoch: i64 = connection
            .query_row(
                "UPDATE meta SET writer_epoch = max(writer_epoch + 1, ?1) RETURNING writer_epoch",
                [now_us() / 1000],
                |row| row.get(0),
            )
            .map_err(fail)?;
        let catalog = Self {
            root: root.to_owned(),
            path,
            connection: Mutex::new(connection),
            logs: RwLock::default(),
            writer_epoch: epoch.max(0) as u64,
        };
        catalog.load()?;
        Ok(catalog)
    }

    /// Grows with every opening, here or elsewhere, because it is the time of it in milliseconds if that is higher: tells
    /// commits of this process from those of one before.
    #[must_use]
    pub fn writer_epoch(&self) -> u64 {
        self.writer_epoch
    }

    /// Records a log, or finds it. A location that differs takes the place of the recorded one.
    ///
    /// # Errors
    /// When SQLite refuses.
    pub fn ensure_log(&self, log: &NewLog<'_>) -> Result<Arc<LogView>, CatalogError> {
        let connection = self.lock();
        let id = connection
            .query_row(
                "INSERT INTO logs (stream, name, location, start_offset, sealed_end, published_end, created_us)
                 VALUES (?1, ?2, ?3, ?4, ?4, ?4, ?5)
                 ON CONFLICT (stream, name) DO UPDATE SET location = excluded.location RETURNING id",
                params![log.stream, log.name, log.location, log.start_offset, now_us()],
                |row| row.get(0),
            )
            .map_err(self.fail("record a log"))?;
        self.reload(&connection, LogId(id))
    }

    /// A log as it is now.
    #[must_use]
    pub fn log(&self, id: LogId) -> Option<Arc<LogView>> {
        self.logs.read().unwrap_or_else(|poisoned| poisoned.into_inner()).get(&id).cloned()
    }

    /// The logs of a stream as they are now, oldest first.
    #[must_use]
    pub fn logs(&self, stream: &str) -> Vec<Arc<LogView>> {
        let logs = self.logs.read().unwrap_or_else(|poisoned| poisoned.into_inner());
        let mut found: Vec<_> = logs.values().filter(|log| log.stream == stream).cloned().collect();
        found.sort_by_key(|log| (log.start_offset, log.id));
        found
    }

    /// A log of a stream by name.
    ///
    /// # Errors
    /// When there is none.
    pub fn find(&self, stream: &str, log: &str) -> Result<Arc<LogView>, CatalogError> {
        let logs = self.logs.read().unwrap_or_else(|poisoned| poisoned.into_inner());
        let found = logs.values().find(|view| view.stream == stream && view.name == log);
        found.cloned().ok_or_else(|| CatalogError::NoLog { stream: stream.to_owned(), log: log.to_owned() })
    }

    /// Notes that a file is going to be written at `path`, so that it can be deleted if nothing comes of it.
    ///
    /// # Errors
    /// When SQLite refuses or the path is not UTF-8.
    pub fn intend(&self, log: LogId, tier: Tier, path: &Path, range: (i64, i64)) -> Result<(), CatalogError> {
        let relative = self.relative(path)?;
        let sql = "INSERT OR REPLACE INTO intents (path, log, tier, start_offset, end_offset, created_us)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
        let values = params![relative, log.0, tier.as_str(), range.0, range.1, now_us()];
        self.lock().execute(sql, values).map(|_| ()).map_err(self.fail("note a file"))
    }

    /// Notes what is in the file at `path` before a table is told to take it for those of its range.
    ///
    /// # Errors
    /// When SQLite refuses or the path is not UTF-8.
    pub fn describe_intent(&self, path: &Path, file: &DataFile) -> Result<(), CatalogError> {
        let relative = self.relative(path)?;
        let sql = "UPDATE intents SET description = ?2 WHERE path = ?1";
        let values = params![relative, rows::description(file)];
        self.lock().execute(sql, values).map(|_| ()).map_err(self.fail("describe a file"))
    }

    /// Nothing came of the file at `path`, which is deleted.
    ///
    /// # Errors
    /// When SQLite refuses or the path is not UTF-8.
    pub fn forget_intent(&self, path: &Path) -> Result<(), CatalogError> {
        let relative = self.relative(path)?;
        self.lock()
            .execute("DELETE FROM intents WHERE path = ?1", [relative])
            .map(|_| ())
            .map_err(self.fail("forget a file"))
    }

    /// Files that were to be written, oldest first.
    ///
    /// # Errors
    /// When SQLite refuses.
    pub fn intents(&self) -> Result<Vec<Intent>, CatalogError> {
        let connection = self.lock();
        let read = || -> rusqlite::Result<Vec<_>> {
            let mut statement = connection.prepare(
                "SELECT log, tier, path, description, created_us, start_offset, end_offset FROM intents
                          ORDER BY created_us",
            )?;
            let rows = statement.query_map([], |row| {
                let path: String = row.get(2)?;
                let description: Option<String> = row.get(3)?;
                Ok(Intent {
                    log: LogId(row.get(0)?),
                    tier: Tier::parse(row.get_ref(1)?.as_str()?),
                    path: rows::absolute(&self.root, &path),
                    file: description.as_deref().and_then(rows::parse_description),
                    created_us: row.get(4)?,
                    range: (row.get(5)?, row.get(6)?),
                })
            })?;
            rows.collect()
        };
        read().map_err(self.fail("read noted files"))
    }

    /// Adds files at the end of a log. Their notes are done with.
    ///
    /// # Errors
    /// When SQLite refuses, or a file begins before the end of what is sealed.
    pub fn append(&self, log: LogId, files: &[NewFile]) -> Result<Arc<LogView>, CatalogError> {
        let view = self.log(log);
        let mut end = view.as_ref().map_or(i64::MIN, |view| view.sealed_end);
        for NewFile { file, .. } in files {
            if file.start < end || file.end <= file.start {
                let name = view.as_ref().map_or_else(String::new, |view| view.name.clone());
                let why = format!("everything before {end} is sealed");
                return Err(CatalogError::Misfit { log: name, start: file.start, end: file.end, why });
            }
            end = file.end;
        }
        self.change(log, "record sealed files", |transaction| {
            for new in files {
                self.insert(transaction, log, new)?;
            }
            transaction
                .execute("UPDATE logs SET sealed_end = max(sealed_end, ?2) WHERE id = ?1", params![log.0, end])?;
            if let Some(published) = files.iter().filter(|new| new.published).map(|new| new.file.end).max() {
                raise_published(transaction, log, published)?;
            }
            Ok(())
        })
    }

    /// Puts `new`, which follow each other, in the place of the files within `range`. What these leave behind is
    /// deleted from `due_us` on, but for files that the table had: those go when the table lets go of them.
    ///
    /// # Errors
    /// When SQLite refuses, or files reach over the ends of the range.
    pub fn replace(
        &self,
        log: LogId,
        range: (i64, i64),
        new: &[NewFile],
        due_us: i64,
    ) -> Result<Arc<LogView>, CatalogError> {
        let Some(view) = self.log(log) else {
            return Err(CatalogError::NoLog { stream: String::new(), log: format!("{}", log.0) });
        };
        let (start, end) = range;
        let old: Vec<_> = view.files.iter().filter(|file| file.end > start && file.start < end).cloned().collect();
        let inside = |from: i64, until: i64| from >= start && until <= end;
        if old.is_empty()
            || !old.iter().all(|file| inside(file.start, file.end))
            || !new.iter().all(|new| inside(new.file.start, new.file.end))
        {
            let why = "it does not replace whole files".to_owned();
            return Err(CatalogError::Misfit { log: view.name.clone(), start, end, why });
        }
        self.change(log, "replace files", |transaction| {
            for file in &old {
                if let Some(path) = file.path.as_deref().filter(|_| !(file.published && file.is_shared())) {
                    discard(transaction, log, &format!("file://{}", path.display()), due_us)?;
                }
                let sql = "DELETE FROM files WHERE log = ?1 AND start_offset = ?2";
                transaction.execute(sql, params![log.0, file.start])?;
            }
            new.iter().try_for_each(|new| self.insert(transaction, log, new))
        })
    }

    /// The table has the files that begin at `starts`, and everything before `published_end`.
    ///
    /// # Errors
    /// When SQLite refuses.
    pub fn mark_published(&self, log: LogId, starts: &[i64], published_end: i64) -> Result<Arc<LogView>, CatalogError> {
        self.change(log, "mark files as published", |transaction| {
            let mut statement = transaction.prepare_cached(
                "UPDATE files SET published = 1, description = NULL WHERE log = ?1 AND start_offset = ?2",
            )?;
            for start in starts {
                statement.execute(params![log.0, start])?;
            }
            raise_published(transaction, log, published_end)
        })
    }

    /// The files that begin at `starts`, all of them published, leave the local tier; copies that the table does not
    /// name are deleted from `due_us` on.
    ///
    /// # Errors
    /// When SQLite refuses.
    pub fn leave_local(&self, log: LogId, starts: &[i64], due_us: i64) -> Result<Arc<LogView>, CatalogError> {
        let view = self.log(log);
        let files = view.iter().flat_map(|view| &view.files);
        let leaving: Vec<_> = files.filter(|file| file.published && starts.contains(&file.start)).cloned().collect();
        self.change(log, "evict local files", |transaction| {
            for file in &leaving {
                let mut kept = file.path.as_deref();
                if let Some(path) = kept.filter(|_| !file.is_shared()) {
                    discard(transaction, log, &format!("file://{}", path.display()), due_us)?;
                    kept = None;
                }
                transaction.execute(
                    "UPDATE files SET local = 0, path = ?3 WHERE log = ?1 AND start_offset = ?2",
                    params![log.0, file.start, kept.and_then(|path| rows::relative(&self.root, path))],
                )?;
            }
            Ok(())
        })
    }

    /// Files of a log that have left the table, for good: those that begin at `starts`. Their notes go, too.
    ///
    /// # Errors
    /// When SQLite refuses.
    pub fn remove_files(&self, log: LogId, starts: &[i64]) -> Result<Arc<LogView>, CatalogError> {
        self.change(log, "remove files", |transaction| {
            let sql = "DELETE FROM files WHERE log = ?1 AND start_offset = ?2";
            let mut statement = transaction.prepare_cached(sql)?;
            starts.iter().try_for_each(|start| statement.execute(params![log.0, start]).map(|_| ()))
        })
    }

    /// Forgets a log with all its files, which somebody else has deleted.
    ///
    /// # Errors
    /// When SQLite refuses.
    pub fn remove_log(&self, log: LogId) -> Result<(), CatalogError> {
        let mut connection = self.lock();
        let remove = |connection: &mut Connection| {
            let transaction = connection.transaction()?;
            for sql in [
                "DELETE FROM files WHERE log = ?1",
                "DELETE FROM intents WHERE log = ?1",
                "DELETE FROM purges WHERE log = ?1",
                "DELETE FROM condemned WHERE log = ?1",
                "DELETE FROM logs WHERE id = ?1",
            ] {
                transaction.execute(sql, [log.0])?;
            }
            transaction.commit()
        };
        remove(&mut connection).map_err(self.fail("remove a log"))?;
        self.logs.write().unwrap_or_else(|poisoned| poisoned.into_inner()).remove(&log);
        Ok(())
    }

    /// Everything about the files that begin at `starts` that a manifest needs, in that order. A file whose
    /// description was forgotten, because a manifest has it, is left out.
    ///
    /// # Errors
    /// When SQLite refuses.
    pub fn data_files(&self, log: LogId, starts: &[i64]) -> Result<Vec<DataFile>, CatalogError> {
        let connection = self.lock();
        let read = || -> rusqlite::Result<Vec<DataFile>> {
            let sql = "SELECT description FROM files WHERE log = ?1 AND start_offset = ?2";
            let mut statement = connection.prepare_cached(sql)?;
            let mut files = Vec::with_capacity(starts.len());
            for start in starts {
                let text: Option<Option<String>> =
                    statement.query_row(params![log.0, start], |row| row.get(0)).optional()?;
                files.extend(text.flatten().as_deref().and_then(rows::parse_description));
            }
            Ok(files)
        };
        read().map_err(self.fail("read files"))
    }

    /// The connection, for a change that is not about one log's files.
    pub(super) fn lock(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(super) fn fail(&self, action: &'static str) -> impl Fn(rusqlite::Error) -> CatalogError + '_ {
        move |source| CatalogError::Sql { action, path: self.path.clone(), source }
    }

    fn change(
        &self,
        log: LogId,
        action: &'static str,
        change: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<()>,
    ) -> Result<Arc<LogView>, CatalogError> {
        let mut connection = self.lock();
        let commit = || {
            let transaction = connection.transaction()?;
            change(&transaction)?;
            transaction.commit()
        };
        commit().map_err(self.fail(action))?;
        self.reload(&connection, log)
    }

    fn insert(&self, transaction: &Transaction<'_>, log: LogId, new: &NewFile) -> rusqlite::Result<()> {
        let NewFile { file, path, tier, local, published } = new;
        let path = path.as_deref().and_then(|path| rows::relative(&self.root, path));
        transaction
            .prepare_cached(
                "INSERT INTO files (log, start_offset, end_offset, row_count, size_bytes, min_ts_us, max_ts_us, uri,
                                    path, local, published, tier, created_us, description)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
            )?
            .execute(params![
                log.0,
                file.start,
                file.end,
                file.rows as i64,
                file.size_bytes as i64,
                file.ts_us.0,
                file.ts_us.1,
                file.uri,
                path,
                local,
                published,
                tier.as_str(),
                now_us(),
                (!published).then(|| rows::description(file)),
            ])?;
        transaction.execute("DELETE FROM intents WHERE path = ?1", [path])?;
        Ok(())
    }

    fn relative<'a>(&self, path: &'a Path) -> Result<&'a str, CatalogError> {
        rows::relative(&self.root, path).ok_or_else(|| CatalogError::NotUtf8(path.to_owned()))
    }

    fn load(&self) -> Result<(), CatalogError> {
        let connection = self.lock();
        let ids = || -> rusqlite::Result<Vec<i64>> {
            connection.prepare("SELECT id FROM logs")?.query_map([], |row| row.get(0))?.collect()
        };
        for id in ids().map_err(self.fail("read the logs"))? {
            self.reload(&connection, LogId(id))?;
        }
        Ok(())
    }

    /// Reads a log again and puts its new view in the place of the one before.
    fn reload(&self, connection: &Connection, log: LogId) -> Result<Arc<LogView>, CatalogError> {
        let read = || -> rusqlite::Result<LogView> {
            let mut view = connection
                .prepare_cached(
                    "SELECT stream, name, location, start_offset, sealed_end, published_end FROM logs WHERE id = ?1",
                )?
                .query_row([log.0], |row| {
                    Ok(LogView {
                        id: log,
                        stream: row.get(0)?,
                        name: row.get(1)?,
                        location: row.get(2)?,
                        start_offset: row.get(3)?,
                        sealed_end: row.get(4)?,
                        published_end: row.get(5)?,
                        files: Vec::new(),
                    })
                })?;
            let sql = format!("SELECT {FILE_COLUMNS} FROM files WHERE log = ?1 ORDER BY start_offset");
            let mut statement = connection.prepare_cached(&sql)?;
            let files = statement.query_map([log.0], |row| rows::read_file(&self.root, row).map(Arc::new))?;
            view.files = files.collect::<rusqlite::Result<_>>()?;
            Ok(view)
        };
        let view = Arc::new(read().map_err(self.fail("read a log"))?);
        self.logs.write().unwrap_or_else(|poisoned| poisoned.into_inner()).insert(log, Arc::clone(&view));
        Ok(view)
    }
}

fn raise_published(transaction: &Transaction<'_>, log: LogId, end: i64) -> rusqlite::Result<()> {
    let sql = "UPDATE logs SET published_end = max(published_end, ?2) WHERE id = ?1";
    transaction.execute(sql, params![log.0, end]).map(|_| ())
}

/// Notes that something is to be deleted.
fn discard(transaction: &Transaction<'_>, log: LogId, uri: &str, due_us: i64) -> rusqlite::Result<()> {
    transaction
        .prepare_cached("INSERT OR REPLACE INTO trash (uri, log, due_us) VALUES (?1, ?2, ?3)")?
        .execute(params![uri, log.0, due_us])
        .map(|_| ())
}

/// The wall clock in microseconds.
pub(super) fn now_us() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as i64)
}
