//! `flush`: every row into the published table.

use super::exit::Exit;
use super::life::{RootArgs, failed};

/// Move every row of a stream into its published table, as a broker does when it stops
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Name of the stream
    name: String,
    /// Keep nothing but the published table: replays of these rows then need `replay_published`
    #[arg(long)]
    evict: bool,
    #[command(flatten)]
    root: RootArgs,
}

/// Runs the command.
pub fn run(args: Args) -> Exit {
    let mut root = match args.root.open() {
        Ok(root) => root,
        Err(exit) => return exit,
    };
    match root.flush(&args.name, args.evict) {
        Ok(published) => {
            match published.rows {
                0 => println!("{}: there are no rows to publish", args.name),
                rows => println!("{}: {rows} rows are published, up to offset {}", args.name, published.end - 1),
            }
            Exit::Done
        }
        Err(error) => failed(&error),
    }
}
