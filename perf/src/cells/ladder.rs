//! Rising rates: the most deliveries a second that are sustained within a bound on p99.

use super::bench::{Bench, CellError, note_end, note_problems, open_subscribers};
use super::fanout::{self, Timing};
use crate::load::Load;
use crate::results::{Outcome, Step};
use crate::scenario::{Ladder, STREAM};
use crate::server::Server;

/// Share of the offered deliveries that must arrive within the window.
const KEPT_UP: f64 = 0.97;

/// Publish frames a second below which a step is too short to tell anything.
const LEAST_REQUESTS_PER_S: f64 = 10.0;

/// Climbs until a step fails, then narrows the gap between the last good and the first bad one.
pub(super) fn measure(bench: &Bench<'_>, case: &Ladder, peer: &str) -> Result<Outcome, CellError> {
    let server = bench.start(peer, true)?;
    let mut outcome = Outcome::new(&case.name, peer);
    outcome.version.clone_from(&server.peer.version);
    let mut load = None;
    let (mut good, mut bad) = (None, None);
    let mut offered = case.from;
    let mut refinements = case.refinements;
    let floor = LEAST_REQUESTS_PER_S * case.subscribers as f64 * f64::from(case.batch);
    loop {
        let step = climb(bench, case, &server, &mut load, offered, &mut outcome)?;
        let sustained = step.sustained;
        outcome.steps.push(step);
        if sustained {
            good = Some(offered)
        } else {
            bad = Some(offered)
        }
        offered = match (good, bad) {
            (Some(good), None) if good < case.to => (good * case.growth).min(case.to),
            (Some(good), Some(bad)) if refinements > 0 => {
                refinements -= 1;
                // The middle of two rates is their geometric mean.
                (good * bad).sqrt()
            }
            // Even the first step was too much: go down until something holds.
            (None, Some(bad)) if bad / case.growth >= floor => bad / case.growth,
            _ => break,
        };
    }
    let best =
        outcome.steps.iter().filter(|step| step.sustained).max_by(|a, b| a.offered_per_s.total_cmp(&b.offered_per_s));
    match best.cloned() {
        Some(best) => {
            outcome.set("deliveries_per_s", best.delivered_per_s);
            outcome.set("cpu_ns_per_frame", best.cpu_ns_per_frame);
            outcome.set("p50_ms", best.p50_ms);
            outcome.set("p99_ms", best.p99_ms);
            outcome.set("generator_busy_pct", best.generator_busy_pct);
            outcome.set("server_busy_pct", best.server_busy_pct);
        }
        None => outcome.problems.push("no step was sustained".into()),
    }
    note_end(server, &mut outcome);
    Ok(outcome)
}

/// One step, on the connections of the step before unless that one broke them.
fn climb(
    bench: &Bench<'_>,
    case: &Ladder,
    server: &Server,
    kept: &mut Option<Load>,
    offered: f64,
    outcome: &mut Outcome,
) -> Result<Step, CellError> {
    let mut load = match kept.take() {
        Some(load) => load,
        None => {
            let mut load = bench.load(server)?;
            open_subscribers(&mut load, STREAM, case.subscribers, case.sample_every)?;
            bench.open_publishers(&mut load, STREAM, 1)?;
            load
        }
    };
    let frames_per_request = case.subscribers as f64 * f64::from(case.batch);
    let timing = Timing {
        rate: offered / frames_per_request,
        batch: case.batch,
        group: 0,
        warm_s: bench.seconds(case.warm_s),
        measure_s: bench.seconds(case.measure_s),
        drain_s: case.drain_s,
    };
    let subscribers = case.subscribers as u64;
    let measured = fanout::run(&mut load, &timing, || server.usage(), |rows| rows * subscribers)?;

    let group = &mut load.groups[0];
    group.latency.record_lost(measured.missing / case.sample_every);
    let delivered = measured.in_window as f64 / measured.observed.seconds;
    let p99_ms = group.latency.quantile_us(0.99) / 1e3;
    let mut why = Vec::new();
    note_problems(&load, &mut why);
    if measured.missing > 0 {
        why.push(format!("{} frames did not arrive", measured.missing));
    }
    if p99_ms > case.p99_limit_ms {
        why.push(format!("p99 {p99_ms:.1} ms"));
    }
    // A request or two may fall just outside of the window.
    let slack = 2.0 * frames_per_request / measured.observed.seconds;
    if delivered + slack < offered * KEPT_UP {
        why.push(format!("{delivered:.0} deliveries/s of {offered:.0}"));
    }
    let group = &load.groups[0];
    if group.faults > 0 {
        outcome.problems.extend(group.first_fault.clone());
    }
    let step = Step {
        offered_per_s: offered,
        delivered_per_s: delivered,
        p50_ms: group.latency.quantile_us(0.5) / 1e3,
        p99_ms,
        max_ms: group.max_us() / 1e3,
        cpu_ns_per_frame: measured.observed.cpu_ns_per(measured.in_window.max(1)),
        server_busy_pct: measured.observed.server_busy() * 100.0,
        generator_busy_pct: measured.observed.generator_busy * 100.0,
        sustained: why.is_empty(),
        why: (!why.is_empty()).then(|| why.join("; ")),
    };
    if step.sustained {
        *kept = Some(load);
    }
    Ok(step)
}
