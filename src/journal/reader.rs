//! Reading rows back for replays: threads and connections of their own, one short transaction a request.
//!
//! A replay asks for one page at a time and its next page queues behind everyone else's, so replays share the
//! threads evenly and none holds a transaction that would keep the write-ahead log from starting over.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, unbounded};
use rusqlite::Connection;

use super::archive::Archive;
use super::error::JournalError;
use super::page::{self, PageError};
use super::sql;
use crate::stream::replay::{Resolution, ResolveRequest};
use crate::telemetry::Telemetry;

/// Requests that may wait at the same time; one replay has one.
pub const MAX_WAITING_REQUESTS: usize = 65_536;

/// Says which rows a page is to have, by the row's bytes.
pub type RowFilter = Arc<dyn Fn(&[u8]) -> bool + Send + Sync>;

/// One page of a replay.
pub struct PageRequest {
    /// The stream's number in the journal.
    pub stream: u32,
    /// The first offset wanted.
    pub from: i64,
    /// The offset to stop before.
    pub until: i64,
    /// Bytes of frames at which the page ends; a single larger frame is a page of its own.
    pub max_bytes: usize,
    /// Which rows to give; all if absent.
    pub filter: Option<RowFilter>,
    /// Called once, on a reader thread.
    pub reply: Box<dyn FnOnce(Page) + Send>,
}

impl std::fmt::Debug for PageRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { stream, from, until, .. } = self;
        f.debug_struct("PageRequest")
            .field("stream", stream)
            .field("from", from)
            .field("until", until)
            .finish_non_exhaustive()
    }
}

/// What a page holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Page {
    /// Rows, or none if the filter let none through so far.
    Rows {
        /// Complete WebSocket frames next to each other, the same bytes as went out live.
        frames: Vec<u8>,
        /// How many.
        rows: u32,
        /// Where the next page starts.
        next: i64,
        /// Whether there is nothing left below `until`.
        done: bool,
    },
    /// The log could not be read; the text is for the operator.
    Failed(String),
}

enum Request {
    Stop,
    Resolve { stream: u32, request: ResolveRequest, reply: Box<dyn FnOnce(Resolution) + Send> },
    Page(PageRequest),
}

/// The reader threads. Dropping it ends them after what is queued.
pub struct Readers {
    handle: ReaderHandle,
    threads: Vec<JoinHandle<()>>,
}

impl std::fmt::Debug for Readers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Readers").field("threads", &self.threads.len()).finish_non_exhaustive()
    }
}

/// Asks the reader threads; cheap to clone, never blocks.
#[derive(Clone)]
pub struct ReaderHandle {
    requests: Sender<Request>,
    waiting: Arc<AtomicUsize>,
}

impl std::fmt::Debug for ReaderHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReaderHandle").field("waiting", &self.waiting).finish_non_exhaustive()
    }
}

impl Readers {
    /// Starts `threads` threads (at least one) that read the journal `path`, and `archive` for what has left it. Each
    /// calls `settle` first, which says where it runs.
    ///
    /// # Errors
    /// When the journal cannot be opened or a thread cannot start.
    pub fn start(
        path: &Path,
        archive: &Arc<dyn Archive>,
        threads: usize,
        settle: impl Fn() + Clone + Send + 'static,
        telemetry: Arc<Telemetry>,
    ) -> Result<Self, JournalError> {
        let (requests, queue) = unbounded();
        let waiting = Arc::new(AtomicUsize::new(0));
        let mut readers =
            Self { handle: ReaderHandle { requests, waiting: Arc::clone(&waiting) }, threads: Vec::new() };
        for index in 0..threads.max(1) {
            let connection = sql::open_reader(path).map_err(|source| JournalError::Sql {
                action: "open the file for reading",
                path: path.to_owned(),
                source,
            })?;
            let reader = Reader {
                path: path.to_owned(),
                archive: Arc::clone(archive),
                connection: Some(connection),
                queue: queue.clone(),
                waiting: Arc::clone(&waiting),
                telemetry: Arc::clone(&telemetry),
            };
            let settle = settle.clone();
            let name = format!("sc-reader-{index}");
            let started = std::thread::Builder::new()
                .name(name.clone())
                .spawn(move || {
                    settle();
                    reader.run();
                })
                .map_err(|source| JournalError::Thread { name, source })?;
            readers.threads.push(started);
        }
        Ok(readers)
    }

    /// A handle to ask with.
    #[must_use]
    pub fn handle(&self) -> ReaderHandle {
        self.handle.clone()
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        for _ in &self.threads {
            self.handle.send(Request::Stop);
        }
        for thread in self.threads.drain(..) {
            // A panic there has been printed already and concerns nobody any more.
            let _ = thread.join();
        }
    }
}

impl ReaderHandle {
    /// Finds out where a replay starts (wire.md sections 7.2 to 7.5). `reply` is called once, on a reader thread.
    pub fn resolve(&self, stream: u32, request: ResolveRequest, reply: Box<dyn FnOnce(Resolution) + Send>) {
        self.send(Request::Resolve { stream, request, reply });
    }

    /// Reads one page.
    pub fn page(&self, request: PageRequest) {
        self.send(Request::Page(request));
    }

    fn send(&self, request: Request) {
        let waiting = self.waiting.fetch_add(1, Relaxed);
        if waiting >= MAX_WAITING_REQUESTS && !matches!(request, Request::Stop) {
            self.waiting.fetch_sub(1, Relaxed);
            refuse(request, "too many replays wait for the journal");
            return;
        }
        if let Err(refused) = self.requests.send(request) {
            refuse(refused.0, "the journal is closed");
        }
    }
}

fn refuse(request: Request, why: &str) {
    match request {
        Request::Stop => {}
        Request::Resolve { reply, .. } => reply(Resolution::Failed(why.to_owned())),
        Request::Page(PageRequest { reply, .. }) => reply(Page::Failed(why.to_owned())),
    }
}

struct Reader {
    path: PathBuf,
    archive: Arc<dyn Archive>,
    /// Absent after a failure, until it can be opened again.
    connection: Option<Connection>,
    queue: Receiver<Request>,
    waiting: Arc<AtomicUsize>,
    telemetry: Arc<Telemetry>,
}

impl Reader {
    fn run(mut self) {
        while let Ok(request) = self.queue.recv() {
            self.waiting.fetch_sub(1, Relaxed);
            match request {
                Request::Stop => break,
                Request::Resolve { stream, request, reply } => {
                    let archive = Arc::clone(&self.archive);
                    let resolution = self.ask(|connection| page::resolve(connection, &*archive, stream, &request));
                    reply(resolution.unwrap_or_else(Resolution::Failed));
                }
                Request::Page(PageRequest { stream, from, until, max_bytes, filter, reply }) => {
                    let wanted = page::Wanted { stream, from, until, max_bytes, filter: filter.as_ref() };
                    let archive = Arc::clone(&self.archive);
                    let page = self.ask(|connection| page::read(connection, &*archive, &wanted));
                    let page = page.unwrap_or_else(Page::Failed);
                    if let Page::Rows { rows, .. } = &page {
                        self.telemetry.writer.replay_pages_total.fetch_add(1, Relaxed);
                        self.telemetry.writer.replay_rows_total.fetch_add(u64::from(*rows), Relaxed);
                    }
                    reply(page);
                }
            }
        }
    }

    /// Asks the journal; opens it again next time if it fails.
    fn ask<T>(&mut self, question: impl FnOnce(&Connection) -> Result<T, PageError>) -> Result<T, String> {
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => sql::open_reader(&self.path).map_err(|error| error.to_string())?,
        };
        let answer = question(&connection);
        if let Err(PageError::Sql(error)) = &answer {
            tracing::error!(%error, journal = %self.path.display(), "the journal cannot be read");
        } else {
            self.connection = Some(connection);
        }
        answer.map_err(|error| error.to_string())
    }
}
