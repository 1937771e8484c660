//! When the next pass over a feed's subscribers begins.
//!
//! As soon as the last one ends, as long as the core has time: then nothing waits for company. But a send costs some
//! microseconds however few frames it carries, and a core that has nothing left to give spends them on many small sends.
//! A shard that is saturated therefore lets [`SPACE`] pass between the beginnings of two passes, so that each send
//! carries more. It can only matter when rows come much faster than passes begin: a send must have carried some frames
//! before.

use std::time::{Duration, Instant};

use crate::engine::{FeedLimits, Slot};
use crate::feed::Ring;

/// Between the beginnings of two passes over one feed, when the shard is saturated. A row waits for half of it, which is
/// about as long as the passes take that it saves.
const SPACE: Duration = Duration::from_millis(6);

/// A pass is worth waiting for while less than this is new: larger sends save little more.
const FULL_BYTES: u64 = 48 * 1024;

/// Frames a send carries where it pays to put more together.
const WORTH_FRAMES: u64 = 3;

/// What is looked at to say whether a shard is saturated.
const WINDOW: Duration = Duration::from_millis(20);

/// A shard becomes saturated when it waits for events for at most this share of a window. The rest of the core's time is
/// then the writer's, if the two share the core.
const BUSY_PERCENT: u32 = 25;

/// It stays saturated, with the work that the space saves it, while it waits for at most this share.
const CALM_PERCENT: u32 = 60;

/// How busy a shard is.
#[derive(Debug)]
pub(crate) struct Pace {
    saturated: bool,
    space: Duration,
    /// Of the present window: since when, how long the shard has waited, and the totals at its beginning.
    since: Instant,
    waited: Duration,
    sends: u64,
    frames: u64,
    /// Sends to subscribers of feeds.
    pub(crate) sends_total: u64,
}

impl Pace {
    pub(crate) fn new(now: Instant) -> Self {
        Self { saturated: false, space: SPACE, since: now, waited: Duration::ZERO, sends: 0, frames: 0, sends_total: 0 }
    }

    /// The shard has waited for events from `before` to `now`; `frames_total` have been delivered from feeds so far.
    pub(crate) fn turned(&mut self, before: Instant, now: Instant, frames_total: u64) {
        self.waited += now.saturating_duration_since(before);
        let window = now.saturating_duration_since(self.since);
        if window < WINDOW {
            return;
        }
        let (sends, frames) = (self.sends_total - self.sends, frames_total.saturating_sub(self.frames));
        let most = if self.saturated { CALM_PERCENT } else { BUSY_PERCENT };
        self.saturated = sends > 0 && frames >= WORTH_FRAMES * sends && self.waited * 100 <= window * most;
        self.since = now;
        self.waited = Duration::ZERO;
        (self.sends, self.frames) = (self.sends_total, frames_total);
    }
}

/// A stream's frames, or some of them, and who follows them.
pub(crate) struct Feed {
    pub(crate) ring: Ring,
    pub(crate) slots: Vec<Slot>,
    pub(crate) limits: FeedLimits,
    /// In the engine's list of feeds with something to send, or of those that rest.
    pub(crate) listed: bool,
    /// Where the last flush was interrupted.
    pub(crate) cursor: usize,
    pass: LastPass,
}

/// The pass that has begun last.
#[derive(Debug, Default)]
struct LastPass {
    begun: Option<Instant>,
    /// The end of the feed then, as a position and in frames.
    end: u64,
    end_frames: u64,
    /// Frames that were new then.
    frames: u64,
    /// Whether it left somebody far behind.
    behind: bool,
}

impl Feed {
    pub(crate) fn new(limits: FeedLimits) -> Self {
        let (ring, pass) = (Ring::default(), LastPass::default());
        Self { ring, slots: Vec::new(), limits, listed: false, cursor: 0, pass }
    }

    /// Until when the next pass waits for more, if it does.
    pub(crate) fn rests_until(&self, pace: &Pace) -> Option<Instant> {
        let rests = pace.saturated
            && self.cursor == 0
            && self.pass.frames >= WORTH_FRAMES
            && !self.pass.behind
            && !self.is_full();
        self.pass.begun.filter(|_| rests).map(|begun| begun + pace.space)
    }

    /// The position up to which a subscriber that keeps up has had the chance to take everything.
    pub(crate) fn offered(&self, pace: &Pace) -> u64 {
        if self.rests_until(pace).is_some() { self.pass.end } else { self.ring.end() }
    }

    /// Whether the next pass has enough to carry, or comes near to what subscribers may be behind.
    fn is_full(&self) -> bool {
        let bytes = self.ring.end() - self.pass.end;
        let frames = self.ring.frames_total() - self.pass.end_frames;
        bytes >= FULL_BYTES.min(self.limits.max_backlog_bytes / 2)
            || frames >= (self.limits.max_backlog_frames as u64).div_ceil(2)
    }

    /// A pass begins, or goes on where it was interrupted.
    pub(crate) fn begin_pass(&mut self, now: Instant) {
        if self.cursor > 0 {
            return;
        }
        self.pass.behind = false;
        let (end, end_frames) = (self.ring.end(), self.ring.frames_total());
        if end == self.pass.end {
            // Only what was left over goes out.
            return;
        }
        let frames = end_frames - self.pass.end_frames;
        self.pass = LastPass { begun: Some(now), end, end_frames, frames, behind: false };
    }

    /// Whoever is at `position` has had its send of this pass.
    pub(crate) fn passed(&mut self, position: u64) {
        self.pass.behind |= self.pass.end.saturating_sub(position) >= FULL_BYTES;
    }
}

#[cfg(test)]
#[path = "pace_tests.rs"]
mod tests;
