//! The command line of the load generator.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use streamcast_perf::cells::{Options, SenderArguments, run_sender};
use streamcast_perf::host::Host;
use streamcast_perf::report;
use streamcast_perf::results::{Run, RunSettings};
use streamcast_perf::run::{self, RunRequest};
use streamcast_perf::scenario::Scenario;

/// Open-loop load generator for streamcast servers and their peers.
#[derive(Parser)]
#[command(version, after_help = EXIT_STATUS)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure scenarios and write one result file each.
    Run {
        /// Scenario files.
        #[arg(required = true)]
        scenarios: Vec<PathBuf>,
        #[command(flatten)]
        how: How,
    },
    /// Measure what plain sends to sockets and fdatasync cost on this machine.
    Floor {
        #[command(flatten)]
        how: How,
    },
    /// Turn result files into tables and plots.
    Report {
        /// Folder of result files.
        #[arg(default_value = "perf/results")]
        results: PathBuf,
        /// Write the tables to this Markdown file instead of the terminal.
        #[arg(long)]
        markdown: Option<PathBuf>,
        /// Put the tables between the marks `<!-- measured: begin -->` and `<!-- measured: end -->` of this file.
        #[arg(long)]
        into: Option<PathBuf>,
        /// Write a page with plots to this file.
        #[arg(long)]
        html: Option<PathBuf>,
    },
    /// Print the hardware and settings that go into result files.
    Host,
    /// The sending side of `floor`.
    #[command(hide = true)]
    FloorSender(SenderArguments),
}

#[derive(Args)]
struct How {
    /// Peers to measure instead of the scenario's, separated by commas. A case with peers of its own is measured with those
    /// of them that are named here.
    #[arg(long, value_delimiter = ',')]
    peer: Option<Vec<String>>,
    /// A case to measure instead of all; may be given again.
    #[arg(long)]
    case: Option<Vec<String>>,
    /// How often each scenario is run, instead of what it says.
    #[arg(long)]
    repeats: Option<u32>,
    /// Folder for result files.
    #[arg(long, default_value = "perf/results/local")]
    out: PathBuf,
    /// Folder of peer scripts.
    #[arg(long, default_value = "perf/peers", env = "STREAMCAST_PERF_PEERS")]
    peers: PathBuf,
    /// Folder for the servers' data, on the filesystem that is to be measured.
    #[arg(long, default_value = "target/perf/data")]
    data: PathBuf,
    /// Cores of the server, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "0")]
    server_cores: Vec<usize>,
    /// Cores of this program, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "1")]
    generator_cores: Vec<usize>,
    /// Sleep until a socket is ready instead of looking all the time. The server then pays for the waking.
    #[arg(long)]
    sleep: bool,
    /// Bytes one read may bring.
    #[arg(long, default_value_t = 256 << 10)]
    read_bytes: usize,
    /// Factor on all times of the scenario, for quick looks.
    #[arg(long, default_value_t = 1.0)]
    time_scale: f64,
}

const EXIT_STATUS: &str = "Exit status: 0 measured without doubt; 2 some figure is in doubt (messages lost, connections \
dropped, a peer failed), which the report tells; 1 nothing measured. perf/README.md tells how things are measured.";

const FLOOR: &str = include_str!("../scenarios/floor.toml");

fn main() -> ExitCode {
    match execute(Arguments::parse().command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(2),
        Err(error) => {
            eprintln!("streamcast-perf: {error}");
            ExitCode::FAILURE
        }
    }
}

/// True if everything was measured without doubt.
fn execute(command: Command) -> Result<bool, Box<dyn std::error::Error>> {
    match command {
        Command::Run { scenarios, how } => {
            let scenarios: Vec<Scenario> =
                scenarios.iter().map(|path| Scenario::load(path)).collect::<Result<_, _>>()?;
            run_all(scenarios, how)
        }
        Command::Floor { how } => run_all(vec![Scenario::parse(FLOOR, "floor".into())?], how),
        Command::Report { results, markdown, into, html } => {
            let runs = Run::load_folder(&results)?;
            let tables = report::document(&runs);
            if let Some(path) = &html {
                std::fs::write(path, report::page(&runs))?;
            }
            if let Some(path) = &into {
                let before = std::fs::read_to_string(path)?;
                let after = report::put_between_marks(&before, &tables);
                std::fs::write(path, after.ok_or_else(|| format!("{} has no marks", path.display()))?)?;
            }
            match &markdown {
                Some(path) => std::fs::write(path, &tables)?,
                None if html.is_none() && into.is_none() => print!("{tables}"),
                None => {}
            }
            Ok(true)
        }
        Command::Host => {
            println!("{}", serde_json::to_string_pretty(&Host::look(&std::env::current_dir()?))?);
            Ok(true)
        }
        Command::FloorSender(arguments) => {
            // Its sockets break when the measurement is over.
            let _ = run_sender(&arguments);
            Ok(true)
        }
    }
}

fn run_all(scenarios: Vec<Scenario>, how: How) -> Result<bool, Box<dyn std::error::Error>> {
    let request = RunRequest {
        peers: how.peer,
        cases: how.case,
        repeats: how.repeats,
        out: how.out,
        options: Options {
            scripts: how.peers,
            data: how.data,
            run: RunSettings {
                server_cores: how.server_cores,
                generator_cores: how.generator_cores,
                spin: !how.sleep,
                read_bytes: how.read_bytes,
                time_scale: how.time_scale,
            },
        },
        command: std::env::args().collect::<Vec<_>>().join(" "),
    };
    std::fs::create_dir_all(&request.options.data)?;
    let mut well = true;
    for scenario in scenarios {
        eprintln!("# {}: {}", scenario.name, scenario.title);
        let (path, sound) = run::run(scenario, &request)?;
        eprintln!("wrote {}", path.display());
        well &= sound;
    }
    Ok(well)
}
