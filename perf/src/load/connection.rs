//! One connection from connect to close.

use std::io;
use std::os::fd::OwnedFd;

use crate::net::socket;
use crate::net::tls::{Channel, Handshake, TlsError};
use crate::wire::Ask;

/// A connection that is to be opened.
#[derive(Debug, Clone)]
pub struct Plan {
    pub ask: Ask,
    pub purpose: Purpose,
}

/// What becomes of a connection once it is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A subscriber that is counted in this group.
    Subscribe(usize),
    /// A publisher.
    Publish,
    /// Nothing: it is closed at once, and another takes its place while there is time.
    Knock,
}

/// Where a connection is in its life.
pub(super) enum Phase {
    Connecting(Plan),
    Securing {
        plan: Plan,
        handshake: Box<Handshake>,
    },
    Opening {
        plan: Plan,
        step: u32,
    },
    Subscriber(Reader),
    Publisher(usize),
    /// Open and never read again.
    Stalled,
}

/// A subscriber's own numbers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader {
    pub group: usize,
    /// Offset the next message must have, or be above, once known.
    pub next_offset: Option<u64>,
}

pub(super) struct Connection {
    pub socket: OwnedFd,
    pub number: u64,
    pub phase: Phase,
    /// How it is encrypted, if it is.
    pub channel: Option<Box<Channel>>,
    /// The start of a message that was cut off.
    pub carry: Vec<u8>,
}

/// Bytes that wait for room in a socket.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    pub bytes: Vec<u8>,
    sent: usize,
    /// How many of the bytes are sealed, on an encrypted connection.
    sealed: usize,
}

impl Outbox {
    /// Seals what was added since the last time.
    pub fn seal(&mut self, channel: &mut Channel) -> Result<(), TlsError> {
        let plain = self.bytes.split_off(self.sealed);
        channel.seal(&plain, &mut self.bytes)?;
        self.sealed = self.bytes.len();
        Ok(())
    }

    /// Sends what the socket takes; true when nothing is left.
    pub fn flush(&mut self, to: &OwnedFd) -> io::Result<bool> {
        while self.sent < self.bytes.len() {
            match socket::send(to, &self.bytes[self.sent..])? {
                0 => {
                    self.compact();
                    return Ok(false);
                }
                count => self.sent += count,
            }
        }
        self.bytes.clear();
        self.sent = 0;
        self.sealed = 0;
        Ok(true)
    }

    pub fn waiting_bytes(&self) -> usize {
        self.bytes.len() - self.sent
    }

    fn compact(&mut self) {
        if self.sent > self.bytes.len() / 2 {
            self.bytes.drain(..self.sent);
            self.sealed = self.sealed.saturating_sub(self.sent);
            self.sent = 0;
        }
    }
}
