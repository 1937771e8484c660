//! Publishing without subscribers: how fast rows become durable, and how long an acknowledgement takes.

use super::bench::{Bench, CellError, note_end, note_problems};
use super::window::observe;
use crate::clock;
use crate::load::{Load, Pace};
use crate::results::Outcome;
use crate::scenario::{Publish, STREAM};

/// Keeps every publisher's window full.
pub(super) fn measure(bench: &Bench<'_>, case: &Publish, peer: &str) -> Result<Outcome, CellError> {
    let server = bench.start(peer, false)?;
    let mut load = bench.load(&server)?;
    bench.open_publishers(&mut load, STREAM, case.publishers)?;
    let start = clock::now_ns() + clock::seconds_ns(bench.seconds(case.warm_s));
    let end = start + clock::seconds_ns(bench.seconds(case.measure_s));
    load.publishing.batch = case.batch;
    load.open_window(start..end);
    load.set_pace(Pace::Window(case.window))?;
    let broken = |load: &Load| load.drops().0 > 0;
    let observed = observe(&mut load, || server.usage(), (start, end), broken)?;
    load.publishing.pace = Pace::Stopped;
    load.run_until(clock::now_ns() + clock::seconds_ns(5.0), |load| load.publishing.in_flight() == 0 || broken(load))?;

    let mut outcome = Outcome::new(&case.name, peer);
    outcome.version.clone_from(&server.peer.version);
    let rows = load.publishing.acked_rows_in_window;
    outcome.set("rows_per_s", rows as f64 / observed.seconds);
    outcome.set("cpu_us_per_row", observed.cpu_ns_per(rows) / 1e3);
    outcome.set("cores_us_per_row", observed.cores_ns_per(rows) / 1e3);
    outcome.set("server_busy_pct", observed.server_busy() * 100.0);
    outcome.set("generator_busy_pct", observed.generator_busy * 100.0);
    outcome.set_distribution("ack_", load.publishing.acks.distribution("ack"));
    if load.publishing.in_flight() > 0 {
        outcome.problems.push(format!("{} frames were never answered", load.publishing.in_flight()));
    }
    note_problems(&load, &mut outcome.problems);
    note_end(server, &mut outcome);
    Ok(outcome)
}
