//! The plots of a case.

use super::markdown::peers_of;
use super::svg::{self, Axis, Series};
use crate::results::{Outcome, Run};
use crate::scenario::Work;

/// Plots as SVG text; none for cases that tables tell fully.
pub(super) fn of_case(run: &Run, work: &Work) -> Vec<String> {
    match work {
        Work::Fanout(_) | Work::Idle(_) => {
            let curves = curves(run, work.name(), |outcome, name| (name == "latency").then(|| outcome.peer.clone()));
            vec![latency(&format!("{}: from due to received", work.name()), curves)]
        }
        Work::Publish(_) => {
            let curves = curves(run, work.name(), |outcome, name| (name == "ack").then(|| outcome.peer.clone()));
            vec![
                bars(run, work.name(), "rows_per_s", "rows/s"),
                latency(&format!("{}: acknowledgements", work.name()), curves),
            ]
        }
        Work::Disturb(_) | Work::Moving(_) => {
            let named = |outcome: &Outcome, name: &str| Some(format!("{}, {name}", outcome.peer));
            vec![latency(&format!("{}: live subscribers", work.name()), curves(run, work.name(), named))]
        }
        Work::Ladder(_) => ladder(run, work.name()),
        Work::Replay(_) => vec![bars(run, work.name(), "rows_per_s", "rows/s in all")],
        Work::Ingest(_) => vec![bars(run, work.name(), "rows_per_s", "rows/s")],
        Work::Floor(_) | Work::Fsync(_) | Work::Steady(_) | Work::Open(_) => Vec::new(),
    }
    .into_iter()
    .filter(|plot| !plot.is_empty())
    .collect()
}

/// Latency curves of the first repeat, named by `name` or left out.
fn curves(run: &Run, case: &str, name: impl Fn(&Outcome, &str) -> Option<String>) -> Vec<Series> {
    let outcomes = run.outcomes.iter().filter(|outcome| outcome.case == case && outcome.repeat == 1);
    outcomes
        .flat_map(|outcome| {
            let named = outcome.distributions.iter().filter(|distribution| distribution.count > 0);
            named.filter_map(|distribution| {
                let points = distribution.curve.iter().filter(|(quantile, _)| (0.1..1.0).contains(quantile));
                Some(Series {
                    name: name(outcome, &distribution.name)?,
                    points: points.map(|(quantile, us)| (1.0 / (1.0 - quantile), us / 1e3)).collect(),
                })
            })
        })
        .collect()
}

/// Curves over the nines: the x of a quantile is how many events there are for one that takes longer.
fn latency(title: &str, series: Vec<Series>) -> String {
    if series.is_empty() {
        return String::new();
    }
    let nines = [(2.0, "50 %"), (10.0, "90 %"), (100.0, "99 %"), (1e3, "99.9 %"), (1e4, "99.99 %"), (1e5, "99.999 %")];
    let ticks = nines.iter().map(|(value, text)| (*value, (*text).to_owned())).collect();
    let x = Axis { label: "share of events at or below".into(), logarithmic: true, ticks };
    let y = Axis { label: "ms".into(), logarithmic: true, ticks: Vec::new() };
    svg::lines(title, &x, &y, &series)
}

fn bars(run: &Run, case: &str, figure: &str, unit: &str) -> String {
    let values: Vec<(String, f64)> = peers_of(run, case)
        .into_iter()
        .filter_map(|peer| Some((peer.to_owned(), run.figure(case, peer, figure)?)))
        .collect();
    if values.is_empty() { String::new() } else { svg::bars(case, unit, &values) }
}

fn ladder(run: &Run, case: &str) -> Vec<String> {
    let outcomes: Vec<&Outcome> =
        run.outcomes.iter().filter(|outcome| outcome.case == case && outcome.repeat == 1).collect();
    let plot = |title: &str, label: &str, value: fn(&crate::results::Step) -> f64| {
        let series: Vec<Series> = outcomes
            .iter()
            .map(|outcome| {
                let mut points: Vec<(f64, f64)> =
                    outcome.steps.iter().map(|step| (step.delivered_per_s, value(step))).collect();
                points.retain(|(x, y)| *x > 0.0 && *y > 0.0);
                points.sort_by(|a, b| a.0.total_cmp(&b.0));
                Series { name: outcome.peer.clone(), points }
            })
            .filter(|series| !series.points.is_empty())
            .collect();
        let x = Axis { label: "deliveries/s".into(), logarithmic: true, ticks: Vec::new() };
        let y = Axis { label: label.into(), logarithmic: true, ticks: Vec::new() };
        if series.is_empty() { String::new() } else { svg::lines(&format!("{case}: {title}"), &x, &y, &series) }
    };
    vec![
        plot("latency", "p99, ms", |step| step.p99_ms),
        plot("cost", "server CPU per delivery, ns", |step| step.cpu_ns_per_frame),
    ]
}
