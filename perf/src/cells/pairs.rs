//! Windows of two kinds in turn, compared pair by pair.

use crate::record::Recorder;
use crate::results::{Outcome, median};

/// Latencies of neighbouring windows: one to compare with, and one of what is looked at.
#[derive(Default)]
pub(super) struct Pairs(Vec<(Recorder, Recorder)>);

impl Pairs {
    /// Adds a pair: the window to compare with first, whichever was measured first.
    pub fn push(&mut self, base: Recorder, other: Recorder) {
        self.0.push((base, other));
    }

    /// Writes the times of all windows of a kind together, behind its name, and the ratios of the pairs. Returns the sums.
    pub fn report(&self, names: [&str; 2], outcome: &mut Outcome) -> [Recorder; 2] {
        let mut sums = [Recorder::default(), Recorder::default()];
        for (base, other) in &self.0 {
            sums[0].merge(base);
            sums[1].merge(other);
        }
        for (name, sum) in names.iter().zip(&sums) {
            outcome.set_distribution(&format!("{name}_"), sum.distribution(name));
        }
        for (figure, quantile) in [("p50", 0.5), ("p99", 0.99), ("p999", 0.999)] {
            // Of the pairs and not of the sums: a pause of the machine falls into one window, and must not decide for all.
            let ratio = |(base, other): &(Recorder, Recorder)| other.quantile_us(quantile) / base.quantile_us(quantile);
            let ratios: Vec<f64> = self.0.iter().map(ratio).collect();
            let (low, high) = middle_half(&ratios);
            outcome.set(&format!("{figure}_ratio"), median(ratios).unwrap_or(f64::NAN));
            outcome.set(&format!("{figure}_ratio_low"), low);
            outcome.set(&format!("{figure}_ratio_high"), high);
        }
        sums
    }
}

/// Where the middle half of `values` begins and ends.
fn middle_half(values: &[f64]) -> (f64, f64) {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |place: usize| sorted.get(place).copied().unwrap_or(f64::NAN);
    let quarter = sorted.len() / 4;
    (at(quarter), at(sorted.len().saturating_sub(quarter + 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_half_leaves_a_quarter_out_at_either_end() {
        assert_eq!(middle_half(&[9.0, 1.0, 5.0, 7.0, 3.0]), (3.0, 7.0));
        assert_eq!(middle_half(&[4.0, 3.0, 2.0, 1.0, 8.0, 7.0, 6.0, 5.0]), (3.0, 6.0));
        assert_eq!(middle_half(&[2.0, 1.0, 3.0]), (1.0, 3.0));
        assert!(middle_half(&[]).0.is_nan());
    }

    #[test]
    fn one_pause_decides_the_sum_but_not_the_ratio() {
        let of = |us: u64| {
            let mut recorder = Recorder::default();
            recorder.open(0..1);
            (0..100).for_each(|_| recorder.record(0, us * 1_000));
            recorder
        };
        let mut pairs = Pairs::default();
        for (base, other) in [(100, 110), (200, 220), (100, 90_000)] {
            pairs.push(of(base), of(other));
        }
        let mut outcome = Outcome::new("c", "p");
        let [base, other] = pairs.report(["still", "moved"], &mut outcome);
        assert_eq!((base.count(), other.count()), (300, 300));
        assert!((outcome.figures["p99_ratio"] - 1.1).abs() < 0.01, "{:?}", outcome.figures);
        assert!(outcome.figures["moved_p99_ms"] > 80.0);
        assert!(outcome.figures["still_p99_ms"] < 0.3);
    }
}
