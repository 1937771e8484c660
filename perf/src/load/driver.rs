//! The event loop.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use rustls::ClientConfig;

use super::beside::Beside;
use super::connection::{Connection, Phase, Plan, Purpose, Reader};
use super::publisher::{Pace, Publishing};
use super::subscriber::Group;
use crate::clock;
use crate::net::buffer::{self, ReadBuffer};
use crate::net::poll::{Interest, Poll};
use crate::net::socket;
use crate::net::tls::{Channel, Handshake};
use crate::row::{RowWriter, StampReader};
use crate::wire::{Ask, Opened, Opening, Wire, WireError};

/// How a load runs.
#[derive(Debug, Clone)]
pub struct LoadSettings {
    pub address: SocketAddr,
    /// Look at the sockets again at once instead of sleeping until one is ready.
    pub spin: bool,
    /// Bytes one read may bring.
    pub read_bytes: usize,
    /// Connections that may be opening at once.
    pub parallel: usize,
}

/// Why a load ended.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("{failed} of {wanted} connections did not open; the first: {first}")]
    Open { failed: usize, wanted: usize, first: String },
    #[error("{waiting} of {wanted} connections did not open within {seconds} s")]
    Slow { waiting: usize, wanted: usize, seconds: f64 },
    #[error("the event loop failed: {0}")]
    Loop(#[from] io::Error),
}

/// Connections, their groups, and the loop that serves them.
pub struct Load {
    wire: Box<dyn Wire>,
    settings: LoadSettings,
    /// How connections are encrypted, if they are.
    tls: Option<Arc<ClientConfig>>,
    /// Clients of another kind that share the thread.
    beside: Option<Beside>,
    stamps: StampReader,
    poll: Poll,
    buffer: ReadBuffer,
    slots: Vec<Option<Connection>>,
    free: Vec<usize>,
    waiting: VecDeque<Plan>,
    opening: usize,
    next_number: u64,
    failures: Vec<String>,
    /// Knocks answered, and until when new ones follow.
    knocks: u64,
    knock_until_ns: u64,
    pub groups: Vec<Group>,
    pub publishing: Publishing,
    /// The last look at the clock.
    pub now_ns: u64,
    /// Time in which there was nothing to do.
    pub idle_ns: u64,
    answer: Vec<u8>,
    touched: Vec<usize>,
}

/// Sockets one wait may report.
const EVENTS: usize = 1024;

impl Load {
    /// A load without connections.
    ///
    /// # Errors
    /// When the kernel gives no epoll set.
    pub fn new(wire: Box<dyn Wire>, settings: LoadSettings, writer: RowWriter) -> Result<Self, LoadError> {
        Ok(Self {
            stamps: writer.stamps(),
            poll: Poll::new(EVENTS)?,
            buffer: ReadBuffer::new(settings.read_bytes),
            slots: Vec::new(),
            free: Vec::new(),
            waiting: VecDeque::new(),
            opening: 0,
            next_number: 1,
            failures: Vec::new(),
            knocks: 0,
            knock_until_ns: 0,
            groups: Vec::new(),
            publishing: Publishing::new(writer),
            now_ns: clock::now_ns(),
            idle_ns: 0,
            answer: Vec::new(),
            touched: Vec::new(),
            wire,
            settings,
            tls: None,
            beside: None,
        })
    }

    /// Encrypts the connections that are opened from now on.
    pub fn set_tls(&mut self, tls: Option<Arc<ClientConfig>>) {
        self.tls = tls;
    }

    /// Lets other clients have a share of this thread, or takes it from them; returns those that had it.
    pub fn set_beside(&mut self, beside: Option<Beside>) -> Option<Beside> {
        std::mem::replace(&mut self.beside, beside)
    }

    /// Opens connections, serving those that are open meanwhile.
    ///
    /// # Errors
    /// When one of them fails or they take longer than `seconds`.
    pub fn open(&mut self, plans: impl IntoIterator<Item = Plan>, seconds: f64) -> Result<(), LoadError> {
        self.waiting.extend(plans);
        let wanted = self.waiting.len();
        self.failures.clear();
        let until = clock::now_ns() + clock::seconds_ns(seconds);
        let done = self.run_until(until, |load| load.opening == 0 && load.waiting.is_empty())?;
        if let Some(first) = self.failures.first().cloned() {
            return Err(LoadError::Open { failed: self.failures.len(), wanted, first });
        }
        if !done {
            return Err(LoadError::Slow { waiting: self.waiting.len() + self.opening, wanted, seconds });
        }
        Ok(())
    }

    /// Opens and closes connections for `seconds`, as many at once as the settings allow; returns how many opened.
    ///
    /// # Errors
    /// When the first failures show that the server cannot keep up at all.
    pub fn knock(&mut self, ask: &Ask, seconds: f64) -> Result<u64, LoadError> {
        self.knocks = 0;
        self.failures.clear();
        self.knock_until_ns = clock::now_ns() + clock::seconds_ns(seconds);
        let plan = Plan { ask: ask.clone(), purpose: Purpose::Knock };
        self.waiting.extend(std::iter::repeat_n(plan, self.settings.parallel));
        let until = self.knock_until_ns;
        self.run_until(until, |_| false)?;
        let knocks = self.knocks;
        self.waiting.clear();
        self.run_until(until + 1_000_000_000, |load| load.opening == 0)?;
        match self.failures.first().cloned() {
            Some(first) if knocks == 0 => {
                Err(LoadError::Open { failed: self.failures.len(), wanted: self.settings.parallel, first })
            }
            _ => Ok(knocks),
        }
    }

    /// Begins a measured window for every group and the publishers.
    pub fn open_window(&mut self, window: Range<u64>) {
        for group in &mut self.groups {
            group.open_window(window.clone());
        }
        self.publishing.open_window(window);
    }

    /// Sets when frames go out; a window is filled at once.
    ///
    /// # Errors
    /// When the event loop fails.
    pub fn set_pace(&mut self, pace: Pace) -> Result<(), LoadError> {
        self.publishing.pace = pace;
        for member in 0..self.publishing.members.len() {
            if self.publishing.refill(&*self.wire, member) {
                self.flush(member)?;
            }
        }
        Ok(())
    }

    /// Stops reading the last opened subscriber of `group` for good.
    ///
    /// # Errors
    /// When the event loop fails.
    pub fn stall_one(&mut self, group: usize) -> Result<bool, LoadError> {
        let found = self.slots.iter_mut().enumerate().rev().find_map(|(slot, connection)| {
            let connection = connection.as_mut()?;
            let Phase::Subscriber(reader) = connection.phase else { return None };
            (reader.group == group).then_some((slot, connection))
        });
        let Some((slot, connection)) = found else { return Ok(false) };
        connection.phase = Phase::Stalled;
        self.poll.change(connection.socket.as_raw_fd(), slot as u64, Interest::NONE)?;
        self.groups[group].open -= 1;
        Ok(true)
    }

    /// Starts to open a connection without waiting for it.
    pub fn start_opening(&mut self, plan: Plan) {
        self.waiting.push_back(plan);
    }

    /// Sets how many connections may be opening at once.
    pub fn set_parallel(&mut self, parallel: usize) {
        self.settings.parallel = parallel.max(1);
    }

    /// Closes the connections that were stalled.
    pub fn close_stalled(&mut self) {
        for slot in 0..self.slots.len() {
            if self.slots[slot].as_ref().is_some_and(|connection| matches!(connection.phase, Phase::Stalled)) {
                self.remove(slot);
            }
        }
    }

    /// Closes every subscriber of `group`.
    pub fn close_group(&mut self, group: usize) {
        for slot in 0..self.slots.len() {
            let member = |connection: &Connection| matches!(&connection.phase, Phase::Subscriber(reader) if reader.group == group);
            if self.slots[slot].as_ref().is_some_and(member) {
                self.remove(slot);
                self.groups[group].open -= 1;
            }
        }
    }

    /// Connections that the server ended, and why the first one was.
    #[must_use]
    pub fn drops(&self) -> (usize, Option<&str>) {
        let groups = self.groups.iter().map(|group| (group.dropped, group.first_drop.as_deref()));
        let publishers = (self.publishing.dropped, self.publishing.first_drop.as_deref());
        groups.chain([publishers]).fold((0, None), |(sum, first), (count, why)| (sum + count, first.or(why)))
    }

    /// Runs until `stop` holds (true) or `until_ns` is reached (false).
    ///
    /// # Errors
    /// When the event loop fails.
    pub fn run_until(&mut self, until_ns: u64, stop: impl Fn(&Self) -> bool) -> Result<bool, LoadError> {
        loop {
            if stop(self) {
                return Ok(true);
            }
            self.now_ns = clock::now_ns();
            if self.now_ns >= until_ns {
                return Ok(false);
            }
            self.turn(until_ns)?;
        }
    }

    fn turn(&mut self, until_ns: u64) -> Result<(), LoadError> {
        self.start_waiting()?;
        self.publish_due()?;
        let before = self.now_ns;
        let wait = match self.settings.spin || self.beside.is_some() {
            true => 0,
            false => self.publishing.next_due_ns().min(until_ns).saturating_sub(before),
        };
        let ready = self.poll.wait(wait)?;
        if ready == 0 || wait > 0 {
            self.now_ns = clock::now_ns();
            self.idle_ns += self.now_ns - before;
        }
        for at in 0..ready {
            let event = self.poll.event(at);
            self.serve(event.token as usize, event.readable, event.writable)?;
            self.publish_due()?;
        }
        if let Some(beside) = &mut self.beside {
            beside.turn()?;
        }
        Ok(())
    }

    fn publish_due(&mut self) -> Result<(), LoadError> {
        if self.now_ns < self.publishing.next_due_ns() {
            return Ok(());
        }
        let mut touched = std::mem::take(&mut self.touched);
        self.publishing.write_due(&*self.wire, self.now_ns, &mut touched);
        for member in touched.drain(..) {
            self.flush(member)?;
        }
        self.touched = touched;
        Ok(())
    }

    fn start_waiting(&mut self) -> Result<(), LoadError> {
        while self.opening < self.settings.parallel
            && let Some(plan) = self.waiting.pop_front()
        {
            let number = self.next_number;
            self.next_number += 1;
            let socket = match socket::connect(self.settings.address, number) {
                Ok(socket) => socket,
                Err(error) => {
                    self.failures.push(error.to_string());
                    continue;
                }
            };
            let slot = self.free.pop().unwrap_or_else(|| {
                self.slots.push(None);
                self.slots.len() - 1
            });
            self.poll.add(socket.as_raw_fd(), slot as u64, Interest::BOTH)?;
            let phase = Phase::Connecting(plan);
            self.slots[slot] = Some(Connection { socket, number, phase, channel: None, carry: Vec::new() });
            self.opening += 1;
        }
        Ok(())
    }

    fn serve(&mut self, slot: usize, readable: bool, writable: bool) -> Result<(), LoadError> {
        let result = match self.slots.get(slot).and_then(Option::as_ref).map(|connection| &connection.phase) {
            None => Ok(()),
            Some(Phase::Connecting(_)) => self.connected(slot),
            Some(Phase::Stalled) => Err(WireError::Ended),
            Some(&Phase::Publisher(member)) if writable => {
                self.flush(member)?;
                if readable { self.receive(slot) } else { Ok(()) }
            }
            Some(_) if readable => self.receive(slot),
            Some(_) => Ok(()),
        };
        if let Err(error) = result {
            self.ended(slot, &error);
        }
        Ok(())
    }

    fn connected(&mut self, slot: usize) -> Result<(), WireError> {
        let Some(connection) = &mut self.slots[slot] else { return Ok(()) };
        socket::connected(&connection.socket)?;
        self.poll.change(connection.socket.as_raw_fd(), slot as u64, Interest::READ)?;
        let Phase::Connecting(plan) = std::mem::replace(&mut connection.phase, Phase::Stalled) else { return Ok(()) };
        match &self.tls {
            None => {
                connection.phase = Phase::Opening { plan, step: 0 };
                self.receive_bytes(slot, 0)
            }
            Some(tls) => {
                connection.phase = Phase::Securing { plan, handshake: Box::new(Handshake::new(tls)?) };
                self.secure(slot, 0)
            }
        }
    }

    /// Goes on with a handshake, with `count` bytes just received.
    fn secure(&mut self, slot: usize, count: usize) -> Result<(), WireError> {
        let Some(connection) = &mut self.slots[slot] else { return Ok(()) };
        let Phase::Securing { handshake, .. } = &mut connection.phase else { return Ok(()) };
        let mut send = Vec::new();
        handshake.take(self.buffer.joined(&[], count), &mut send)?;
        let done = handshake.is_done();
        send_now(&connection.socket, &send)?;
        if !done {
            return Ok(());
        }
        if let Phase::Securing { plan, handshake } = std::mem::replace(&mut connection.phase, Phase::Stalled) {
            connection.channel = Some(Box::new(handshake.finish()?));
            connection.phase = Phase::Opening { plan, step: 0 };
        }
        self.receive_bytes(slot, 0)
    }

    fn receive(&mut self, slot: usize) -> Result<(), WireError> {
        let Some(connection) = &self.slots[slot] else { return Ok(()) };
        match self.buffer.receive(connection.socket.as_raw_fd()) {
            Ok(0) => Err(WireError::Ended),
            Ok(count) => {
                self.now_ns = clock::now_ns();
                match connection.phase {
                    Phase::Securing { .. } => self.secure(slot, count),
                    _ => self.receive_bytes(slot, count),
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Deals with a leftover and `count` bytes just received.
    fn receive_bytes(&mut self, slot: usize, count: usize) -> Result<(), WireError> {
        let Some(connection) = &mut self.slots[slot] else { return Ok(()) };
        let bytes = match &mut connection.channel {
            None => self.buffer.joined(&connection.carry, count),
            Some(channel) => self.buffer.opened(channel, &connection.carry, count)?,
        };
        let mut used = 0;
        let mut done = None;
        while let Phase::Opening { plan, step } = &mut connection.phase {
            let next = match self.wire.opening(&plan.ask, connection.number, *step, &bytes[used..])? {
                Opening::Wait => break,
                Opening::Next { used: more, send } => {
                    *step += 1;
                    used += more;
                    send_sealed(&connection.socket, connection.channel.as_deref_mut(), &send)?;
                    continue;
                }
                Opening::Ready { used: more, opened } => {
                    used += more;
                    opened
                }
            };
            done = Some(plan.ask.clone());
            self.opening -= 1;
            match plan.purpose {
                Purpose::Subscribe(group) => {
                    self.groups[group].open += 1;
                    connection.phase = Phase::Subscriber(Reader { group, next_offset: next.first_offset });
                }
                Purpose::Publish => {
                    let seq = exactly_once_seq(&plan.ask, &next);
                    connection.phase =
                        Phase::Publisher(self.publishing.join(slot, connection.number, plan.ask.stream(), seq));
                }
                Purpose::Knock => {
                    self.knocks += 1;
                    let plan = plan.clone();
                    if self.now_ns < self.knock_until_ns {
                        self.waiting.push_back(plan);
                    }
                    self.remove(slot);
                    return Ok(());
                }
            }
        }
        let (wire, now) = (&*self.wire, self.now_ns);
        let mut refill = None;
        match &mut connection.phase {
            Phase::Subscriber(reader) => {
                let group = &mut self.groups[reader.group];
                used += group.take(wire, reader, &bytes[used..], now, &self.stamps, &mut self.answer)?;
            }
            Phase::Publisher(member) => {
                used += self.publishing.take(wire, *member, &bytes[used..], now, &mut self.answer)?;
                refill = Some(*member);
            }
            _ => {}
        }
        if !buffer::keep(&mut connection.carry, &bytes[used..]) {
            return Err(WireError::TooLong(buffer::MAX_CARRY_BYTES));
        }
        if !self.answer.is_empty() {
            let answer = std::mem::take(&mut self.answer);
            send_sealed(&connection.socket, connection.channel.as_deref_mut(), &answer)?;
        }
        if let (Some(member), None) = (refill, done)
            && self.publishing.refill(wire, member)
        {
            self.flush(member)?;
        }
        Ok(())
    }

    /// Sends what a publisher has to send and asks to be told when there is room for the rest.
    fn flush(&mut self, member: usize) -> io::Result<()> {
        let slot = self.publishing.members[member].slot;
        let Some(connection) = &mut self.slots[slot] else { return Ok(()) };
        let publisher = &mut self.publishing.members[member];
        let sealed = connection.channel.as_mut().map_or(Ok(()), |channel| publisher.out.seal(channel));
        let flushed = sealed.map_err(WireError::from).and_then(|()| Ok(publisher.out.flush(&connection.socket)?));
        let all = match flushed {
            Ok(all) => all,
            Err(error) => {
                self.ended(slot, &error);
                return Ok(());
            }
        };
        let interest = if all { Interest::READ } else { Interest::BOTH };
        if publisher.interest != interest {
            publisher.interest = interest;
            self.poll.change(connection.socket.as_raw_fd(), slot as u64, interest)?;
        }
        Ok(())
    }

    fn remove(&mut self, slot: usize) {
        if let Some(connection) = self.slots[slot].take() {
            socket::close_hard(&connection.socket);
            self.free.push(slot);
        }
    }

    fn ended(&mut self, slot: usize, error: &WireError) {
        let Some(connection) = &self.slots[slot] else { return };
        match &connection.phase {
            Phase::Connecting(_) | Phase::Securing { .. } | Phase::Opening { .. } => {
                self.opening -= 1;
                self.failures.push(error.to_string());
            }
            Phase::Subscriber(reader) => {
                let group = &mut self.groups[reader.group];
                group.open -= 1;
                group.dropped += 1;
                group.first_drop.get_or_insert_with(|| error.to_string());
            }
            Phase::Publisher(member) => {
                self.publishing.members[*member].open = false;
                self.publishing.dropped += 1;
                self.publishing.first_drop.get_or_insert_with(|| error.to_string());
            }
            Phase::Stalled => {}
        }
        self.remove(slot);
    }
}

fn send_now(socket: &OwnedFd, bytes: &[u8]) -> Result<(), WireError> {
    if !bytes.is_empty() && socket::send(socket, bytes)? < bytes.len() {
        return Err(WireError::Protocol("no room for a few bytes".into()));
    }
    Ok(())
}

/// As [`send_now`], encrypted where `channel` says how.
fn send_sealed(socket: &OwnedFd, channel: Option<&mut Channel>, bytes: &[u8]) -> Result<(), WireError> {
    let Some(channel) = channel else { return send_now(socket, bytes) };
    let mut sealed = Vec::new();
    channel.seal(bytes, &mut sealed)?;
    send_now(socket, &sealed)
}

fn exactly_once_seq(ask: &Ask, opened: &Opened) -> Option<u64> {
    match ask {
        Ask::Publish { publisher: Some(_), .. } => Some(opened.last_seq + 1),
        _ => None,
    }
}
