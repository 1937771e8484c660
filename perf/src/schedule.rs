//! The open-loop schedule: when the n-th frame is due, whatever the server has done so far.

use std::num::NonZeroU64;

/// Frames at a constant rate. A late frame keeps its due time, so its wait is part of what is measured.
#[derive(Debug, Clone)]
pub struct Schedule {
    start_ns: u64,
    /// Frames per 10^9 seconds: a rate with nine digits after the point.
    nano_rate: NonZeroU64,
    next: u64,
    end_ns: u64,
}

impl Schedule {
    /// `rate` frames a second from `start_ns` on; `None` unless the rate is at least one frame in 1,000 seconds.
    #[must_use]
    pub fn new(start_ns: u64, rate: f64) -> Option<Self> {
        if !(1e-3..=1e9).contains(&rate) {
            return None;
        }
        Some(Self { start_ns, nano_rate: NonZeroU64::new((rate * 1e9) as u64)?, next: 0, end_ns: u64::MAX })
    }

    /// No frame is due at `end_ns` or later.
    pub fn end_at(&mut self, end_ns: u64) {
        self.end_ns = end_ns;
    }

    /// When the next frame is due, in [`crate::clock::now_ns`]; `None` after the end.
    #[must_use]
    pub fn next_due_ns(&self) -> Option<u64> {
        let due = self.due_ns(self.next);
        (due < self.end_ns).then_some(due)
    }

    /// Takes the next frame if it is due: its due time and its index.
    pub fn take_due(&mut self, now_ns: u64) -> Option<(u64, u64)> {
        let due = self.next_due_ns().filter(|&due| due <= now_ns)?;
        let index = self.next;
        self.next += 1;
        Some((due, index))
    }

    /// Frames taken so far.
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.next
    }

    /// Computed from the index alone, so rounding never accumulates.
    fn due_ns(&self, index: u64) -> u64 {
        let offset = u128::from(index) * 1_000_000_000_000_000_000 / u128::from(self.nano_rate.get());
        self.start_ns.saturating_add(u64::try_from(offset).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_fall_due_at_the_rate_without_drift() {
        let mut schedule = Schedule::new(1_000, 3.0).unwrap();
        assert_eq!(schedule.take_due(999), None);
        assert_eq!(schedule.take_due(1_000), Some((1_000, 0)));
        assert_eq!(schedule.take_due(1_000), None);
        assert_eq!(schedule.next_due_ns(), Some(1_000 + 333_333_333));
        for _ in 1..3_000_000 {
            schedule.take_due(u64::MAX);
        }
        assert_eq!(schedule.next_due_ns(), Some(1_000 + 1_000_000 * 1_000_000_000));
        assert_eq!(schedule.taken(), 3_000_000);
    }

    #[test]
    fn late_frames_keep_their_due_times() {
        let mut schedule = Schedule::new(0, 1000.0).unwrap();
        let late: Vec<_> = std::iter::from_fn(|| schedule.take_due(3_500_000)).collect();
        assert_eq!(late, [(0, 0), (1_000_000, 1), (2_000_000, 2), (3_000_000, 3)]);
    }

    #[test]
    fn nothing_is_due_after_the_end() {
        let mut schedule = Schedule::new(0, 1000.0).unwrap();
        schedule.end_at(2_000_000);
        assert_eq!(std::iter::from_fn(|| schedule.take_due(u64::MAX)).count(), 2);
        assert_eq!(schedule.next_due_ns(), None);
    }

    #[test]
    fn absurd_rates_are_refused() {
        for rate in [0.0, -1.0, 1e-4, 2e9, f64::NAN, f64::INFINITY] {
            assert!(Schedule::new(0, rate).is_none(), "{rate}");
        }
    }
}
