//! Running a scenario from first case to result file.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::cells::{Bench, CellError, Options};
use crate::host::Host;
use crate::results::{FORMAT, Outcome, ResultError, Run, Skipped};
use crate::scenario::{Scenario, ScenarioError, Work};

/// What to run and where results go.
#[derive(Debug, Clone)]
pub struct RunRequest {
    /// Peers instead of the scenario's.
    pub peers: Option<Vec<String>>,
    /// Cases instead of all.
    pub cases: Option<Vec<String>>,
    /// Repeats instead of the scenario's.
    pub repeats: Option<u32>,
    /// Folder for result files.
    pub out: PathBuf,
    pub options: Options,
    /// The command line, for the record.
    pub command: String,
}

/// Why a run failed as a whole.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    #[error(transparent)]
    Cell(#[from] CellError),
    #[error(transparent)]
    Result(#[from] ResultError),
    #[error("no case of scenario {0} is named `{1}`")]
    NoCase(String, String),
    #[error("cannot pin to cores {0:?}: {1}")]
    Pin(Vec<usize>, std::io::Error),
}

/// Measures every case on every peer and writes the result file; returns its path and whether all went well.
///
/// # Errors
/// When nothing can be measured or the file cannot be written.
pub fn run(mut scenario: Scenario, request: &RunRequest) -> Result<(PathBuf, bool), RunError> {
    if let Some(peers) = &request.peers {
        scenario.peers.clone_from(peers);
    }
    if let Some(repeats) = request.repeats {
        scenario.repeats = repeats;
    }
    let chosen = chosen_cases(&scenario, request.cases.as_deref())?;
    crate::affinity::raise_open_files();
    crate::affinity::exact_timers();
    let cores = &request.options.run.generator_cores;
    crate::affinity::pin(cores).map_err(|error| RunError::Pin(cores.clone(), error))?;

    let bench = Bench::new(&scenario, &request.options)?;
    let (mut outcomes, mut skipped) = (Vec::new(), Vec::new());
    let mut failed = false;
    for repeat in 1..=scenario.repeats {
        for case in &chosen {
            for peer in peers_of(case, &scenario.peers, request.peers.is_some()) {
                match bench.measure(case, peer) {
                    Ok(mut outcome) => {
                        outcome.repeat = repeat;
                        failed |= !outcome.problems.is_empty();
                        tell(&outcome);
                        outcomes.push(outcome);
                    }
                    Err(error) => {
                        failed |= !error.is_unavailable();
                        eprintln!("{} on {peer}: {error}", case.name());
                        let (case, peer, why) = (case.name().to_owned(), peer.to_owned(), error.to_string());
                        skipped.push(Skipped { case, peer, why });
                    }
                }
            }
        }
    }
    let run = Run {
        format: FORMAT,
        started_s: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        command: request.command.clone(),
        settings: request.options.run.clone(),
        host: Host::look(&request.options.data),
        scenario: scenario.clone(),
        outcomes,
        skipped,
    };
    Ok((run.save(&request.out)?, !failed))
}

fn chosen_cases<'s>(scenario: &'s Scenario, names: Option<&[String]>) -> Result<Vec<&'s Work>, RunError> {
    let Some(names) = names else { return Ok(scenario.cases.iter().collect()) };
    let find = |name: &String| {
        let case = scenario.cases.iter().find(|case| case.name() == name);
        case.ok_or_else(|| RunError::NoCase(scenario.name.clone(), name.clone()))
    };
    names.iter().map(find).collect()
}

/// The peers of a case, of those that were asked for if any were; the machine itself goes by a name of its own.
fn peers_of<'s>(case: &'s Work, peers: &'s [String], asked_for: bool) -> Vec<&'s str> {
    match case {
        Work::Floor(_) => vec!["floor"],
        Work::Fsync(_) => vec!["disk"],
        _ => {
            let own = case.peers(peers).iter().map(String::as_str);
            own.filter(|peer| !asked_for || peers.iter().any(|asked| asked == peer)).collect()
        }
    }
}

/// One line of progress an outcome.
fn tell(outcome: &Outcome) {
    let figures: Vec<String> =
        outcome.figures.iter().map(|(name, value)| format!("{name}={}", crate::report::number(*value))).collect();
    eprintln!("{} on {}: {}", outcome.case, outcome.peer, figures.join(" "));
    for step in &outcome.steps {
        eprintln!(
            "  {:>11.0}/s offered, {:>11.0}/s delivered, p50 {:.2} p99 {:.2} max {:.1} ms, {:.0} ns/frame, server {:.0} %, generator {:.0} %{}",
            step.offered_per_s,
            step.delivered_per_s,
            step.p50_ms,
            step.p99_ms,
            step.max_ms,
            step.cpu_ns_per_frame,
            step.server_busy_pct,
            step.generator_busy_pct,
            step.why.as_ref().map(|why| format!(": {why}")).unwrap_or_default(),
        );
    }
    for problem in &outcome.problems {
        eprintln!("  doubt: {problem}");
    }
}
