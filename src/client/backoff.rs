//! Waiting between attempts: doubling, bounded, and spread so that many clients do not come back at once.

use std::time::{Duration, Instant};

/// Longest pause between two attempts.
const MOST: Duration = Duration::from_secs(10);
/// First pause.
const FIRST: Duration = Duration::from_millis(100);

/// Pauses after failures, until `give_up` has passed since the last success.
#[derive(Debug)]
pub struct Backoff {
    next: Duration,
    give_up: Option<Duration>,
    failing_since: Option<Instant>,
    random: u64,
}

impl Backoff {
    /// `give_up` of `None` tries for ever, of zero not even once more. `seed` spreads the pauses.
    #[must_use]
    pub fn new(give_up: Option<Duration>, seed: u64) -> Self {
        Self { next: FIRST, give_up, failing_since: None, random: seed | 1 }
    }

    /// How long to wait after a failure at `now`, or `None` when it is time to give up.
    pub fn failed(&mut self, now: Instant) -> Option<Duration> {
        let since = *self.failing_since.get_or_insert(now);
        if self.give_up.is_some_and(|most| now.duration_since(since) >= most) {
            return None;
        }
        // xorshift: half of the pause is fixed, the other half is spread.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let spread = (self.random % 1_000) as u32;
        let pause = self.next / 2 + self.next / 2_000 * spread;
        self.next = (self.next * 2).min(MOST);
        Some(pause)
    }

    /// What was tried works again.
    pub fn succeeded(&mut self) {
        self.next = FIRST;
        self.failing_since = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_to_a_bound_and_starts_over() {
        let now = Instant::now();
        let mut backoff = Backoff::new(None, 7);
        let pauses: Vec<_> = (0..20).filter_map(|_| backoff.failed(now)).collect();
        assert_eq!(pauses.len(), 20);
        assert!(pauses[0] >= FIRST / 2 && pauses[0] <= FIRST);
        assert!(pauses.iter().all(|pause| *pause <= MOST));
        assert!(pauses[19] >= MOST / 2);
        backoff.succeeded();
        assert!(backoff.failed(now).is_some_and(|pause| pause <= FIRST));
    }

    #[test]
    fn gives_up_in_time() {
        let now = Instant::now();
        assert_eq!(Backoff::new(Some(Duration::ZERO), 1).failed(now), None);
        let mut backoff = Backoff::new(Some(Duration::from_secs(5)), 1);
        assert!(backoff.failed(now).is_some());
        assert!(backoff.failed(now + Duration::from_secs(4)).is_some());
        assert_eq!(backoff.failed(now + Duration::from_secs(5)), None);
        backoff.succeeded();
        assert!(backoff.failed(now + Duration::from_secs(9)).is_some());
    }
}
