//! Storage profiles: named places of the host that declarations refer to and never see (wire.md section 11.3).

use super::definition::{object, text};
use crate::schema::json::Json;

/// A storage profile. Only its revision is told to callers.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Profile {
    /// What the host calls this state of the profile; a stream is bound to the one it was declared under.
    pub revision: String,
    /// Where tables are published, a URI prefix (`file:///…`, `s3://…`); below the data root when not given.
    pub published: Option<String>,
}

impl Profile {
    /// A profile with everything below the data root.
    #[must_use]
    pub fn new(revision: impl Into<String>) -> Self {
        Self { revision: revision.into(), ..Self::default() }
    }

    /// What callers see of it.
    #[must_use]
    pub fn to_json(&self) -> Json {
        object([
            ("revision", text(&self.revision)),
            ("replicate", Json::Bool(false)),
            ("maintenance", Json::Bool(true)),
            ("replay_scope", text("retained_current_log")),
        ])
    }
}

impl std::fmt::Debug for Profile {
    /// Leaves the place out: this ends up in logs.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Profile").field("revision", &self.revision).finish_non_exhaustive()
    }
}

/// A stream whose history has to reach back to its first row, and a row that proves it is the right one.
#[derive(Debug, Clone, PartialEq)]
pub struct HistoryGuard {
    /// The stream's UUID.
    pub stream_id: String,
    /// The offset of the row that is known, at least 1.
    pub known_offset: i64,
    /// The row as replays show it.
    pub known_row: Json,
}
