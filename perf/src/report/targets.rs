//! Whether targets were met.

use crate::report::number;
use crate::results::Run;
use crate::scenario::Target;

/// One target and what came of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    pub case: String,
    pub peer: String,
    pub figure: String,
    /// The bound in words.
    pub wanted: String,
    /// The figure that was reached, if it was measured.
    pub reached: Option<f64>,
    /// `None` when something it needs was not measured.
    pub met: Option<bool>,
}

/// Judges every target of a run by the medians of its repeats.
#[must_use]
pub fn verdicts(run: &Run) -> Vec<Verdict> {
    run.scenario.targets.iter().filter_map(|target| judge(run, target)).collect()
}

fn judge(run: &Run, target: &Target) -> Option<Verdict> {
    let peer = target.peer.clone().or_else(|| run.scenario.peers.first().cloned())?;
    let reached = run.figure(&target.case, &peer, &target.figure);
    let reference = target.relative_to.as_ref().map(|reference| {
        let case = reference.case.as_ref().unwrap_or(&target.case);
        let figure = reference.figure.as_ref().unwrap_or(&target.figure);
        (&reference.peer, run.figure(case, &reference.peer, figure))
    });
    let unit = match &reference {
        None => Some(1.0),
        Some((_, value)) => *value,
    };
    let mut wanted = Vec::new();
    let mut met = reached.zip(unit).map(|_| true);
    for (sign, bound) in [("≤", target.at_most), ("≥", target.at_least)] {
        let Some(bound) = bound else { continue };
        wanted.push(match &reference {
            None => format!("{sign} {}", number(bound)),
            Some((peer, Some(value))) => format!("{sign} {bound} × {peer} = {}", number(bound * value)),
            Some((peer, None)) => format!("{sign} {bound} × {peer} (not measured)"),
        });
        if let (Some(reached), Some(unit)) = (reached, unit) {
            let holds = if sign == "≤" { reached <= bound * unit } else { reached >= bound * unit };
            met = met.map(|before| before && holds);
        }
    }
    Some(Verdict {
        case: target.case.clone(),
        peer,
        figure: target.figure.clone(),
        wanted: wanted.join(", "),
        reached,
        met,
    })
}
