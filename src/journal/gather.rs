//! Waiting a moment for publishers that were just answered.
//!
//! A publisher with one frame under way sends the next one when it is answered. Of several such publishers a few come
//! back just after the next transaction has begun, and from then on they take turns with the others: every sync carries
//! a part of them. So before it begins a transaction the writer waits for those that the last one answered and that
//! have nothing queued - never longer than the frames that are missing are worth, and only while that has paid.
//!
//! Time comes from outside, so all of this can be tested without a clock.

use std::time::{Duration, Instant};

/// Connections that are waited for at most; a transaction of more is large enough as it is.
const MAX_AWAITED: usize = 64;

/// The longest commit that is believed: an outlier must not let frames wait for long.
const MAX_COMMIT: Duration = Duration::from_millis(5);

/// How many waits that paid are remembered.
const MAX_CREDIT: u8 = 8;

/// What a wait that did not pay costs.
const LOSS: u8 = 2;

/// Without credit, every so many times a wait is tried nevertheless.
const TRY_EVERY: u8 = 64;

/// Who may be waited for, and whether it pays.
#[derive(Debug)]
pub(super) struct Gathering {
    /// Connections with frames in the transaction in the making.
    taken: Vec<u64>,
    /// Connections that the last transaction answered and that have sent nothing since.
    awaited: Vec<u64>,
    answered_at: Option<Instant>,
    /// How long a commit takes, smoothed.
    commit: Duration,
    /// The wait under way: when it began, with how many frames, and when the last one came.
    wait: Option<Wait>,
    credit: u8,
    /// Waits left out since the last one.
    left_out: u8,
}

#[derive(Debug)]
struct Wait {
    began: Instant,
    frames_then: usize,
    frames: usize,
    moved: Instant,
}

impl Default for Gathering {
    fn default() -> Self {
        Self {
            taken: Vec::new(),
            awaited: Vec::new(),
            answered_at: None,
            commit: Duration::ZERO,
            wait: None,
            credit: MAX_CREDIT / 2,
            left_out: 0,
        }
    }
}

impl Gathering {
    /// A frame of connection `token` was taken.
    pub(super) fn took(&mut self, token: u64) {
        if self.taken.last() == Some(&token) {
            return;
        }
        if let Some(at) = self.awaited.iter().position(|awaited| *awaited == token) {
            self.awaited.swap_remove(at);
        }
        if self.taken.len() <= MAX_AWAITED && !self.taken.contains(&token) {
            self.taken.push(token);
        }
    }

    /// Until when the next frame is worth waiting for, with `frames` taken and nothing queued at `now`; `None` when the
    /// transaction should begin.
    pub(super) fn until(&mut self, frames: usize, now: Instant) -> Option<Instant> {
        if self.awaited.is_empty() || self.taken.is_empty() {
            return None;
        }
        let limit = self.answered_at? + 2 * self.commit;
        if limit <= now {
            return None;
        }
        if self.wait.is_none() {
            if self.credit == 0 && self.left_out < TRY_EVERY {
                self.left_out += 1;
                self.awaited.clear();
                return None;
            }
            self.left_out = 0;
            self.wait = Some(Wait { began: now, frames_then: frames, frames, moved: now });
        }
        let wait = self.wait.as_mut()?;
        if wait.frames != frames {
            wait.frames = frames;
            wait.moved = now;
        }
        // Those who are missing would each wait for a commit; those who are here each wait for them.
        let worth = self.commit * self.awaited.len() as u32 / frames.max(1) as u32;
        Some(limit.min(wait.moved + worth.min(self.commit))).filter(|until| *until > now)
    }

    /// Whether each of the `frames` of the transaction is the only one of its connection, which waits for the answer.
    pub(super) fn is_one_each(&self, frames: usize) -> bool {
        self.taken.len() == frames
    }

    /// The transaction begins at `now` with `frames`.
    pub(super) fn closed(&mut self, frames: usize, now: impl FnOnce() -> Instant) {
        self.awaited.clear();
        let Some(wait) = self.wait.take() else { return };
        let won = self.commit * frames.saturating_sub(wait.frames_then) as u32;
        let paid = now().saturating_duration_since(wait.began) * wait.frames_then as u32;
        self.credit = if won > paid { MAX_CREDIT.min(self.credit + 1) } else { self.credit.saturating_sub(LOSS) };
    }

    /// The transaction was answered at `now`; its commit has taken `took`.
    pub(super) fn answered(&mut self, took: Duration, now: Instant) {
        std::mem::swap(&mut self.awaited, &mut self.taken);
        self.taken.clear();
        if self.awaited.len() > MAX_AWAITED {
            self.awaited.clear();
        }
        let took = took.min(MAX_COMMIT);
        self.commit = if self.commit.is_zero() { took } else { (self.commit * 7 + took) / 8 };
        self.answered_at = Some(now);
    }

    /// The transaction did not come about.
    pub(super) fn dropped(&mut self) {
        self.taken.clear();
        self.awaited.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMIT: Duration = Duration::from_micros(200);

    /// Plays publishers that each send their next frame `back` after their answer; returns the sizes of the
    /// transactions. Commits take [`COMMIT`].
    fn play(gathering: &mut Gathering, backs: &[Duration], commits: usize) -> Vec<usize> {
        let begin = Instant::now();
        let mut now = begin;
        // When each publisher's frame is there; they begin one after the other.
        let mut due: Vec<Instant> = (0..backs.len()).map(|at| begin + Duration::from_micros(90 * at as u64)).collect();
        let mut sizes = Vec::new();
        while sizes.len() < commits {
            now = now.max(*due.iter().min().expect("publishers"));
            let mut group = Vec::new();
            loop {
                for (at, due) in due.iter().enumerate() {
                    if *due <= now && !group.contains(&at) {
                        gathering.took(at as u64);
                        group.push(at);
                    }
                }
                let Some(until) = gathering.until(group.len(), now) else { break };
                assert!(until > now);
                let next = (0..due.len()).filter(|at| !group.contains(at)).map(|at| due[at]).min();
                match next.filter(|next| *next <= until) {
                    Some(next) => now = next,
                    None => {
                        now = until;
                        break;
                    }
                }
            }
            gathering.closed(group.len(), || now);
            now += COMMIT;
            gathering.answered(COMMIT, now);
            for at in &group {
                due[*at] = now + backs[*at];
            }
            sizes.push(group.len());
        }
        sizes
    }

    #[test]
    fn publishers_that_come_back_at_once_end_up_in_one_transaction() {
        let backs: Vec<_> = (0..8).map(|at| Duration::from_micros(20 + 10 * at)).collect();
        let sizes = play(&mut Gathering::default(), &backs, 40);
        assert!(sizes[10..].iter().all(|size| *size == 8), "{sizes:?}");
    }

    #[test]
    fn without_a_wait_they_would_take_turns() {
        let mut never = Gathering { credit: 0, ..Gathering::default() };
        let backs: Vec<_> = (0..8).map(|at| Duration::from_micros(20 + 10 * at)).collect();
        let sizes = play(&mut never, &backs, 40);
        assert!(sizes.iter().all(|size| *size < 8), "{sizes:?}");
    }

    #[test]
    fn a_publisher_alone_and_one_with_more_under_way_wait_for_nobody() {
        let mut gathering = Gathering::default();
        let now = Instant::now();
        for _ in 0..3 {
            gathering.took(1);
            gathering.took(1);
            assert_eq!(gathering.until(2, now), None);
            gathering.closed(2, || now);
            gathering.answered(COMMIT, now);
        }
    }

    #[test]
    fn those_who_stay_away_are_soon_waited_for_no_more() {
        let mut gathering = Gathering::default();
        let mut now = Instant::now();
        let mut waits = 0;
        // Every frame comes from somebody else, who then says nothing for long.
        for round in 0..1000 {
            gathering.took(round);
            if let Some(until) = gathering.until(1, now) {
                assert!(until <= now + 2 * COMMIT);
                now = until;
                waits += 1;
            }
            gathering.closed(1, || now);
            now += COMMIT;
            gathering.answered(COMMIT, now);
        }
        assert!((2..=20).contains(&waits), "{waits} waits");
    }

    #[test]
    fn a_frame_that_comes_long_after_the_answer_waits_for_nobody() {
        let mut gathering = Gathering::default();
        let now = Instant::now();
        for token in 0..2 {
            gathering.took(token);
        }
        gathering.answered(COMMIT, now);
        gathering.took(0);
        assert_eq!(gathering.until(1, now + 2 * COMMIT), None);
        assert!(gathering.until(1, now + COMMIT).is_some());
    }

    #[test]
    fn one_of_many_is_waited_for_no_longer_than_it_is_worth() {
        let mut gathering = Gathering::default();
        let now = Instant::now();
        for token in 0..8 {
            gathering.took(token);
        }
        gathering.answered(COMMIT, now);
        for token in 0..7 {
            gathering.took(token);
        }
        assert_eq!(gathering.until(7, now), Some(now + COMMIT / 7));
    }

    #[test]
    fn who_has_one_frame_in_it_is_told_from_who_has_more() {
        let mut gathering = Gathering::default();
        gathering.took(1);
        gathering.took(2);
        assert!(gathering.is_one_each(2));
        gathering.took(1);
        assert!(!gathering.is_one_each(3));
        gathering.answered(COMMIT, Instant::now());
        gathering.took(2);
        assert!(gathering.is_one_each(1));
    }

    #[test]
    fn very_many_are_not_waited_for() {
        let mut gathering = Gathering::default();
        let now = Instant::now();
        for token in 0..1000 {
            gathering.took(token);
        }
        gathering.answered(COMMIT, now);
        assert!(gathering.taken.capacity() <= 4 * MAX_AWAITED && gathering.awaited.is_empty());
        gathering.took(0);
        assert_eq!(gathering.until(1, now), None);
    }
}
