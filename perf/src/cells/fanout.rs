//! Rows at a fixed rate to many subscribers: latency from due to received, and what a delivery costs the server.

use super::bench::{Bench, CellError, OPEN_S, note_end, note_problems, open_subscribers};
use super::window::{Observed, observe};
use crate::clock;
use crate::load::{Group, Load, Order, Pace, Plan, Purpose};
use crate::results::Outcome;
use crate::row::Column;
use crate::scenario::{Fanout, Filter, STREAM};
use crate::schedule::Schedule;
use crate::server::{Memory, Usage};
use crate::wire::Ask;

/// Measures one fan-out.
pub(super) fn measure(bench: &Bench<'_>, case: &Fanout, peer: &str) -> Result<Outcome, CellError> {
    let server = bench.start_moving(peer, true, case.lake.as_ref())?;
    if case.filter.is_some() && !server.wire().filters() {
        return Err(CellError::Unable(format!("{peer} has no filters")));
    }
    let mut load = bench.load(&server)?;
    match &case.filter {
        None => {
            open_subscribers(&mut load, STREAM, case.subscribers, case.sample_every)?;
        }
        Some(filter) => open_filtered(&mut load, case, filter)?,
    }
    bench.open_publishers(&mut load, STREAM, case.publishers)?;
    let timing = Timing {
        rate: case.rate,
        batch: case.batch,
        group: 0,
        warm_s: bench.seconds(case.warm_s),
        measure_s: bench.seconds(case.measure_s),
        drain_s: case.drain_s,
    };
    let columns = &bench.scenario.columns;
    let expected = |rows: u64| match &case.filter {
        None => rows * case.subscribers as u64,
        Some(filter) => matching(filter, columns, case.subscribers as u64, rows),
    };
    let measured = run(&mut load, &timing, || server.usage(), expected)?;

    let mut outcome = Outcome::new(&case.name, peer);
    outcome.version.clone_from(&server.peer.version);
    measured.report(&load, &mut outcome);
    let memory = server.memory();
    outcome.set("memory_mib", Memory::mib(memory.resident_bytes));
    outcome.set("peak_mib", Memory::mib(memory.peak_bytes));
    note_problems(&load, &mut outcome.problems);
    note_end(server, &mut outcome);
    Ok(outcome)
}

/// One stretch of publishing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timing {
    /// Frames a second, and rows a frame.
    pub rate: f64,
    pub batch: u32,
    /// Subscribers that get the rows.
    pub group: usize,
    pub warm_s: f64,
    pub measure_s: f64,
    pub drain_s: f64,
}

/// What a stretch showed.
#[derive(Debug)]
pub(super) struct Measured {
    group: usize,
    pub observed: Observed,
    pub delivered: u64,
    pub missing: u64,
    pub in_window: u64,
}

/// Publishes on schedule through warm-up and window, waits for what is on its way, and counts. Ends early when the
/// server drops somebody.
pub(super) fn run(
    load: &mut Load,
    timing: &Timing,
    usage: impl Fn() -> Usage,
    expected: impl Fn(u64) -> u64,
) -> Result<Measured, CellError> {
    let begin = clock::now_ns() + 20_000_000;
    let start = begin + clock::seconds_ns(timing.warm_s);
    let end = start + clock::seconds_ns(timing.measure_s);
    let mut schedule =
        Schedule::new(begin, timing.rate).ok_or_else(|| CellError::Failed(format!("no rate: {}", timing.rate)))?;
    schedule.end_at(end);
    let group = timing.group;
    let (messages, index) = (load.groups[group].messages, load.publishing.next_index);
    load.publishing.batch = timing.batch;
    load.open_window(start..end);
    load.set_pace(Pace::Rate(schedule))?;

    let broken = |load: &Load| load.drops().0 > 0 || load.publishing.choked;
    let observed = observe(load, usage, (start, end), broken)?;
    let all = |load: &Load| {
        let wanted = expected(load.publishing.next_index - index);
        let caught_up = load.groups[group].messages - messages >= wanted && load.publishing.in_flight() == 0;
        (caught_up && load.now_ns >= end) || broken(load)
    };
    load.run_until(end + clock::seconds_ns(timing.drain_s), all)?;
    load.publishing.pace = Pace::Stopped;

    let rows = load.publishing.next_index - index;
    let delivered = load.groups[group].messages - messages;
    Ok(Measured {
        group,
        observed,
        delivered,
        missing: expected(rows).saturating_sub(delivered),
        in_window: load.groups[group].messages_in_window,
    })
}

impl Measured {
    /// Writes the figures.
    pub fn report(&self, load: &Load, outcome: &mut Outcome) {
        let observed = &self.observed;
        let group = &load.groups[self.group];
        let acked = load.publishing.acked_rows_in_window;
        outcome.set("acked_rows_per_s", acked as f64 / observed.seconds);
        outcome.set("cpu_us_per_row", observed.cpu_ns_per(acked) / 1e3);
        outcome.set("deliveries_per_s", self.in_window as f64 / observed.seconds);
        outcome.set("cpu_us_per_frame", observed.cpu_ns_per(self.in_window) / 1e3);
        outcome.set("cores_us_per_frame", observed.cores_ns_per(self.in_window) / 1e3);
        outcome.set("server_busy_pct", observed.server_busy() * 100.0);
        outcome.set("generator_busy_pct", observed.generator_busy * 100.0);
        outcome.set("frames_per_read", self.in_window as f64 / group.reads_in_window as f64);
        outcome.set("bytes_per_frame", group.bytes_in_window as f64 / self.in_window as f64);
        outcome.set("missing_frames", self.missing as f64);
        let mut distribution = group.latency.distribution("latency");
        distribution.max_us = group.max_us();
        outcome.set_distribution("", distribution);
        outcome.set_distribution("ack_", load.publishing.acks.distribution("ack"));
        if self.missing > 0 {
            outcome.problems.push(format!(
                "{} of {} frames did not arrive",
                self.missing,
                self.missing + self.delivered
            ));
        }
    }
}

/// Opens subscribers whose predicates go round.
fn open_filtered(load: &mut Load, case: &Fanout, filter: &Filter) -> Result<(), CellError> {
    load.groups.push(Group::new(case.sample_every, Order::Rising));
    let plan = |number: usize| Plan {
        ask: Ask::Subscribe { stream: STREAM.to_owned(), offset: None, filter: Some(filter.json(number as u64)) },
        purpose: Purpose::Subscribe(0),
    };
    Ok(load.open((0..case.subscribers).map(plan), OPEN_S)?)
}

/// How many messages `subscribers` must get of the first `rows` rows.
fn matching(filter: &Filter, columns: &[Column], subscribers: u64, rows: u64) -> u64 {
    // How often each value of each column comes up, then what each predicate takes of it.
    let counts: Vec<Vec<u64>> =
        filter.columns.iter().map(|name| value_counts(name, filter.of, columns, rows)).collect();
    (0..subscribers)
        .map(|number| {
            let predicate = number % filter.distinct();
            let (column, base) = ((predicate / filter.of) as usize, predicate % filter.of);
            (0..filter.members).map(|at| counts[column][((base + at) % filter.of) as usize]).sum::<u64>()
        })
        .sum()
}

fn value_counts(name: &str, of: u64, columns: &[Column], rows: u64) -> Vec<u64> {
    let mut counts = vec![0; of as usize];
    let found = columns.iter().find_map(|column| match column {
        Column::Cycle { name: other, of, every, step } if other == name => Some((*of, *every, *step)),
        _ => None,
    });
    if let Some((values, every, step)) = found {
        for index in 0..rows {
            let value = index.wrapping_mul(step) / every % values;
            if let Some(count) = counts.get_mut(value as usize) {
                *count += 1;
            }
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_are_counted_exactly() {
        let columns = [Column::Cycle { name: "b".into(), of: 100, every: 1, step: 1 }];
        let filter = Filter { columns: vec!["b".into()], of: 100, members: 10 };
        assert_eq!(matching(&filter, &columns, 1000, 1000), 100_000);
        // Row 0 has value 0, which predicates 91 to 99 and 0 take.
        assert_eq!(matching(&filter, &columns, 100, 1), 10);
        assert_eq!(matching(&filter, &columns, 1, 1), 1);
    }
}
