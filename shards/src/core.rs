//! The engine and the application side by side: what a shard calls.

use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, Ordering};
use std::time::{Duration, Instant};

use crate::cipher::Encryption;
use crate::conn::{ConnId, Ended, Phase};
use crate::engine::Engine;
use crate::flush::HIGH_BYTES;
use crate::frame::opcode;
use crate::head::{self, Head, UpgradeHead};
use crate::inbound::{Flow, Message, Violation};
use crate::inbox::{Inbox, InboxSender};

/// The longest a turn takes messages, and again sends, before sockets are read again.
const TURN: Duration = Duration::from_micros(300);

/// What a shard does for somebody. All calls come on the shard's thread and must not wait.
pub trait App: Sized + 'static {
    /// State of one connection.
    type Session: 'static;
    /// Messages from other threads.
    type Remote: Send + 'static;

    /// An upgrade is asked for: may it be? [`Engine::look_again`] asks once more about one that waits.
    fn admit(&mut self, engine: &mut Engine<Self::Session>, id: ConnId, head: &mut UpgradeHead) -> Admission {
        let _ = (engine, id, head);
        Admission::Open
    }
    /// A connection is upgraded. The session is stored when this returns.
    fn opened(&mut self, engine: &mut Engine<Self::Session>, id: ConnId, head: &UpgradeHead) -> Self::Session;
    /// The session is stored: the first chance to send or to close.
    fn started(&mut self, engine: &mut Engine<Self::Session>, id: ConnId);
    /// A whole message; text is valid UTF-8.
    fn message(&mut self, engine: &mut Engine<Self::Session>, id: ConnId, payload: &mut [u8], text: bool);
    /// The peer broke the protocol or a limit; nothing more is read. Close it.
    fn violation(&mut self, engine: &mut Engine<Self::Session>, id: ConnId, violation: Violation);
    /// The peer wants to close; call [`Engine::echo_close`], at once or when what is owed is queued.
    fn peer_closed(&mut self, engine: &mut Engine<Self::Session>, id: ConnId);
    /// A connection is gone.
    fn closed(&mut self, engine: &mut Engine<Self::Session>, id: ConnId, session: Self::Session, ended: Ended);
    /// See [`Engine::notify_drained`].
    fn drained(&mut self, engine: &mut Engine<Self::Session>, id: ConnId);
    /// A message from another thread.
    fn remote(&mut self, engine: &mut Engine<Self::Session>, message: Self::Remote);
    /// A second has passed.
    fn tick(&mut self, engine: &mut Engine<Self::Session>);
    /// Everybody who had something to say has been heard: pass on what was held back to go together.
    fn heard(&mut self);
    /// A turn of the flush loop has ended.
    fn turned(&mut self, engine: &mut Engine<Self::Session>, took: Duration);
}

/// What becomes of a request for an upgrade.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// It is accepted.
    Open,
    /// Nobody knows yet. Nothing more is read until [`Engine::look_again`]; after the time that a head has, the HTTP plane
    /// sees to it.
    Wait,
    /// The HTTP plane sees to it.
    HandOver,
}

/// What other threads tell a shard.
pub enum Command<R> {
    /// For the application.
    App(R),
    /// A connection that another shard accepted.
    Connection(OwnedFd),
    /// A connection that the HTTP plane has upgraded already, the bytes that came after the head, and how it is
    /// encrypted.
    Upgraded(TcpStream, UpgradeHead, Vec<u8>, Encryption),
    /// Somebody waits to be accepted.
    Accept,
    /// Stop accepting; the sender is dropped when the listener is closed.
    CloseListener(std::sync::mpsc::Sender<()>),
    /// End the shard; connections that are left are dropped.
    Quit,
}

/// Takes over the socket of a plain HTTP request and the bytes read from it so far.
pub type Handoff = Arc<dyn Fn(TcpStream, Vec<u8>) + Send + Sync>;

/// Another shard, or this one, as its peers see it.
pub struct Peer<R> {
    /// The way in.
    pub inbox: InboxSender<Command<R>>,
    /// Connections it has or has been given.
    pub connections: Arc<AtomicIsize>,
}

impl<R> Clone for Peer<R> {
    fn clone(&self) -> Self {
        Self { inbox: self.inbox.clone(), connections: Arc::clone(&self.connections) }
    }
}

/// A socket to read; with what was asked and read of it, if somebody else has upgraded it.
pub(crate) type Adopted = (OwnedFd, Option<(UpgradeHead, Vec<u8>, Encryption)>);

pub(crate) struct Core<A: App> {
    pub(crate) engine: Engine<A::Session>,
    pub(crate) app: A,
    pub(crate) inbox: Inbox<Command<A::Remote>>,
    pub(crate) peers: Vec<Peer<A::Remote>>,
    pub(crate) index: usize,
    pub(crate) handoff: Handoff,
    /// One read buffer for all connections.
    pub(crate) scratch: Vec<u8>,
    /// And one for what was opened of it.
    pub(crate) opened: Vec<u8>,
    pub(crate) begun: Instant,
    /// New connections.
    pub(crate) adopted: Vec<Adopted>,
    /// The doorbell has rung.
    pub(crate) accept: bool,
    pub(crate) close_listener: Option<std::sync::mpsc::Sender<()>>,
    pub(crate) quit: bool,
}

impl<A: App> Core<A> {
    /// Bytes from the peer of a connection.
    pub(crate) fn on_bytes(&mut self, id: ConnId, bytes: &mut [u8]) {
        self.engine.counts.received_bytes_total += bytes.len() as u64;
        let secured = self.engine.conn(id).is_some_and(|conn| conn.secured.is_some());
        if secured && !bytes.is_empty() {
            self.on_sealed(id, bytes);
        } else {
            self.on_plain(id, bytes);
        }
        self.dispatch();
    }

    /// Encrypted bytes from the peer of a connection.
    fn on_sealed(&mut self, id: ConnId, bytes: &[u8]) {
        let Some(secured) = self.engine.conn_mut(id).and_then(|conn| conn.secured.as_mut()) else { return };
        let mut plain = std::mem::take(&mut self.opened);
        plain.clear();
        let opened = secured.open(bytes, &mut plain);
        if !secured.pending().is_empty() {
            self.engine.list(id);
        }
        if !plain.is_empty() {
            self.on_plain(id, &mut plain);
        }
        self.opened = plain;
        match opened {
            Ok(false) => {}
            Ok(true) | Err(_) => self.engine.remove(id, Ended::Peer),
        }
    }

    /// Bytes as the peer meant them.
    pub(crate) fn on_plain(&mut self, id: ConnId, bytes: &mut [u8]) {
        match self.engine.conn(id).map(|conn| conn.phase) {
            Some(Phase::Head) => self.on_head(id, bytes),
            Some(Phase::Open | Phase::Closing) => self.on_frames(id, bytes),
            None => {}
        }
    }

    fn on_head(&mut self, id: ConnId, bytes: &mut [u8]) {
        let secure = self.engine.settings.secure;
        let Some(conn) = self.engine.conn_mut(id) else { return };
        conn.stopped = false;
        conn.inbound.keep(bytes);
        let mut kept = conn.inbound.take_pending();
        if secure && !kept.is_empty() {
            return self.hand_over(id, kept);
        }
        match head::parse(&kept) {
            Head::Partial => conn.inbound.keep(&kept),
            Head::Plain => self.hand_over(id, kept),
            Head::Upgrade { length, mut head, response } => match self.app.admit(&mut self.engine, id, &mut head) {
                Admission::HandOver => self.hand_over(id, kept),
                Admission::Wait => {
                    if let Some(conn) = self.engine.conn_mut(id) {
                        conn.inbound.keep(&kept);
                        conn.paused = true;
                    }
                }
                Admission::Open => {
                    self.open(id, &head, response);
                    kept.drain(..length);
                    if !kept.is_empty() {
                        self.on_frames(id, &mut kept);
                    }
                }
            },
        }
    }

    /// Gives a connection to the HTTP plane, with what was read of it.
    fn hand_over(&mut self, id: ConnId, kept: Vec<u8>) {
        let Some(conn) = self.engine.conn(id) else { return };
        if let Ok(copy) = conn.socket.as_fd().try_clone_to_owned() {
            (self.handoff)(TcpStream::from(copy), kept);
        }
        self.engine.remove(id, Ended::HandedOver);
    }

    /// Makes a connection a WebSocket; `response` is what accepts it, if nobody has sent that yet.
    pub(crate) fn open(&mut self, id: ConnId, head: &UpgradeHead, response: Vec<u8>) {
        let Some(conn) = self.engine.conn_mut(id) else { return };
        conn.phase = Phase::Open;
        self.engine.queue(id, response);
        self.engine.start_keepalive(id);
        let session = self.app.opened(&mut self.engine, id, head);
        if let Some(conn) = self.engine.conn_mut(id) {
            conn.session = Some(session);
            self.app.started(&mut self.engine, id);
        }
    }

    fn on_frames(&mut self, id: ConnId, bytes: &mut [u8]) {
        let Some(conn) = self.engine.conn_mut(id) else { return };
        if conn.deaf {
            return;
        }
        let mut inbound = std::mem::take(&mut conn.inbound);
        conn.stopped = false;
        let limit_bytes = conn.limit_bytes as usize;
        let decoded = inbound.decode(bytes, limit_bytes, |message| self.on_message(id, message));
        let Some(conn) = self.engine.conn_mut(id) else { return };
        conn.inbound = inbound;
        match decoded {
            Ok(flow) => {
                conn.stopped = flow == Flow::Stop && conn.inbound.has_pending();
                conn.choked = conn.out_bytes > HIGH_BYTES;
            }
            Err(violation) => {
                conn.inbound = crate::inbound::Inbound::default();
                conn.deaf = true;
                if conn.phase == Phase::Open {
                    conn.paused = true;
                    self.app.violation(&mut self.engine, id, violation);
                }
            }
        }
    }

    fn on_message(&mut self, id: ConnId, message: Message<'_>) -> Flow {
        let Some(conn) = self.engine.conn_mut(id) else { return Flow::Stop };
        if let Message::Close(code) = message {
            self.on_close(id, code);
            return Flow::Stop;
        }
        if conn.phase == Phase::Closing || conn.peer_close.is_some() {
            return Flow::Continue;
        }
        match message {
            Message::Text(payload) => self.app.message(&mut self.engine, id, payload, true),
            Message::Binary(payload) => self.app.message(&mut self.engine, id, payload, false),
            Message::Ping(payload) => self.engine.push_control(id, opcode::PONG, payload),
            Message::Pong => self.engine.pong(id),
            Message::Close(_) => {}
        }
        let stop = self.engine.conn(id).is_none_or(|conn| conn.paused || conn.out_bytes > HIGH_BYTES);
        if stop { Flow::Stop } else { Flow::Continue }
    }

    fn on_close(&mut self, id: ConnId, code: Option<u16>) {
        let Some(conn) = self.engine.conn_mut(id) else { return };
        if conn.peer_close.is_some() {
            return;
        }
        conn.peer_close = Some(code.unwrap_or(1005));
        match conn.phase {
            // The answer to our own close: done, once it is out.
            Phase::Closing if conn.is_idle() => self.engine.remove_closed(id),
            Phase::Closing => {}
            Phase::Head | Phase::Open => self.app.peer_closed(&mut self.engine, id),
        }
    }

    /// Tells the application what the engine has found out.
    pub(crate) fn dispatch(&mut self) {
        loop {
            if let Some((id, session, ended)) = self.engine.ended.pop() {
                self.peers[self.index].connections.fetch_sub(1, Ordering::Relaxed);
                if let Some(session) = session {
                    self.app.closed(&mut self.engine, id, session, ended);
                }
            } else if let Some(id) = self.engine.drained.pop() {
                if self.engine.conn(id).is_some() {
                    self.app.drained(&mut self.engine, id);
                }
            } else if let Some(id) = self.engine.undecided.pop() {
                let kept = self.engine.conn_mut(id).map(|conn| conn.inbound.take_pending());
                self.hand_over(id, kept.unwrap_or_default());
            } else {
                return;
            }
        }
    }

    /// One turn: messages from other threads, then sending, each for a bounded time.
    pub(crate) fn turn(&mut self) -> std::io::Result<()> {
        let begin = Instant::now();
        self.engine.turn_wanted = false;
        self.app.heard();
        let mut taken = 0u32;
        while let Some(command) = self.inbox.take() {
            match command {
                Command::App(message) => self.app.remote(&mut self.engine, message),
                Command::Connection(fd) => self.adopted.push((fd, None)),
                Command::Upgraded(stream, head, bytes, encryption) => {
                    self.adopted.push((OwnedFd::from(stream), Some((head, bytes, encryption))));
                }
                Command::Accept => self.accept = true,
                Command::CloseListener(done) => self.close_listener = Some(done),
                Command::Quit => self.quit = true,
            }
            taken += 1;
            if taken.is_multiple_of(16) && begin.elapsed() > TURN {
                break;
            }
        }
        self.dispatch();
        self.engine.flush(Instant::now() + TURN)?;
        self.dispatch();
        self.app.heard();
        self.engine.turn_wanted = false;
        self.engine.counts.turns_total += 1;
        self.app.turned(&mut self.engine, begin.elapsed());
        Ok(())
    }

    pub(crate) fn tick(&mut self) {
        let now_s = self.begun.elapsed().as_secs() as u32;
        if now_s > self.engine.now_s() {
            self.engine.tick(now_s);
            self.app.tick(&mut self.engine);
            self.dispatch();
        }
    }

    /// The shard that should take a new connection: this one, unless another has clearly fewer.
    pub(crate) fn placement(&self) -> usize {
        let load = |index: usize| self.peers[index].connections.load(Ordering::Relaxed);
        let mine = load(self.index);
        match (0..self.peers.len()).min_by_key(|index| load(*index)) {
            Some(other) if mine > load(other) + 1 + load(other) / 32 => other,
            _ => self.index,
        }
    }

    /// Hands a connection to another shard.
    pub(crate) fn give(&self, shard: usize, fd: OwnedFd) {
        self.peers[shard].connections.fetch_add(1, Ordering::Relaxed);
        self.peers[shard].inbox.send(Command::Connection(fd), 0);
    }

    /// Registers a socket; the caller watches it.
    pub(crate) fn register(&mut self, socket: OwnedFd) -> ConnId {
        self.engine.counts.accepted_total += 1;
        self.engine.insert(socket)
    }
}

impl<S> Engine<S> {
    /// Asks [`App::admit`] again about a connection whose upgrade waits.
    pub fn look_again(&mut self, id: ConnId) {
        if let Some(conn) = self.conn_mut(id)
            && conn.phase == Phase::Head
            && conn.paused
        {
            conn.paused = false;
            conn.stopped = true;
            self.wake(id);
        }
    }

    /// Where a connection came from.
    #[must_use]
    pub fn peer_address(&self, id: ConnId) -> Option<SocketAddr> {
        socket2::SockRef::from(&self.conn(id)?.socket).peer_addr().ok()?.as_socket()
    }

    /// Both closes are exchanged.
    fn remove_closed(&mut self, id: ConnId) {
        let code = self.conn(id).and_then(|conn| conn.sent_close).unwrap_or(1000);
        self.remove(id, Ended::Closed(code));
    }
}
