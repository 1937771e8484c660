//! How far a figure of all windows together depends on which windows were met: the same figure again and again, of as many
//! pairs of windows, drawn from those that were measured (a bootstrap over pairs).

use crate::record::Recorder;
use crate::results::{Outcome, median};

/// How often pairs are drawn.
const DRAWS: usize = 1_000;

/// The part of the draws outside the interval, at either end: the interval holds 95 % of them.
const TAIL: f64 = 0.025;

/// A ratio, and how sure it is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Resampled {
    /// Of the pairs as they were measured.
    pub value: f64,
    /// The range of 95 % of the draws.
    pub low: f64,
    pub high: f64,
}

impl Resampled {
    /// Writes the figure and its range.
    pub fn report(self, figure: &str, outcome: &mut Outcome) {
        outcome.set(figure, self.value);
        outcome.set(&format!("{figure}_low"), self.low);
        outcome.set(&format!("{figure}_high"), self.high);
    }
}

/// The ratio of a quantile of all second windows together to that of all first windows together. Not a number when there
/// is nothing in one of them.
pub(super) fn ratio_of_all(pairs: &[(Recorder, Recorder)], quantile: f64) -> Resampled {
    let base = Side::new(pairs.iter().map(|(base, _)| base));
    let other = Side::new(pairs.iter().map(|(_, other)| other));
    resampled(pairs.len(), |times| other.quantile(times, quantile) / base.quantile(times, quantile))
}

/// The median over the pairs of the ratio of a quantile of the second window to that of the first.
pub(super) fn median_ratio(pairs: &[(Recorder, Recorder)], quantile: f64) -> Resampled {
    let ratios = ratios(pairs, quantile);
    resampled(pairs.len(), |times| {
        let drawn = ratios.iter().zip(times).flat_map(|(ratio, times)| std::iter::repeat_n(*ratio, *times as usize));
        median(drawn.collect()).unwrap_or(f64::NAN)
    })
}

/// Of each pair the ratio of a quantile of the second window to that of the first.
pub(super) fn ratios(pairs: &[(Recorder, Recorder)], quantile: f64) -> Vec<f64> {
    pairs.iter().map(|(base, other)| other.quantile_us(quantile) / base.quantile_us(quantile)).collect()
}

/// A figure of `pairs` pairs, which it gets as how often each is there.
fn resampled(pairs: usize, figure: impl Fn(&[u64]) -> f64) -> Resampled {
    let value = figure(&vec![1; pairs]);
    let mut draws = Draws(0x9e37_79b9_7f4a_7c15);
    let mut drawn: Vec<f64> = (0..DRAWS).map(|_| figure(&draws.times(pairs))).collect();
    drawn.sort_by(f64::total_cmp);
    let at = |share: f64| drawn[((DRAWS - 1) as f64 * share).round() as usize];
    Resampled { value, low: at(TAIL), high: at(1.0 - TAIL) }
}

/// The windows of one kind: how many events of each window have each of the values that occur.
struct Side {
    values: Vec<u64>,
    /// Of each value, the windows that have it and how often.
    counts: Vec<Vec<(usize, u64)>>,
    /// Events of each window.
    totals: Vec<u64>,
}

impl Side {
    fn new<'r>(windows: impl Iterator<Item = &'r Recorder> + Clone) -> Self {
        let totals = windows.clone().map(Recorder::count).collect();
        let mut found: Vec<(u64, usize, u64)> = windows
            .enumerate()
            .flat_map(|(window, recorder)| recorder.values().map(move |(value, count)| (value, window, count)))
            .collect();
        found.sort_unstable();
        let (mut values, mut counts) = (Vec::new(), Vec::<Vec<(usize, u64)>>::new());
        for (value, window, count) in found {
            if values.last() != Some(&value) {
                values.push(value);
                counts.push(Vec::new());
            }
            if let Some(last) = counts.last_mut() {
                last.push((window, count));
            }
        }
        Self { values, counts, totals }
    }

    /// The quantile of all windows together, when window `n` is there `times[n]` times.
    fn quantile(&self, times: &[u64], quantile: f64) -> f64 {
        let total: u64 = self.totals.iter().zip(times).map(|(total, times)| total * times).sum();
        let wanted = ((total as f64 * quantile).ceil() as u64).max(1);
        let mut below = 0;
        let found = self.counts.iter().position(|counts| {
            below += counts.iter().map(|(window, count)| times[*window] * count).sum::<u64>();
            below >= wanted
        });
        found.map_or(f64::NAN, |at| self.values[at] as f64)
    }
}

/// The same draws in every run, so that a result says the same whenever it is looked at.
struct Draws(u64);

impl Draws {
    /// How often each of `count` is drawn, in as many draws.
    fn times(&mut self, count: usize) -> Vec<u64> {
        let mut times = vec![0; count];
        for _ in 0..count {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            times[(((self.0 >> 32) * count as u64) >> 32) as usize] += 1;
        }
        times
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A window of events that took so many microseconds, so often.
    fn window(times: &[(u64, usize)]) -> Recorder {
        let mut recorder = Recorder::default();
        recorder.open(0..1);
        for (us, count) in times {
            (0..*count).for_each(|_| recorder.record(0, us * 1_000));
        }
        recorder
    }

    fn close(found: f64, wanted: f64) {
        assert!((found / wanted - 1.0).abs() < 0.01, "{found} is not {wanted}");
    }

    #[test]
    fn a_ratio_is_that_of_the_sums() {
        let pairs: Vec<_> = (1..=12_u64)
            .map(|n| (window(&[(100, 90), (300 + n * 10, 10)]), window(&[(110, 90), (900 + n * 10, 10)])))
            .collect();
        for quantile in [0.5, 0.9, 0.99, 0.999] {
            let (mut base, mut other) = (Recorder::default(), Recorder::default());
            for (first, second) in &pairs {
                base.merge(first);
                other.merge(second);
            }
            close(ratio_of_all(&pairs, quantile).value, other.quantile_us(quantile) / base.quantile_us(quantile));
        }
    }

    #[test]
    fn windows_that_are_all_alike_leave_no_doubt_and_different_ones_do() {
        let alike = vec![(window(&[(100, 90), (300, 10)]), window(&[(100, 90), (450, 10)])); 10];
        let sure = ratio_of_all(&alike, 0.99);
        close(sure.value, 1.5);
        assert_eq!((sure.low, sure.high), (sure.value, sure.value));

        // One pause of the machine, which fell into one window of ten, decides the p99 of all of them; that this depends on
        // one window is told.
        let mut paused = alike.clone();
        paused[3].1 = window(&[(100, 80), (9_000, 20)]);
        let unsure = ratio_of_all(&paused, 0.99);
        close(unsure.value, 30.0);
        assert!(unsure.low < 1.6 && unsure.high > 29.0, "{unsure:?}");
        // The median of the pairs does not depend on it, nor would it tell.
        let middle = median_ratio(&paused, 0.99);
        close(middle.value, 1.5);
        close(middle.high, 1.5);
    }

    #[test]
    fn nothing_has_no_ratio() {
        assert!(ratio_of_all(&[], 0.99).value.is_nan() && median_ratio(&[], 0.99).value.is_nan());
        assert!(ratio_of_all(&[(Recorder::default(), window(&[(1, 1)]))], 0.99).value.is_nan());
    }

    #[test]
    fn draws_are_even() {
        let mut draws = Draws(1);
        let mut sums = vec![0; 7];
        for _ in 0..10_000 {
            let times = draws.times(7);
            assert_eq!(times.iter().sum::<u64>(), 7);
            sums.iter_mut().zip(times).for_each(|(sum, count)| *sum += count);
        }
        assert!(sums.iter().all(|sum| (9_500..10_500).contains(sum)), "{sums:?}");
    }
}
