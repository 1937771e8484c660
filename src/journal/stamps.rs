//! Stamps of a batch whose rows came in several frames, as short text that a person can read.
//!
//! Runs are separated by blanks. The first is the stamp in microseconds, each later one the distance from
//! the run before with a `+`; `x` and a count follow where a run has more than one row:
//! `1795979200460601x3 +12 +907x2` stamps six rows.

use std::fmt::Write as _;

/// Rows next to each other that share one stamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// How many rows.
    pub rows: u32,
    /// Their stamp in microseconds.
    pub ts_us: i64,
}

/// Adds rows to the last run, or starts one.
pub fn push_run(runs: &mut Vec<Run>, rows: u32, ts_us: i64) {
    match runs.last_mut() {
        Some(last) if last.ts_us == ts_us => last.rows += rows,
        _ => runs.push(Run { rows, ts_us }),
    }
}

/// The text of `runs`, whose stamps must not fall.
#[must_use]
pub fn format(runs: &[Run]) -> String {
    let mut text = String::with_capacity(16 + runs.len() * 6);
    let mut before = None;
    for run in runs {
        // Writing to a string cannot fail.
        let _ = match before {
            None => write!(text, "{}", run.ts_us),
            Some(before) => write!(text, " +{}", run.ts_us - before),
        };
        if run.rows != 1 {
            let _ = write!(text, "x{}", run.rows);
        }
        before = Some(run.ts_us);
    }
    text
}

/// Reads `text` back; `None` if it is not the stamps of exactly `rows` rows.
#[must_use]
pub fn parse(text: &str, rows: u32) -> Option<Vec<Run>> {
    let mut runs = Vec::new();
    let mut stamped = 0_u32;
    let mut before = None;
    for word in text.split(' ') {
        let (stamp, count) = match word.split_once('x') {
            Some((stamp, count)) => (stamp, count.parse::<u32>().ok().filter(|count| *count > 0)?),
            None => (word, 1),
        };
        let ts_us = match before {
            None => stamp.parse::<i64>().ok()?,
            Some(before) => {
                stamp.strip_prefix('+')?.parse::<u64>().ok().and_then(|step| i64::checked_add_unsigned(before, step))?
            }
        };
        stamped = stamped.checked_add(count)?;
        runs.push(Run { rows: count, ts_us });
        before = Some(ts_us);
    }
    (stamped == rows).then_some(runs)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_text_is_short_and_readable() {
        let runs = [(3, 1_795_979_200_460_601), (1, 1_795_979_200_460_613), (2, 1_795_979_200_461_520)];
        let runs: Vec<Run> = runs.into_iter().map(|(rows, ts_us)| Run { rows, ts_us }).collect();
        assert_eq!(format(&runs), "1795979200460601x3 +12 +907x2");
        assert_eq!(parse("1795979200460601x3 +12 +907x2", 6), Some(runs));
    }

    #[test]
    fn text_that_is_not_stamps_of_so_many_rows_is_refused() {
        for (text, rows) in
            [("", 0), ("5", 2), ("5x2", 1), ("5 6", 2), ("5 +", 2), ("5 +-1", 2), ("5x0", 0), ("x", 1), ("5  +1", 2)]
        {
            assert_eq!(parse(text, rows), None, "{text:?}");
        }
        assert_eq!(parse("9223372036854775807 +1", 2), None);
        assert_eq!(parse("1x4294967295 +1", 0), None);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(
            first in 0..i64::MAX / 2,
            steps in prop::collection::vec((1_u32..5, 0_i64..10_000), 1..50),
        ) {
            let mut runs = Vec::new();
            let mut ts_us = first;
            let mut rows = 0;
            for (count, step) in steps {
                ts_us += step;
                rows += count;
                push_run(&mut runs, count, ts_us);
            }
            prop_assert_eq!(parse(&format(&runs), rows), Some(runs));
        }
    }
}
