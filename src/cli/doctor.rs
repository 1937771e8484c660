//! `doctor`: what this machine gives the broker, and the fix for what it does not.

mod cpu;
mod disk;
mod host;
mod kernel;
mod limits;
mod network;
mod report;

use std::path::PathBuf;

use streamcast_shards::cores::{self, CoreRequest};

use super::common::CoreArgs;
use super::exit::Exit;
use host::Host;
use report::{Finding, Level};

/// Check kernel, limits, cores, network and the data root's disk, with the fix for each finding
///
/// Levels: ok; warn: the broker runs, but slower or with less room than it could; fail: it does not run, or loses what
/// it promises. Ends with 1 if anything fails.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Data root, or where it is going to be: its disk is measured with a small temporary file
    #[arg(long, value_name = "DIR", default_value = "data")]
    root: PathBuf,
    #[command(flatten)]
    cores: CoreArgs,
    /// One JSON document instead of text
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: Args) -> Exit {
    let request = CoreRequest {
        cores: args.cores.cores,
        writer_core: args.cores.writer_core,
        background_cores: args.cores.background_cores,
    };
    let findings = examine(&Host::new("/"), &request, &args.root);
    if args.json {
        println!("{}", report::as_json(&findings));
    } else {
        print!("{}", report::as_text(&findings));
    }
    match report::worst(&findings) {
        Level::Fail => Exit::Failed,
        Level::Ok | Level::Warn => Exit::Done,
    }
}

fn examine(host: &Host, request: &CoreRequest, root: &std::path::Path) -> Vec<Finding> {
    let allowed = cores::allowed_cores();
    let mut findings = kernel::check(host);
    findings.extend(limits::check());
    findings.extend(cpu::check(host, request, &allowed));
    findings.extend(network::check(host));
    findings.extend(disk::check(root));
    findings
}
