//! From the writer back to the requests that wait: outcomes by ticket, and the news that a stream has more rows.
//!
//! A transaction sends one message however many requests it answers, so that the writer pays for one wake-up.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Notify, mpsc, oneshot};

use crate::journal::{GroupCommit, Outcome};

/// The shard number in the tokens of requests; no shard has it.
pub const HTTP_SHARD: u64 = 255;

const SHARD_SHIFT: u32 = 56;

/// What one transaction did that concerns requests.
#[derive(Debug, Default)]
pub struct News {
    outcomes: Vec<(u64, Outcome)>,
    /// Streams that have more rows and sleepers, by their number in the journal.
    pub grown: Vec<u32>,
}

/// Where requests wait for the writer. Clones are the same one.
#[derive(Clone)]
pub struct Answers(Arc<Inner>);

struct Inner {
    news: mpsc::UnboundedSender<News>,
    arrivals: Mutex<Option<mpsc::UnboundedReceiver<News>>>,
    tickets: AtomicU64,
    waiting: Mutex<HashMap<u64, oneshot::Sender<Outcome>>>,
    /// How many requests wait for rows.
    watchers: AtomicUsize,
    watched: Mutex<HashMap<u32, Watched>>,
}

struct Watched {
    grown: Arc<Notify>,
    watchers: usize,
}

impl std::fmt::Debug for Answers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Answers").field("watchers", &self.0.watchers).finish_non_exhaustive()
    }
}

impl Default for Answers {
    fn default() -> Self {
        let (news, arrivals) = mpsc::unbounded_channel();
        Self(Arc::new(Inner {
            news,
            arrivals: Mutex::new(Some(arrivals)),
            tickets: AtomicU64::new(0),
            waiting: Mutex::default(),
            watchers: AtomicUsize::new(0),
            watched: Mutex::default(),
        }))
    }
}

impl Answers {
    /// Takes what a transaction has for requests out of `commit`.
    #[must_use]
    pub fn take(&self, commit: &mut GroupCommit) -> News {
        let ours = |token: u64| token >> SHARD_SHIFT == HTTP_SHARD;
        let mut news = News::default();
        if commit.outcomes.iter().any(|(token, ..)| ours(*token)) {
            let (answers, rest) =
                std::mem::take(&mut commit.outcomes).into_iter().partition(|(token, ..)| ours(*token));
            commit.outcomes = rest;
            let answers: Vec<(u64, u32, Outcome)> = answers;
            news.outcomes = answers.into_iter().map(|(token, _, outcome)| (token, outcome)).collect();
        }
        news
    }

    /// Sends on what was taken. On the writer's thread; does not wait.
    pub fn deliver(&self, news: News) {
        if !(news.outcomes.is_empty() && news.grown.is_empty()) {
            // The other end is there as long as this one.
            let _ = self.0.news.send(news);
        }
    }

    /// Hands on what the writer delivers, for ever. To be run once, where requests are served.
    pub async fn run(self) {
        let arrivals = self.0.arrivals.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut arrivals) = arrivals else { return };
        while let Some(news) = arrivals.recv().await {
            if !news.outcomes.is_empty() {
                let mut waiting = self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner);
                for (ticket, outcome) in news.outcomes {
                    if let Some(waiter) = waiting.remove(&ticket) {
                        // Whoever has gone does not want to know.
                        let _ = waiter.send(outcome);
                    }
                }
            }
            news.grown.into_iter().for_each(|stream| self.wake(stream));
        }
    }

    /// Wakes who watches a stream.
    pub fn wake(&self, stream: u32) {
        let watched = self.0.watched.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(watched) = watched.get(&stream) {
            watched.grown.notify_waiters();
        }
    }

    /// A token for one job, and where its outcome will come.
    pub(super) fn ticket(&self) -> (u64, oneshot::Receiver<Outcome>) {
        let number = self.0.tickets.fetch_add(1, Relaxed) & ((1 << SHARD_SHIFT) - 1);
        let ticket = HTTP_SHARD << SHARD_SHIFT | number;
        let (waiter, outcome) = oneshot::channel();
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(ticket, waiter);
        (ticket, outcome)
    }

    /// The job of a ticket was not taken.
    pub(super) fn forget(&self, ticket: u64) {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&ticket);
    }

    /// Watches a stream: from now on [`Watch::grown`] is told when it has more rows.
    pub(super) fn watch(&self, stream: u32) -> Watch {
        let mut watched = self.0.watched.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = watched.entry(stream).or_insert_with(|| Watched { grown: Arc::default(), watchers: 0 });
        entry.watchers += 1;
        self.0.watchers.fetch_add(1, Relaxed);
        Watch { answers: self.clone(), stream, grown: Arc::clone(&entry.grown) }
    }

    /// How many requests watch a stream.
    pub(super) fn watchers(&self) -> usize {
        self.0.watchers.load(Relaxed)
    }
}

/// A request that waits for rows of a stream.
pub(super) struct Watch {
    answers: Answers,
    stream: u32,
    pub(super) grown: Arc<Notify>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        let inner = &self.answers.0;
        inner.watchers.fetch_sub(1, Relaxed);
        let mut watched = inner.watched.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = watched.get_mut(&self.stream) {
            entry.watchers -= 1;
            if entry.watchers == 0 {
                watched.remove(&self.stream);
            }
        }
    }
}
