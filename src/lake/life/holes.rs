//! Which offsets of a published log hold no rows: what a stream that is restored has to know, or a replay would take
//! them for rows that are lost.

use super::error::LifeError;
use super::first_newer::open;
use crate::lake::DataFile;
use crate::lake::columns::{Layout, offset_runs};
use crate::lake::store::Store;
use crate::stream::holes::Hole;

/// All holes below `until`: the `known` ones, and every other offset from `from` on that is in none of `files`. A file is
/// read, and only for its offsets, if it has fewer rows than offsets.
pub(super) async fn holes(
    store: &Store,
    layout: &Layout,
    known: Vec<Hole>,
    files: &[DataFile],
    (from, until): (i64, i64),
) -> Result<Vec<Hole>, LifeError> {
    let mut rows: Vec<(i64, i64)> = Vec::with_capacity(files.len());
    for file in files {
        if file.rows >= file.end.abs_diff(file.start) {
            rows.push((file.start, file.end));
            continue;
        }
        let (source, layout, uri) = (open(store, file)?, layout.clone(), file.uri.clone());
        let runs = tokio::task::spawn_blocking(move || offset_runs(source, &layout)).await;
        rows.extend(runs.map_err(|error| LifeError::Moving { stream: uri, why: error.to_string() })??);
    }
    Ok(complete(known, &rows, from, until))
}

/// The known holes below `until`, and between them those offsets from `from` on that are not in `rows` either.
fn complete(known: Vec<Hole>, rows: &[(i64, i64)], from: i64, until: i64) -> Vec<Hole> {
    let known = known.into_iter().filter(|hole| hole.first < until);
    let known: Vec<Hole> = known.map(|hole| Hole { end: hole.end.min(until), ..hole }).collect();
    let mut covered: Vec<(i64, i64)> =
        known.iter().map(|hole| (hole.first, hole.end)).chain(rows.iter().copied()).collect();
    covered.sort_unstable();
    let mut holes = known;
    let mut next = from;
    for (first, end) in covered.into_iter().chain([(until, until)]) {
        if next < first.min(until) {
            holes.push(Hole { first: next, end: first.min(until), marker: None });
        }
        next = next.max(end);
    }
    holes.sort_unstable_by_key(|hole| hole.first);
    holes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_offset_is_a_row_or_in_one_hole(
            parts in prop::collection::vec((0..4_u8, 1_i64..6), 0..20),
            tail in 0_i64..9,
        ) {
            let (mut known, mut rows, mut missing, mut next) = (Vec::new(), Vec::new(), Vec::new(), 1);
            for (kind, length) in parts {
                let range = (next, next + length);
                match kind {
                    0 => rows.push(range),
                    1 => known.push(Hole { first: range.0, end: range.1, marker: Some(99) }),
                    // Erased, and still in a file.
                    2 => {
                        known.push(Hole { first: range.0, end: range.1, marker: Some(99) });
                        rows.push(range);
                    }
                    _ => missing.extend(range.0..range.1),
                }
                next += length;
            }
            missing.extend(next..next + tail);
            let holes = complete(known.clone(), &rows, 1, next + tail);
            prop_assert!(holes.windows(2).all(|pair| pair[0].end <= pair[1].first));
            let added = holes.iter().filter(|hole| hole.marker.is_none()).flat_map(|hole| hole.first..hole.end);
            prop_assert_eq!(added.collect::<Vec<_>>(), missing);
            let kept: Vec<_> = holes.iter().filter(|hole| hole.marker.is_some()).copied().collect();
            prop_assert_eq!(kept, known);
        }
    }
}
