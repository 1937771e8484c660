//! HTTP clients that keep a server busy beside a load: readers of the batch API, and a storm of changes on the control API.
//! They share the load's thread, a few events at a turn, so that what is measured waits for the server and not for them.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};

use super::script::{Next, Script};
use crate::clock;
use crate::net::buffer::ReadBuffer;
use crate::net::poll::{Interest, Poll};
use crate::net::{http, socket};

/// Events served in one turn.
const TURN_EVENTS: usize = 4;

/// Bytes one read may bring.
const READ_BYTES: usize = 64 << 10;

/// Bytes an answer may have: a page of 8 MiB and what is around it.
const MAX_ANSWER_BYTES: usize = 16 << 20;

/// What the clients did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Pages that were answered, and events that came on their own.
    pub pages: u64,
    pub events: u64,
    /// Changes of streams that were accepted, and rounds from declaring a stream to deleting it.
    pub changes: u64,
    pub rounds: u64,
    pub received_bytes: u64,
}

/// The clients.
pub struct Beside {
    poll: Poll,
    buffer: ReadBuffer,
    clients: Vec<Client>,
    /// Clients that go on at a time.
    resting: BTreeSet<(u64, usize)>,
    pub counts: Counts,
    /// How the first client failed.
    pub first_fault: Option<String>,
}

struct Client {
    socket: OwnedFd,
    script: Script,
    received: Vec<u8>,
    open: bool,
    /// Whether the head of an endless answer was read, and the last byte of it so far.
    follows: Option<u8>,
}

impl Beside {
    /// Connects a client for each script, without waiting.
    ///
    /// # Errors
    /// When there are no descriptors.
    pub fn start(address: SocketAddr, scripts: impl IntoIterator<Item = Script>) -> io::Result<Self> {
        let poll = Poll::new(TURN_EVENTS)?;
        let mut clients = Vec::new();
        for script in scripts {
            let socket = socket::connect(address, clients.len() as u64)?;
            poll.add(socket.as_raw_fd(), clients.len() as u64, Interest::BOTH)?;
            clients.push(Client { socket, script, received: Vec::new(), open: false, follows: None });
        }
        Ok(Self {
            poll,
            buffer: ReadBuffer::new(READ_BYTES),
            clients,
            resting: BTreeSet::new(),
            counts: Counts::default(),
            first_fault: None,
        })
    }

    /// Clients that have failed.
    #[must_use]
    pub fn failed(&self) -> usize {
        self.clients.iter().filter(|client| matches!(client.script, Script::Failed)).count()
    }

    /// Serves a few events.
    ///
    /// # Errors
    /// When the event loop fails.
    pub fn turn(&mut self) -> io::Result<()> {
        let now = clock::now_ns();
        while let Some(&(due, number)) = self.resting.first()
            && due <= now
        {
            self.resting.pop_first();
            self.ask(number);
        }
        let ready = self.poll.wait(0)?;
        for at in 0..ready {
            let number = self.poll.event(at).token as usize;
            if !self.clients[number].open {
                self.connected(number)?;
            } else if let Err(why) = self.receive(number) {
                self.fail(number, why);
            }
        }
        Ok(())
    }

    fn connected(&mut self, number: usize) -> io::Result<()> {
        let client = &mut self.clients[number];
        client.open = true;
        self.poll.change(client.socket.as_raw_fd(), number as u64, Interest::READ)?;
        match socket::connected(&self.clients[number].socket) {
            Ok(()) => self.ask(number),
            Err(error) => self.fail(number, error.to_string()),
        }
        Ok(())
    }

    fn ask(&mut self, number: usize) {
        let client = &mut self.clients[number];
        let Some(request) = client.script.request() else { return };
        match socket::send(&client.socket, &request) {
            Ok(sent) if sent == request.len() => {}
            Ok(_) => self.fail(number, "no room for a request".into()),
            Err(error) => self.fail(number, error.to_string()),
        }
    }

    fn receive(&mut self, number: usize) -> Result<(), String> {
        let client = &mut self.clients[number];
        let count = match self.buffer.receive(client.socket.as_raw_fd()) {
            Ok(0) => return Err("the server ended the connection".into()),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error.to_string()),
        };
        self.counts.received_bytes += count as u64;
        let bytes = self.buffer.joined(&[], count);
        if let Some(last) = &mut client.follows {
            self.counts.events += events(bytes, last);
            return Ok(());
        }
        client.received.extend_from_slice(bytes);
        if client.received.len() > MAX_ANSWER_BYTES {
            return Err(format!("an answer of over {MAX_ANSWER_BYTES} bytes"));
        }
        if client.script.is_endless() {
            let Some(head) = http::head(&client.received).map_err(|error| error.to_string())? else { return Ok(()) };
            if head.status != 200 {
                return Err(format!("the answer to a reader was {}", head.status));
            }
            let mut last = 0;
            self.counts.events += events(&client.received[head.size..], &mut last);
            client.follows = Some(last);
            client.received = Vec::new();
            return Ok(());
        }
        let Some(answer) = http::answer(&client.received).map_err(|error| error.to_string())? else { return Ok(()) };
        let next = client.script.answered(&answer, &mut self.counts)?;
        client.received.clear();
        match next {
            Next::Now => self.ask(number),
            Next::After(wait_ns) => {
                self.resting.insert((clock::now_ns() + wait_ns, number));
            }
        }
        Ok(())
    }

    fn fail(&mut self, number: usize, why: String) {
        let client = &mut self.clients[number];
        self.first_fault.get_or_insert_with(|| format!("{}: {why}", client.script));
        client.script = Script::Failed;
        // Nothing more of it is looked at. That cannot fail in a way that matters: the set goes with us.
        let _ = self.poll.change(client.socket.as_raw_fd(), number as u64, Interest::NONE);
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        for client in &self.clients {
            socket::close_hard(&client.socket);
        }
    }
}

/// Ends of events in `bytes`, which follow the byte `last`.
fn events(bytes: &[u8], last: &mut u8) -> u64 {
    let mut found = 0;
    for at in memchr::memchr_iter(b'\n', bytes) {
        let before = if at == 0 { *last } else { bytes[at - 1] };
        found += u64::from(before == b'\n');
    }
    *last = bytes.last().copied().unwrap_or(*last);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_counted_however_they_are_cut() {
        let text = b"id: 1\ndata: {}\n\n\r\n1f\r\nid: 2\ndata: {}\n\n: still here\n\n";
        for cut in 0..text.len() {
            let mut last = 0;
            assert_eq!(events(&text[..cut], &mut last) + events(&text[cut..], &mut last), 3, "{cut}");
        }
    }
}
