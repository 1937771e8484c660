//! Reads that many make at once. Who waits at the head of a stream wakes with all the others and wants the same rows: one
//! of them reads, one writes the text of the answer, and all give it away. Where rows come all the time they wake
//! together a few times a second, and not once for every commit.

use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::OnceCell;

use super::read::Found;

/// How often readers of a stream with many commits a second wake.
pub(super) const TICK: Duration = Duration::from_millis(20);

/// Commits this close together are many.
const HEAT: Duration = Duration::from_millis(60);

/// Reads that are remembered, and for how long: until everybody has come who wakes with the first.
const MAX_READS: usize = 16;
const KEPT: Duration = Duration::from_millis(100);

/// Bytes of frames above which a read is not remembered.
const MAX_READ_BYTES: usize = 256 << 10;

/// What was read, for everybody who wanted just this.
#[derive(Debug, Default)]
pub struct Shared {
    found: Found,
    events: OnceLock<Bytes>,
    page: OnceLock<Bytes>,
}

impl Shared {
    pub(super) fn new(found: Found) -> Arc<Self> {
        Arc::new(Self { found, ..Self::default() })
    }

    /// The rows as events, written by `write` the first time.
    pub fn events(&self, write: impl FnOnce(&Found) -> Vec<u8>) -> Bytes {
        self.events.get_or_init(|| write(&self.found).into()).clone()
    }

    /// The rows as a page, written by `write` the first time.
    pub fn page(&self, write: impl FnOnce(&Found) -> Vec<u8>) -> Bytes {
        self.page.get_or_init(|| write(&self.found).into()).clone()
    }

    /// Bytes of frames.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.found.frames.iter().map(Vec::len).sum()
    }
}

impl Deref for Shared {
    type Target = Found;

    fn deref(&self) -> &Found {
        &self.found
    }
}

/// A read without a filter. As long as a stream's end is `until` nothing was written, erased or changed in it, so the same
/// question has the same answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Question {
    pub stream: u32,
    pub after: i64,
    pub until: i64,
    pub limit: usize,
    pub max_bytes: usize,
}

/// A read that somebody makes or has made.
pub(super) type Reading = Arc<OnceCell<Arc<Shared>>>;

/// The latest reads.
#[derive(Debug, Default)]
pub(super) struct Reads(Mutex<VecDeque<(Question, Instant, Reading)>>);

impl Reads {
    /// The read that answers a question: the first who asks makes it.
    pub fn of(&self, question: Question, now: Instant) -> Reading {
        let mut reads = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_old = |since: Instant| now.saturating_duration_since(since) > KEPT;
        while reads.len() >= MAX_READS || reads.front().is_some_and(|(_, since, _)| is_old(*since)) {
            reads.pop_front();
        }
        if let Some((.., reading)) = reads.iter().rev().find(|(asked, ..)| *asked == question) {
            return Arc::clone(reading);
        }
        let reading = Reading::default();
        reads.push_back((question, now, Arc::clone(&reading)));
        reading
    }

    /// Forgets a read whose answer is too large to be kept.
    pub fn let_go(&self, question: Question, shared: &Shared) {
        if shared.bytes() > MAX_READ_BYTES {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|(asked, ..)| *asked != question);
        }
    }
}

/// When a stream's end was last seen to move.
#[derive(Debug)]
pub(super) struct Pulse(Mutex<Beat>);

#[derive(Debug)]
struct Beat {
    end: i64,
    moved: Option<Instant>,
    quick: bool,
}

impl Default for Pulse {
    fn default() -> Self {
        Self(Mutex::new(Beat { end: i64::MIN, moved: None, quick: false }))
    }
}

impl Pulse {
    /// Whether a stream whose end is `end` now has many commits a second.
    pub fn is_quick(&self, end: i64, now: Instant) -> bool {
        let mut beat = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let recent = |moved: Option<Instant>| moved.is_some_and(|moved| now.saturating_duration_since(moved) < HEAT);
        if beat.end != end {
            *beat = Beat { end, moved: Some(now), quick: recent(beat.moved) };
        }
        beat.quick && recent(beat.moved)
    }
}

/// The next moment at which readers wake together; `began` is any moment that all of them know.
pub(super) fn next_tick(began: Instant, now: Instant) -> Instant {
    let ticks = now.saturating_duration_since(began).as_millis() / TICK.as_millis() + 1;
    began + TICK * u32::try_from(ticks).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(until: i64) -> Question {
        Question { stream: 1, after: 3, until, limit: 10, max_bytes: 1000 }
    }

    #[tokio::test]
    async fn one_reads_for_all_and_few_are_remembered() {
        let (reads, now) = (Reads::default(), Instant::now());
        let mut made = 0;
        for _ in 0..3 {
            let reading = reads.of(question(5), now);
            let shared = reading.get_or_init(|| async {
                made += 1;
                Shared::new(Found { frames: vec![vec![7; 100]], ..Found::default() })
            });
            assert_eq!(shared.await.events(|found| found.frames[0].clone()), vec![7; 100]);
        }
        assert_eq!(made, 1);
        assert!(reads.of(question(5), now + KEPT).initialized());
        assert!(!reads.of(question(5), now + 2 * KEPT).initialized(), "too old");
        for until in 6..100 {
            assert!(!reads.of(question(until), now + 2 * KEPT).initialized());
        }
        assert_eq!(reads.0.lock().unwrap().len(), MAX_READS);
        reads.of(question(5), now + 2 * KEPT);
        let large = Found { frames: vec![vec![0; MAX_READ_BYTES + 1]], ..Found::default() };
        reads.let_go(question(5), &Shared::new(large));
        assert!(reads.0.lock().unwrap().iter().all(|(asked, ..)| *asked != question(5)));
    }

    #[test]
    fn only_commits_that_are_close_together_are_quick() {
        let pulse = Pulse::default();
        let began = Instant::now();
        let at = |ms: u64| began + Duration::from_millis(ms);
        for (ms, end, quick) in [
            (0, 1, false),   // the first that is seen
            (10, 1, false),  // nothing new
            (30, 2, true),   // 30 ms after the one before
            (31, 2, true),   // another reader of the same rows
            (95, 2, false),  // long ago by now
            (200, 3, false), // the first after a while
            (220, 4, true),
        ] {
            assert_eq!(pulse.is_quick(end, at(ms)), quick, "at {ms} ms");
        }
    }

    #[test]
    fn ticks_are_the_same_for_all() {
        let began = Instant::now();
        for (now_us, tick_ms) in [(0, 20), (1, 20), (19_999, 20), (20_000, 40), (61_000, 80)] {
            let now = began + Duration::from_micros(now_us);
            assert_eq!(next_tick(began, now), began + Duration::from_millis(tick_ms));
        }
    }
}
