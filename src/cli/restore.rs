//! `restore`: a stream from its published tables, where nothing else of it is left.

use super::exit::Exit;
use super::life::{RootArgs, failed};
use crate::lake::life::Wanted;

/// Take up a stream from its published tables, on a data root that has nothing of it
///
/// Rows that were published are there; those that were not are lost with the machine that had them. New rows get
/// offsets far above, because the lost broker may have given out more than its tables show: readers accept the jump.
/// Streams of the Python package can be taken up as well, but not from a replica of its buffer. The old broker must
/// never run again.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Name of the stream
    name: String,
    /// Where it was published: s3://BUCKET/PREFIX or file:///DIR, with the stream's name at its end or without
    #[arg(long, value_name = "URI", required = true)]
    published: String,
    /// Take up a stream that was retired, at exactly the offset where it ended
    #[arg(long)]
    revive: bool,
    /// Let publishers name themselves and number their rows from now on
    #[arg(long)]
    exactly_once: bool,
    /// Give up the rows that are only in a replica of the lost broker's buffer
    #[arg(long)]
    ignore_replica: bool,
    #[command(flatten)]
    root: RootArgs,
}

/// Runs the command.
pub fn run(args: Args) -> Exit {
    let mut root = match args.root.open_or_make() {
        Ok(root) => root,
        Err(exit) => return exit,
    };
    let wanted = Wanted {
        stream: &args.name,
        published: &args.published,
        revive: args.revive,
        exactly_once: args.exactly_once,
        ignore_replica: args.ignore_replica,
    };
    match root.restore(&wanted) {
        Ok(restored) => {
            println!(
                "{} is restored: {} rows in log {}, which ends before offset {}; the next row gets offset {}",
                args.name, restored.rows, restored.log, restored.published_end, restored.next_offset
            );
            Exit::Done
        }
        Err(error) => failed(&error),
    }
}
