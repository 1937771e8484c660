//! `demo`: a broker with two streams that never stand still.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::common::{CoreArgs, Form, Signals, start_logging};
use super::exit::Exit;
use crate::broker::Broker;
use crate::config::{self, Config, Log, LogLevel};
use crate::demo::{self, DEFAULT_RATE_ROWS_PER_S, DemoError, DemoOptions, Serving};

/// Run a broker with live data in it: a made-up market (trades) and this machine's own telemetry (host)
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Data root, kept at the end [default: a temporary folder, removed at the end]
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Address to listen on, ADDRESS:PORT; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8765", value_parser = config::parse_listen)]
    listen: SocketAddr,
    /// Trades a second on average, 1 to 100000
    #[arg(long, value_name = "ROWS/S", default_value_t = DEFAULT_RATE_ROWS_PER_S)]
    rate: f64,
    /// Seed of the market: the same seed makes the same market [default: a new one every time]
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    #[command(flatten)]
    cores: CoreArgs,
    /// Serve an address other than loopback although nobody is asked for a password
    #[arg(long)]
    insecure: bool,
    /// Least severe event that is logged: error, warn, info, debug or trace
    #[arg(long, value_name = "LEVEL", default_value = "warn", value_parser = config::parse_level)]
    log: LogLevel,
    /// Form of a log line [default: text at a terminal, json anywhere else]
    #[arg(long, value_name = "FORM")]
    log_format: Option<Form>,
}

/// Runs the command.
pub fn run(args: Args) -> Exit {
    let log = Log { level: args.log, json: args.log_format.map(|form| form == Form::Json) };
    let mut options = DemoOptions {
        root: args.root,
        listen: args.listen,
        rate_rows_per_s: args.rate,
        seed: args.seed,
        insecure: args.insecure,
        log,
        ..DemoOptions::default()
    };
    args.cores.apply(&mut options.cores);
    let checked = Config { listen: options.listen, insecure: options.insecure, ..Config::default() };
    let root = options.root.clone().unwrap_or_default();
    if let Err(error) = (Config { root, ..checked }).check() {
        return Exit::config(&error);
    }
    if let Err(error) = start_logging(log) {
        return Exit::Usage.because(error);
    }
    let serve = |config: Config, ready: Box<dyn FnOnce(Serving) + Send>| {
        let broker = Broker::start(&config)?;
        let runtime = broker.runtime().clone();
        // Whoever reads the address may ask for the end at once.
        let signals = {
            let _inside = runtime.enter();
            Signals::listen()
        };
        ready(Serving { address: broker.address(), runtime: runtime.clone() });
        runtime.block_on(asked_to_stop(signals));
        broker.stop()
    };
    match demo::run(&options, serve) {
        Ok(()) => Exit::Done,
        Err(error @ DemoError::Rate(_)) => Exit::Usage.because(error),
        Err(error @ DemoError::Root(_)) => Exit::File.because(error),
        Err(error @ DemoError::Broker(_)) => Exit::Failed.because(error),
    }
}

/// Waits for SIGTERM or SIGINT. From then on another one ends the process at once.
async fn asked_to_stop(mut signals: Signals) {
    signals.next().await;
    tokio::spawn(async move {
        signals.next().await;
        std::process::exit(Exit::Interrupted.code().into());
    });
}
