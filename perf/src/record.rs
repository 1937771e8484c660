//! Latency bookkeeping: what belongs to the measured window, and what is said about it afterwards.

use std::ops::Range;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Longest latency that is told apart; anything longer counts as this. In nanoseconds.
const LONGEST_NS: u64 = 120_000_000_000;

/// Quantiles kept for the plots.
const PLOTTED: [f64; 16] =
    [0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9995, 0.9999, 0.99999, 1.0];

/// Latencies of events that were *due* within a window, however late they arrived.
#[derive(Debug, Clone)]
pub struct Recorder {
    window: Range<u64>,
    histogram: Histogram<u64>,
    /// When each event was due and how long it took, in nanoseconds, if that is kept.
    events: Option<Vec<(u64, u64)>>,
}

impl Default for Recorder {
    fn default() -> Self {
        // panics: the bounds are constants that the crate accepts; every test of this file runs through here.
        let histogram = Histogram::new_with_bounds(1, LONGEST_NS, 3).unwrap_or_else(|_| unreachable!("fixed bounds"));
        Self { window: 0..0, histogram, events: None }
    }
}

impl Recorder {
    /// Forgets everything and records what is due in `window` from now on.
    pub fn open(&mut self, window: Range<u64>) {
        self.window = window;
        self.histogram.reset();
        if let Some(events) = &mut self.events {
            events.clear();
        }
    }

    /// Keeps every event by itself from now on, for [`Recorder::outside`], with room for `expected` events: more cost a pause.
    pub fn keep_events(&mut self, expected: usize) {
        self.events = Some(Vec::with_capacity(expected));
    }

    /// The same without what was kept of every event.
    #[must_use]
    pub fn without_events(&self) -> Self {
        Self { window: self.window.clone(), histogram: self.histogram.clone(), events: None }
    }

    /// The kept events that were not due within `spans`, which are ascending and apart.
    #[must_use]
    pub fn outside(&self, spans: &[Range<u64>]) -> Self {
        let mut found = Self { window: self.window.clone(), ..Self::default() };
        for &(due_ns, took_ns) in self.events.iter().flatten() {
            let after = spans.partition_point(|span| span.end <= due_ns);
            if spans.get(after).is_none_or(|span| due_ns < span.start) {
                found.histogram.saturating_record(took_ns);
            }
        }
        found
    }

    /// One event that was due at `due_ns` and happened at `now_ns`.
    pub fn record(&mut self, due_ns: u64, now_ns: u64) {
        if self.window.contains(&due_ns) {
            let took_ns = now_ns.saturating_sub(due_ns).max(1);
            self.histogram.saturating_record(took_ns);
            if let Some(events) = &mut self.events {
                events.push((due_ns, took_ns));
            }
        }
    }

    /// `count` events that were due in the window and never happened: the longest latency there is.
    pub fn record_lost(&mut self, count: u64) {
        self.histogram.saturating_record_n(LONGEST_NS, count);
    }

    /// Adds the events of another recorder.
    pub fn merge(&mut self, other: &Self) {
        // Both have the same bounds, so nothing can be out of range.
        let _ = self.histogram.add(&other.histogram);
    }

    /// Events recorded.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The times that were recorded, in nanoseconds as exact as they are kept, ascending, and how often each was.
    pub fn values(&self) -> impl Iterator<Item = (u64, u64)> {
        self.histogram.iter_recorded().map(|step| (step.value_iterated_to(), step.count_at_value()))
    }

    /// The share of the events that took longer than `us` microseconds; not a number when there are none.
    #[must_use]
    pub fn share_above(&self, us: f64) -> f64 {
        let limit_ns = (us * 1e3).round() as u64;
        let above: u64 = self.values().filter(|(value, _)| *value > limit_ns).map(|(_, count)| count).sum();
        above as f64 / self.count() as f64
    }

    /// The value at a quantile, in microseconds.
    #[must_use]
    pub fn quantile_us(&self, quantile: f64) -> f64 {
        self.histogram.value_at_quantile(quantile) as f64 / 1e3
    }

    /// What is reported about these events.
    #[must_use]
    pub fn distribution(&self, name: &str) -> Distribution {
        let at = |quantile| self.quantile_us(quantile);
        Distribution {
            name: name.to_owned(),
            count: self.count(),
            mean_us: self.histogram.mean() / 1e3,
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: self.histogram.max() as f64 / 1e3,
            curve: PLOTTED.iter().map(|&quantile| (quantile, at(quantile))).collect(),
        }
    }
}

/// A latency distribution in a result file. Times in microseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    pub name: String,
    pub count: u64,
    pub mean_us: f64,
    pub p50_us: f64,
    pub p90_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    pub max_us: f64,
    /// Pairs of quantile and microseconds, for plots.
    pub curve: Vec<(f64, f64)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_due_time_decides_what_belongs_to_the_window() {
        let mut recorder = Recorder::default();
        recorder.open(1_000..2_000);
        recorder.record(999, 1_500);
        recorder.record(1_000, 1_500);
        recorder.record(1_999, 900_000);
        recorder.record(2_000, 2_001);
        assert_eq!(recorder.count(), 2);
        assert!((recorder.distribution("x").max_us - 898.001).abs() < 1.0);
        recorder.open(0..1);
        assert_eq!(recorder.count(), 0);
    }

    #[test]
    fn quantiles_of_a_known_distribution() {
        let mut recorder = Recorder::default();
        recorder.open(0..1);
        for us in 1..=10_000 {
            recorder.record(0, us * 1_000);
        }
        let found = recorder.distribution("x");
        for (got, wanted) in [(found.p50_us, 5e3), (found.p99_us, 9.9e3), (found.p999_us, 9.99e3), (found.max_us, 1e4)]
        {
            assert!((got / wanted - 1.0).abs() < 2e-3, "{got} is not {wanted}");
        }
        assert_eq!(found.count, 10_000);
        assert_eq!(found.curve.last(), Some(&(1.0, found.max_us)));
    }

    #[test]
    fn events_due_within_spans_can_be_left_out() {
        let mut recorder = Recorder::default();
        recorder.keep_events(10);
        recorder.open(0..100);
        (0..100).for_each(|due| recorder.record(due, due + 1_000 + due));
        let outside = recorder.outside(&[10..20, 90..200]);
        assert_eq!((recorder.count(), outside.count()), (100, 80));
        let values: Vec<u64> = outside.values().map(|(value, _)| value).collect();
        assert!(!values.contains(&1_010) && !values.contains(&1_019) && !values.contains(&1_090), "{values:?}");
        assert!(values.contains(&1_009) && values.contains(&1_020) && values.contains(&1_089), "{values:?}");
        assert_eq!(recorder.outside(&[]).count(), 100);
        recorder.open(0..1);
        assert_eq!(recorder.outside(&[]).count(), 0, "a new window begins with nothing");
    }

    #[test]
    fn what_lies_above_a_quantile_is_the_rest() {
        let mut recorder = Recorder::default();
        assert!(recorder.share_above(0.0).is_nan());
        recorder.open(0..1);
        for us in 1..=10_000 {
            recorder.record(0, us * 1_000);
        }
        for quantile in [0.5, 0.99, 0.999] {
            let above = recorder.share_above(recorder.quantile_us(quantile));
            assert!((above - (1.0 - quantile)).abs() < 1e-3, "{above} at {quantile}");
        }
        assert_eq!(recorder.values().map(|(_, count)| count).sum::<u64>(), recorder.count());
        assert!(recorder.values().is_sorted());
    }

    #[test]
    fn lost_events_are_the_worst_latency() {
        let mut recorder = Recorder::default();
        recorder.open(0..1);
        for _ in 0..98 {
            recorder.record(0, 1_000);
        }
        recorder.record_lost(2);
        assert!(recorder.quantile_us(0.99) > 1e8);
        assert!(recorder.quantile_us(0.5) < 2.0);
        let mut sum = Recorder::default();
        sum.merge(&recorder);
        assert_eq!(sum.count(), 100);
    }
}
