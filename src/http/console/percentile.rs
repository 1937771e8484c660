//! Percentiles of what a histogram counted between two looks.

use std::sync::atomic::Ordering::Relaxed;

use crate::telemetry::Histogram;

/// Counts per bucket.
pub type Counts = [u64; 32];

/// The counts of a histogram now.
pub fn counts(histogram: &Histogram) -> Counts {
    std::array::from_fn(|bucket| histogram.buckets[bucket].load(Relaxed))
}

/// What was counted between two looks.
pub fn between(before: &Counts, after: &Counts) -> Counts {
    std::array::from_fn(|bucket| after[bucket].saturating_sub(before[bucket]))
}

/// The value below which the share `q` of the counts lies, between the bounds of its bucket in proportion to its rank.
/// `None` if nothing was counted.
pub fn percentile(counts: &Counts, q: f64) -> Option<f64> {
    let total: u64 = counts.iter().sum();
    if total == 0 {
        return None;
    }
    let rank = q * total as f64;
    let mut below = 0.0;
    for (bucket, &count) in counts.iter().enumerate() {
        let count = count as f64;
        if count > 0.0 && below + count >= rank {
            let low = if bucket == 0 { 0.0 } else { (1u64 << (bucket - 1)) as f64 };
            let high = (1u64 << bucket) as f64;
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
        assert!((256.0..=512.0).contains(&p50), "{p50}");
        let p99 = percentile(&seen, 0.99).expect("a value");
        assert!((4_096.0..=8_192.0).contains(&p99), "{p99}");
        histogram.record(2);
        let only_new = between(&seen, &counts(&histogram));
        assert_eq!(percentile(&only_new, 0.99).map(|value| value <= 4.0), Some(true));
    }
}
