//! Options that several commands share.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::exit::Exit;
use crate::client::{Options, Trust};
use crate::config::{self, Config, Log, LogLevel};
use crate::logging::{self, LogForm, LoggingError};

/// Which cores do what.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct CoreArgs {
    /// Cores of the engine, such as 0-3,6, or all: the last one is the writer's, the others run a shard each; one core
    /// carries both [default: up to 8 of those this process may use]
    #[arg(long, value_name = "LIST", value_parser = config::parse_cores)]
    pub cores: Option<String>,
    /// Core of the writer, by number; every core of --cores then runs a shard [default: the last of --cores]
    #[arg(long, value_name = "CORE", value_parser = core_number)]
    pub writer_core: Option<usize>,
    /// Cores of HTTP, replays and other background work [default: those not in --cores, else the writer's]
    #[arg(long, value_name = "LIST", value_parser = config::parse_cores)]
    pub background_cores: Option<String>,
}

/// What is logged and how.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct LogArgs {
    /// Least severe event that is logged: error, warn, info, debug or trace [default: info]
    #[arg(long, value_name = "LEVEL", value_parser = config::parse_level)]
    pub log: Option<LogLevel>,
    /// Form of a log line [default: text at a terminal, json anywhere else]
    #[arg(long, value_name = "FORM")]
    pub log_format: Option<Form>,
}

/// Form of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Form {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Options that override a configuration.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Overrides {
    #[command(flatten)]
    pub cores: CoreArgs,
    /// Data root, the directory of the journal [default: data]
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
    /// Address to listen on, ADDRESS:PORT; port 0 takes a free one [default: 127.0.0.1:8765]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = config::parse_listen)]
    pub listen: Option<SocketAddr>,
    /// A second address, for HTTP alone; the control API is answered there only then [default: none]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = config::parse_listen)]
    pub control_listen: Option<SocketAddr>,
    /// Serve an address other than loopback although nobody is asked for a password
    #[arg(long)]
    pub insecure: bool,
    /// File of principals and what they may do; SIGHUP reads it again [default: none, everybody on this host is let in]
    #[arg(long, value_name = "FILE")]
    pub policy: Option<PathBuf>,
    /// File of keys, see the command `keys`; SIGHUP reads it again [default: none]
    #[arg(long, value_name = "FILE")]
    pub keys: Option<PathBuf>,
    /// Chain of certificates, PEM: serve TLS; SIGHUP reads it again [default: none, in clear]
    #[arg(long, value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,
    /// Private key of the certificate, PEM [default: none]
    #[arg(long, value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
    #[command(flatten)]
    pub log: LogArgs,
}

/// How a command reaches a broker that asks for more than an address.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct ReachArgs {
    /// Certificates of authorities, PEM, that are trusted besides the system's where the address is wss:// or https://
    /// [default: none]
    #[arg(long, value_name = "FILE", global = true)]
    pub ca: Option<PathBuf>,
}

impl ReachArgs {
    /// The bearer token that goes along, from `STREAMCAST_TOKEN`.
    pub fn token() -> Option<String> {
        std::env::var("STREAMCAST_TOKEN").ok().filter(|token| !token.is_empty())
    }

    /// Whose certificates are taken for good; read at once, if the way is `secure`.
    ///
    /// # Errors
    /// How the command ends when they cannot be read, or are of no use.
    pub fn trust(&self, secure: bool) -> Result<Trust, Exit> {
        let Some(ca) = &self.ca else { return Ok(Trust::default()) };
        if !secure {
            return Err(Exit::Usage.because("--ca is for addresses that begin with wss:// or https://"));
        }
        let trust = Trust::with_file(ca);
        match trust.read() {
            Ok(()) => Ok(trust),
            Err(error) => Err(Exit::File.because(error)),
        }
    }

    /// How connections to a stream behave.
    ///
    /// # Errors
    /// As [`ReachArgs::trust`].
    pub fn options(&self, secure: bool) -> Result<Options, Exit> {
        Ok(Options { trust: self.trust(secure)?, ..Options::default() })
    }
}

impl CoreArgs {
    /// Puts what was given over what is there.
    pub fn apply(self, request: &mut config::CoreRequest) {
        request.cores = self.cores.or(request.cores.take());
        request.writer_core = self.writer_core.or(request.writer_core);
        request.background_cores = self.background_cores.or(request.background_cores.take());
    }
}

impl LogArgs {
    /// Puts what was given over what is there.
    pub fn apply(self, log: &mut Log) {
        log.level = self.log.unwrap_or(log.level);
        log.json = self.log_format.map(|form| form == Form::Json).or(log.json);
    }
}

impl Overrides {
    /// Puts what was given over a configuration.
    pub fn apply(self, config: &mut Config) {
        self.cores.apply(&mut config.cores);
        self.log.apply(&mut config.log);
        if let Some(root) = self.root {
            config.root = root;
        }
        config.listen = self.listen.unwrap_or(config.listen);
        config.control_listen = self.control_listen.or(config.control_listen);
        config.insecure |= self.insecure;
        config.auth.policy = self.policy.or(config.auth.policy.take());
        config.auth.keys = self.keys.or(config.auth.keys.take());
        config.tls.cert = self.tls_cert.or(config.tls.cert.take());
        config.tls.key = self.tls_key.or(config.tls.key.take());
    }
}

/// Sets up logging as configured.
///
/// # Errors
/// As [`logging::init`].
pub fn start_logging(log: Log) -> Result<(), LoggingError> {
    let form = match log.json {
        None => LogForm::Auto,
        Some(false) => LogForm::Text,
        Some(true) => LogForm::Json,
    };
    logging::init(log.level.as_str(), form)
}

/// A runtime for a command that talks to a broker. One thread is plenty.
///
/// # Errors
/// When the system gives no reactor.
pub fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

/// Seconds, whole or with a fraction.
///
/// # Errors
/// The message for somebody who wrote something else.
pub fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=1e9).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("write a number of seconds, such as 5 or 0.5".to_owned()),
    }
}

/// The signals that ask a command to end in order: SIGINT and SIGTERM.
pub struct Signals {
    signals: Vec<Signal>,
}

impl Signals {
    /// Listens from now on. A signal that cannot be listened to ends the process as it always did.
    pub fn listen() -> Self {
        let kinds = [SignalKind::interrupt(), SignalKind::terminate()];
        Self { signals: kinds.into_iter().filter_map(|kind| signal(kind).ok()).collect() }
    }

    /// Waits for one of them.
    pub async fn next(&mut self) {
        let waiting = self.signals.iter_mut().map(|signal| Box::pin(signal.recv()));
        if waiting.len() == 0 {
            std::future::pending::<()>().await;
        }
        futures_util::future::select_all(waiting).await;
    }
}

fn core_number(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|core| *core <= config::MAX_CORE).ok_or_else(|| "write the number of one core".to_owned())
}
