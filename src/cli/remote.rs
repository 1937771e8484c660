//! `remote`: the streams of a broker that runs, over its control API (wire.md section 11).

use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::common::{ReachArgs, runtime};
use super::exit::Exit;
use crate::client::{ClientError, Control, ControlAnswer, Method, Precondition};
use crate::config::load_schema;

/// How often an operation is asked after.
const POLL: Duration = Duration::from_millis(50);

/// Streams of a page of the list.
const PAGE: usize = 200;

/// Declare, serve, stop, migrate and retire streams of a broker that runs
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The broker, http[s]://[USER:PASSWORD@]HOST[:PORT]; a bearer token is taken from STREAMCAST_TOKEN
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8765", global = true)]
    broker: String,
    /// Seconds to wait for an operation to end; 0 only says that it was accepted
    #[arg(long, value_name = "SECONDS", default_value_t = 60, global = true)]
    wait: u64,
    #[command(flatten)]
    reach: ReachArgs,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// List the declared streams, or show one as JSON
    Streams {
        /// Show only this stream [default: all]
        name: Option<String>,
    },
    /// Declare a stream; it is served as well unless --stopped
    Create {
        /// Name of the stream
        name: String,
        /// JSON Schema of a row; the order of the properties is the order of the columns
        #[arg(long, value_name = "FILE", required = true)]
        schema: PathBuf,
        /// Storage profile of the broker
        #[arg(long, value_name = "NAME", default_value = "local")]
        profile: String,
        /// Columns the tables behind the stream are sorted by, separated by commas [default: none]
        #[arg(long, value_name = "COLUMNS", value_delimiter = ',')]
        sort_by: Vec<String>,
        /// Let publishers name themselves and number their rows
        #[arg(long)]
        exactly_once: bool,
        /// Take up a stream that is there already, and fail where there is none
        #[arg(long)]
        open_existing: bool,
        /// Declare it only
        #[arg(long)]
        stopped: bool,
    },
    /// Serve a stream
    Serve {
        /// Name of the stream
        name: String,
    },
    /// Stop a stream: its connections are closed, nothing is lost
    Stop {
        /// Name of the stream
        name: String,
    },
    /// End a stream for ever: subscribers are served, publishers are not
    Retire {
        /// Name of the stream
        name: String,
    },
    /// Begin a new log for a stopped stream, with another schema or order
    Migrate {
        /// Name of the stream
        name: String,
        /// JSON Schema of a row from now on
        #[arg(long, value_name = "FILE", required = true)]
        schema: PathBuf,
        /// Columns the tables behind the stream are sorted by, separated by commas [default: none]
        #[arg(long, value_name = "COLUMNS", value_delimiter = ',')]
        sort_by: Vec<String>,
    },
}

/// Why a command went wrong.
enum Trouble {
    Client(ClientError),
    /// The broker said no, or an operation failed.
    Refused(String),
    Exit(Exit),
}

impl From<ClientError> for Trouble {
    fn from(error: ClientError) -> Self {
        Self::Client(error)
    }
}

/// Runs the command.
pub fn run(args: Args) -> Exit {
    let trust = match args.reach.trust(args.broker.starts_with("https://")) {
        Ok(trust) => trust,
        Err(exit) => return exit,
    };
    let control = match Control::new(&args.broker, ReachArgs::token(), trust) {
        Ok(control) => control,
        Err(error) => return Exit::client(&error),
    };
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(error) => return Exit::Failed.because(error),
    };
    let session = Session { control, wait: Duration::from_secs(args.wait) };
    match runtime.block_on(session.run(args.verb)) {
        Ok(()) => Exit::Done,
        Err(Trouble::Client(error)) => Exit::client(&error),
        Err(Trouble::Refused(why)) => Exit::Broker.because(why),
        Err(Trouble::Exit(exit)) => exit,
    }
}

struct Session {
    control: Control,
    wait: Duration,
}

impl Session {
    async fn run(&self, verb: Verb) -> Result<(), Trouble> {
        match verb {
            Verb::Streams { name: None } => self.list().await,
            Verb::Streams { name: Some(name) } => {
                let answer = self.read(&path(&name, "")).await?;
                say(&format!("{:#}", answer.body))
            }
            Verb::Create { name, schema, profile, sort_by, exactly_once, open_existing, stopped } => {
                let declaration = json!({
                    "schema": schema_of(&schema)?,
                    "storage_profile": profile,
                    "sort_by": sort_by,
                    "exactly_once": exactly_once,
                    "initialization": if open_existing { "open_existing" } else { "create_if_absent" },
                });
                self.change(Method::PUT, &path(&name, ""), Precondition::New, &declaration, "declared").await?;
                if stopped { Ok(()) } else { self.desire(&name, "serving", "served").await }
            }
            Verb::Serve { name } => self.desire(&name, "serving", "served").await,
            Verb::Stop { name } => self.desire(&name, "stopped", "stopped").await,
            Verb::Retire { name } => self.desire(&name, "retired", "retired").await,
            Verb::Migrate { name, schema, sort_by } => {
                let schema = schema_of(&schema)?;
                let view = self.read(&path(&name, "")).await?;
                let body = json!({"stream_id": view.body["stream_id"], "schema": schema, "sort_by": sort_by});
                let precondition = Precondition::Revision(view.revision.unwrap_or_default());
                self.change(Method::POST, &path(&name, "/migrations"), precondition, &body, "migrated").await
            }
        }
    }

    async fn list(&self) -> Result<(), Trouble> {
        let mut next = String::new();
        loop {
            let page = self.read(&format!("/control/v1/streams?limit={PAGE}{next}")).await?.body;
            for view in page["streams"].as_array().into_iter().flatten() {
                say(&as_text(view))?;
            }
            match page["next_cursor"].as_str() {
                Some(cursor) => next = format!("&cursor={cursor}"),
                None => return Ok(()),
            }
        }
    }

    async fn desire(&self, name: &str, state: &str, done: &str) -> Result<(), Trouble> {
        let view = self.read(&path(name, "")).await?;
        let precondition = Precondition::Revision(view.revision.unwrap_or_default());
        self.change(Method::PUT, &path(name, "/desired"), precondition, &json!({"state": state}), done).await
    }

    async fn read(&self, path: &str) -> Result<ControlAnswer, Trouble> {
        accepted(self.control.get(path).await?)
    }

    /// Sends a change and waits for what comes of it.
    async fn change(
        &self,
        method: Method,
        path: &str,
        precondition: Precondition,
        body: &Value,
        done: &str,
    ) -> Result<(), Trouble> {
        let answer = accepted(self.control.change(method, path, precondition, body).await?)?;
        let id = answer.body["operation_id"].as_str().unwrap_or_default().to_owned();
        let revision = &answer.body["revision"];
        let until = Instant::now() + self.wait;
        loop {
            let operation = self.read(&format!("/control/v1/operations/{id}")).await?.body;
            match operation["status"].as_str() {
                Some("succeeded") => return say(&format!("{done}, revision {revision}")),
                Some("failed") => {
                    let why =
                        format!("operation {id} failed; the broker's log says why. The same command again repeats it");
                    return Err(Trouble::Refused(why));
                }
                _ if Instant::now() >= until => {
                    return say(&format!("accepted, revision {revision}; operation {id} goes on"));
                }
                _ => tokio::time::sleep(POLL).await,
            }
        }
    }
}

fn accepted(answer: ControlAnswer) -> Result<ControlAnswer, Trouble> {
    match answer.status {
        200 | 202 => Ok(answer),
        status => {
            Err(Trouble::Refused(format!("the broker answered {status} {}{}", answer.code(), hint(answer.code()))))
        }
    }
}

/// The way out of the refusals that people meet most.
fn hint(code: &str) -> &'static str {
    match code {
        "authentication_required" => "; put USER:PASSWORD@ into --broker, or a token into STREAMCAST_TOKEN",
        "management_disabled" => "; the broker's configuration has no [registry]",
        "precondition_required" => "; there is such a stream already",
        "precondition_failed" => "; somebody else has changed it meanwhile, try again",
        "transition_pending" => "; an operation is under way, or has failed and waits for the same command again",
        "must_be_stopped" => "; stop it first",
        _ => "",
    }
}

fn schema_of(path: &std::path::Path) -> Result<Value, Trouble> {
    load_schema(path).map_err(|error| Trouble::Exit(Exit::config(&error)))
}

/// The path of a stream's call, with the name encoded.
fn path(name: &str, rest: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~');
    let encoded = name.bytes().map(|byte| match plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    });
    format!("/control/v1/streams/{}{rest}", encoded.collect::<String>())
}

fn as_text(view: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let observed = &view["observed"];
    let error = observed["error"].as_str().map(|error| format!(" ({error})")).unwrap_or_default();
    let pending = if view["pending"].is_null() { "" } else { ", an operation is pending" };
    format!(
        "{:<24} {}{error}, wanted {}, revision {}{pending}, stream id {}",
        text(&view["name"]),
        text(&observed["state"]),
        text(&view["desired"]),
        view["revision"],
        text(&view["stream_id"]),
    )
}

fn say(line: &str) -> Result<(), Trouble> {
    // Nobody reads any more: that is no failure of the command.
    let _ = writeln!(std::io::stdout(), "{line}");
    Ok(())
}
