//! The seam between the registry, which decides, and the broker, which does.

use super::definition::Definition;
use super::profile::{HistoryGuard, Profile};

/// A managed stream as it is to be opened.
#[derive(Debug, Clone, PartialEq)]
pub struct Serve {
    /// The name it is served under.
    pub name: String,
    /// Its declaration.
    pub definition: Definition,
    /// Where it lies.
    pub profile: Profile,
    /// The UUID it was bound to when it was first served. A stream with another one must not be opened.
    pub stream_id: Option<String>,
    /// Whether it may be created if it is not there. Never true for a bound stream.
    pub create: bool,
    /// Whether it is retired: subscribers are served, publishers are closed 4410.
    pub retired: bool,
    /// What its history is checked against before anybody is let in: whole from offset 1, never migrated, kept for
    /// ever, with the known row.
    pub guard: Option<HistoryGuard>,
}

/// A stream in service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Started {
    /// The stream's UUID.
    pub stream_id: String,
    /// How many streams, static ones included, came into service in this process up to this one.
    pub generation: u64,
}

/// What a running stream lets in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Admission {
    /// Subscribers.
    pub read: bool,
    /// Publishers.
    pub write: bool,
}

/// Why a transition failed. The text is for the log; callers are told `transition_failed` and no more.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct RuntimeError(pub String);

impl RuntimeError {
    /// Wraps any error.
    pub fn new(error: impl std::fmt::Display) -> Self {
        Self(error.to_string())
    }
}

/// What the registry asks of the broker. Every call blocks until it is done; they come from one thread, one at a
/// time, and none while an earlier one is under way. Each must be repeatable: after a crash the last one comes again.
pub trait StreamRuntime: Send + Sync {
    /// Connections to these names are closed 1001 (`stream stopping`) until a call below has settled them, because
    /// 4404 would end long-running clients for good (wire.md section 9.3). Called before anybody can connect, with the
    /// streams that are to be served, and at the begin of every transition.
    fn hold(&self, names: &[String]);

    /// Settles a name that [`StreamRuntime::hold`] named and that is not served: it is answered 4404 from here on.
    fn release(&self, name: &str);

    /// Settles a name after a transition: answered 4404 from here on unless it is served.
    fn release_unless_served(&self, name: &str) {
        if self.admission(name).is_none() {
            self.release(name);
        }
    }

    /// Opens a stream, creates it if asked to, and lets connections in.
    ///
    /// # Errors
    /// When there is no such stream and `create` is not set, when it is another one than `stream_id`, or when its
    /// schema, order, history or documents do not fit. Nothing is in service then.
    fn start(&self, stream: &Serve) -> Result<Started, RuntimeError>;

    /// Takes a stream out of service: its connections are closed 1001 (`stream stopping`), its rows are committed and
    /// published. A stream that is not in service is fine.
    ///
    /// # Errors
    /// When its rows cannot be brought to an end. It is out of service nevertheless.
    fn stop(&self, name: &str) -> Result<(), RuntimeError>;

    /// Checks that a stopped stream is there and is the one it is bound to.
    ///
    /// # Errors
    /// When it is not.
    fn verify(&self, stream: &Serve) -> Result<(), RuntimeError>;

    /// Ends a stopped stream for good: no row follows. One that is retired already is fine.
    ///
    /// # Errors
    /// When its rows cannot be published, or its documents cannot be written.
    fn retire(&self, stream: &Serve) -> Result<(), RuntimeError>;

    /// Begins a new log for a stopped stream, with the schema and order of `target`. One that is there already, because
    /// a crash came after it was begun, is fine.
    ///
    /// # Errors
    /// When it cannot.
    fn migrate(&self, stream: &Serve, target: &Definition) -> Result<(), RuntimeError>;

    /// What a stream lets in now; `None` when it is not in service.
    fn admission(&self, name: &str) -> Option<Admission>;

    /// Whether the background work on tables runs.
    fn maintenance_ready(&self) -> bool;
}
