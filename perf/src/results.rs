//! Result files: everything a report needs, as JSON.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::host::Host;
use crate::record::Distribution;
use crate::scenario::Scenario;

/// Version of the result format.
pub const FORMAT: u32 = 1;

/// One run of one scenario.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Run {
    pub format: u32,
    /// Seconds since 1970.
    pub started_s: u64,
    pub command: String,
    pub settings: RunSettings,
    pub host: Host,
    pub scenario: Scenario,
    pub outcomes: Vec<Outcome>,
    /// Cases that could not be measured, and why.
    pub skipped: Vec<Skipped>,
}

/// How the machine was shared out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunSettings {
    pub server_cores: Vec<usize>,
    pub generator_cores: Vec<usize>,
    /// Whether the generator looked at its sockets all the time instead of sleeping between messages.
    pub spin: bool,
    pub read_bytes: usize,
    /// Factor on all times; 1 is as in the scenario.
    pub time_scale: f64,
}

/// A case that was not measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Skipped {
    pub case: String,
    pub peer: String,
    pub why: String,
}

/// What one peer did in one case.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Outcome {
    pub case: String,
    pub peer: String,
    pub version: String,
    /// Which of the repeats this was, from 1.
    pub repeat: u32,
    /// Numbers by name; the unit is the end of the name.
    pub figures: BTreeMap<String, f64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub distributions: Vec<Distribution>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Step>,
    /// What makes the figures doubtful: messages lost or out of order, connections dropped, frames refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
}

/// One step of a ladder.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    pub offered_per_s: f64,
    pub delivered_per_s: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub max_ms: f64,
    pub cpu_ns_per_frame: f64,
    pub server_busy_pct: f64,
    pub generator_busy_pct: f64,
    pub sustained: bool,
    /// Why it was not sustained.
    pub why: Option<String>,
}

impl Outcome {
    /// An empty outcome.
    #[must_use]
    pub fn new(case: &str, peer: &str) -> Self {
        Self { case: case.to_owned(), peer: peer.to_owned(), repeat: 1, ..Self::default() }
    }

    /// Sets one figure; figures that are no number are left out.
    pub fn set(&mut self, name: &str, value: f64) {
        if value.is_finite() {
            self.figures.insert(name.to_owned(), value);
        }
    }

    /// Sets p50, p99, p99.9 and max in milliseconds, each behind `prefix`, and keeps the whole distribution.
    pub fn set_distribution(&mut self, prefix: &str, distribution: Distribution) {
        if distribution.count > 0 {
            for (name, us) in [
                ("p50_ms", distribution.p50_us),
                ("p99_ms", distribution.p99_us),
                ("p999_ms", distribution.p999_us),
                ("max_ms", distribution.max_us),
            ] {
                self.set(&format!("{prefix}{name}"), us / 1e3);
            }
        }
        self.distributions.push(distribution);
    }
}

/// Why a result file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ResultError {
    #[error("cannot write {0}: {1}")]
    Write(PathBuf, std::io::Error),
    #[error("cannot read {0}: {1}")]
    Read(PathBuf, std::io::Error),
    #[error("{0} is not a result file: {1}")]
    Parse(PathBuf, serde_json::Error),
    #[error("{0} has format {1}; this program reads {FORMAT}")]
    Format(PathBuf, u32),
    #[error("{0} holds no result files")]
    Empty(PathBuf),
}

impl Run {
    /// Writes the run to `folder`, in a file called after the scenario; returns its path.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn save(&self, folder: &Path) -> Result<PathBuf, ResultError> {
        let path = folder.join(format!("{}.json", self.scenario.name));
        let fail = |error| ResultError::Write(path.clone(), error);
        std::fs::create_dir_all(folder).map_err(fail)?;
        let text = serde_json::to_string_pretty(self).map_err(|error| fail(error.into()))?;
        std::fs::write(&path, text + "\n").map_err(fail)?;
        Ok(path)
    }

    /// Reads one result file.
    ///
    /// # Errors
    /// When it cannot be read or is not a result file of this format.
    pub fn load(path: &Path) -> Result<Self, ResultError> {
        let text = std::fs::read_to_string(path).map_err(|error| ResultError::Read(path.to_owned(), error))?;
        let run: Self = serde_json::from_str(&text).map_err(|error| ResultError::Parse(path.to_owned(), error))?;
        if run.format == FORMAT { Ok(run) } else { Err(ResultError::Format(path.to_owned(), run.format)) }
    }

    /// Reads every result file of `folder`, in the order of their names.
    ///
    /// # Errors
    /// When there is none, or one cannot be read.
    pub fn load_folder(folder: &Path) -> Result<Vec<Self>, ResultError> {
        let entries = std::fs::read_dir(folder).map_err(|error| ResultError::Read(folder.to_owned(), error))?;
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
        paths.sort();
        if paths.is_empty() {
            return Err(ResultError::Empty(folder.to_owned()));
        }
        paths.iter().map(|path| Self::load(path)).collect()
    }

    /// The median over repeats of a figure.
    #[must_use]
    pub fn figure(&self, case: &str, peer: &str, figure: &str) -> Option<f64> {
        let of = |outcome: &&Outcome| outcome.case == case && outcome.peer == peer;
        median(self.outcomes.iter().filter(of).filter_map(|outcome| outcome.figures.get(figure).copied()).collect())
    }
}

/// The middle value, or the mean of the two.
#[must_use]
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        count if count % 2 == 1 => Some(values[middle]),
        _ => Some(f64::midpoint(values[middle - 1], values[middle])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0]), Some(2.5));
    }

    #[test]
    fn figures_that_are_no_numbers_are_left_out() {
        let mut outcome = Outcome::new("c", "p");
        outcome.set("x", f64::NAN);
        outcome.set("y", 1.0);
        assert_eq!(outcome.figures.len(), 1);
    }
}
