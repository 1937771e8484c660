//! Which files are merged: a decision without I/O.
//!
//! Files are sorted into tiers by size, each `min_files` times as large as the one below, up to the full size. As soon
//! as `min_files` neighbours are in one tier or below it, and none outweighs the others, they become one file, usually of
//! the next tier. So a row is rewritten about once a tier, and a log has few files of each tier beside its full ones.

use std::ops::Range;

/// Files of this size and below are one tier.
const SMALLEST_TIER_BYTES: u64 = 64 << 10;

/// Files that are merged at a time, at most.
pub(super) const MAX_INPUTS: usize = 64;

/// What the decision needs of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    pub size_bytes: u64,
    /// Files are merged only with neighbours of the same kind: in the table or not, and never one that is not here.
    pub kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Published,
    Unpublished,
    /// It is not on this machine, or the caller wants to leave it alone.
    Fixed,
}

/// The files to merge next, by place, in the smallest tier that has enough of them.
pub(super) fn next_merge(parts: &[Part], target_bytes: u64, min_files: usize) -> Option<Range<usize>> {
    let min_files = min_files.max(2);
    let tiers: Vec<_> = parts.iter().map(|part| tier(part.size_bytes, target_bytes, min_files as u64)).collect();
    let highest = tiers.iter().flatten().max().copied()?;
    (0..=highest).find_map(|wanted| {
        let mut start = 0;
        while start < parts.len() {
            let kind = parts[start].kind;
            let fits = |place: &usize| {
                parts[*place].kind == kind && kind != Kind::Fixed && tiers[*place].is_some_and(|tier| tier <= wanted)
            };
            let end = (start..parts.len()).take_while(fits).last().map_or(start, |last| last + 1);
            if let Some(run) = balanced(parts, start..end, min_files) {
                let end = bounded(parts, run.clone(), target_bytes);
                return Some(run.start..end);
            }
            start = end.max(start + 1);
        }
        None
    })
}

/// The tier of a file, from 0; `None` if it is full.
fn tier(size_bytes: u64, target_bytes: u64, factor: u64) -> Option<u32> {
    if size_bytes >= target_bytes {
        return None;
    }
    let (mut tier, mut limit) = (0, SMALLEST_TIER_BYTES.min(target_bytes / factor).max(1));
    while size_bytes > limit {
        limit = limit.saturating_mul(factor);
        tier += 1;
    }
    Some(tier)
}

/// The part of a run that is worth merging: no file in it is larger than the others together, for such a file would be
/// rewritten again and again for little.
fn balanced(parts: &[Part], run: Range<usize>, min_files: usize) -> Option<Range<usize>> {
    if run.len() < min_files {
        return None;
    }
    let largest = run.clone().max_by_key(|place| parts[*place].size_bytes)?;
    let total: u64 = parts[run.clone()].iter().map(|part| part.size_bytes).sum();
    if parts[largest].size_bytes <= total - parts[largest].size_bytes {
        return Some(run);
    }
    balanced(parts, run.start..largest, min_files).or_else(|| balanced(parts, largest + 1..run.end, min_files))
}

/// Cuts a run where it becomes a full file, or has as many inputs as one merge may have.
fn bounded(parts: &[Part], run: Range<usize>, target_bytes: u64) -> usize {
    let mut total = 0;
    for place in run.clone().take(MAX_INPUTS) {
        total += parts[place].size_bytes;
        if total >= target_bytes && place > run.start {
            return place + 1;
        }
    }
    run.end.min(run.start + MAX_INPUTS)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TARGET: u64 = 512 << 20;

    fn published(sizes: &[u64]) -> Vec<Part> {
        sizes.iter().map(|size| Part { size_bytes: *size, kind: Kind::Published }).collect()
    }

    #[test]
    fn enough_neighbours_of_one_size_are_merged_and_full_files_never() {
        let small = 1 << 20;
        assert_eq!(next_merge(&published(&[small; 7]), TARGET, 8), None);
        assert_eq!(next_merge(&published(&[small; 8]), TARGET, 8), Some(0..8));
        let mut sizes = vec![TARGET; 20];
        assert_eq!(next_merge(&published(&sizes), TARGET, 8), None);
        sizes.extend([200 << 20, 30 << 20]);
        sizes.extend([small; 8]);
        assert_eq!(next_merge(&published(&sizes), TARGET, 8), Some(22..30));
        // Large ones stop where the result is full.
        assert_eq!(next_merge(&published(&[100 << 20; 9]), TARGET, 8), Some(0..6));
        assert_eq!(next_merge(&published(&[10; 100]), TARGET, 8), Some(0..64));
    }

    #[test]
    fn kinds_are_not_mixed_and_fixed_files_stay() {
        let mut parts = published(&[10; 12]);
        parts[4].kind = Kind::Fixed;
        assert_eq!(next_merge(&parts, TARGET, 8), None);
        assert_eq!(next_merge(&parts, TARGET, 4), Some(0..4));
        for part in &mut parts[5..] {
            part.kind = Kind::Unpublished;
        }
        assert_eq!(next_merge(&parts, TARGET, 7), Some(5..12));
    }

    proptest! {
        #[test]
        fn files_that_come_one_by_one_stay_few_and_are_rewritten_seldom(
            sizes in prop::collection::vec(1_u64..3 << 20, 200..600),
            min_files in 2_usize..10,
        ) {
            let target = 64 << 20;
            let mut files: Vec<u64> = Vec::new();
            let (mut rewritten, mut total) = (0, 0);
            for size in sizes {
                files.push(size);
                total += size;
                while let Some(merge) = next_merge(&published(&files), target, min_files) {
                    prop_assert!(merge.len() >= 2 && files[merge.clone()].iter().all(|size| *size < target));
                    let merged: u64 = files[merge.clone()].iter().sum();
                    rewritten += merged;
                    files.splice(merge, [merged]);
                }
                let partial = files.iter().filter(|size| **size < target).count();
                prop_assert!(partial <= 12 * min_files, "{partial} files");
            }
            prop_assert!(rewritten <= total * 12, "{rewritten} of {total}");
        }
    }
}
