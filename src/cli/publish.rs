//! `publish`: rows from a file or a pipe into a stream.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, IsTerminal, Read, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;

use super::common::{ReachArgs, Signals, runtime, seconds};
use super::exit::{EXIT_CODES, Exit};
use super::progress::Progress;
use crate::client::{
    Address, BatchLimits, Batches, ClientError, Feed, FeedError, FeedEvent, Refused, feed, read_lines,
};

/// Publish rows, one JSON object a line, to a stream
///
/// Rows go in batches, many of them unanswered at a time; the command ends when the broker has stored all. A batch the
/// broker refuses is sent again row by row, so that only the bad rows are left out; they are reported with their line
/// numbers. After a lost connection it connects again and goes on.
///
/// Without --publisher rows that were not acknowledged are sent again and may be stored twice. With --publisher every
/// row is numbered and stored exactly once: run the same input again after any failure, and the rows the broker has are
/// skipped. Numbers have no holes, so a refused row stops the run; put it right and run again, or let --refused set
/// such rows aside.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub struct Args {
    /// The stream, such as ws://127.0.0.1:8765/trades; a user goes in front, wss://user:password@host/name, and a bearer
    /// token is taken from STREAMCAST_TOKEN
    uri: String,
    /// File with the rows; - is standard input
    #[arg(default_value = "-")]
    file: PathBuf,
    /// Rows in a batch, at most; all of a batch is stored in one transaction
    #[arg(long, value_name = "ROWS", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    batch: u32,
    /// Bytes of rows in a batch, at most
    #[arg(long, value_name = "BYTES", default_value_t = 262_144, value_parser = clap::value_parser!(u32).range(1..))]
    batch_bytes: u32,
    /// Milliseconds the first row of a batch waits for others
    #[arg(long, value_name = "MS", default_value_t = 5, value_parser = clap::value_parser!(u32).range(0..=60_000))]
    linger: u32,
    /// Batches on their way at a time, at most
    #[arg(long, value_name = "BATCHES", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=4_096))]
    window: u32,
    /// Publisher id, 1 to 128 bytes: store every row exactly once; the stream has to allow it [default: none]
    #[arg(long, value_name = "ID")]
    publisher: Option<String>,
    /// With --publisher: the input goes on after the rows the broker has, instead of beginning with the first of them
    #[arg(long = "continue", requires = "publisher")]
    continued: bool,
    /// File that refused rows are added to, one JSON object a line with line, detail and row. With --publisher the lines
    /// listed there are left out of the input [default: none]
    #[arg(long, value_name = "FILE")]
    refused: Option<PathBuf>,
    /// Seconds to try for the first connection; 0 tries once
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = seconds)]
    wait: Duration,
    /// Seconds to try when the connection is lost or the broker cannot store [default: without end]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    retry: Option<Duration>,
    /// Tell only errors and refused rows
    #[arg(long, short)]
    quiet: bool,
    #[command(flatten)]
    reach: ReachArgs,
}

/// Runs the command.
pub fn run(args: Args) -> Exit {
    let mut address = match Address::parse(&args.uri) {
        Ok(address) => address.with_token(ReachArgs::token()),
        Err(error) => return Exit::client(&error),
    };
    let options = match args.reach.options(address.is_secure()) {
        Ok(options) => options,
        Err(exit) => return exit,
    };
    let publisher = args.publisher.or_else(|| address.publisher.take());
    if publisher.as_ref().is_some_and(|id| id.is_empty() || id.len() > 128) {
        return Exit::Usage.because("a publisher id has 1 to 128 bytes");
    }
    let mut aside = match Aside::open(args.refused.as_deref(), publisher.is_some()) {
        Ok(aside) => aside,
        Err(error) => return Exit::File.because(error),
    };
    let input = match open(&args.file) {
        Ok(input) => input,
        Err(error) => return Exit::File.because(format_args!("{}: {error}", args.file.display())),
    };
    let limits = BatchLimits {
        rows: args.batch as usize,
        bytes: args.batch_bytes as usize,
        linger: Duration::from_millis(args.linger.into()),
    };
    let plan = Feed {
        address,
        publisher,
        continued: args.continued,
        window_frames: args.window as usize,
        wait: args.wait,
        retry: args.retry,
        options,
    };
    let started = runtime().and_then(|runtime| Ok((runtime, read_lines(input)?)));
    let (runtime, lines) = match started {
        Ok(started) => started,
        Err(error) => return Exit::Failed.because(error),
    };
    let mut batches = Batches::new(lines, limits, std::mem::take(&mut aside.left_out));
    let mut progress = Progress::new(args.quiet);
    let mut trouble = None;
    let result = runtime.block_on(async {
        let mut signals = Signals::listen();
        let report = |event: FeedEvent<'_>| tell(event, &plan, &mut aside, &mut progress, &mut trouble);
        tokio::select! {
            result = feed(&plan, &mut batches, report) => Some(result),
            () = signals.next() => None,
        }
    });
    progress.finish();
    conclude(result, &plan, &progress, trouble, batches.not_skipped())
}

/// Takes an event of the run.
fn tell(
    event: FeedEvent<'_>,
    plan: &Feed,
    aside: &mut Aside,
    progress: &mut Progress,
    trouble: &mut Option<io::Error>,
) -> ControlFlow<()> {
    match event {
        FeedEvent::Connected(_) => progress.connected = true,
        FeedEvent::Known(rows) => {
            progress.known += rows;
            progress.note(&format!("the broker has {rows} rows of this publisher already; they are skipped"));
        }
        FeedEvent::Stored { rows, dup } => {
            progress.stored += rows;
            progress.dup += dup;
            progress.refresh();
        }
        FeedEvent::Retrying { error, pause, unsure } => {
            progress.unsure += unsure;
            let again = if unsure > 0 { format!("; {unsure} rows may be stored twice") } else { String::new() };
            progress.note(&format!("{error}; trying again in {:.1} s{again}", pause.as_secs_f64()));
        }
        FeedEvent::Refused(refused) => {
            progress.refuse(refused);
            if let Err(error) = aside.add(refused) {
                *trouble = Some(error);
                return ControlFlow::Break(());
            }
            if plan.publisher.is_some() && aside.file.is_none() {
                return ControlFlow::Break(());
            }
        }
    }
    ControlFlow::Continue(())
}

fn conclude(
    result: Option<Result<(), FeedError>>,
    plan: &Feed,
    progress: &Progress,
    trouble: Option<io::Error>,
    not_skipped: u64,
) -> Exit {
    match result {
        None => Exit::Interrupted.because(if plan.publisher.is_some() {
            "interrupted; run the same input again to go on"
        } else {
            "interrupted; rows that were on their way may be stored as well"
        }),
        Some(Err(FeedError::Stopped)) => match trouble {
            Some(error) => Exit::File.because(format_args!("the file for refused rows cannot be written: {error}")),
            None => Exit::Failed.because(
                "stopped at the refused row, because numbered rows have no holes; put it right and run the same input \
                 again, or set such rows aside with --refused FILE",
            ),
        },
        Some(Err(FeedError::Client(error @ ClientError::Address { .. }))) => Exit::Usage.because(error),
        Some(Err(FeedError::Client(error))) => Exit::Broker.because(error),
        Some(Err(error @ FeedError::Input(_))) => Exit::File.because(error),
        Some(Ok(())) if not_skipped > 0 => Exit::Failed.because(format_args!(
            "the broker has {not_skipped} rows of this publisher more than the input; is it another input? \
             (--continue goes on after them)"
        )),
        Some(Ok(())) if progress.refused > 0 => Exit::Failed,
        Some(Ok(())) => Exit::Done,
    }
}

fn open(path: &Path) -> io::Result<Box<dyn Read + Send>> {
    if path == Path::new("-") {
        if io::stdin().is_terminal() {
            eprintln!("reading rows from the terminal, one JSON object a line; Ctrl-D ends");
        }
        return Ok(Box::new(io::stdin()));
    }
    Ok(Box::new(File::open(path)?))
}

/// Where refused rows are set aside.
#[derive(Default)]
struct Aside {
    file: Option<File>,
    /// Lines that were set aside before.
    left_out: HashSet<u64>,
}

impl Aside {
    /// Opens the file. Lines it lists are left out of a numbered input, because they have no number.
    fn open(path: Option<&Path>, numbered: bool) -> Result<Self, String> {
        let Some(path) = path else { return Ok(Self::default()) };
        let told = |error: io::Error| format!("{}: {error}", path.display());
        let file = OpenOptions::new().read(true).append(true).create(true).open(path).map_err(told)?;
        let mut left_out = HashSet::new();
        if numbered {
            for (line, number) in BufReader::new(&file).lines().zip(1..) {
                let entry: serde_json::Value = serde_json::from_str(&line.map_err(told)?).unwrap_or_default();
                match entry.get("line").and_then(serde_json::Value::as_u64) {
                    Some(line) => left_out.insert(line),
                    None => return Err(format!("{}:{number}: no refused row; name another file", path.display())),
                };
            }
        }
        Ok(Self { file: Some(file), left_out })
    }

    /// Adds a row; it is on disk before any row behind it gets its number.
    fn add(&mut self, refused: &Refused) -> io::Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let entry = json!({ "line": refused.line.number, "detail": refused.detail, "row": refused.line.text });
        file.write_all(format!("{entry}\n").as_bytes())?;
        file.sync_data()
    }
}
