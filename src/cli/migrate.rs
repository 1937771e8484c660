//! `migrate`: other columns for a stream.

use std::path::PathBuf;

use super::exit::Exit;
use super::life::{RootArgs, failed};
use crate::config::load_schema;
use crate::schema::Schema;

/// Give a stream other columns: its rows so far are finished as a table of their own, and the next row begins a new one
///
/// Columns may come, go, change their order and whether they may be null. A column keeps its type for the life of the
/// stream. Offsets go on without a hole and publishers keep their place. Running it again changes nothing; after a crash
/// it goes on where it was.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Name of the stream
    name: String,
    /// JSON Schema of a row from now on
    #[arg(long, value_name = "FILE", required = true)]
    schema: PathBuf,
    /// Columns the new tables are sorted by, separated by commas; empty for none [default: as before]
    #[arg(long, value_name = "COLUMNS", value_delimiter = ',')]
    sort_by: Option<Vec<String>>,
    #[command(flatten)]
    root: RootArgs,
}

/// Runs the command.
pub fn run(args: Args) -> Exit {
    let document = match load_schema(&args.schema) {
        Ok(document) => document,
        Err(error) => return Exit::config(&error),
    };
    let schema = match Schema::compile(&document, true) {
        Ok(schema) => schema,
        Err(error) => return Exit::Usage.because(format_args!("{}: {error}", args.schema.display())),
    };
    let sort_by =
        args.sort_by.map(|columns| columns.into_iter().filter(|column| !column.is_empty()).collect::<Vec<_>>());
    let mut root = match args.root.open() {
        Ok(root) => root,
        Err(exit) => return exit,
    };
    match root.migrate(&args.name, &schema, sort_by.as_deref()) {
        Ok(migrated) if migrated.changed => {
            println!("{} goes on in log {} from offset {}", args.name, migrated.log, migrated.start_offset);
            Exit::Done
        }
        Ok(migrated) => {
            println!("{} has these columns already, in log {}", args.name, migrated.log);
            Exit::Done
        }
        Err(error) => failed(&error),
    }
}
