//! `maintain`: what a broker does in the background, once, on a data root that none serves.

use super::exit::Exit;
use super::life::{RootArgs, failed};

/// Do once what a broker does in the background: move rows into tables, merge files, cut off and delete what is too old
///
/// For those who serve with `maintain = false`, or want a data root in order before it is put away.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Only this stream [default: all]
    name: Option<String>,
    /// Move and delete nothing; tell what would be deleted
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    root: RootArgs,
}

/// Runs the command.
pub fn run(args: Args) -> Exit {
    let mut root = match args.root.open() {
        Ok(root) => root,
        Err(exit) => return exit,
    };
    let names = match &args.name {
        Some(name) => vec![name.clone()],
        None => root.names(),
    };
    let mut exit = Exit::Done;
    for name in names {
        match root.maintain(&name, args.dry_run) {
            Ok(done) => {
                for line in done {
                    println!("{name}: {line}");
                }
            }
            Err(error) => exit = failed(&error),
        }
    }
    exit
}
