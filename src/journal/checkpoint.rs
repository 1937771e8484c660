//! Keeping the write-ahead log short without making commits wait.
//!
//! Moving pages from the log into the file takes long and is done by a thread of its own while commits go
//! on. It never catches up with a busy writer, and SQLite starts the log over only when every page has been
//! moved; so once little is left, the writer moves the rest between two commits. The file of the log keeps
//! its length: commits overwrite it, which costs the disk less than extending it.
//!
//! A sync of the main file that fails ends this for the life of the process: the system may have dropped
//! pages that count as moved. The log then keeps everything until the next start reads it from the beginning.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use rusqlite::{Connection, ffi};

use super::error::JournalError;
use super::settings::JournalSettings;
use super::sql;
use super::thread::{CHECKPOINT_SLICE_NS, pin_to, prefer_latency};

/// Pages that the writer moves itself, at most, to finish what the thread began.
const FINISH_PAGES: u64 = 128;

/// Pages in the log from which it is worth a warning that a reader keeps it from starting over.
const WARN_PAGES: u64 = 16_384;

/// Pages by which the log grows before something is tried again that a reader may have stood in the way of.
const RETRY_PAGES: u64 = 16;

/// Gives the write-ahead log at least `bytes`, filled with zeros, which SQLite takes for no pages at all. On
/// a disk without room it stays as long as it was: commits then extend it, if they can.
///
/// No connection may write meanwhile. (The log's file carries no locks; the main file must never be opened
/// like this, because closing it again would drop SQLite's.)
pub(super) fn reserve(journal: &Path, bytes: u64) -> Result<(), JournalError> {
    let mut path = journal.as_os_str().to_owned();
    path.push("-wal");
    let path = PathBuf::from(path);
    let extend = || -> std::io::Result<()> {
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path)?;
        let before = file.metadata()?.len();
        match fill(&file, before, bytes) {
            Err(error) if error.kind() == ErrorKind::StorageFull => {
                tracing::warn!(%error, "no room for the whole write-ahead log; commits fail when it is used up");
                file.set_len(before)?;
            }
            filled => filled?,
        }
        file.sync_all()?;
        // The log's name must be on disk before commits rely on what is in it.
        path.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())
    };
    extend().map_err(|source| JournalError::Io { action: "extend the write-ahead log", path: path.clone(), source })
}

fn fill(mut file: &File, mut length: u64, bytes: u64) -> std::io::Result<()> {
    const CHUNK: u64 = 1 << 20;
    file.seek(SeekFrom::Start(length))?;
    let zeros = vec![0; CHUNK as usize];
    while length < bytes {
        let chunk = (bytes - length).min(CHUNK);
        file.write_all(&zeros[..chunk as usize])?;
        length += chunk;
    }
    Ok(())
}

/// Moves what it can without waiting for anyone. Returns the pages in the log and how many are moved.
pub(super) fn passive(connection: &Connection) -> rusqlite::Result<(u64, u64)> {
    connection.prepare_cached("PRAGMA wal_checkpoint(PASSIVE)")?.query_row([], |row| {
        let pages = |index| Ok::<u64, rusqlite::Error>(row.get::<_, i64>(index)?.max(0) as u64);
        Ok((pages(1)?, pages(2)?))
    })
}

/// Pages that are in the file already, of the log with this number (it counts how often the log began anew).
#[derive(Clone, Copy)]
struct Moved {
    log: u32,
    pages: u32,
}

impl Moved {
    fn load(from: &AtomicU64) -> Self {
        let packed = from.load(Ordering::Acquire);
        Self { log: (packed >> 32) as u32, pages: packed as u32 }
    }

    fn store(self, to: &AtomicU64) {
        to.store(u64::from(self.log) << 32 | u64::from(self.pages), Ordering::Release);
    }
}

#[derive(Default)]
struct Shared {
    running: AtomicBool,
    /// A sync failed: the log must not start over any more.
    broken: AtomicBool,
    /// The last pass failed, and that was said.
    failing: AtomicBool,
    moved: AtomicU64,
    passes: AtomicU64,
}

impl Shared {
    fn failed(&self, error: &rusqlite::Error) {
        if is_failed_sync(error) {
            self.broken.store(true, Ordering::Release);
            tracing::error!(
                %error,
                "the journal could not be synced; its write-ahead log grows until the process is started again"
            );
        } else if !self.failing.swap(true, Ordering::Relaxed) {
            tracing::error!(%error, "the write-ahead log cannot be moved into the journal and grows until it can");
        }
    }

    fn succeeded(&self) {
        if self.failing.swap(false, Ordering::Relaxed) {
            tracing::info!("the write-ahead log can be moved into the journal again");
        }
    }
}

/// Whether a sync failed, after which the system may have forgotten what was to be synced.
fn is_failed_sync(error: &rusqlite::Error) -> bool {
    error.sqlite_error().is_some_and(|error| error.extended_code == ffi::SQLITE_IOERR_FSYNC)
}

/// The thread that moves the log into the file, and what the writer has to know of it.
pub(super) struct Checkpointer {
    shared: Arc<Shared>,
    request: Option<Sender<u32>>,
    done: Receiver<()>,
    thread: Option<JoinHandle<()>>,
    /// The number of the present log.
    log: u32,
    /// Pages in the log after the last commit.
    pages: u64,
    /// Pages in the log when a pass was last asked for or the rest last moved; nothing is tried again before
    /// the log has grown a little.
    tried_at_pages: u64,
    /// How often the writer moved the rest.
    finished: u64,
    /// Pages in the log from which a reader in the way is worth a warning.
    warn_at_pages: u64,
}

/// What the writer is to do for the log after a commit.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Duty {
    Nothing,
    /// Move the pages that are left.
    Finish,
}

impl Checkpointer {
    pub(super) fn start(path: &Path, cores: &[usize]) -> Result<Self, JournalError> {
        let fail =
            |source| JournalError::Sql { action: "open the file for checkpoints", path: path.to_owned(), source };
        let connection = sql::open_checkpointer(path).map_err(fail)?;
        let shared = Arc::new(Shared::default());
        let (request, requests) = bounded(1);
        let (finished, done) = bounded(1);
        let name = "sc-checkpoint".to_owned();
        let thread = std::thread::Builder::new()
            .name(name.clone())
            .spawn({
                let shared = Arc::clone(&shared);
                let cores = cores.to_vec();
                move || {
                    pin_to(&cores);
                    prefer_latency(CHECKPOINT_SLICE_NS);
                    run(&connection, &requests, &finished, &shared);
                }
            })
            .map_err(|source| JournalError::Thread { name, source })?;
        Ok(Self {
            shared,
            request: Some(request),
            done,
            thread: Some(thread),
            log: 0,
            pages: 0,
            tried_at_pages: 0,
            finished: 0,
            warn_at_pages: WARN_PAGES,
        })
    }

    /// Decides what is due now that the log has `pages` pages of `page_bytes` bytes; asks the thread for a
    /// pass where one is.
    pub(super) fn after_commit(&mut self, pages: u64, page_bytes: u64, settings: &JournalSettings) -> Duty {
        if pages < self.pages {
            self.log = self.log.wrapping_add(1);
            self.tried_at_pages = 0;
            self.warn_at_pages = WARN_PAGES;
        }
        self.pages = pages;
        if self.is_broken() {
            return Duty::Nothing;
        }
        let left = pages.saturating_sub(self.moved_pages());
        let long = pages * page_bytes >= settings.wal_checkpoint_bytes;
        let overdue = pages * page_bytes >= settings.wal_limit_bytes;
        if overdue {
            self.wait();
        } else if self.is_running() || pages < self.tried_at_pages + RETRY_PAGES {
            return Duty::Nothing;
        }
        if overdue || (long && left <= FINISH_PAGES) {
            self.tried_at_pages = pages;
            return Duty::Finish;
        }
        if long || left * page_bytes >= settings.wal_step_bytes {
            self.tried_at_pages = pages;
            self.ask();
        }
        Duty::Nothing
    }

    /// What came of moving the rest: pages in the log and how many of them are moved.
    pub(super) fn finished(&mut self, outcome: rusqlite::Result<(u64, u64)>, settings: &JournalSettings) {
        self.finished += 1;
        match outcome {
            Ok((_, moved)) => {
                self.shared.succeeded();
                Moved { log: self.log, pages: moved as u32 }.store(&self.shared.moved);
                if moved < self.pages && self.pages >= self.warn_at_pages {
                    self.warn_at_pages = self.pages.saturating_mul(2);
                    let (pages, limit_bytes) = (self.pages, settings.wal_limit_bytes);
                    tracing::warn!(pages, moved, limit_bytes, "a reader keeps the write-ahead log from starting over");
                }
            }
            Err(error) => self.shared.failed(&error),
        }
    }

    /// Whether the log must stay as it is.
    pub(super) fn is_broken(&self) -> bool {
        self.shared.broken.load(Ordering::Acquire)
    }

    /// Whether the log may begin anew now.
    pub(super) fn may_renew(&self) -> bool {
        !self.is_broken() && !self.is_running()
    }

    /// Beginning the log anew failed.
    pub(super) fn renewal_failed(&self, error: &rusqlite::Error) {
        self.shared.failed(error);
    }

    /// Asks for a pass if anything is left to move.
    pub(super) fn when_idle(&mut self) {
        if self.pages > self.moved_pages() && !self.is_running() && !self.is_broken() {
            self.ask();
        }
    }

    /// Ends the thread and closes its connection.
    pub(super) fn close(&mut self) {
        self.request = None;
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed already and there is nothing left to do.
            let _ = thread.join();
        }
    }

    /// Passes completed, by the thread and by the writer.
    pub(super) fn passes(&self) -> u64 {
        self.shared.passes.load(Ordering::Relaxed) + self.finished
    }

    fn ask(&self) {
        self.shared.running.store(true, Ordering::Release);
        let asked = self.request.as_ref().is_some_and(|request| request.try_send(self.log).is_ok());
        if !asked {
            self.shared.running.store(false, Ordering::Release);
        }
    }

    fn is_running(&self) -> bool {
        self.shared.running.load(Ordering::Acquire)
    }

    /// Waits until no pass is under way.
    fn wait(&self) {
        while self.is_running() {
            // Only a hint: the thread may have said so for an earlier pass, or be gone.
            if let Err(RecvTimeoutError::Disconnected) = self.done.recv_timeout(Duration::from_millis(10)) {
                return;
            }
        }
    }

    fn moved_pages(&self) -> u64 {
        let moved = Moved::load(&self.shared.moved);
        if moved.log == self.log { u64::from(moved.pages) } else { 0 }
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        self.close();
    }
}

fn run(connection: &Connection, requests: &Receiver<u32>, finished: &Sender<()>, shared: &Shared) {
    for log in requests {
        // SQLite syncs the file only in the pass that moves the last page, which is the writer's: what is
        // synced here does not wait for it there.
        match passive(connection).and_then(|(_, moved)| sync_file(connection).map(|()| moved)) {
            Ok(moved) => {
                Moved { log, pages: moved as u32 }.store(&shared.moved);
                shared.passes.fetch_add(1, Ordering::Relaxed);
                shared.succeeded();
            }
            Err(error) => shared.failed(&error),
        }
        shared.running.store(false, Ordering::Release);
        let _ = finished.try_send(());
    }
}

/// Syncs the main file through SQLite's own descriptor (closing another one would drop SQLite's locks).
fn sync_file(connection: &Connection) -> rusqlite::Result<()> {
    let mut file: *mut ffi::sqlite3_file = std::ptr::null_mut();
    // SAFETY: the handle is that of an open connection that only this thread uses; for this operation SQLite
    // writes one pointer to a file object, which lives as long as the connection.
    let code = unsafe {
        ffi::sqlite3_file_control(
            connection.handle(),
            c"main".as_ptr(),
            ffi::SQLITE_FCNTL_FILE_POINTER,
            (&raw mut file).cast(),
        )
    };
    if code != ffi::SQLITE_OK || file.is_null() {
        return Err(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None));
    }
    // SAFETY: SQLite gave the file object of an open database, whose methods are set.
    let sync = unsafe { (*file).pMethods.as_ref() }.and_then(|methods| methods.xSync);
    let Some(sync) = sync else { return Ok(()) };
    // SAFETY: as above, and no other thread uses this connection's file object.
    let code = unsafe { sync(file, ffi::SQLITE_SYNC_NORMAL | ffi::SQLITE_SYNC_DATAONLY) };
    if code == ffi::SQLITE_OK { Ok(()) } else { Err(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)) }
}
