//! Everything that can end a client's connection.

use std::io;
use std::time::Duration;

use super::close::Closed;

/// Why a connection was not made or did not last.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The text is no address of a stream.
    #[error("`{uri}`: {why}")]
    Address {
        /// The text.
        uri: String,
        /// What is wrong with it and what is right.
        why: String,
    },
    /// Nobody listens there, or the way is closed.
    #[error("cannot reach {at}: {source}{}", hint(.source))]
    Connect {
        /// `host:port`.
        at: String,
        /// What the system said.
        source: io::Error,
    },
    /// There is a broker and no secure way to it.
    #[error("no secure connection to {at}: {why}")]
    Insecure {
        /// `host:port`.
        at: String,
        /// What is wrong, and the way out.
        why: String,
    },
    /// Something took too long.
    #[error("{what} took longer than {} s", .after.as_secs_f64())]
    TimedOut {
        /// What it was.
        what: &'static str,
        /// How long was waited.
        after: Duration,
    },
    /// An HTTP answer instead of an upgrade.
    #[error("the server answered HTTP {status} instead of a WebSocket{}", status_hint(*.status))]
    Http {
        /// Status code.
        status: u16,
    },
    /// The connection broke without a close.
    #[error("the connection was lost: {0}")]
    Lost(String),
    /// The broker closed it and said why.
    #[error("{0}")]
    Closed(#[from] Closed),
    /// The other side does not keep to the protocol.
    #[error("not a streamcast broker, or a newer one: {0}")]
    Protocol(String),
    /// After a reconnect the address leads to another stream of the same name.
    #[error("the stream was created anew: it is {found} now, and was {known}; its offsets mean other rows")]
    AnotherStream {
        /// `stream_id` seen first.
        known: String,
        /// `stream_id` seen now.
        found: String,
    },
    /// The broker cannot store rows, and the time for attempts is over.
    #[error("the broker could not store rows: {0}")]
    Storing(String),
    /// The broker's mark of an exactly-once publisher does not fit what was sent.
    #[error("{0}")]
    Mark(String),
}

impl ClientError {
    /// Whether connecting again after a while can help (wire.md section 9.3).
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Connect { .. } | Self::TimedOut { .. } | Self::Lost(_) | Self::Storing(_) => true,
            Self::Closed(closed) => closed.is_retryable(),
            // A proxy or a broker that is just starting or stopping.
            Self::Http { status } => matches!(status, 429 | 502 | 503 | 504),
            Self::Address { .. }
            | Self::Insecure { .. }
            | Self::Protocol(_)
            | Self::AnotherStream { .. }
            | Self::Mark(_) => false,
        }
    }
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => ", is a broker running there?",
        _ => "",
    }
}

fn status_hint(status: u16) -> &'static str {
    match status {
        401 => "; it wants a user and password, ws://user:password@host/name, or a token in STREAMCAST_TOKEN",
        403 => "; this user may not do that",
        404 => "; something else listens there",
        _ => "",
    }
}
