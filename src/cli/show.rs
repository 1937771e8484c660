//! `show`: everything about one stream.

use serde_json::{Value, json};

use super::exit::Exit;
use super::life::{RootArgs, failed};
use crate::lake::life::{LogReport, StreamReport};

/// Show a stream: its logs, offsets, files and tables, and what is not published yet
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Name of the stream
    name: String,
    /// One JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    root: RootArgs,
}

/// Runs the command.
pub fn run(args: Args) -> Exit {
    let root = match args.root.open() {
        Ok(root) => root,
        Err(exit) => return exit,
    };
    match root.report(&args.name) {
        Ok(report) => {
            if args.json {
                println!("{}", as_json(&report));
            } else {
                print!("{}", as_text(&report));
            }
            Exit::Done
        }
        Err(error) => failed(&error),
    }
}

fn as_text(report: &StreamReport) -> String {
    let mut text = format!("{}  stream id {}\n", report.name, report.stream_id);
    let state = match report.retired_us {
        Some(at_us) => format!("retired at {} s since 1970", at_us / 1_000_000),
        None => "takes rows".to_owned(),
    };
    let kept = report.retention_us.map_or("for ever".to_owned(), |us| format!("for {} s", us as f64 / 1e6));
    text += &format!("  {state}; next offset {}; rows are kept {kept}\n", report.end_offset);
    if let Some(floor) = report.pending_floor {
        text += &format!("  rows below offset {floor} are cut off; their files go an hour later\n");
    }
    text += &format!("  rows in no file: {}; rows in no table: {}\n", report.unsealed_rows, report.unpublished_rows);
    for log in &report.logs {
        let end = log.end_offset.map_or("open".to_owned(), |end| end.to_string());
        text += &format!("  log {}  [{}, {end})  {}\n", log.name, log.start_offset, log.table);
        if let Some(files) = &log.files {
            text += &format!(
                "    {} files, {} rows, {} bytes; sealed to {}, published to {}\n",
                files.files, files.rows, files.bytes, files.sealed_end, files.published_end
            );
        }
        text += &format!("    columns {}\n", log.columns.join(", "));
    }
    text
}

fn as_json(report: &StreamReport) -> Value {
    json!({
        "name": report.name,
        "stream_id": report.stream_id,
        "end_offset": report.end_offset,
        "retired_us": report.retired_us,
        "retention_us": report.retention_us,
        "pending_floor": report.pending_floor,
        "unsealed_rows": report.unsealed_rows,
        "unpublished_rows": report.unpublished_rows,
        "logs": report.logs.iter().map(log_json).collect::<Vec<_>>(),
    })
}

fn log_json(log: &LogReport) -> Value {
    let files = log.files.as_ref().map(|files| {
        json!({
            "files": files.files,
            "rows": files.rows,
            "bytes": files.bytes,
            "local_files": files.local_files,
            "sealed_end": files.sealed_end,
            "published_end": files.published_end,
        })
    });
    json!({
        "name": log.name,
        "table": log.table,
        "start_offset": log.start_offset,
        "end_offset": log.end_offset,
        "columns": log.columns,
        "sort_by": log.sort_by,
        "files": files,
    })
}
