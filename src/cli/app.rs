//! The commands, and the choice between them.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use super::exit::{EXIT_CODES, Exit};
use super::{
    create, demo, doctor, flush, ingest, keys, maintain, migrate, publish, remote, restore, retain, retire, schema,
    serve, show, streams, subscribe,
};

/// A durable fan-out server: rows are fsynced before anyone sees them, then sent to every WebSocket subscriber as the
/// same bytes. Without a command it serves.
#[derive(Debug, Parser)]
#[command(
    name = "streamcast-uring",
    version,
    args_conflicts_with_subcommands = true,
    after_help = EXIT_CODES,
    max_term_width = 120
)]
struct App {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: serve::Args,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(serve::Args),
    Demo(demo::Args),
    Create(create::Args),
    Streams(streams::Args),
    Keys(keys::Args),
    Migrate(migrate::Args),
    Retire(retire::RetireArgs),
    Revive(retire::ReviveArgs),
    Retain(retain::Args),
    Restore(restore::Args),
    Ingest(ingest::Args),
    Flush(flush::Args),
    Maintain(maintain::Args),
    Show(show::Args),
    Publish(publish::Args),
    Remote(remote::Args),
    Subscribe(subscribe::Args),
    Doctor(doctor::Args),
    Schema(schema::Args),
}

/// Runs the command line of this process. Errors of the command line itself end with 2.
#[must_use]
pub fn main() -> ExitCode {
    let app = App::parse();
    let exit = match app.command {
        None => serve::run(app.serve),
        Some(Command::Serve(args)) => serve::run(args),
        Some(Command::Demo(args)) => demo::run(args),
        Some(Command::Create(args)) => create::run(args),
        Some(Command::Streams(args)) => streams::run(args),
        Some(Command::Keys(args)) => keys::run(args),
        Some(Command::Migrate(args)) => migrate::run(args),
        Some(Command::Retire(args)) => retire::retire(args),
        Some(Command::Revive(args)) => retire::revive(args),
        Some(Command::Retain(args)) => retain::run(args),
        Some(Command::Restore(args)) => restore::run(args),
        Some(Command::Ingest(args)) => ingest::run(args),
        Some(Command::Flush(args)) => flush::run(args),
        Some(Command::Maintain(args)) => maintain::run(args),
        Some(Command::Show(args)) => show::run(args),
        Some(Command::Publish(args)) => publish::run(args),
        Some(Command::Remote(args)) => remote::run(args),
        Some(Command::Subscribe(args)) => subscribe::run(args),
        Some(Command::Doctor(args)) => doctor::run(args),
        Some(Command::Schema(args)) => schema::run(args),
    };
    Exit::into(exit)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        App::command().debug_assert();
    }

    /// Every option says what it does; those with a value say its unit or form and, unless required, the default.
    #[test]
    fn every_option_is_documented() {
        let app = App::command();
        for command in std::iter::once(&app).chain(app.get_subcommands()) {
            for argument in command.get_arguments() {
                let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
                let name = format!("{} {}", command.get_name(), argument.get_id());
                assert!(!help.is_empty(), "{name}");
                if argument.get_action().takes_values() && !argument.is_required_set() {
                    let shown = !argument.get_default_values().is_empty() && !argument.is_hide_default_value_set();
                    assert!(shown || help.contains("[default:"), "{name}: no default in {help:?}");
                }
            }
        }
    }

    #[test]
    fn serving_is_what_happens_without_a_command() {
        let parse = |line: &str| App::try_parse_from(line.split(' '));
        assert!(parse("streamcast-uring --cores 0-1 --root r").is_ok_and(|app| app.command.is_none()));
        assert!(parse("streamcast-uring serve --check").is_ok_and(|app| app.command.is_some()));
        for wrong in [
            "streamcast-uring --listen 8765",
            "streamcast-uring --cores x",
            "streamcast-uring --bogus",
            "streamcast-uring --root r subscribe ws://h/r",
            "streamcast-uring subscribe",
            "streamcast-uring subscribe ws://h/r --offset -1",
            "streamcast-uring subscribe ws://h/r --limit 0",
            "streamcast-uring publish ws://h/r --batch 0",
        ] {
            assert!(parse(wrong).is_err_and(|error| error.exit_code() == 2), "{wrong}");
        }
    }
}
