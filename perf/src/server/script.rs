//! Peers are scripts: `peers/NAME prepare …` writes whatever configuration the server needs and prints how to start it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

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
        let script = scripts.join(name);
        if name.contains('/') || !script.is_file() {
            return Err(PeerError::Missing(script));
        }
        let mut command = Command::new(&script);
        command.arg("prepare").arg("--root").arg(root).args(["--port", &port.to_string(), "--cores", cores]);
        command.arg("--streams").arg(streams);
        let output = command.output().map_err(|error| PeerError::Run(script.clone(), error))?;
        let told = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        match output.status.code() {
            Some(0) => serde_json::from_slice(&output.stdout).map_err(|error| PeerError::Output(script, error)),
            Some(UNAVAILABLE) => Err(PeerError::Unavailable(told)),
            _ => Err(PeerError::Failed(script, told)),
        }
    }
}
