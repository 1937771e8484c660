//! `streams`: what a data root holds.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::exit::Exit;
use crate::journal::{self, JOURNAL_FILE, JournalSettings, StreamRecord};

/// List the durable streams of a data root. A broker that runs has its root for itself: ask it at /stats instead
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Show only this stream, with its schema [default: all, without]
    name: Option<String>,
    /// Data root
    #[arg(long, value_name = "DIR", default_value = "data")]
    root: PathBuf,
    /// One JSON object a line, with the schema
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: Args) -> Exit {
    if !args.root.join(JOURNAL_FILE).exists() {
        return Exit::File.because(format_args!("there is no journal in {}", args.root.display()));
    }
    let journal = match journal::open(&args.root, JournalSettings::default()) {
        Ok(journal) => journal,
        Err(error) => return Exit::File.because(error),
    };
    let mut streams = journal.streams();
    if let Some(name) = &args.name {
        streams.retain(|stream| stream.name == *name);
        if streams.is_empty() {
            return Exit::Failed.because(format_args!("there is no stream `{name}` in {}", args.root.display()));
        }
    }
    for stream in &streams {
        if args.json {
            println!("{}", as_json(stream));
        } else {
            println!("{}", as_text(stream));
            if args.name.is_some() {
                println!("{}", stream.schema_canonical);
            }
        }
    }
    Exit::Done
}

fn as_text(stream: &StreamRecord) -> String {
    let rows = format!("offsets {} to {}", stream.first_offset, stream.end_offset - 1);
    let rows = if stream.end_offset > stream.first_offset { rows } else { "no rows".to_owned() };
    let once = if stream.exactly_once { ", exactly once" } else { "" };
    format!("{:<24} {rows}{once}, stream id {}", stream.name, stream.stream_id)
}

fn as_json(stream: &StreamRecord) -> Value {
    let schema = serde_json::from_str(&stream.schema_canonical).unwrap_or(Value::Null);
    json!({
        "name": stream.name,
        "stream_id": stream.stream_id,
        "first_offset": stream.first_offset,
        "end_offset": stream.end_offset,
        "exactly_once": stream.exactly_once,
        "sort_by": stream.sort_by,
        "created_us": stream.created_us,
        "schema": schema,
    })
}
