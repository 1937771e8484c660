//! Tables in Markdown.

use std::fmt::Write;

use super::figures::{label, shown};
use super::format::number;
use super::targets::verdicts;
use crate::results::{Outcome, Run};
use crate::scenario::Work;

/// All runs as one document, without a heading of its own.
#[must_use]
pub fn document(runs: &[Run]) -> String {
    let mut out = String::new();
    if let Some(run) = runs.first() {
        machine(&mut out, run);
    }
    for run in runs {
        scenario(&mut out, run);
    }
    out
}

fn machine(out: &mut String, run: &Run) {
    let host = &run.host;
    let virtual_machine = if host.hypervisor { ", a virtual machine" } else { "" };
    let _ = writeln!(out, "| machine | |\n|---|---|");
    let _ = writeln!(out, "| processor | {}, {} cores{virtual_machine} |", host.processor, host.cores);
    let _ = writeln!(out, "| memory | {} GiB |", host.memory_gib);
    let _ = writeln!(out, "| kernel | {} |", host.kernel);
    let _ = writeln!(out, "| data on | `{}` |", host.filesystem);
    for (name, value) in &host.settings {
        let _ = writeln!(out, "| {name} | `{value}` |");
    }
    let settings = &run.settings;
    let looking = if settings.spin { "looks at its sockets all the time" } else { "sleeps between messages" };
    let _ = writeln!(
        out,
        "| cores | server {:?}, generator {:?}, which {looking} |\n",
        settings.server_cores, settings.generator_cores
    );
}

fn scenario(out: &mut String, run: &Run) {
    let _ = writeln!(out, "### {}: {}\n", run.scenario.name, run.scenario.title);
    let _ = writeln!(out, "`{}`\n", run.command);
    if run.settings.time_scale < 1.0 {
        let _ = writeln!(out, "A quick look: all times are {} of the scenario's.\n", run.settings.time_scale);
    }
    for work in &run.scenario.cases {
        case(out, run, work);
    }
    targets(out, run);
    remarks(out, run);
}

fn case(out: &mut String, run: &Run, work: &Work) {
    let peers = peers_of(run, work.name());
    if peers.is_empty() {
        return;
    }
    let _ = writeln!(out, "**{}**\n", work.name());
    let _ = writeln!(out, "| | {} |", peers.join(" | "));
    let _ = writeln!(out, "|---|{}", "---|".repeat(peers.len()));
    for (figure, label) in shown(work) {
        let values: Vec<Option<f64>> = peers.iter().map(|peer| run.figure(work.name(), peer, figure)).collect();
        if values.iter().any(Option::is_some) {
            let cells: Vec<String> = values.iter().map(|value| value.map_or("–".to_owned(), number)).collect();
            let _ = writeln!(out, "| {label} | {} |", cells.join(" | "));
        }
    }
    out.push('\n');
}

/// The peers that were measured in a case, in the order they were.
pub(super) fn peers_of<'r>(run: &'r Run, case: &str) -> Vec<&'r str> {
    let mut peers: Vec<&str> = Vec::new();
    for outcome in run.outcomes.iter().filter(|outcome| outcome.case == case) {
        if !peers.contains(&outcome.peer.as_str()) {
            peers.push(&outcome.peer);
        }
    }
    peers
}

fn targets(out: &mut String, run: &Run) {
    let verdicts = verdicts(run);
    if verdicts.is_empty() {
        return;
    }
    let _ = writeln!(out, "| target | wanted | reached | |\n|---|---|---|---|");
    for verdict in verdicts {
        let work = run.scenario.cases.iter().find(|work| work.name() == verdict.case);
        let label = work.map_or(verdict.figure.as_str(), |work| label(work, &verdict.figure));
        let met = match verdict.met {
            Some(true) => "met",
            Some(false) => "**missed**",
            None => "not measured",
        };
        let reached = verdict.reached.map_or("–".to_owned(), number);
        let _ = writeln!(out, "| {}: {label} | {} | {reached} | {met} |", verdict.case, verdict.wanted);
    }
    out.push('\n');
}

fn remarks(out: &mut String, run: &Run) {
    let doubts = run.outcomes.iter().flat_map(|outcome: &Outcome| {
        outcome.problems.iter().map(move |problem| format!("{}, {}: {problem}", outcome.case, outcome.peer))
    });
    let skipped = run.skipped.iter().map(|skipped| format!("{}, {}: {}", skipped.case, skipped.peer, skipped.why));
    let mut any = false;
    for remark in doubts.chain(skipped) {
        let _ = writeln!(out, "- {remark}");
        any = true;
    }
    if any {
        out.push('\n');
    }
}

const BEGIN: &str = "<!-- measured: begin -->";
const END: &str = "<!-- measured: end -->";

/// `document` with what is between its two marks replaced by `tables`; `None` without the marks.
#[must_use]
pub fn put_between_marks(document: &str, tables: &str) -> Option<String> {
    let begin = document.find(BEGIN)? + BEGIN.len();
    let end = begin + document[begin..].find(END)?;
    Some(format!("{}\n\n{}\n\n{}", &document[..begin], tables.trim(), &document[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marked_text_is_replaced() {
        let before = format!("a\n{BEGIN}\nold\n{END}\nb");
        let after = put_between_marks(&before, "new\n").unwrap();
        assert_eq!(after, format!("a\n{BEGIN}\n\nnew\n\n{END}\nb"));
        assert_eq!(put_between_marks(&after, "new").unwrap(), after);
        assert_eq!(put_between_marks("no marks", "x"), None);
    }
}
