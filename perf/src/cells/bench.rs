//! What every case needs: options, servers, loads; and the choice of the case.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{disturb, fanout, floor, fsync, idle, ingest, ladder, moving, open, publish, replay, steady};
use crate::load::{Group, Load, LoadError, LoadSettings, Order, Plan, Purpose};
use crate::results::{Outcome, RunSettings};
use crate::row::RowWriter;
use crate::scenario::{LakeOptions, STREAM, Scenario, Work};
use crate::server::{MetricsError, PeerError, Server, ServerError, StartRequest, Task, TaskError};
use crate::wire::{Ask, WireError};

/// Where things are and how the machine is shared out.
#[derive(Debug, Clone)]
pub struct Options {
    /// Directory of peer scripts.
    pub scripts: PathBuf,
    /// Directory for data roots, on the filesystem that is to be measured.
    pub data: PathBuf,
    pub run: RunSettings,
}

/// Why a case was not measured.
#[derive(Debug, thiserror::Error)]
pub enum CellError {
    #[error(transparent)]
    Server(#[from] ServerError),
    #[error(transparent)]
    Task(#[from] TaskError),
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    /// The peer has nothing of the kind.
    #[error("{0}")]
    Unable(String),
    #[error("{0}")]
    Failed(String),
    #[error("{0}: {1}")]
    Io(&'static str, std::io::Error),
}

impl CellError {
    /// Whether the peer simply is not there or cannot do this, rather than having failed at it.
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        matches!(
            self,
            Self::Unable(_)
                | Self::Server(
                    ServerError::Peer(PeerError::Unavailable(_))
                        | ServerError::Task(TaskError::Peer(PeerError::Unavailable(_)))
                )
                | Self::Task(TaskError::Peer(PeerError::Unavailable(_)))
        )
    }
}

/// One scenario on one machine.
pub struct Bench<'b> {
    pub scenario: &'b Scenario,
    pub options: &'b Options,
    pub(super) writer: RowWriter,
}

/// The second stream of cases about idle subscribers.
pub(super) const QUIET: &str = "quiet";

/// The second stream of cases about rows that move: its own rows do not.
pub(super) const STILL: &str = "still";

/// Seconds in which a batch of connections must be open.
pub(super) const OPEN_S: f64 = 60.0;

/// Seconds in which a server must greet after its start.
const START_S: f64 = 60.0;

impl<'b> Bench<'b> {
    /// A bench for a scenario that was checked when it was read.
    ///
    /// # Errors
    /// When the scenario's columns make no row.
    pub fn new(scenario: &'b Scenario, options: &'b Options) -> Result<Self, CellError> {
        let writer = RowWriter::new(&scenario.columns).map_err(|error| CellError::Failed(error.to_string()))?;
        Ok(Self { scenario, options, writer })
    }

    /// Measures one case on one peer.
    ///
    /// # Errors
    /// When it cannot be measured at all; doubts are in the outcome's `problems`.
    pub fn measure(&self, work: &Work, peer: &str) -> Result<Outcome, CellError> {
        match work {
            Work::Fanout(case) => fanout::measure(self, case, peer),
            Work::Ladder(case) => ladder::measure(self, case, peer),
            Work::Publish(case) => publish::measure(self, case, peer),
            Work::Replay(case) => replay::measure(self, case, peer),
            Work::Idle(case) => idle::measure(self, case, peer),
            Work::Disturb(case) => disturb::measure(self, case, peer),
            Work::Moving(case) => moving::measure(self, case, peer),
            Work::Floor(case) => floor::measure(self, case, peer),
            Work::Fsync(case) => fsync::measure(self, case, peer),
            Work::Ingest(case) => ingest::measure(self, case, peer),
            Work::Steady(case) => steady::measure(self, case, peer),
            Work::Open(case) => open::measure(self, case, peer),
        }
    }

    /// A time of the scenario in seconds, scaled.
    pub(super) fn seconds(&self, seconds: f64) -> f64 {
        seconds * self.options.run.time_scale
    }

    /// The directory of a peer's server.
    pub(super) fn root(&self, peer: &str) -> PathBuf {
        self.options.data.join(format!("{}-{peer}", std::process::id()))
    }

    /// What the peer's script is told of the streams.
    pub(super) fn streams(&self, lake: Option<&LakeOptions>) -> Value {
        let mut streams = self.scenario.stream_file(&self.writer.schema(), lake);
        let has = |kind: fn(&Work) -> bool| self.scenario.cases.iter().any(kind);
        if let Some(list) = streams["streams"].as_array_mut() {
            if has(|case| matches!(case, Work::Idle(_))) {
                let mut quiet = list[0].clone();
                quiet["name"] = QUIET.into();
                list.push(quiet);
            }
            if has(|case| matches!(case, Work::Moving(_))) {
                let mut still = list[0].clone();
                still["name"] = STILL.into();
                still["lake"] = json!({ "maintain": false });
                list.push(still);
            }
        }
        streams
    }

    fn request<'r>(&'r self, peer: &'r str, fanout: bool, root: &'r Path, streams: &'r Value) -> StartRequest<'r> {
        StartRequest {
            scripts: &self.options.scripts,
            name: peer,
            root,
            cores: &self.options.run.server_cores,
            streams,
            stream: STREAM,
            fanout,
            patience_s: START_S,
        }
    }

    /// Starts a peer on an empty root.
    pub(super) fn start(&self, peer: &str, fanout: bool) -> Result<Server, CellError> {
        self.start_moving(peer, fanout, None)
    }

    /// As [`Bench::start`], with rows moving into files as `lake` says.
    pub(super) fn start_moving(
        &self,
        peer: &str,
        fanout: bool,
        lake: Option<&LakeOptions>,
    ) -> Result<Server, CellError> {
        let (root, streams) = (self.root(peer), self.streams(lake));
        Ok(Server::start(&self.request(peer, fanout, &root, &streams))?)
    }

    /// Stops a server, moves all its rows into files, and starts it again on the same root.
    pub(super) fn start_flushed(&self, server: Server, lake: Option<&LakeOptions>) -> Result<Server, CellError> {
        self.again(server, lake, |task| task.run("flush", &[]).map(drop))
    }

    /// Stops a server and starts it again on the same root.
    pub(super) fn start_same(&self, server: Server, lake: Option<&LakeOptions>) -> Result<Server, CellError> {
        self.again(server, lake, |_| Ok(()))
    }

    fn again(
        &self,
        server: Server,
        lake: Option<&LakeOptions>,
        between: impl FnOnce(&Task<'_>) -> Result<(), TaskError>,
    ) -> Result<Server, CellError> {
        let (name, root, streams) = (server.name().to_owned(), server.root().to_owned(), self.streams(lake));
        Ok(server.again(&self.request(&name, false, &root, &streams), between)?)
    }

    /// A load on `server` without connections.
    pub(super) fn load(&self, server: &Server) -> Result<Load, CellError> {
        let settings = LoadSettings {
            address: server.address,
            spin: self.options.run.spin,
            read_bytes: self.options.run.read_bytes,
            parallel: 64,
        };
        let mut load = Load::new(server.wire(), settings, self.writer.clone())?;
        load.set_tls(server.tls());
        Ok(load)
    }

    /// Opens `count` publishers of `stream`.
    pub(super) fn open_publishers(&self, load: &mut Load, stream: &str, count: usize) -> Result<(), CellError> {
        let plan = |number: usize| Plan {
            ask: Ask::Publish {
                stream: stream.to_owned(),
                publisher: self.scenario.stream.exactly_once.then(|| format!("perf-{number}")),
            },
            purpose: Purpose::Publish,
        };
        Ok(load.open((0..count).map(plan), OPEN_S)?)
    }
}

/// Adds a group of `count` live subscribers to `stream` and opens them.
pub(super) fn open_subscribers(
    load: &mut Load,
    stream: &str,
    count: usize,
    sample_every: u64,
) -> Result<usize, CellError> {
    let group = load.groups.len();
    load.groups.push(Group::new(sample_every, Order::Dense));
    let ask = Ask::Subscribe { stream: stream.to_owned(), offset: None, filter: None };
    load.open(std::iter::repeat_n(Plan { ask, purpose: Purpose::Subscribe(group) }, count), OPEN_S)?;
    Ok(group)
}

/// Says so if the server is gone.
pub(super) fn note_end(mut server: Server, outcome: &mut Outcome) {
    if !server.is_running() {
        outcome.problems.push(format!("the server ended; its log ends with: {}", server.log_tail()));
    }
}

/// Notes everything that makes a load's figures doubtful.
pub(super) fn note_problems(load: &Load, problems: &mut Vec<String>) {
    if let (dropped @ 1.., why) = load.drops() {
        problems.push(format!("the server ended {dropped} connections; the first: {}", why.unwrap_or("")));
    }
    let faults: u64 = load.groups.iter().map(|group| group.faults).sum();
    if let Some(first) = load.groups.iter().find_map(|group| group.first_fault.as_ref()) {
        problems.push(format!("{faults} reads with offsets out of order; the first: {first}"));
    }
    let publishing = &load.publishing;
    if let Some(first) = &publishing.first_refusal {
        problems.push(format!("{} answers were refusals; the first: {first}", publishing.refused));
    }
    if publishing.choked {
        problems.push("the server read so slowly that publishing was given up".into());
    }
}
