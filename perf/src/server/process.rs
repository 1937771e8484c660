//! One running server: started on its cores, known by its process tree, stopped by its id.

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::ClientConfig;
use serde_json::Value;

use super::probe;
use super::script::{Peer, PeerError};
use super::table::Disk;
use super::task::{Task, TaskError};
use super::usage::{self, Memory, Usage};
use crate::net::tls::{self, TlsError};
use crate::wire::{self, Wire, WireError};
use crate::{affinity, clock};

/// What a server is started with.
#[derive(Debug, Clone)]
pub struct StartRequest<'r> {
    /// Directory of peer scripts, and the name of one.
    pub scripts: &'r Path,
    pub name: &'r str,
    /// Directory for this server alone; emptied first, removed at the end.
    pub root: &'r Path,
    pub cores: &'r [usize],
    /// The declaration of the streams, and the name of the one that is used.
    pub streams: &'r Value,
    pub stream: &'r str,
    /// Whether anybody will subscribe.
    pub fanout: bool,
    /// How long it may take to greet, in seconds.
    pub patience_s: f64,
}

/// Why a server is not running.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error(transparent)]
    Peer(#[from] PeerError),
    #[error("cannot use {0}: {1}")]
    Root(PathBuf, io::Error),
    #[error("cannot start {0}: {1}")]
    Start(String, io::Error),
    #[error("{name} ended at once ({status}); its log ends with: {log}")]
    Ended { name: String, status: String, log: String },
    #[error("{name} does not greet: {error}; its log ends with: {log}")]
    Silent { name: String, error: String, log: String },
    #[error(transparent)]
    Task(#[from] TaskError),
    #[error("{0} refused to be prepared: {1}")]
    Prepare(String, WireError),
    #[error("{0}: {1}")]
    Tls(String, TlsError),
}

/// Seconds in which a command between two starts must be through.
const TASK_S: f64 = 600.0;

/// A running server.
pub struct Server {
    pub peer: Peer,
    pub address: SocketAddr,
    /// From exec to the first greeting, in milliseconds.
    pub greeting_ms: f64,
    child: Child,
    tls: Option<Arc<ClientConfig>>,
    cores: Vec<usize>,
    root: PathBuf,
    fanout: bool,
    name: String,
    /// Whether another one goes on with the root.
    succeeded: bool,
}

impl Server {
    /// Starts a server and waits for its first greeting.
    ///
    /// # Errors
    /// When it cannot be started or does not greet in time.
    pub fn start(request: &StartRequest<'_>) -> Result<Self, ServerError> {
        let fail = |error| ServerError::Root(request.root.to_owned(), error);
        empty_root(request.root).map_err(fail)?;
        Self::start_on(request)
    }

    /// Stops it, has commands run on its root, and starts it again there.
    ///
    /// # Errors
    /// As [`Server::start`], and when the command fails.
    pub fn again(
        mut self,
        request: &StartRequest<'_>,
        between: impl FnOnce(&Task<'_>) -> Result<(), TaskError>,
    ) -> Result<Self, ServerError> {
        self.stop();
        let StartRequest { scripts, name, root, cores, .. } = *request;
        between(&Task { scripts, name, root, cores, patience_s: TASK_S })?;
        let next = Self::start_on(request)?;
        self.succeeded = true;
        Ok(next)
    }

    /// Starts a server on what is in its root.
    fn start_on(request: &StartRequest<'_>) -> Result<Self, ServerError> {
        let fail = |error| ServerError::Root(request.root.to_owned(), error);
        let data = request.root.join("data").canonicalize().map_err(fail)?;
        let streams = request.root.join("streams.json");
        fs::write(&streams, request.streams.to_string()).map_err(fail)?;
        let port = free_port().map_err(fail)?;
        let cores = request.cores.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
        let peer = Peer::prepare(request.scripts, request.name, &data, port, &cores, &streams)?;
        Self::launch(peer, port, request)
    }

    /// As [`Server::start`], for a program that needs no script.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn start_builtin(
        name: &str,
        root: &Path,
        cores: &[usize],
        stream: &str,
        describe: impl FnOnce(u16) -> Peer,
    ) -> Result<Self, ServerError> {
        let fail = |error| ServerError::Root(root.to_owned(), error);
        empty_root(root).map_err(fail)?;
        let port = free_port().map_err(fail)?;
        let (scripts, streams) = (Path::new(""), &Value::Null);
        let request = StartRequest { scripts, name, root, cores, streams, stream, fanout: true, patience_s: 10.0 };
        Self::launch(describe(port), port, &request)
    }

    fn launch(peer: Peer, port: u16, request: &StartRequest<'_>) -> Result<Self, ServerError> {
        let fail = |error| ServerError::Root(request.root.to_owned(), error);
        let tls = peer.tls.as_deref().map(tls::client).transpose();
        let tls = tls.map_err(|error| ServerError::Tls(request.name.to_owned(), error))?;
        let log = File::create(request.root.join("server.log")).map_err(fail)?;
        let errors = log.try_clone().map_err(fail)?;
        let Some((program, arguments)) = peer.argv.split_first() else {
            return Err(ServerError::Start(request.name.to_owned(), io::Error::other("an empty command")));
        };
        let mut command = Command::new(program);
        command.args(arguments).envs(&peer.env).stdin(Stdio::null()).stdout(log).stderr(errors);
        affinity::pin_child(&mut command, request.cores);
        let started = clock::now_ns();
        let child = command.spawn().map_err(|error| ServerError::Start(program.clone(), error))?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut server = Self {
            peer,
            address,
            greeting_ms: 0.0,
            child,
            tls,
            cores: request.cores.to_vec(),
            root: request.root.to_owned(),
            fanout: request.fanout,
            name: request.name.to_owned(),
            succeeded: false,
        };
        server.wait_for_greeting(request)?;
        server.greeting_ms = (clock::now_ns() - started) as f64 / 1e6;
        let wire = server.wire();
        let names = request.streams["streams"].as_array().into_iter().flatten();
        for name in names.filter_map(|stream| stream["name"].as_str()) {
            wire.prepare(address, name).map_err(|error| ServerError::Prepare(request.name.to_owned(), error))?;
        }
        Ok(server)
    }

    /// The name of its script.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its directory, with its data in `data`.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// What it has on the disk now.
    #[must_use]
    pub fn disk(&self) -> Disk {
        Disk::of(&self.root.join("data"), self.peer.table.as_deref())
    }

    /// Its protocol.
    #[must_use]
    pub fn wire(&self) -> Box<dyn Wire> {
        wire::of(self.peer.wire, self.address, self.fanout)
    }

    /// How connections to it are encrypted, if they are.
    #[must_use]
    pub fn tls(&self) -> Option<Arc<ClientConfig>> {
        self.tls.clone()
    }

    /// The processes that it consists of now.
    #[must_use]
    pub fn processes(&self) -> Vec<u32> {
        usage::tree(self.child.id())
    }

    /// CPU time it has used so far.
    #[must_use]
    pub fn usage(&self) -> Usage {
        Usage::of_tree(self.child.id(), &self.cores)
    }

    /// Memory it holds now.
    #[must_use]
    pub fn memory(&self) -> Memory {
        Memory::of_tree(self.child.id())
    }

    /// Whether it is still running.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// The end of what it wrote to its log.
    #[must_use]
    pub fn log_tail(&self) -> String {
        let text = fs::read(self.root.join("server.log")).unwrap_or_default();
        let tail = &text[text.len().saturating_sub(600)..];
        String::from_utf8_lossy(tail).trim().replace('\n', " | ")
    }

    fn wait_for_greeting(&mut self, request: &StartRequest<'_>) -> Result<(), ServerError> {
        let wire = self.wire();
        let ask = wire.probe(request.stream);
        let until = Instant::now() + Duration::from_secs_f64(request.patience_s);
        loop {
            let error = match probe::greet(&*wire, self.address, self.tls.as_ref(), &ask, Duration::from_secs(5)) {
                Ok(()) => return Ok(()),
                Err(error) => error.to_string(),
            };
            let name = request.name.to_owned();
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(ServerError::Ended { name, status: status.to_string(), log: self.log_tail() });
            }
            if Instant::now() > until {
                return Err(ServerError::Silent { name, error, log: self.log_tail() });
            }
            std::thread::sleep(Duration::from_micros(500));
        }
    }

    fn stop(&mut self) {
        if let Ok(pid) = libc::pid_t::try_from(self.child.id())
            && matches!(self.child.try_wait(), Ok(None))
        {
            // SAFETY: the child has not been waited for, so the id is still its own.
            unsafe { libc::kill(pid, libc::SIGTERM) };
            let until = Instant::now() + Duration::from_secs(15);
            while Instant::now() < until && matches!(self.child.try_wait(), Ok(None)) {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
        if !self.succeeded {
            let _ = fs::remove_dir_all(&self.root);
        }
    }
}

/// An empty folder with room for a log; returns the data folder in it.
pub(super) fn empty_root(root: &Path) -> io::Result<PathBuf> {
    if root.exists() {
        fs::remove_dir_all(root)?;
    }
    let data = root.join("data");
    fs::create_dir_all(&data)?;
    data.canonicalize()
}

fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}
