//! This machine's own telemetry, four times a second: what the kernel counts, as rates.

mod reading;
mod row;

use std::time::Instant;

use self::reading::Reading;
use super::feed::Source;

/// Between two rows.
const PERIOD_US: i64 = 250_000;

/// Readings of this machine.
pub struct HostSource {
    due_us: i64,
    before: (Instant, Reading),
}

impl HostSource {
    /// Takes a first reading, to which the first row compares.
    pub fn new(now_us: i64) -> Self {
        Self { due_us: now_us.saturating_add(PERIOD_US), before: (Instant::now(), Reading::take()) }
    }
}

impl Source for HostSource {
    fn due_us(&self) -> i64 {
        self.due_us
    }

    fn write_row(&mut self, out: &mut String) {
        let (at, reading) = (Instant::now(), Reading::take());
        let elapsed_s = at.saturating_duration_since(self.before.0).as_secs_f64();
        out.push_str(&row::row(self.due_us, elapsed_s, &self.before.1, &reading).to_string());
        self.before = (at, reading);
        self.due_us = self.due_us.saturating_add(PERIOD_US);
    }

    fn skip_to(&mut self, now_us: i64) {
        self.due_us = self.due_us.max(now_us);
    }
}
