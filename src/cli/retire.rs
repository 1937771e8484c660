//! `retire` and `revive`: the end of a stream, and its return.

use super::exit::Exit;
use super::life::{RootArgs, failed};

/// End a stream: its rows are finished as a table, subscribers read them from there, and nobody publishes any more
#[derive(Debug, clap::Args)]
pub struct RetireArgs {
    /// Name of the stream
    name: String,
    #[command(flatten)]
    root: RootArgs,
}

/// Take a retired stream up again, with the same columns, at exactly the offset where it ended
#[derive(Debug, clap::Args)]
pub struct ReviveArgs {
    /// Name of the stream
    name: String,
    #[command(flatten)]
    root: RootArgs,
}

/// Runs `retire`.
pub fn retire(args: RetireArgs) -> Exit {
    let mut root = match args.root.open() {
        Ok(root) => root,
        Err(exit) => return exit,
    };
    match root.retire(&args.name) {
        Ok(retirement) => {
            println!("{} is retired; it ends before offset {}", args.name, retirement.end_offset);
            Exit::Done
        }
        Err(error) => failed(&error),
    }
}

/// Runs `revive`.
pub fn revive(args: ReviveArgs) -> Exit {
    let mut root = match args.root.open() {
        Ok(root) => root,
        Err(exit) => return exit,
    };
    match root.revive(&args.name) {
        Ok(log) => {
            println!("{} goes on in log {} from offset {}", args.name, log.name, log.start_offset);
            Exit::Done
        }
        Err(error) => failed(&error),
    }
}
