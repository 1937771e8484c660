//! The scenario file itself and what must hold before it may run.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::lake::LakeOptions;
use super::work::Work;
use crate::row::{self, Column, RowError, RowWriter};

/// Name of the one stream that loads use.
pub const STREAM: &str = "trades";

/// A scenario as written in TOML.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Short name: the result file is called after it.
    pub name: String,
    /// One line for reports.
    pub title: String,
    /// Peers that are measured, in this order; scripts in the peers directory.
    #[serde(default)]
    pub peers: Vec<String>,
    /// How often the whole scenario is run; reports show the median of each figure.
    #[serde(default = "once")]
    pub repeats: u32,
    #[serde(default)]
    pub stream: StreamOptions,
    /// Columns of a row; a trade of about 120 bytes a frame when absent.
    #[serde(default = "row::trade")]
    pub columns: Vec<Column>,
    /// What is measured, in this order.
    #[serde(rename = "case")]
    pub cases: Vec<Work>,
    /// What the first peer is held to.
    #[serde(default, rename = "target")]
    pub targets: Vec<Target>,
}

fn once() -> u32 {
    1
}

/// How the stream is declared to the servers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StreamOptions {
    pub durable: bool,
    pub exactly_once: bool,
    /// Rows a replay may reach back; absent is unbounded.
    pub max_replay: Option<u64>,
    pub max_backlog: Option<u64>,
    pub max_inbound: Option<u64>,
    pub max_in_flight: Option<u64>,
    /// How rows move into files; the server's defaults when absent.
    pub lake: Option<LakeOptions>,
}

impl Default for StreamOptions {
    fn default() -> Self {
        Self {
            durable: true,
            exactly_once: false,
            max_replay: None,
            max_backlog: None,
            max_inbound: None,
            max_in_flight: None,
            lake: None,
        }
    }
}

/// A figure that a peer must reach.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    pub case: String,
    pub figure: String,
    /// Peer that is held to it; the scenario's first when absent.
    pub peer: Option<String>,
    /// Bounds; multiples of the reference's figure when there is one.
    pub at_most: Option<f64>,
    pub at_least: Option<f64>,
    pub relative_to: Option<Reference>,
}

/// The figure that a relative target is a multiple of; what is absent is as in the target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reference {
    pub peer: String,
    pub case: Option<String>,
    pub figure: Option<String>,
}

/// Why a scenario cannot run.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    #[error("cannot read scenario {0}: {1}")]
    Read(String, std::io::Error),
    #[error("scenario {0}: {1}")]
    Parse(String, Box<toml::de::Error>),
    #[error("scenario {0}: {1}")]
    Row(String, RowError),
    #[error("scenario {file}: {what}")]
    Invalid { file: String, what: String },
}

impl Scenario {
    /// Reads and checks a scenario file.
    ///
    /// # Errors
    /// When the file cannot be read, is not a scenario, or asks for something impossible.
    pub fn load(path: &Path) -> Result<Self, ScenarioError> {
        let file = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| ScenarioError::Read(file.clone(), error))?;
        Self::parse(&text, file)
    }

    /// As [`Scenario::load`], from text; `file` names it in errors.
    ///
    /// # Errors
    /// As [`Scenario::load`].
    pub fn parse(text: &str, file: String) -> Result<Self, ScenarioError> {
        let scenario: Self =
            toml::from_str(text).map_err(|error| ScenarioError::Parse(file.clone(), Box::new(error)))?;
        RowWriter::new(&scenario.columns).map_err(|error| ScenarioError::Row(file.clone(), error))?;
        match scenario.fault() {
            Some(what) => Err(ScenarioError::Invalid { file, what }),
            None => Ok(scenario),
        }
    }

    fn fault(&self) -> Option<String> {
        let plain = |name: &str| {
            !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        };
        if !plain(&self.name) {
            return Some("`name` must be letters, digits, `-`, `_` and `.`".into());
        }
        if self.cases.is_empty() {
            return Some("it has no [[case]]".into());
        }
        if !(1..=100).contains(&self.repeats) {
            return Some("`repeats` must be from 1 to 100".into());
        }
        for (at, case) in self.cases.iter().enumerate() {
            if self.cases[..at].iter().any(|other| other.name() == case.name()) {
                return Some(format!("two cases are named `{}`", case.name()));
            }
            if case.needs_peer() && self.peers.is_empty() {
                return Some(format!("case `{}` needs `peers`", case.name()));
            }
            if let Some(what) = case.fault() {
                return Some(format!("case `{}`: {what}", case.name()));
            }
        }
        self.targets.iter().find_map(|target| {
            let known = |name: &String| self.cases.iter().any(|case| case.name() == name);
            let reference = target.relative_to.as_ref().and_then(|reference| reference.case.as_ref());
            let unknown = std::iter::once(&target.case).chain(reference).find(|name| !known(name));
            match (unknown, target.at_most.is_some() || target.at_least.is_some()) {
                (Some(name), _) => Some(format!("a target names the unknown case `{name}`")),
                (None, false) => Some(format!("the target for `{}` has no bound", target.figure)),
                (None, true) => None,
            }
        })
    }

    /// The declaration of the stream that peers' scripts get; `lake` is instead of the stream's own.
    #[must_use]
    pub fn stream_file(&self, schema: &Value, lake: Option<&LakeOptions>) -> Value {
        let limits: serde_json::Map<String, Value> = [
            ("max_backlog", self.stream.max_backlog),
            ("max_inbound", self.stream.max_inbound),
            ("max_in_flight", self.stream.max_in_flight),
        ]
        .into_iter()
        .filter_map(|(key, value)| Some((key.to_owned(), json!(value?))))
        .collect();
        json!({ "streams": [{
            "name": STREAM,
            "schema": schema,
            "durable": self.stream.durable,
            "exactly_once": self.stream.exactly_once,
            "max_replay": self.stream.max_replay,
            "limits": limits,
            "lake": lake.or(self.stream.lake.as_ref()),
        }]})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Scenario, String> {
        Scenario::parse(text, "x.toml".into()).map_err(|error| error.to_string())
    }

    const HEAD: &str = "name = \"x\"\ntitle = \"X\"\npeers = [\"a\"]\n";

    #[test]
    fn every_scenario_of_the_house_parses() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
        let mut names = Vec::new();
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let scenario = Scenario::load(&path).unwrap();
            assert_eq!(path.file_stem().unwrap().to_str(), Some(scenario.name.as_str()), "named after its file");
            names.push(scenario.name);
        }
        assert!(names.len() >= 8, "{names:?}");
    }

    #[test]
    fn mistakes_are_told() {
        let fanout = "[[case]]\nkind = \"fanout\"\nname = \"f\"\nsubscribers = 1\nrate = 10.0\n";
        assert!(parse(&format!("{HEAD}{fanout}")).is_ok());
        for (text, told) in [
            (format!("{HEAD}bogus = 1\n{fanout}"), "unknown field `bogus`"),
            (format!("{HEAD}{fanout}bogus = 1\n"), "bogus"),
            (HEAD.to_owned(), "missing field `case`"),
            (format!("{HEAD}{fanout}{fanout}"), "two cases are named `f`"),
            (format!("{HEAD}{}", fanout.replace("10.0", "0.0")), "`rate`"),
            (format!("{HEAD}{fanout}[[target]]\ncase = \"g\"\nfigure = \"x\"\nat_most = 1.0\n"), "unknown case `g`"),
            (format!("{HEAD}{fanout}[[target]]\ncase = \"f\"\nfigure = \"x\"\n"), "no bound"),
            (format!("name = \"x\"\ntitle = \"\"\n{fanout}"), "needs `peers`"),
            (format!("{HEAD}[[columns]]\nfill = \"price\"\nname = \"p\"\n{fanout}"), "exactly one column"),
        ] {
            let error = parse(&text).unwrap_err();
            assert!(error.contains(told), "{error} does not tell {told}");
        }
    }
}
