//! Where a replay starts and why it may not (wire.md sections 7.2 to 7.5): the decision, without the I/O.

/// The `offset=` of a subscriber.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Requested {
    /// `offset=0`: the first row that can be read.
    Earliest,
    /// From this offset on, inclusive; at least 1.
    At(i64),
    /// From the boundary before this offset on (docs/batches.md, "Positions"): offsets that never held a row, or hold
    /// none any more by intention, are passed over.
    After(i64),
    /// A legal integer above 63 bits, as digits: beyond every frontier.
    Beyond(String),
}

/// What a replay is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolveRequest {
    /// Where it should start.
    pub offset: Requested,
    /// The offset after the last row that was delivered; the replay ends before it.
    pub frontier: i64,
    /// First offset of the current log of a migrated stream.
    pub floor: Option<i64>,
    /// The most rows a replay may have; `None` for any number.
    pub max_replay: Option<u64>,
}

/// Why a replay is refused with close code 4416.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotReplayable {
    /// The offset is above the frontier.
    Ahead {
        /// The offset as requested, in digits.
        offset: String,
        /// The frontier.
        end_offset: i64,
    },
    /// More rows than `max_replay`.
    TooOld {
        /// The offset, resolved.
        offset: i64,
        /// Rows from there to the frontier.
        behind: u64,
        /// The limit.
        max_replay: u64,
    },
    /// The rows from there on are not readable here any more.
    Evicted {
        /// The offset, resolved.
        offset: i64,
        /// The lowest offset that can be asked for.
        earliest: i64,
    },
}

/// The answer to a [`ResolveRequest`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolution {
    /// Rows of `[start, frontier)` can be read.
    Serve {
        /// The first offset of the replay.
        start: i64,
    },
    /// Refused, with the reason.
    Refuse(NotReplayable),
    /// The log could not be read; the text is for the operator.
    Failed(String),
}

/// What the decision asks about the log. Every answer counts only rows below the frontier.
pub trait LogFacts {
    /// Why the log could not be asked.
    type Error;

    /// The offset of the first row at or above `offset`, if there is one below `frontier`.
    ///
    /// # Errors
    /// When the log cannot be read.
    fn first_row_at_or_above(&mut self, offset: i64, frontier: i64) -> Result<Option<i64>, Self::Error>;

    /// How many offsets of `[offset, frontier)` never held a row, because they were skipped on purpose.
    ///
    /// # Errors
    /// When the log cannot be read.
    fn skipped_between(&mut self, offset: i64, frontier: i64) -> Result<u64, Self::Error>;

    /// Whether the offset held a row that has been erased, or marks an erasure (docs/batches.md). Who was to go on
    /// there goes on behind it.
    ///
    /// # Errors
    /// When the log cannot be read.
    fn is_erased(&mut self, _offset: i64) -> Result<bool, Self::Error> {
        Ok(false)
    }
}

/// Decides where a replay starts.
///
/// # Errors
/// When `facts` fails.
pub fn resolve<F: LogFacts>(request: &ResolveRequest, facts: &mut F) -> Result<Resolution, F::Error> {
    let frontier = request.frontier;
    let offset = match &request.offset {
        Requested::Earliest => match facts.first_row_at_or_above(i64::MIN, frontier)? {
            Some(first) => first,
            None => request.floor.unwrap_or(frontier),
        },
        Requested::At(offset) | Requested::After(offset) => *offset,
        Requested::Beyond(digits) => return Ok(refuse_ahead(digits.clone(), frontier)),
    };
    if let Some(floor) = request.floor.filter(|floor| offset < *floor) {
        return Ok(Resolution::Refuse(NotReplayable::Evicted { offset, earliest: floor }));
    }
    if offset > frontier {
        return Ok(refuse_ahead(offset.to_string(), frontier));
    }
    let distance = frontier.abs_diff(offset);
    let first = facts.first_row_at_or_above(offset, frontier)?;
    if let Some(max_replay) = request.max_replay.filter(|max_replay| distance > *max_replay)
        && let Some(first) = first
    {
        // Rows are dense but for what was skipped, so they need not be counted one by one.
        let behind = frontier.abs_diff(first).saturating_sub(facts.skipped_between(first, frontier)?);
        if behind > max_replay {
            return Ok(Resolution::Refuse(NotReplayable::TooOld { offset, behind, max_replay }));
        }
    }
    let passes_over = matches!(request.offset, Requested::After(_))
        || (matches!(request.offset, Requested::At(_)) && first != Some(offset) && facts.is_erased(offset)?);
    if passes_over {
        let end = first.unwrap_or(frontier);
        return Ok(if facts.skipped_between(offset, end)? == end.abs_diff(offset) {
            Resolution::Serve { start: offset }
        } else {
            Resolution::Refuse(NotReplayable::Evicted { offset, earliest: end })
        });
    }
    match first {
        Some(first) if first == offset => Ok(Resolution::Serve { start: offset }),
        Some(earliest) => Ok(Resolution::Refuse(NotReplayable::Evicted { offset, earliest })),
        None if distance > facts.skipped_between(offset, frontier)? => {
            Ok(Resolution::Refuse(NotReplayable::Evicted { offset, earliest: frontier }))
        }
        None => Ok(Resolution::Serve { start: offset }),
    }
}

fn refuse_ahead(offset: String, end_offset: i64) -> Resolution {
    Resolution::Refuse(NotReplayable::Ahead { offset, end_offset })
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    /// A log as lists of offsets, and of half-open ranges that were skipped.
    struct Log {
        rows: Vec<i64>,
        skipped: Vec<(i64, i64)>,
    }

    impl LogFacts for Log {
        type Error = Infallible;

        fn first_row_at_or_above(&mut self, offset: i64, frontier: i64) -> Result<Option<i64>, Infallible> {
            Ok(self.rows.iter().copied().find(|row| (offset..frontier).contains(row)))
        }

        fn skipped_between(&mut self, offset: i64, frontier: i64) -> Result<u64, Infallible> {
            let within = |(start, end): &(i64, i64)| (*end.min(&frontier) - *start.max(&offset)).max(0) as u64;
            Ok(self.skipped.iter().map(within).sum())
        }
    }

    fn log(rows: impl IntoIterator<Item = i64>) -> Log {
        Log { rows: rows.into_iter().collect(), skipped: Vec::new() }
    }

    fn at(offset: i64) -> Requested {
        if offset == 0 { Requested::Earliest } else { Requested::At(offset) }
    }

    fn serve(start: i64) -> Resolution {
        Resolution::Serve { start }
    }

    fn ahead(offset: &str, end_offset: i64) -> Resolution {
        refuse_ahead(offset.to_owned(), end_offset)
    }

    fn too_old(offset: i64, behind: u64, max_replay: u64) -> Resolution {
        Resolution::Refuse(NotReplayable::TooOld { offset, behind, max_replay })
    }

    fn evicted(offset: i64, earliest: i64) -> Resolution {
        Resolution::Refuse(NotReplayable::Evicted { offset, earliest })
    }

    #[track_caller]
    fn check(log: &mut Log, frontier: i64, floor: Option<i64>, max_replay: Option<u64>, cases: &[(i64, Resolution)]) {
        for (offset, expected) in cases {
            let request = ResolveRequest { offset: at(*offset), frontier, floor, max_replay };
            let Ok(found) = resolve(&request, log);
            assert_eq!(found, *expected, "offset={offset} frontier={frontier} max_replay={max_replay:?}");
        }
    }

    #[test]
    fn an_empty_log_serves_its_end_and_nothing_else() {
        check(&mut log([]), 1, None, Some(100), &[(0, serve(1)), (1, serve(1)), (2, ahead("2", 1))]);
    }

    #[test]
    fn any_offset_up_to_the_frontier_is_served() {
        let cases = [(0, serve(1)), (1, serve(1)), (4, serve(4)), (5, serve(5)), (6, ahead("6", 5))];
        check(&mut log(1..5), 5, None, Some(100), &cases);
        check(&mut log(1..5), 5, None, None, &cases);
    }

    #[test]
    fn an_integer_of_any_size_is_ahead() {
        let digits = "99999999999999999999";
        let request =
            ResolveRequest { offset: Requested::Beyond(digits.into()), frontier: 5, floor: None, max_replay: None };
        assert_eq!(resolve(&request, &mut log(1..5)), Ok(ahead(digits, 5)));
    }

    #[test]
    fn max_replay_counts_the_requested_row() {
        check(&mut log(1..5), 5, None, Some(3), &[(0, too_old(1, 4, 3)), (1, too_old(1, 4, 3)), (2, serve(2))]);
        check(&mut log(1..5), 5, None, Some(0), &[(4, too_old(4, 1, 0)), (5, serve(5))]);
    }

    #[test]
    fn rows_that_left_the_log_are_evicted() {
        let all_gone =
            [(0, serve(11)), (1, evicted(1, 11)), (5, evicted(5, 11)), (10, evicted(10, 11)), (11, serve(11))];
        check(&mut log([]), 11, None, Some(100), &all_gone);
        check(&mut log([]), 11, None, Some(100), &[(12, ahead("12", 11))]);
        check(&mut log([11]), 12, None, Some(100), &[(0, serve(11)), (1, evicted(1, 11)), (12, serve(12))]);
        check(&mut log([11]), 12, None, Some(2), &[(1, evicted(1, 11))]);
    }

    #[test]
    fn skipped_offsets_are_no_rows() {
        const END: i64 = 1_048_582;
        let mut fenced = Log { rows: (1..=5).collect(), skipped: vec![(6, END)] };
        check(&mut fenced, END, None, Some(100), &[(0, serve(1)), (1, serve(1)), (6, serve(6)), (1000, serve(1000))]);
        fenced.rows.push(END);
        let after = [(5, serve(5)), (6, evicted(6, END)), (1000, evicted(1000, END)), (END, serve(END))];
        check(&mut fenced, END + 1, None, Some(100), &after);
    }

    #[test]
    fn a_boundary_passes_over_what_was_left_out_on_purpose_and_nothing_else() {
        const END: i64 = 1_048_582;
        let mut log = Log { rows: (3..=5).chain(END..END + 2).collect(), skipped: vec![(6, END)] };
        let mut ask = |offset| {
            let request =
                ResolveRequest { offset: Requested::After(offset), frontier: END + 2, floor: None, max_replay: None };
            let Ok(resolution) = resolve(&request, &mut log);
            resolution
        };
        for offset in [3, 5, 6, 1000, END, END + 1, END + 2] {
            assert_eq!(ask(offset), serve(offset), "{offset}");
        }
        assert_eq!((ask(1), ask(2)), (evicted(1, 3), evicted(2, 3)));
        assert_eq!(ask(END + 3), ahead("1048585", END + 2));
    }

    #[test]
    fn a_migrated_stream_starts_at_its_floor() {
        check(&mut log([]), 21, Some(21), Some(100), &[(0, serve(21)), (20, evicted(20, 21)), (22, ahead("22", 21))]);
        check(&mut log(21..25), 25, Some(21), Some(100), &[(0, serve(21)), (1, evicted(1, 21)), (24, serve(24))]);
    }

    #[test]
    fn rows_at_or_above_the_frontier_are_not_the_replays() {
        check(&mut log(1..9), 5, None, Some(4), &[(0, serve(1)), (5, serve(5)), (6, ahead("6", 5))]);
        check(&mut log(5..9), 5, None, Some(4), &[(0, serve(5))]);
    }
}
