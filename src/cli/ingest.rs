//! `ingest`: files into a stream.

use std::io::{IsTerminal, Write as _};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::exit::Exit;
use super::life::{RootArgs, failed};
use crate::lake::columns::ingest::Format;
use crate::lake::life::{Load, LoadError, Loading};

/// How often the line with the progress is written.
const REFRESH: Duration = Duration::from_millis(200);

/// Load files into a stream: their rows get the next offsets, in order, without going through the journal
///
/// The files need all columns of the stream, in any order, and no others; values are checked as published rows are.
/// Columns of a narrower type are widened. When something fails, the rows before it may be loaded: the message says
/// which, and where to go on.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Name of the stream
    name: String,
    /// Files to load, one after the other: Parquet, Arrow IPC, CSV with a header, or JSON objects one a line
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Format of all files [default: recognised by content and name]
    #[arg(long, value_name = "FORMAT")]
    format: Option<FileFormat>,
    /// Rows of the first file to pass over, as the message of a load that failed says
    #[arg(long, value_name = "ROWS", default_value_t = 0)]
    skip_rows: u64,
    /// Tell errors only
    #[arg(long)]
    quiet: bool,
    #[command(flatten)]
    root: RootArgs,
}

/// A format of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum FileFormat {
    /// Parquet.
    Parquet,
    /// Arrow IPC file (Feather).
    Arrow,
    /// Arrow IPC stream.
    ArrowStream,
    /// Comma-separated values with a header.
    Csv,
    /// JSON objects, one a line.
    Ndjson,
}

impl From<FileFormat> for Format {
    fn from(format: FileFormat) -> Self {
        match format {
            FileFormat::Parquet => Self::Parquet,
            FileFormat::Arrow => Self::ArrowFile,
            FileFormat::ArrowStream => Self::ArrowStream,
            FileFormat::Csv => Self::Csv,
            FileFormat::Ndjson => Self::Ndjson,
        }
    }
}

/// Runs the command.
pub fn run(args: Args) -> Exit {
    let mut root = match args.root.open() {
        Ok(root) => root,
        Err(exit) => return exit,
    };
    let load = Load {
        stream: &args.name,
        sources: &args.files,
        format: args.format.map(Format::from),
        skip_rows: args.skip_rows,
    };
    let mut bar = Bar::new(args.quiet);
    let outcome = root.ingest(&load, &mut |loading| bar.show(loading));
    bar.clear();
    match outcome {
        Ok(loaded) => {
            if !args.quiet {
                println!("{}: {}", args.name, loaded_text(loaded.start, loaded.end, bar.seconds()));
            }
            Exit::Done
        }
        Err(error) => {
            told(&args, &error);
            failed(&error.cause)
        }
    }
}

/// What was loaded, in words; files may be without a row.
fn loaded_text(start: i64, end: i64, seconds: f64) -> String {
    match end - start {
        0 => "no rows to load".to_owned(),
        1 => format!("1 row loaded in {seconds:.1} s, offset {start}"),
        rows => format!("{rows} rows loaded in {seconds:.1} s, offsets {start} to {}", end - 1),
    }
}

/// Says which rows are loaded nevertheless, and how to go on.
fn told(args: &Args, error: &LoadError) {
    let Some(loaded) = error.loaded else {
        eprintln!("nothing was loaded");
        return;
    };
    if loaded.end == loaded.start {
        eprintln!("nothing was loaded");
        return;
    }
    eprintln!("{} rows are loaded, offsets {} to {}", loaded.end - loaded.start, loaded.start, loaded.end - 1);
    if let Some(file) = args.files.get(loaded.source) {
        eprintln!("to go on, load {} with --skip-rows {}, and the files behind it", file.display(), loaded.source_rows);
    }
}

/// One line on a terminal that is written over.
struct Bar {
    shown: bool,
    quiet: bool,
    started: Instant,
    last: Option<Instant>,
}

impl Bar {
    fn new(quiet: bool) -> Self {
        let quiet = quiet || !std::io::stderr().is_terminal();
        Self { shown: false, quiet, started: Instant::now(), last: None }
    }

    fn seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    fn show(&mut self, loading: Loading) {
        const WIDTH: usize = 30;
        if self.quiet || self.last.is_some_and(|last| last.elapsed() < REFRESH) {
            return;
        }
        self.last = Some(Instant::now());
        self.shown = true;
        let part = if loading.bytes_total == 0 { 1.0 } else { loading.bytes as f64 / loading.bytes_total as f64 };
        let filled = (part.clamp(0.0, 1.0) * WIDTH as f64) as usize;
        let bar: String = (0..WIDTH).map(|place| if place < filled { '#' } else { '.' }).collect();
        let rate = loading.rows as f64 / self.seconds().max(1e-3);
        eprint!("\r\x1b[K[{bar}] {:3.0} %  {} rows, {rate:.0} rows/s", part * 100.0, loading.rows);
        // A terminal that is gone is no reason to stop.
        let _ = std::io::stderr().flush();
    }

    fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            eprint!("\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::loaded_text;

    #[test]
    fn what_was_loaded_is_told_by_its_offsets_where_there_are_any() {
        assert_eq!(loaded_text(7, 7, 0.0), "no rows to load");
        assert_eq!(loaded_text(7, 8, 0.1), "1 row loaded in 0.1 s, offset 7");
        assert_eq!(loaded_text(7, 9, 1.25), "2 rows loaded in 1.2 s, offsets 7 to 8");
    }
}
