//! `subscribe`: rows of a stream to standard output.

use std::path::PathBuf;
use std::time::Duration;

use futures_util::FutureExt;

use super::common::{ReachArgs, Signals, runtime, seconds};
use super::exit::{EXIT_CODES, Exit};
use super::output::{Lines, Output, OutputError};
use crate::client::{Address, ClientError, Cursor, Event, Follow, Follower, Greeting, Position, Row};

/// Most bytes of rows handed to the output at once.
const BATCH_BYTES: usize = 256 << 10;

/// Print the rows of a stream, one JSON array [offset, time stamp in microseconds, row] a line
///
/// After a lost connection it connects again and goes on behind the last row, without a gap or a duplicate. With
/// --cursor it does so from one run to the next.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub struct Args {
    /// The stream, such as ws://127.0.0.1:8765/trades; a user goes in front, wss://user:password@host/name, and a bearer
    /// token is taken from STREAMCAST_TOKEN
    uri: String,
    /// First row wanted: an offset, or earliest [default: what comes from now on]
    #[arg(long, value_name = "OFFSET", value_parser = offset)]
    offset: Option<u64>,
    /// Only rows that match: a JSON object of columns and their value, or an array of values [default: all rows]
    #[arg(long = "where", value_name = "JSON", value_parser = filter)]
    filter: Option<String>,
    /// File that keeps the last row printed: the next run goes on behind it, whatever --offset says [default: none]
    #[arg(long, value_name = "FILE")]
    cursor: Option<PathBuf>,
    /// End after this many rows [default: without end]
    #[arg(long, value_name = "ROWS", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// Print the rows alone, without offset and time stamp
    #[arg(long)]
    rows: bool,
    /// Seconds to try for the first connection; 0 tries once
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = seconds)]
    wait: Duration,
    /// Seconds to try when the connection is lost [default: without end]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    retry: Option<Duration>,
    /// Tell only errors
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
    let offset_of_uri = address.offset.take().map(|text| offset(&text)).transpose();
    let filter_of_uri = address.filter.take().map(|text| filter(&text)).transpose();
    let (offset_of_uri, filter_of_uri) = match (offset_of_uri, filter_of_uri) {
        (Ok(offset), Ok(filter)) => (offset, filter),
        (Err(error), _) | (_, Err(error)) => return Exit::Usage.because(format_args!("in the address: {error}")),
    };
    let cursor = args.cursor.as_deref().map(Cursor::new);
    let saved = match cursor.as_ref().map(Cursor::load).transpose() {
        Ok(saved) => saved.flatten(),
        Err(error) => return Exit::File.because(error),
    };
    let saved_offset = saved.as_ref().map(|position| position.offset.saturating_add(1));
    let follow = Follow {
        address,
        offset: saved_offset.or(args.offset).or(offset_of_uri),
        filter: args.filter.or(filter_of_uri),
        stream_id: saved.and_then(|position| position.stream_id),
        wait: args.wait,
        retry: args.retry,
        options,
    };
    let mut printer = Printer { limit: args.limit, rows_only: args.rows, quiet: args.quiet, printed: 0 };
    let with_cursor = cursor.is_some();
    let started = runtime().and_then(|runtime| Ok((runtime, Output::start(cursor)?)));
    let (runtime, output) = match started {
        Ok(started) => started,
        Err(error) => return Exit::Failed.because(error),
    };
    let result = runtime.block_on(async {
        let mut follower = Follower::new(follow);
        let result = printer.run(&mut follower, &output, with_cursor).await;
        follower.close().await;
        result
    });
    match (output.finish(), result) {
        (Err(OutputError::Closed), _) | (Ok(()), Ok(())) => Exit::Done,
        (Err(error), _) => Exit::File.because(error),
        (Ok(()), Err(error)) => Exit::client(&error),
    }
}

struct Printer {
    limit: Option<u64>,
    rows_only: bool,
    quiet: bool,
    printed: u64,
}

impl Printer {
    /// Until the limit, a signal, the end of the output, or an error no further attempt can mend.
    async fn run(&mut self, follower: &mut Follower, output: &Output, with_cursor: bool) -> Result<(), ClientError> {
        let mut signals = Signals::listen();
        loop {
            // Rows wait in the socket, not in memory, while the output is slow.
            tokio::select! {
                ready = output.ready() => if !ready { return Ok(()) },
                () = signals.next() => return Ok(()),
            }
            let event = tokio::select! {
                event = follower.next() => event?,
                () = signals.next() => return Ok(()),
            };
            let mut lines = Lines::default();
            let mut event = Some(event);
            // Everything that is there already goes in one write.
            let ended = loop {
                match event.take() {
                    Some(Event::Row(row)) => {
                        self.print(&row, &mut lines.bytes);
                        if self.limit.is_some_and(|limit| self.printed >= limit) {
                            break Some(Ok(()));
                        }
                    }
                    Some(Event::Connected(greeting)) => self.connected(&greeting),
                    Some(Event::Retrying { error, pause }) => {
                        self.note(&format!("{error}; trying again in {:.1} s", pause.as_secs_f64()));
                    }
                    None => break None,
                }
                if lines.bytes.len() < BATCH_BYTES {
                    match follower.next().now_or_never().transpose() {
                        Ok(next) => event = next,
                        Err(error) => break Some(Err(error)),
                    }
                }
            };
            if with_cursor && let Some(offset) = follower.position().and_then(|next| next.checked_sub(1)) {
                lines.position = Some(Position { offset, stream_id: follower.stream_id().map(str::to_owned) });
            }
            let going_on = output.send(lines).await;
            match ended {
                Some(result) => return result,
                None if !going_on => return Ok(()),
                None => {}
            }
        }
    }

    fn print(&mut self, row: &Row, bytes: &mut Vec<u8>) {
        let text = if self.rows_only { row.json() } else { row.frame() };
        bytes.extend_from_slice(text.as_bytes());
        bytes.push(b'\n');
        self.printed += 1;
    }

    fn connected(&self, greeting: &Greeting) {
        let from = match (greeting.replay, greeting.end_offset) {
            (Some((start, end)), _) => format!("offset {start}, live from {end} on"),
            (None, Some(end)) => format!("offset {end}"),
            (None, None) => "now; the stream keeps no rows".to_owned(),
        };
        self.note(&format!("connected to {}, from {from}", greeting.stream));
    }

    fn note(&self, text: &str) {
        if !self.quiet {
            eprintln!("{text}");
        }
    }
}

fn offset(text: &str) -> Result<u64, String> {
    match text.trim() {
        "earliest" => Ok(0),
        text => text.parse().map_err(|_| "an offset is a number of 0 or more, or `earliest`".to_owned()),
    }
}

fn filter(text: &str) -> Result<String, String> {
    match serde_json::from_str(text) {
        Ok(serde_json::Value::Object(_)) => Ok(text.to_owned()),
        Ok(_) => Err("a filter is a JSON object, such as {\"symbol\": \"ES\"}".to_owned()),
        Err(error) => {
            Err(format!("not valid JSON ({error}); quote it for the shell, such as '{{\"symbol\": \"ES\"}}'"))
        }
    }
}
