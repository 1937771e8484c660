//! Changes of streams stand back behind rows: where rows are committed all the time, each change is followed by a rest.
//! A change takes the writer and the disk several times, and rows that come meanwhile wait.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use crate::telemetry::Telemetry;

/// How many times as long as the change the rest is: changes get a quarter of the time, however many want to be made.
const RESTS: u32 = 3;

/// The longest rest. A change may have waited for peers, and that is nothing to rest from.
const LONGEST_REST: Duration = Duration::from_millis(200);

/// Transactions a second from which on rows count as committed all the time.
const BUSY_COMMITS_PER_S: f64 = 100.0;

/// When the next change may begin.
pub(super) struct Restraint {
    telemetry: Arc<Telemetry>,
    rests_until: Instant,
}

/// A change that is being made; it ends when this is dropped.
pub(super) struct Change<'a> {
    restraint: &'a mut Restraint,
    began: Instant,
    commits: u64,
}

impl Restraint {
    pub(super) fn new(telemetry: Arc<Telemetry>) -> Self {
        Self { telemetry, rests_until: Instant::now() }
    }

    /// Waits until the rest from the change before is over. A change that comes alone waits for nothing.
    pub(super) fn begin(&mut self) -> Change<'_> {
        std::thread::sleep(self.rests_until.saturating_duration_since(Instant::now()));
        let (began, commits) = (Instant::now(), self.commits());
        Change { restraint: self, began, commits }
    }

    fn commits(&self) -> u64 {
        self.telemetry.writer.commits_total.load(Relaxed)
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        let commits = self.restraint.commits().saturating_sub(self.commits);
        self.restraint.rests_until = Instant::now() + rest(self.began.elapsed(), commits);
    }
}

/// The rest from a change that took so long, during which rows were committed so many times.
fn rest(took: Duration, commits: u64) -> Duration {
    let is_busy = commits as f64 >= BUSY_COMMITS_PER_S * took.as_secs_f64() && commits > 1;
    if is_busy { (took * RESTS).min(LONGEST_REST) } else { Duration::ZERO }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_where_rows_are_committed_all_the_time_is_there_a_rest() {
        for (took_ms, commits, rest_ms) in [(10, 0, 0), (10, 1, 0), (10, 2, 30), (10, 9, 30), (50, 4, 0), (50, 5, 150)]
        {
            assert_eq!(
                rest(Duration::from_millis(took_ms), commits),
                Duration::from_millis(rest_ms),
                "{took_ms} {commits}"
            );
        }
        assert_eq!(rest(Duration::from_secs(10), 10_000), LONGEST_REST);
    }

    #[test]
    fn the_next_change_waits_for_the_end_of_the_rest() {
        let telemetry = Arc::new(Telemetry::new(1));
        let mut restraint = Restraint::new(Arc::clone(&telemetry));
        let change = restraint.begin();
        std::thread::sleep(Duration::from_millis(10));
        telemetry.writer.commits_total.fetch_add(1_000_000, Relaxed);
        let began = change.began;
        drop(change);
        let next = restraint.begin();
        assert!(next.began - began >= Duration::from_millis(40), "the change, and three times as long");
        drop(next);
        assert!(restraint.rests_until <= Instant::now(), "nothing was committed during the second one");
    }
}
