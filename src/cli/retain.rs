//! `retain`: how long the rows of a stream are kept.

use super::exit::Exit;
use super::life::{Kept, RootArgs, failed, span_or_none};
use crate::lake::life::Passed;

/// Set how long the rows of a stream are kept
///
/// The broker cuts off what is older when it starts and every hour: readers stop seeing it, and an hour later its files
/// are deleted. Only whole files are deleted.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Name of the stream
    name: String,
    /// Span since a row came, such as 30d, 12h or 90s; none keeps rows for ever [default: with --dry-run, what is set]
    #[arg(long, value_name = "SPAN", value_parser = span_or_none, required_unless_present = "dry_run")]
    max_age: Option<Kept>,
    /// Change nothing; tell what the broker would cut off or delete now, under --max-age or what is set
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
    let window_us = args.max_age.map(|Kept(age)| age.map(|age| i64::try_from(age.as_micros()).unwrap_or(i64::MAX)));
    if args.dry_run {
        return match root.preview_retention(&args.name, window_us) {
            Ok(passed) => {
                println!("{}", told(&args.name, &passed));
                Exit::Done
            }
            Err(error) => failed(&error),
        };
    }
    match root.retain(&args.name, window_us.flatten()) {
        Ok(()) => {
            match args.max_age.and_then(|Kept(age)| age) {
                Some(age) => println!("{} keeps rows for {} s", args.name, age.as_secs_f64()),
                None => println!("{} keeps rows for ever", args.name),
            }
            Exit::Done
        }
        Err(error) => failed(&error),
    }
}

fn told(name: &str, passed: &Passed) -> String {
    let logs = |dropped: &[String]| if dropped.is_empty() { "none".to_owned() } else { dropped.join(", ") };
    match passed {
        Passed::Nothing => format!("{name}: nothing would be cut off or deleted now"),
        Passed::CutOff { floor, dropped } => {
            format!("{name}: rows below offset {floor} would be cut off; whole logs among them: {}", logs(dropped))
        }
        Passed::Deleted { floor, dropped } => {
            format!("{name}: files below offset {floor} would be deleted; whole logs: {}", logs(dropped))
        }
    }
}
