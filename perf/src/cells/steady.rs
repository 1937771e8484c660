//! A fixed rate for long: what lies on the disk, what is in memory, and how far the table trails.

use super::bench::{Bench, CellError, note_end, note_problems};
use crate::clock;
use crate::load::{Load, Pace};
use crate::results::{Outcome, median};
use crate::scenario::{STREAM, Steady};
use crate::schedule::Schedule;
use crate::server::{Disk, Memory, Server, TableState};

/// Seconds after the last row in which everything must be acknowledged.
const DRAIN_S: f64 = 10.0;

/// What was seen at one moment.
#[derive(Debug, Clone, Copy)]
struct Look {
    disk: Disk,
    /// Files of the table as a reader finds it.
    live_files: u64,
    resident_bytes: u64,
    /// Seconds since the oldest row was due that the table does not have.
    trail_s: f64,
}

/// Publishes on schedule and looks at the server's root every so often.
pub(super) fn measure(bench: &Bench<'_>, case: &Steady, peer: &str) -> Result<Outcome, CellError> {
    let server = bench.start_moving(peer, false, case.lake.as_ref())?;
    let mut load = bench.load(&server)?;
    bench.open_publishers(&mut load, STREAM, 1)?;
    let begin = clock::now_ns() + 20_000_000;
    let end = begin + clock::seconds_ns(bench.seconds(case.measure_s));
    let mut schedule =
        Schedule::new(begin, case.rate).ok_or_else(|| CellError::Failed(format!("no rate: {}", case.rate)))?;
    schedule.end_at(end);
    load.publishing.batch = case.batch;
    load.open_window(begin..end);
    let before = server.usage();
    load.set_pace(Pace::Rate(schedule))?;
    let broken = |load: &Load| load.drops().0 > 0 || load.publishing.choked;
    let mut looks = Vec::new();
    let mut next = begin;
    while next < end && !broken(&load) {
        next = end.min(next + clock::seconds_ns(case.look_every_s));
        load.run_until(next, broken)?;
        looks.push(look(&server, case, begin, next));
    }
    let (used, seconds) = (server.usage().since(before), (clock::now_ns() - begin) as f64 / 1e9);
    load.run_until(clock::now_ns() + clock::seconds_ns(DRAIN_S), |load| {
        load.publishing.in_flight() == 0 || broken(load)
    })?;
    load.publishing.pace = Pace::Stopped;

    let mut outcome = Outcome::new(&case.name, peer);
    outcome.version.clone_from(&server.peer.version);
    outcome.set("rows_per_s", load.publishing.acked_rows_in_window as f64 / seconds);
    outcome.set("seconds", seconds);
    outcome.set("server_busy_pct", used.process_ns as f64 / 1e9 / seconds * 100.0);
    outcome.set_distribution("ack_", load.publishing.acks.distribution("ack"));
    outcome.set("peak_mib", Memory::mib(server.memory().peak_bytes));
    tell(&looks, &mut outcome);
    let unanswered = load.publishing.next_index - load.publishing.acked_rows;
    if unanswered > 0 {
        outcome.problems.push(format!("{unanswered} rows were not acknowledged"));
    }
    if server.peer.table.is_none() {
        outcome.problems.push("the peer does not say where its table is".into());
    }
    note_problems(&load, &mut outcome.problems);
    note_end(server, &mut outcome);
    Ok(outcome)
}

fn look(server: &Server, case: &Steady, begin_ns: u64, now_ns: u64) -> Look {
    let table = server.peer.table.as_deref().and_then(TableState::read).unwrap_or_default();
    let due_s = (table.rows / u64::from(case.batch)) as f64 / case.rate;
    Look {
        live_files: table.files,
        disk: server.disk(),
        resident_bytes: server.memory().resident_bytes,
        trail_s: ((now_ns - begin_ns) as f64 / 1e9 - due_s).max(0.0),
    }
}

fn tell(looks: &[Look], outcome: &mut Outcome) {
    let most = |of: fn(&Look) -> u64| looks.iter().map(of).max().unwrap_or(0);
    outcome.set("trail_max_s", looks.iter().map(|look| look.trail_s).fold(0.0, f64::max));
    outcome.set("trail_p50_s", median(looks.iter().map(|look| look.trail_s).collect()).unwrap_or(f64::NAN));
    outcome.set("journal_max_mib", Memory::mib(most(|look| look.disk.journal_bytes)));
    outcome.set("live_files_max", most(|look| look.live_files) as f64);
    outcome.set("waiting_files_max", most(|look| look.disk.data_files.saturating_sub(look.live_files)) as f64);
    outcome.set("data_files_max", most(|look| look.disk.data_files) as f64);
    outcome.set("metadata_files_max", most(|look| look.disk.metadata_files) as f64);
    outcome.set("metadata_max_mib", Memory::mib(most(|look| look.disk.metadata_bytes)));
    outcome.set("data_mib", looks.last().map_or(f64::NAN, |look| Memory::mib(look.disk.data_bytes)));
    let growth = [late_growth(looks, |look| look.disk.journal_bytes), late_growth(looks, |look| look.resident_bytes)];
    outcome.set("late_growth", growth.into_iter().fold(0.0, f64::max));
}

/// The most of the second half of the time as a multiple of the most of the first half: 1 where nothing grows.
fn late_growth(looks: &[Look], of: fn(&Look) -> u64) -> f64 {
    let (first, second) = looks.split_at(looks.len() / 2);
    let most = |looks: &[Look]| looks.iter().map(of).max().unwrap_or(0) as f64;
    most(second) / most(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_that_of_the_second_half() {
        let at = |journal_bytes| Look {
            disk: Disk { journal_bytes, data_files: journal_bytes, ..Disk::default() },
            live_files: 8,
            resident_bytes: 9,
            trail_s: 0.5,
        };
        let looks = [at(10), at(40), at(20), at(60)];
        assert!((late_growth(&looks, |look| look.disk.journal_bytes) - 1.5).abs() < 1e-9);
        let mut outcome = Outcome::new("c", "p");
        tell(&looks, &mut outcome);
        assert!((outcome.figures["late_growth"] - 1.5).abs() < 1e-9);
        assert!((outcome.figures["trail_max_s"] - 0.5).abs() < 1e-9);
        assert!((outcome.figures["live_files_max"] - 8.0).abs() < 1e-9);
        assert!((outcome.figures["waiting_files_max"] - 52.0).abs() < 1e-9);
    }
}
