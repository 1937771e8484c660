//! Windows of two kinds in turn: what all windows of a kind show together, and what each pair shows by itself.

use super::resample::{median_ratio, ratio_of_all, ratios};
use crate::record::Recorder;
use crate::results::{Outcome, median};

/// The quantiles that are compared.
const QUANTILES: [(&str, f64); 3] = [("p50", 0.5), ("p99", 0.99), ("p999", 0.999)];

/// A machine that strangers leave alone for less than this is no place to measure.
const LEAST_CLEAR: f64 = 0.6;

/// Latencies of neighbouring windows: one to compare with, and one of what is looked at.
#[derive(Default)]
pub(super) struct Pairs(Vec<(Recorder, Recorder)>);

impl Pairs {
    /// Adds a pair: the window to compare with first, whichever was measured first.
    pub fn push(&mut self, base: Recorder, other: Recorder) {
        self.0.push((base, other));
    }

    /// Writes the times of all windows of a kind together, behind its name; their ratios, with what these could have been
    /// had other windows been met; and the ratios of the pairs. Returns the sums.
    pub fn report(&self, names: [&str; 2], outcome: &mut Outcome) -> [Recorder; 2] {
        let sums = self.sums();
        for (name, sum) in names.iter().zip(&sums) {
            outcome.set_distribution(&format!("{name}_"), sum.distribution(name));
        }
        for (figure, quantile) in QUANTILES {
            ratio_of_all(&self.0, quantile).report(&format!("all_{figure}_ratio"), outcome);
            let ratios = ratios(&self.0, quantile);
            let (low, high) = middle_half(&ratios);
            outcome.set(&format!("{figure}_ratio"), median(ratios).unwrap_or(f64::NAN));
            outcome.set(&format!("{figure}_ratio_low"), low);
            outcome.set(&format!("{figure}_ratio_high"), high);
        }
        let late = sums[1].share_above(sums[0].quantile_us(0.99));
        outcome.set("later_than_p99_pct", late * 100.0);
        sums
    }

    /// All windows of a kind together.
    fn sums(&self) -> [Recorder; 2] {
        let mut sums = [Recorder::default(), Recorder::default()];
        for (base, other) in &self.0 {
            sums[0].merge(base);
            sums[1].merge(other);
        }
        sums
    }

    /// Writes what these windows, of which `all` are the same with everything, show without what was due around the times in
    /// which strangers held a core: how much that is of all, p50 and p99 of a kind, the median of the pairs' ratios and the
    /// ratio of all together, each with its range. Doubts them when too little is left.
    pub fn report_clear(&self, all: &[Recorder; 2], names: [&str; 2], outcome: &mut Outcome) {
        for ((name, sum), all) in names.iter().zip(self.sums()).zip(all).filter(|((_, sum), _)| sum.count() > 0) {
            let share = sum.count() as f64 / all.count() as f64;
            outcome.set(&format!("{name}_clear_pct"), share * 100.0);
            outcome.set(&format!("{name}_clear_p50_ms"), sum.quantile_us(0.5) / 1e3);
            outcome.set(&format!("{name}_clear_p99_ms"), sum.quantile_us(0.99) / 1e3);
            if share < LEAST_CLEAR {
                let strangers = (1.0 - share) * 100.0;
                outcome.problems.push(format!("strangers held a core around {strangers:.0} % of the {name} messages"));
            }
        }
        median_ratio(&self.0, 0.99).report("clear_p99_ratio", outcome);
        ratio_of_all(&self.0, 0.99).report("clear_all_p99_ratio", outcome);
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
        // The sum tells it, and that it depends on the one window.
        let of_all = |end: &str| outcome.figures[&format!("all_p99_ratio{end}")];
        assert!(of_all("") > 400.0 && of_all("_low") < 1.2 && of_all("_high") >= of_all(""), "{:?}", outcome.figures);
        assert!((outcome.figures["later_than_p99_pct"] - 66.7).abs() < 0.1, "{:?}", outcome.figures);
        assert!(outcome.figures["moved_p99_ms"] > 80.0);
        assert!(outcome.figures["still_p99_ms"] < 0.3);
    }

    #[test]
    fn what_is_clear_is_told_apart_and_too_little_of_it_is_doubted() {
        let of = |us: u64, count: usize| {
            let mut recorder = Recorder::default();
            recorder.open(0..1);
            (0..count).for_each(|_| recorder.record(0, us * 1_000));
            recorder
        };
        let (mut all, mut clear) = (Pairs::default(), Pairs::default());
        for (us, left) in [(100, 90), (200, 90), (300, 90)] {
            all.push(of(us, 100), of(9_000, 100));
            clear.push(of(us, left), of(us * 2, left / 2));
        }
        let mut outcome = Outcome::new("c", "p");
        let sums = all.report(["quiet", "disturbed"], &mut outcome);
        clear.report_clear(&sums, ["quiet", "disturbed"], &mut outcome);
        let figure = |name: &str| outcome.figures[name].round() as i64;
        assert_eq!((figure("quiet_clear_pct"), figure("disturbed_clear_pct")), (90, 45));
        assert_eq!((figure("clear_p99_ratio"), figure("clear_all_p99_ratio")), (2, 2));
        assert_eq!(outcome.problems, ["strangers held a core around 55 % of the disturbed messages"]);

        let mut outcome = Outcome::new("c", "p");
        Pairs::default().report_clear(&sums, ["quiet", "disturbed"], &mut outcome);
        assert!(outcome.figures.is_empty() && outcome.problems.is_empty(), "nothing is said where nothing is known");
    }
}
