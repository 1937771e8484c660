//! `create`: a durable stream on the data root of a broker that does not run.

use std::path::PathBuf;

use super::exit::Exit;
use crate::config::load_schema;
use crate::journal::{self, JournalError, JournalSettings, StreamSpec};
use crate::lake::columns::Layout;
use crate::schema::Schema;

/// Create a durable stream in a data root. A broker that runs has its root for itself: stop it first
///
/// The stream is served by every broker that is started on the root. To change what the configuration file can say
/// about a stream (limits, replay, group commit) declare it there as well, with the same schema.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Name of the stream, 1 to 128 bytes
    name: String,
    /// JSON Schema of a row; the order of the properties is the order of the columns
    #[arg(long, value_name = "FILE", required = true)]
    schema: PathBuf,
    /// Data root; made when it is missing
    #[arg(long, value_name = "DIR", default_value = "data")]
    root: PathBuf,
    /// Let publishers name themselves and number their rows, so that a resent row is stored once
    #[arg(long)]
    exactly_once: bool,
    /// Columns the tables behind the stream are sorted by, separated by commas [default: none]
    #[arg(long, value_name = "COLUMNS", value_delimiter = ',')]
    sort_by: Vec<String>,
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
    if let Err(error) = Layout::new(&schema) {
        return Exit::Usage.because(format_args!("{}: {error}", args.schema.display()));
    }
    for (index, column) in args.sort_by.iter().enumerate() {
        let problem = if schema.find(column).is_none() {
            "is no column of the schema"
        } else if args.sort_by[..index].contains(column) {
            "is there twice"
        } else {
            continue;
        };
        return Exit::Usage.because(format_args!("`{column}` in --sort-by {problem}"));
    }
    let spec = StreamSpec {
        name: args.name,
        schema_canonical: schema.canonical().to_owned(),
        sort_by: args.sort_by,
        exactly_once: args.exactly_once,
        group_commit: true,
    };
    let opened = journal::open(&args.root, JournalSettings::default());
    let declared = opened.and_then(|mut journal| {
        let known = journal.streams().iter().any(|stream| stream.name == spec.name);
        Ok((journal.declare(&spec)?, known))
    });
    match declared {
        Ok((record, known)) => {
            let what = if known { "is there already" } else { "created" };
            println!("{} {what}: stream id {}, next offset {}", record.name, record.stream_id, record.end_offset);
            Exit::Done
        }
        Err(error @ (JournalError::Name(_) | JournalError::Differs { .. })) => Exit::Usage.because(error),
        Err(error) => Exit::File.because(error),
    }
}
