//! What every kind of server can be asked, and what comes back.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::error::WireError;
use super::{http, nats, nchan, redis, streamcast};
use crate::net::mask::MaskKeys;
use crate::row::RowWriter;

/// The kinds of server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The protocol of `docs/wire.md`.
    Streamcast,
    /// The batch API of `docs/batches.md`: a request is a batch of its own. For publishing only.
    StreamcastHttp,
    /// XADD for durability, then PUBLISH to subscribers.
    Redis,
    /// Core NATS: nothing is stored.
    Nats,
    /// JetStream: stored and synced, then delivered by one push consumer a subscriber.
    Jetstream,
    /// JetStream: stored and synced, then republished once to plain subscribers.
    JetstreamRepublish,
    /// Nchan: WebSocket subscribers, HTTP publishers, nothing is synced.
    Nchan,
}

/// What a connection is opened for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ask {
    Subscribe {
        stream: String,
        /// Where to start: a replay from this offset, 0 being the earliest; live only when absent.
        offset: Option<u64>,
        /// Predicate as JSON.
        filter: Option<String>,
    },
    Publish {
        stream: String,
        /// Identity of an exactly-once publisher.
        publisher: Option<String>,
    },
}

impl Ask {
    /// The stream it is about.
    #[must_use]
    pub fn stream(&self) -> &str {
        match self {
            Self::Subscribe { stream, .. } | Self::Publish { stream, .. } => stream,
        }
    }
}

/// What an opening connection does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Opening {
    /// Wait for more bytes.
    Wait,
    /// Drop `used` bytes, send these, go to the next step.
    Next { used: usize, send: Vec<u8> },
    /// Open; messages begin after `used` bytes.
    Ready { used: usize, opened: Opened },
}

/// What the server said about the stream when a connection opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Opened {
    /// Offset of the first message this connection will get, if the server numbers them and says so.
    pub first_offset: Option<u64>,
    /// Last sequence number of an exactly-once publisher.
    pub last_seq: u64,
}

/// Where messages go while received bytes are walked.
pub struct Sink<'s> {
    /// Frames until the next sample, counting down from `every`.
    pub left: &'s mut u64,
    pub every: u64,
    /// Called with each message that is sampled.
    pub sampled: &'s mut dyn FnMut(&[u8]),
    /// Bytes the connection must send back, such as a pong.
    pub answer: &'s mut Vec<u8>,
}

/// What was found in received bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Found<'b> {
    /// Bytes used; the rest is a cut message.
    pub used: usize,
    pub messages: u64,
    /// First and last message; empty when there was none.
    pub first: &'b [u8],
    pub last: &'b [u8],
}

/// One publish frame.
#[derive(Debug, Clone, Copy)]
pub struct Request<'r> {
    pub stream: &'r str,
    pub writer: &'r RowWriter,
    pub first_index: u64,
    pub rows: u32,
    pub due_ns: u64,
    /// First sequence number, on an exactly-once connection.
    pub seq: Option<u64>,
    /// Number of the connection it goes out on.
    pub connection: u64,
}

/// One answer to a publisher, in the order of its requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    Ok,
    Refused(String),
}

/// A server's protocol, from the client's side. Pure: bytes in, bytes out.
pub trait Wire {
    /// What to do at `step` of opening a connection, with everything received and not used yet.
    ///
    /// # Errors
    /// When the server refuses or breaks the protocol.
    fn opening(&self, ask: &Ask, number: u64, step: u32, received: &[u8]) -> Result<Opening, WireError>;

    /// Walks a subscriber's messages.
    ///
    /// # Errors
    /// When the server closes the connection or breaks the protocol.
    fn messages<'b>(&self, bytes: &'b [u8], sink: &mut Sink<'_>) -> Result<Found<'b>, WireError>;

    /// The offset a message carries, if messages of this server carry one.
    fn offset(&self, message: &[u8]) -> Option<u64> {
        let _ = message;
        None
    }

    /// Appends one publish frame.
    fn request(&self, out: &mut Vec<u8>, keys: &mut MaskKeys, request: &Request<'_>);

    /// Answers that one request gets.
    fn replies_per_request(&self, rows: u32) -> u32 {
        let _ = rows;
        1
    }

    /// Reads a publisher's answers into `replies`; returns the bytes used.
    ///
    /// # Errors
    /// As [`Wire::messages`].
    fn replies(&self, bytes: &[u8], replies: &mut Vec<Reply>, answer: &mut Vec<u8>) -> Result<usize, WireError>;

    /// Creates what must be there before connections open, such as a JetStream stream.
    ///
    /// # Errors
    /// When the server refuses or cannot be reached.
    fn prepare(&self, address: SocketAddr, stream: &str) -> Result<(), WireError> {
        let _ = (address, stream);
        Ok(())
    }

    /// The connection that shows that a server is up.
    fn probe(&self, stream: &str) -> Ask {
        Ask::Subscribe { stream: stream.to_owned(), offset: None, filter: None }
    }

    /// Whether rows can be read again from an offset.
    fn replays(&self) -> bool {
        true
    }

    /// Whether the server can filter.
    fn filters(&self) -> bool {
        false
    }
}

/// The protocol of `kind` with a server at `address`. `fanout` is false when nobody will listen, so that servers
/// which store and deliver by separate commands are asked only to store.
#[must_use]
pub fn of(kind: Kind, address: SocketAddr, fanout: bool) -> Box<dyn Wire> {
    match kind {
        Kind::Streamcast => Box::new(streamcast::Streamcast::new(address)),
        Kind::StreamcastHttp => Box::new(http::StreamcastHttp::new(address)),
        Kind::Redis => Box::new(redis::Redis::new(fanout)),
        Kind::Nats => Box::new(nats::Nats::core()),
        Kind::Jetstream => Box::new(nats::Nats::jetstream()),
        Kind::JetstreamRepublish => Box::new(nats::Nats::republish()),
        Kind::Nchan => Box::new(nchan::Nchan::new(address)),
    }
}
