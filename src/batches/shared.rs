//! Reads that many make at once. Who waits at the head of a stream wakes with all the others and wants the same rows: one
//! of them reads, one writes the text of the answer, and all give it away. Where rows come all the time they wake
//! together a few times a second, and not once for every commit.

use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::OnceCell;

use super::read::Found;

/// How often readers of a stream with many commits a second wake, at most and at least.
const TICK: Duration = Duration::from_millis(20);
const LONGEST_TICK: Duration = Duration::from_millis(250);

/// Serving a round of readers may take this part of the time between two rounds. Rows on their way to subscribers may
/// need the same core.
const SHARE: u32 = 5;

/// Where commits came within so many ticks they are many.
const QUICK_TICKS: u32 = 3;

/// Reads that are remembered, and for how long: until everybody has come who wakes with the first. A round may take
/// longer than what a single row starts.
const MAX_READS: usize = 16;
const KEPT: Duration = Duration::from_millis(100);
const ROUND_KEPT: Duration = Duration::from_millis(500);

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

/// As of when a question is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AsOf {
    /// As long as this is a stream's end nothing was written, erased or changed in it, so the same question has the same
    /// answer.
    End(i64),
    /// Whoever has waited for this moment gets what the first of them found, unless entries were erased since: the
    /// number counts the offsets without one.
    Turn(Instant, i64),
}

/// A read without a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Question {
    pub stream: u32,
    pub after: i64,
    pub as_of: AsOf,
    pub limit: usize,
    pub max_bytes: usize,
}

impl Question {
    /// How long the answer is remembered.
    fn kept(&self) -> Duration {
        match self.as_of {
            AsOf::End(_) => KEPT,
            AsOf::Turn(..) => ROUND_KEPT,
        }
    }
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
        reads.retain(|(asked, since, _)| now.saturating_duration_since(*since) <= asked.kept());
        while reads.len() >= MAX_READS {
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
    /// Whether a stream whose end is `end` now has many commits a second, where readers wake every `tick`.
    pub fn is_quick(&self, end: i64, now: Instant, tick: Duration) -> bool {
        let mut beat = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let heat = tick * QUICK_TICKS;
        let recent = |moved: Option<Instant>| moved.is_some_and(|moved| now.saturating_duration_since(moved) < heat);
        if beat.end != end {
            *beat = Beat { end, moved: Some(now), quick: recent(beat.moved) };
        }
        beat.quick && recent(beat.moved)
    }
}

/// When readers wake together: every tick, or less often where it takes long until all of them are served. That may be
/// because they are many, or because somebody else needs the core.
#[derive(Debug)]
pub(super) struct Pace(Mutex<Turns>);

#[derive(Debug)]
struct Turns {
    /// The latest moment that was given out.
    at: Instant,
    /// From the one before to it.
    tick: Duration,
    /// How late the last reader came, in this round and the one before.
    late: Duration,
    was_late: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        let (at, late) = (Instant::now(), Duration::ZERO);
        Self(Mutex::new(Turns { at, tick: TICK, late, was_late: late }))
    }
}

impl Pace {
    /// The time between two rounds.
    pub fn tick(&self) -> Duration {
        self.turns().tick
    }

    /// The next moment after `now` at which readers wake.
    pub fn next(&self, now: Instant) -> Instant {
        let mut turns = self.turns();
        if turns.at <= now {
            turns.tick = (turns.late.max(turns.was_late) * SHARE).clamp(TICK, LONGEST_TICK);
            turns.was_late = std::mem::take(&mut turns.late);
            let next = turns.at + turns.tick;
            turns.at = if next > now { next } else { now + turns.tick };
        }
        turns.at
    }

    /// A reader who waited for the moment `at` is served at `now`.
    pub fn served(&self, at: Instant, now: Instant) {
        let mut turns = self.turns();
        turns.late = turns.late.max(now.saturating_duration_since(at));
    }

    fn turns(&self) -> MutexGuard<'_, Turns> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(until: i64) -> Question {
        Question { stream: 1, after: 3, as_of: AsOf::End(until), limit: 10, max_bytes: 1000 }
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
        let round = Question { as_of: AsOf::Turn(now, 0), ..question(5) };
        assert!(reads.of(round, now).set(Shared::new(Found::default())).is_ok());
        assert!(reads.of(round, now + ROUND_KEPT).initialized(), "somebody is late");
        let erased = Question { as_of: AsOf::Turn(now, 2), ..round };
        assert!(!reads.of(erased, now).initialized(), "entries were erased meanwhile");
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
            assert_eq!(pulse.is_quick(end, at(ms), TICK), quick, "at {ms} ms");
        }
    }

    #[test]
    fn a_stream_stays_quick_where_readers_wake_seldom() {
        let (pulse, began) = (Pulse::default(), Instant::now());
        for (number, quick) in [(0, false), (1, true), (2, true)] {
            let now = began + LONGEST_TICK * number;
            assert_eq!(pulse.is_quick(number.into(), now, LONGEST_TICK), quick, "{number}");
        }
        assert!(!pulse.is_quick(2, began + LONGEST_TICK * 6, LONGEST_TICK));
    }

    #[test]
    fn readers_wake_together_and_less_often_the_longer_it_takes() {
        let pace = Pace::default();
        let began = pace.next(Instant::now());
        let at = |ms: u64| began + Duration::from_millis(ms);
        assert_eq!(pace.next(began - Duration::from_millis(1)), began, "the same for all");
        assert_eq!(pace.next(began), at(20));
        pace.served(at(20), at(21));
        pace.served(at(20), at(30));
        pace.served(at(20), at(22));
        // The last of them took 10 ms, and in the next round 2 ms.
        assert_eq!(pace.next(at(30)), at(70));
        assert_eq!(pace.tick(), Duration::from_millis(50));
        pace.served(at(70), at(72));
        assert_eq!(pace.next(at(72)), at(120), "as slow as the slower of the last two");
        pace.served(at(120), at(122));
        assert_eq!(pace.next(at(122)), at(140));
        pace.served(at(140), at(940));
        assert_eq!(pace.next(at(940)), at(940) + LONGEST_TICK);
        assert_eq!(pace.next(at(60_000)), at(60_000) + LONGEST_TICK, "nobody came meanwhile");
        assert_eq!(pace.next(at(90_000)), at(90_020));
    }
}
