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
    let mut search = Search::new(case);
    let mut next = Some(case.from);
    while let Some(offered) = next {
        let step = climb(bench, case, &server, &mut load, offered, &mut outcome)?;
        next = search.next(offered, step.sustained);
        outcome.steps.push(step);
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

/// Which rates to try.
struct Search {
    to: f64,
    growth: f64,
    /// The least rate at which a step tells something.
    floor: f64,
    refinements: u32,
    /// The last good and the first bad rate.
    good: Option<f64>,
    bad: Option<f64>,
    /// The last step failed for the first time.
    failed_once: bool,
}

impl Search {
    fn new(case: &Ladder) -> Self {
        Self {
            to: case.to,
            growth: case.growth,
            floor: LEAST_REQUESTS_PER_S * case.subscribers as f64 * f64::from(case.batch),
            refinements: case.refinements,
            good: None,
            bad: None,
            failed_once: false,
        }
    }

    /// The rate after one that was sustained or not; `None` at the end.
    fn next(&mut self, offered: f64, sustained: bool) -> Option<f64> {
        // A pause of the machine takes as long as the steps before the limit do: it must not decide alone.
        self.failed_once = !sustained && !self.failed_once;
        if self.failed_once {
            return Some(offered);
        }
        if sustained {
            self.good = Some(offered);
        } else {
            self.bad = Some(offered);
        }
        match (self.good, self.bad) {
            (Some(good), None) if good < self.to => Some((good * self.growth).min(self.to)),
            (Some(good), Some(bad)) if self.refinements > 0 => {
                self.refinements -= 1;
                // The middle of two rates is their geometric mean.
                Some((good * bad).sqrt())
            }
            // Even the first step was too much: go down until something holds.
            (None, Some(bad)) if bad / self.growth >= self.floor => Some(bad / self.growth),
            _ => None,
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn search(refinements: u32) -> Search {
        Search { to: 8.0, growth: 2.0, floor: 0.5, refinements, good: None, bad: None, failed_once: false }
    }

    /// The rates that are tried when `holds` says which are sustained, from 1 on.
    fn tried(mut search: Search, mut holds: impl FnMut(f64) -> bool) -> Vec<f64> {
        let (mut tried, mut next) = (Vec::new(), Some(1.0));
        while let Some(offered) = next {
            tried.push(offered);
            next = search.next(offered, holds(offered));
        }
        tried
    }

    #[test]
    fn rates_rise_to_the_end_or_until_one_fails_twice() {
        assert_eq!(tried(search(0), |_| true), [1.0, 2.0, 4.0, 8.0]);
        assert_eq!(tried(search(0), |rate| rate < 4.0), [1.0, 2.0, 4.0, 4.0]);
        assert_eq!(tried(search(1), |rate| rate < 4.0), [1.0, 2.0, 4.0, 4.0, 8f64.sqrt()]);
        let mut paused = true;
        let pause = |rate| rate < 2.0 || !std::mem::take(&mut paused);
        assert_eq!(tried(search(0), pause), [1.0, 2.0, 2.0, 4.0, 8.0]);
    }

    #[test]
    fn rates_fall_where_even_the_first_is_too_much() {
        assert_eq!(tried(search(0), |rate| rate < 1.0), [1.0, 1.0, 0.5]);
        assert_eq!(tried(search(9), |_| false), [1.0, 1.0, 0.5, 0.5]);
    }
}
