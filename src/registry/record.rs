//! What the registry knows: declarations, operations, and what was last seen of each stream.

use std::time::{SystemTime, UNIX_EPOCH};

use super::definition::{Definition, object, text};
use super::profile::Profile;
use crate::schema::json::Json;

/// What a stream shall be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Desired {
    /// Open to both sides.
    Serving,
    /// Not there.
    Stopped,
    /// Open to subscribers, ended for publishers.
    Retired,
}

impl Desired {
    /// The word of the contract.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Serving => "serving",
            Self::Stopped => "stopped",
            Self::Retired => "retired",
        }
    }

    /// The state that the contract calls `word`.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Serving, Self::Stopped, Self::Retired].into_iter().find(|state| state.word() == word)
    }
}

/// A declared stream.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// Its name.
    pub name: String,
    /// Its declaration.
    pub definition: Definition,
    /// What it shall be.
    pub desired: Desired,
    /// The number of its last accepted change; its ETag.
    pub revision: u64,
    /// Its UUID, from the first time it was served.
    pub stream_id: Option<String>,
    /// The operation that is under way, or failed and waits for its retry.
    pub pending: Option<String>,
    /// The revision of its storage profile when the declaration was accepted.
    pub profile_revision: String,
}

/// What an operation changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The declaration.
    Definition,
    /// What the stream shall be.
    Desired,
    /// Schema and order, by a new log.
    Migration,
}

impl Kind {
    /// The word of the contract.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Definition => "definition",
            Self::Desired => "desired",
            Self::Migration => "migration",
        }
    }

    pub(super) fn parse(word: &str) -> Option<Self> {
        [Self::Definition, Self::Desired, Self::Migration].into_iter().find(|kind| kind.word() == word)
    }
}

/// How far an operation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Kept, not begun.
    Accepted,
    /// Begun.
    Running,
    /// Done.
    Succeeded,
    /// Not done; the stream waits for the same call again.
    Failed,
}

impl Status {
    /// The word of the contract.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
        }
    }

    pub(super) fn parse(word: &str) -> Option<Self> {
        [Self::Accepted, Self::Running, Self::Succeeded, Self::Failed].into_iter().find(|status| status.word() == word)
    }
}

/// An accepted change.
#[derive(Debug, Clone, PartialEq)]
pub struct Operation {
    /// 32 hexadecimal digits.
    pub id: String,
    /// The stream it concerns.
    pub name: String,
    /// What it changes.
    pub kind: Kind,
    /// The stream's revision with it.
    pub revision: u64,
    /// The body of the call.
    pub target: Json,
    /// How far it is.
    pub status: Status,
}

impl Operation {
    /// The operation as it is shown (wire.md section 11.3).
    #[must_use]
    pub fn to_json(&self) -> Json {
        object([
            ("id", text(&self.id)),
            ("name", text(&self.name)),
            ("kind", text(self.kind.word())),
            ("revision", number(self.revision)),
            ("target", self.target.clone()),
            ("status", text(self.status.word())),
            ("error", if self.status == Status::Failed { text("transition_failed") } else { Json::Null }),
        ])
    }
}

/// What a stream was last seen to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Not looked at yet.
    Unknown,
    /// Not served.
    Stopped,
    /// Being opened.
    Starting,
    /// Served.
    Serving,
    /// Being closed.
    Stopping,
    /// Getting a new log.
    Migrating,
    /// Being ended.
    Retiring,
    /// Ended; subscribers are served.
    Retired,
    /// An operation failed.
    TransitionFailed,
    /// It could not be brought back to what it shall be when the broker started.
    RecoveryFailed,
}

impl State {
    /// The word of the contract, and the word for the error.
    #[must_use]
    pub fn words(self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::Unknown => ("unknown", None),
            Self::Stopped => ("stopped", None),
            Self::Starting => ("starting", None),
            Self::Serving => ("serving", None),
            Self::Stopping => ("stopping", None),
            Self::Migrating => ("migrating", None),
            Self::Retiring => ("retiring", None),
            Self::Retired => ("retired", None),
            Self::TransitionFailed => ("error", Some("transition_failed")),
            Self::RecoveryFailed => ("error", Some("recovery_failed")),
        }
    }

    /// Whether it is what `desired` asks for.
    #[must_use]
    pub fn is(self, desired: Desired) -> bool {
        matches!(
            (self, desired),
            (Self::Serving, Desired::Serving) | (Self::Stopped, Desired::Stopped) | (Self::Retired, Desired::Retired)
        )
    }
}

/// A look at a stream.
#[derive(Debug, Clone, PartialEq)]
pub struct Observed {
    /// What it was.
    pub state: State,
    /// Which of the streams that came into service in this process it is; `None` while it is not in service.
    pub generation: Option<u64>,
    /// The revision that was looked at.
    pub revision: u64,
    /// When, in seconds since 1970.
    pub at_s: f64,
    /// Whether subscribers were let in.
    pub read_admission: bool,
    /// Whether publishers were.
    pub write_admission: bool,
    /// Whether the background work on tables ran.
    pub children_ready: bool,
}

impl Observed {
    fn to_json(&self, boot_id: &str) -> Json {
        let (state, error) = self.state.words();
        let mut json = object([
            ("state", text(state)),
            ("boot_id", text(boot_id)),
            ("generation", self.generation.map_or(Json::Null, number)),
            ("revision", number(self.revision)),
            ("at", Json::Float(self.at_s)),
            ("read_admission", Json::Bool(self.read_admission)),
            ("write_admission", Json::Bool(self.write_admission)),
            ("children_ready", Json::Bool(self.children_ready)),
        ]);
        if let (Json::Object(members), Some(error)) = (&mut json, error) {
            members.push(("error".to_owned(), text(error)));
        }
        json
    }
}

/// A stream as it is shown (wire.md section 11.3).
#[must_use]
pub(super) fn view(record: &Record, profile: &Profile, observed: &Observed, boot_id: &str) -> Json {
    object([
        ("name", text(&record.name)),
        ("definition", record.definition.to_json()),
        ("desired", text(record.desired.word())),
        ("revision", number(record.revision)),
        ("stream_id", record.stream_id.as_deref().map_or(Json::Null, text)),
        ("pending", record.pending.as_deref().map_or(Json::Null, text)),
        ("profile_revision", text(&record.profile_revision)),
        ("profile", profile.to_json()),
        ("observed", observed.to_json(boot_id)),
    ])
}

/// A count. Counts stay far below the bound of an integer.
pub(super) fn number(value: u64) -> Json {
    Json::Int(i64::try_from(value).unwrap_or(i64::MAX))
}

/// The wall clock in seconds since 1970.
pub(super) fn now_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}
