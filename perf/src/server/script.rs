//! Peers are scripts: `peers/NAME prepare …` writes whatever configuration the server needs and prints how to start it.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::wire::Kind;

/// What a script prints: one JSON object.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Peer {
    /// The protocol it speaks.
    pub wire: Kind,
    /// What it is, for reports.
    pub version: String,
    /// The program and its arguments. It must stay in the foreground and stop at SIGTERM.
    pub argv: Vec<String>,
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// The certificate it shows, PEM, if it speaks TLS only.
    pub tls: Option<PathBuf>,
    /// Where the Iceberg table of the stream will be, if the server makes one.
    #[serde(default)]
    pub table: Option<PathBuf>,
}

/// What a script prints for a command on a root that nobody serves.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Command {
    /// What it is, for reports.
    pub version: String,
    /// The program and its arguments. Its last line may be `{"seconds": …}`: the time that counts.
    pub argv: Vec<String>,
    #[serde(default)]
    pub env: BTreeMap<String, String>,
}

/// Exit status by which a script says that its server is not installed.
const UNAVAILABLE: i32 = 69;

/// Why a peer cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    #[error("there is no peer script {0}")]
    Missing(PathBuf),
    #[error("{0}")]
    Unavailable(String),
    #[error("cannot run {0}: {1}")]
    Run(PathBuf, std::io::Error),
    #[error("{0} failed: {1}")]
    Failed(PathBuf, String),
    #[error("{0} printed no peer description: {1}")]
    Output(PathBuf, serde_json::Error),
}

impl Peer {
    /// Asks `scripts`/`name` how to start a server on `root`, `port` and `cores` with the streams of `streams`.
    ///
    /// # Errors
    /// When there is no such script, or it says that the server is not installed, or it fails.
    pub fn prepare(
        scripts: &Path,
        name: &str,
        root: &Path,
        port: u16,
        cores: &str,
        streams: &Path,
    ) -> Result<Self, PeerError> {
        let port = port.to_string();
        let options: [(&str, &OsStr); 4] = [
            ("root", root.as_ref()),
            ("port", port.as_ref()),
            ("cores", cores.as_ref()),
            ("streams", streams.as_ref()),
        ];
        ask(scripts, name, "prepare", &options)
    }
}

impl Command {
    /// Asks `scripts`/`name` how to do `verb` on `root`.
    ///
    /// # Errors
    /// As [`Peer::prepare`]; a peer that cannot do this says so like one that is not installed.
    pub fn of(
        scripts: &Path,
        name: &str,
        verb: &str,
        root: &Path,
        streams: &Path,
        options: &[(&str, &Path)],
    ) -> Result<Self, PeerError> {
        let mut all: Vec<(&str, &OsStr)> = vec![("root", root.as_ref()), ("streams", streams.as_ref())];
        all.extend(options.iter().map(|(option, value)| (*option, value.as_os_str())));
        ask(scripts, name, verb, &all)
    }
}

/// Runs a script and reads what it prints.
fn ask<T: DeserializeOwned>(
    scripts: &Path,
    name: &str,
    verb: &str,
    options: &[(&str, &OsStr)],
) -> Result<T, PeerError> {
    let script = scripts.join(name);
    if name.contains('/') || !script.is_file() {
        return Err(PeerError::Missing(script));
    }
    let mut command = process::Command::new(&script);
    command.arg(verb);
    for (option, value) in options {
        command.arg(format!("--{option}")).arg(value);
    }
    let output = command.output().map_err(|error| PeerError::Run(script.clone(), error))?;
    let told = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    match output.status.code() {
        Some(0) => serde_json::from_slice(&output.stdout).map_err(|error| PeerError::Output(script, error)),
        Some(UNAVAILABLE) => Err(PeerError::Unavailable(told)),
        _ => Err(PeerError::Failed(script, told)),
    }
}
