//! Percentiles of what a histogram counted between two looks.

use std::sync::atomic::Ordering::Relaxed;

use crate::telemetry::{FineBuckets, Histogram};

/// Counts per fine bucket.
pub struct Counts([u64; 128]);

impl Default for Counts {
    fn default() -> Self {
        Self([0; 128])
    }
}

/// The counts of a histogram now.
pub fn counts(histogram: &Histogram) -> Counts {
    Counts(std::array::from_fn(|bucket| histogram.fine.0[bucket].load(Relaxed)))
}

/// What was counted between two looks.
pub fn between(before: &Counts, after: &Counts) -> Counts {
    Counts(std::array::from_fn(|bucket| after.0[bucket].saturating_sub(before.0[bucket])))
}

/// The value below which the share `q` of the counts lies, between the bounds of its bucket in proportion to its rank: at
/// most a quarter off. `None` if nothing was counted.
pub fn percentile(counts: &Counts, q: f64) -> Option<f64> {
    let total: u64 = counts.0.iter().sum();
    if total == 0 {
        return None;
    }
    let rank = q * total as f64;
    let mut below = 0.0;
    for (bucket, &count) in counts.0.iter().enumerate() {
        let count = count as f64;
        if count > 0.0 && below + count >= rank {
            let (low, high) = FineBuckets::bounds(bucket);
            return Some(low + (high - low) * ((rank - below) / count).clamp(0.0, 1.0));
        }
        below += count;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_inside_the_bucket_of_its_rank() {
        let histogram = Histogram::default();
        assert_eq!(percentile(&counts(&histogram), 0.5), None);
        for value in [300, 310, 400, 450, 5_000] {
            histogram.record(value);
        }
        let seen = counts(&histogram);
        let p50 = percentile(&seen, 0.5).expect("a value");
        assert!((384.0..=448.0).contains(&p50), "{p50}");
        let p99 = percentile(&seen, 0.99).expect("a value");
        assert!((4_096.0..=5_120.0).contains(&p99), "{p99}");
        histogram.record(2);
        let only_new = between(&seen, &counts(&histogram));
        assert_eq!(percentile(&only_new, 0.99).map(|value| value <= 4.0), Some(true));
    }
}
