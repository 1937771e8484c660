//! A file into a stopped stream: rows a second and the memory it takes.

use std::fs;
use std::path::PathBuf;

use super::bench::{Bench, CellError};
use crate::results::{Outcome, median};
use crate::scenario::{Ingest, STREAM};
use crate::server::{Memory, Task, TaskRoot};

/// Seconds in which a file must be made or loaded.
const PATIENCE_S: f64 = 900.0;

/// The script that makes files, among the peers.
const MAKER: &str = "source";

/// Loads the file again and again, each time into a new root. It is loaded with all cores there are, because the load
/// generator does nothing meanwhile.
pub(super) fn measure(bench: &Bench<'_>, case: &Ingest, peer: &str) -> Result<Outcome, CellError> {
    let source = source(bench, case)?;
    let run = &bench.options.run;
    let mut cores: Vec<usize> = run.server_cores.iter().chain(&run.generator_cores).copied().collect();
    cores.sort_unstable();
    cores.dedup();
    let mut outcome = Outcome::new(&case.name, peer);
    let (mut times, mut costs, mut peak) = (Vec::new(), Vec::new(), 0);
    for _ in 0..case.rounds {
        let root = TaskRoot::empty(bench.root(peer), &bench.streams(None))?;
        let scripts = &bench.options.scripts;
        let task = Task { scripts, name: peer, root: root.path(), cores: &cores, patience_s: PATIENCE_S };
        task.run("create", &[])?;
        let used = task.run("ingest", &[("source", &source)])?;
        times.push(used.seconds);
        costs.push(used.cpu_ns as f64 / case.rows as f64);
        peak = peak.max(used.peak_bytes);
        outcome.version = used.version;
    }
    let seconds = median(times).unwrap_or(f64::NAN);
    outcome.set("seconds", seconds);
    outcome.set("rows_per_s", case.rows as f64 / seconds);
    outcome.set("cpu_ns_per_row", median(costs).unwrap_or(f64::NAN));
    outcome.set("peak_mib", Memory::mib(peak));
    Ok(outcome)
}

/// The file of a case; made by the first peer that needs it, kept for the others and for later runs.
fn source(bench: &Bench<'_>, case: &Ingest) -> Result<PathBuf, CellError> {
    let path = bench.options.data.join(format!("{STREAM}-{}.{}", case.rows, case.format.as_str()));
    let path = std::path::absolute(path).map_err(|error| CellError::Io("cannot name the source", error))?;
    if path.exists() {
        return Ok(path);
    }
    let root = TaskRoot::empty(bench.root(MAKER), &bench.streams(None))?;
    let (scripts, cores) = (&bench.options.scripts, &bench.options.run.generator_cores);
    let task = Task { scripts, name: MAKER, root: root.path(), cores, patience_s: PATIENCE_S };
    let made = root.path().join(case.format.as_str());
    let rows = case.rows.to_string();
    task.run("make", &[("rows", rows.as_ref()), ("format", case.format.as_str().as_ref()), ("out", &made)])?;
    fs::rename(&made, &path).map_err(|error| CellError::Io("cannot keep the source", error))?;
    Ok(path)
}
