//! Keeping the write-ahead log short without making commits wait.
//!
//! Moving pages from the log into the file takes long and is done by a thread of its own while commits go
//! on. It never catches up with a busy writer, and SQLite starts the log over only when every page has been
//! moved; so once little is left, the writer moves the rest between two commits. The file of the log keeps
//! its length: commits overwrite it, which costs the disk less than extending it.

use std::fs::OpenOptions;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use rusqlite::Connection;

use super::error::JournalError;
use super::{pin, sql};

/// Pages that the writer moves itself, at most, to finish what the thread began.
pub(super) const FINISH_PAGES: u64 = 256;

/// Gives the write-ahead log at least `bytes`, filled with zeros, which SQLite takes for no pages at all.
///
/// No connection may write meanwhile. (The log's file carries no locks; the main file must never be opened
/// like this, because closing it again would drop SQLite's.)
pub(super) fn reserve(journal: &Path, bytes: u64) -> Result<(), JournalError> {
    const CHUNK: usize = 1 << 20;
    let mut path = journal.as_os_str().to_owned();
    path.push("-wal");
    let path = PathBuf::from(path);
    let extend = || -> std::io::Result<()> {
        let mut file = OpenOptions::new().write(true).create(true).truncate(false).open(&path)?;
        let mut length = file.seek(SeekFrom::End(0))?;
        let zeros = vec![0; CHUNK];
        while length < bytes {
            let chunk = (bytes - length).min(CHUNK as u64);
            file.write_all(&zeros[..chunk as usize])?;
            length += chunk;
        }
        file.sync_all()
    };
    extend().map_err(|source| JournalError::Io { action: "extend the write-ahead log", path: path.clone(), source })
}

/// Moves what it can without waiting for anyone. Returns the pages in the log and how many are moved.
pub(super) fn passive(connection: &Connection) -> rusqlite::Result<(u64, u64)> {
    connection.prepare_cached("PRAGMA wal_checkpoint(PASSIVE)")?.query_row([], |row| {
        let pages = |index| Ok::<u64, rusqlite::Error>(row.get::<_, i64>(index)?.max(0) as u64);
        Ok((pages(1)?, pages(2)?))
    })
}

struct Shared {
    running: AtomicBool,
    /// Pages of the present log that are in the file.
    moved_pages: AtomicU64,
    checkpoints: AtomicU64,
}

/// The thread that moves the log into the file.
pub(super) struct Checkpointer {
    shared: Arc<Shared>,
    request: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Checkpointer {
    pub(super) fn start(path: &Path) -> Result<Self, JournalError> {
        let fail =
            |source| JournalError::Sql { action: "open the file for checkpoints", path: path.to_owned(), source };
        let connection = sql::open_checkpointer(path).map_err(fail)?;
        let shared = Arc::new(Shared {
            running: AtomicBool::new(false),
            moved_pages: AtomicU64::new(0),
            checkpoints: AtomicU64::new(0),
        });
        let (request, requests) = bounded(1);
        let name = "sc-checkpoint".to_owned();
        let thread = std::thread::Builder::new()
            .name(name.clone())
            .spawn({
                let shared = Arc::clone(&shared);
                move || run(&connection, &requests, &shared)
            })
            .map_err(|source| JournalError::Thread { name, source })?;
        Ok(Self { shared, request: Some(request), thread: Some(thread) })
    }

    /// Asks for one pass, unless one is under way.
    pub(super) fn request(&self) {
        if self.is_running() {
            return;
        }
        self.shared.running.store(true, Ordering::Release);
        let sent = self.request.as_ref().map(|request| request.try_send(()));
        if !matches!(sent, Some(Ok(()) | Err(TrySendError::Full(())))) {
            self.shared.running.store(false, Ordering::Release);
        }
    }

    pub(super) fn is_running(&self) -> bool {
        self.shared.running.load(Ordering::Acquire)
    }

    /// Waits until no pass is under way.
    pub(super) fn wait(&self) {
        while self.is_running() {
            std::thread::sleep(std::time::Duration::from_micros(200));
        }
    }

    /// Pages of the log that were in the file when the last pass ended.
    pub(super) fn moved_pages(&self) -> u64 {
        self.shared.moved_pages.load(Ordering::Acquire)
    }

    /// The writer moved pages itself, or the log began anew (0).
    pub(super) fn set_moved_pages(&self, pages: u64) {
        self.shared.moved_pages.store(pages, Ordering::Release);
    }

    /// Passes completed by the thread.
    pub(super) fn checkpoints(&self) -> u64 {
        self.shared.checkpoints.load(Ordering::Relaxed)
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        self.request = None;
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed already and there is nothing left to do.
            let _ = thread.join();
        }
    }
}

fn run(connection: &Connection, requests: &Receiver<()>, shared: &Shared) {
    pin::pin_to(&[]);
    for () in requests {
        match passive(connection) {
            Ok((_, moved)) => {
                shared.moved_pages.store(moved, Ordering::Release);
                shared.checkpoints.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => tracing::warn!(%error, "the write-ahead log cannot be moved into the journal"),
        }
        shared.running.store(false, Ordering::Release);
    }
}
