//! One self-contained page: the tables, and a plot beside each.

use std::fmt::Write;

use super::figures::{label, shown};
use super::format::number;
use super::markdown::peers_of;
use super::plots;
use super::svg::{colour, escape};
use super::targets::verdicts;
use crate::results::Run;
use crate::scenario::Work;

const STYLE: &str = "
:root{color-scheme:light dark;--line:#8884}
body{font:15px/1.5 system-ui,sans-serif;max-width:1080px;margin:2rem auto;padding:0 1rem}
table{border-collapse:collapse;margin:.6rem 0}
td,th{padding:.2rem .7rem;border-bottom:1px solid var(--line);text-align:right}
td:first-child,th:first-child{text-align:left}
svg{width:min(100%,640px);height:auto;font:12px system-ui,sans-serif;fill:currentColor;display:block;margin:.6rem 0}
svg .title{font-weight:600;font-size:13px}
svg .grid{stroke:var(--line)}
.plots{display:flex;flex-wrap:wrap;gap:1rem}.plots svg{flex:0 1 520px}
.met{color:#2f9e62;font-weight:600}.missed{color:#d0417e;font-weight:600}
code{font-size:13px}
";

/// All runs as one page.
#[must_use]
pub fn page(runs: &[Run]) -> String {
    let mut out = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>Measured</title><style>{STYLE}</style><h1>Measured</h1>"
    );
    if let Some(run) = runs.first() {
        let host = &run.host;
        let _ = write!(
            out,
            "<p>{}, {} cores{}, {} GiB, Linux {}; data on <code>{}</code>; server on cores {:?}, generator on {:?}.</p>",
            escape(&host.processor),
            host.cores,
            if host.hypervisor { " of a virtual machine" } else { "" },
            host.memory_gib,
            escape(&host.kernel),
            escape(&host.filesystem),
            run.settings.server_cores,
            run.settings.generator_cores
        );
    }
    for run in runs {
        scenario(&mut out, run);
    }
    out.push_str("</html>\n");
    out
}

fn scenario(out: &mut String, run: &Run) {
    let _ = write!(
        out,
        "<h2 id=\"{0}\">{0}: {1}</h2><p><code>{2}</code></p>",
        escape(&run.scenario.name),
        escape(&run.scenario.title),
        escape(&run.command)
    );
    for work in &run.scenario.cases {
        case(out, run, work);
    }
    targets(out, run);
    let doubts = run.outcomes.iter().flat_map(|outcome| {
        outcome.problems.iter().map(move |problem| format!("{}, {}: {problem}", outcome.case, outcome.peer))
    });
    let skipped = run.skipped.iter().map(|skipped| format!("{}, {}: {}", skipped.case, skipped.peer, skipped.why));
    let remarks: Vec<String> = doubts.chain(skipped).map(|text| format!("<li>{}</li>", escape(&text))).collect();
    if !remarks.is_empty() {
        let _ = write!(out, "<ul>{}</ul>", remarks.concat());
    }
}

fn case(out: &mut String, run: &Run, work: &Work) {
    let peers = peers_of(run, work.name());
    if peers.is_empty() {
        return;
    }
    let _ = write!(out, "<h3>{}</h3><table><tr><th></th>", escape(work.name()));
    for (at, peer) in peers.iter().enumerate() {
        let _ = write!(out, "<th style=\"border-bottom:3px solid {}\">{}</th>", colour(at), escape(peer));
    }
    out.push_str("</tr>");
    for (figure, label) in shown(work) {
        let values: Vec<Option<f64>> = peers.iter().map(|peer| run.figure(work.name(), peer, figure)).collect();
        if values.iter().all(Option::is_none) {
            continue;
        }
        let _ = write!(out, "<tr><td>{}</td>", escape(label));
        for value in values {
            let _ = write!(out, "<td>{}</td>", value.map_or("–".to_owned(), number));
        }
        out.push_str("</tr>");
    }
    let _ = write!(out, "</table><div class=\"plots\">{}</div>", plots::of_case(run, work).concat());
}

fn targets(out: &mut String, run: &Run) {
    let verdicts = verdicts(run);
    if verdicts.is_empty() {
        return;
    }
    out.push_str("<table><tr><th>target</th><th>wanted</th><th>reached</th><th></th></tr>");
    for verdict in verdicts {
        let work = run.scenario.cases.iter().find(|work| work.name() == verdict.case);
        let label = work.map_or(verdict.figure.as_str(), |work| label(work, &verdict.figure));
        let (class, word) = match verdict.met {
            Some(true) => ("met", "met"),
            Some(false) => ("missed", "missed"),
            None => ("", "not measured"),
        };
        let _ = write!(
            out,
            "<tr><td>{}: {}</td><td>{}</td><td>{}</td><td class=\"{class}\">{word}</td></tr>",
            escape(&verdict.case),
            escape(label),
            escape(&verdict.wanted),
            verdict.reached.map_or("–".to_owned(), number)
        );
    }
    out.push_str("</table>");
}
