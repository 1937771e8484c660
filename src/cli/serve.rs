//! `serve`: the broker.

use std::path::{Path, PathBuf};

use streamcast_shards::cores::{self, CoreError, CoreRequest};

use super::common::{Overrides, start_logging};
use super::exit::Exit;
use crate::auth::{Gate, PolicySources};
use crate::broker;
use crate::config::{Config, ConfigError, EXAMPLE, Slow, StreamConfig};
use crate::http::console;
use crate::schema::Schema;

/// The configuration that is read when none is named.
const DEFAULT_FILE: &str = "streamcast.toml";

/// Serve streams (what happens without a command too). Ends in order on SIGTERM or SIGINT; a second signal ends at once
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Configuration file, with the streams; options given here take the place of its keys [default: streamcast.toml, if
    /// there is one]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    overrides: Overrides,
    /// Check the configuration, print what would be served, and end
    #[arg(long)]
    check: bool,
    /// Print a commented configuration file with every key, and end
    #[arg(long)]
    print_config: bool,
}

/// Runs the command.
pub fn run(args: Args) -> Exit {
    if args.print_config {
        print!("{EXAMPLE}");
        return Exit::Done;
    }
    let (config, file) = match configure(args.config, args.overrides) {
        Ok(found) => found,
        Err(error) => return Exit::config(&error),
    };
    if args.check {
        if let Err(error) =
            Gate::open(&PolicySources { policy: config.auth.policy.clone(), keys: config.auth.keys.clone() })
        {
            return Exit::Usage.because(error);
        }
        return match core_plan(&config) {
            Ok(cores) => {
                print!("{}", describe(&config, file.as_deref(), &cores));
                Exit::Done
            }
            Err(error) => Exit::Usage.because(error),
        };
    }
    if let Err(error) = start_logging(config.log) {
        return Exit::Usage.because(error);
    }
    if config.streams.is_empty() {
        tracing::warn!("no stream is declared; add some to {DEFAULT_FILE} (--print-config shows how)");
    }
    match broker::run(config) {
        Ok(()) => Exit::Done,
        Err(error) => Exit::Failed.because(error),
    }
}

/// The configuration of file and options, and the file it came from.
fn configure(file: Option<PathBuf>, overrides: Overrides) -> Result<(Config, Option<PathBuf>), ConfigError> {
    let file = file.or_else(|| Path::new(DEFAULT_FILE).exists().then(|| DEFAULT_FILE.into()));
    let mut config = match &file {
        Some(path) => Config::load(path)?,
        None => Config::default(),
    };
    overrides.apply(&mut config);
    config.check()?;
    match config.streams.iter().find(|stream| console::is_internal(&stream.name)) {
        Some(stream) => {
            let message = format!("the stream name `{}` is the broker's own; choose another", stream.name);
            Err(ConfigError::whole(message))
        }
        None => Ok((config, file)),
    }
}

/// Which core would do what on this machine.
fn core_plan(config: &Config) -> Result<String, CoreError> {
    let request = CoreRequest {
        cores: config.cores.cores.clone(),
        writer_core: config.cores.writer_core,
        background_cores: config.cores.background_cores.clone(),
    };
    let plan = cores::plan(&request, &cores::allowed_cores())?;
    let list = cores::format_list;
    let missing =
        if plan.unavailable.is_empty() { String::new() } else { format!("; not there: {}", list(&plan.unavailable)) };
    Ok(format!("shards {}, writer {}, background {}{missing}", list(&plan.shards), plan.writer, list(&plan.background)))
}

/// What would be served, for people.
fn describe(config: &Config, file: Option<&Path>, cores: &str) -> String {
    let file = file.map_or_else(|| "no file, defaults".to_owned(), |path| path.display().to_string());
    let mut lines = vec![
        format!("{:<12}{file}", "config"),
        format!("{:<12}{}{}", "listen", config.listen, if config.insecure { " (insecure)" } else { "" }),
        format!("{:<12}{}", "access", access(config)),
        format!("{:<12}{}", "root", config.root.display()),
        format!("{:<12}{cores}", "cores"),
        format!("{:<12}{}", "stats", config.stats.path().unwrap_or("off")),
        format!("{:<12}{}", "streams", config.streams.len()),
    ];
    lines.extend(config.streams.iter().map(|stream| format!("  {:<20} {}", stream.name, facts(stream))));
    lines.join("\n") + "\n"
}

fn access(config: &Config) -> String {
    let file = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
    let asked: Vec<String> = [file(&config.auth.policy), file(&config.auth.keys)].into_iter().flatten().collect();
    let who = if asked.is_empty() { "everybody who can connect".to_owned() } else { asked.join(", ") };
    let tls = file(&config.tls.cert).map_or_else(|| "in clear".to_owned(), |cert| format!("TLS with {cert}"));
    format!("{who}; {tls}")
}

fn facts(stream: &StreamConfig) -> String {
    let mut facts = vec![if stream.durable { "durable" } else { "live only" }.to_owned()];
    match &stream.schema {
        Some(schema) => {
            let columns = Schema::compile(schema, stream.durable).map_or(0, |schema| schema.columns().len());
            facts.push(format!("{columns} columns"));
        }
        None => facts.push("any objects".to_owned()),
    }
    if stream.exactly_once {
        facts.push("exactly once".to_owned());
    }
    if !stream.group_commit {
        facts.push("no group commit".to_owned());
    }
    if !stream.sort_by.is_empty() {
        facts.push(format!("sorted by {}", stream.sort_by.join(", ")));
    }
    if stream.durable {
        let rows = stream.max_replay.map_or_else(|| "unbounded".to_owned(), |rows| format!("at most {rows} rows"));
        facts.push(format!("replay {rows}"));
    }
    if stream.slow == Slow::Replay {
        facts.push("slow subscribers replay".to_owned());
    }
    facts.join(", ")
}
