//! One shard: accepting, reading, flushing, the clock, on a pinned thread of a glommio executor.
//!
//! The executor brings the thread to its core; the waiting is done by [`Reactor`], on a ring of the shard's own.
//! glommio 0.9 makes a dozen system calls to go to sleep and wake up again, and it can go to sleep on tasks that are
//! ready: when something lies in its latency ring at the moment it begins to run tasks, it runs none, takes the
//! ring's entry for nothing, and parks. A shard has one thing to do at a time and needs no tasks, so here is a loop:
//! read what has come, take messages and send ([`Core::turn`]), wait. One wait is one system call.

use std::io;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use glommio::{LocalExecutorBuilder, Placement, PoolPlacement};

use crate::conn::{ConnId, Ended};
use crate::core::{Adopted, App, Command, Core, Handoff, Peer};
use crate::doorbell::Doorbell;
use crate::engine::{Engine, Settings};
use crate::inbox::Inbox;
use crate::kernel::{self, Received};
use crate::reactor::{Event, Reactor};
use crate::sender::Sent;

/// Bytes one read takes at most.
const READ_BYTES: usize = 64 * 1024;
/// Reads of one connection in a row before the others' turn.
const READS_IN_A_ROW: usize = 4;
/// Looks at the sockets before what was read is passed on, and how long they may take.
const LOOKS_IN_A_ROW: usize = 6;
const LOOKING: Duration = Duration::from_micros(100);
/// Connections accepted in a row before the others' turn.
const ACCEPTS_IN_A_ROW: usize = 64;
/// How long accepting rests when there is no descriptor or no place for another connection.
const ACCEPT_REST: Duration = Duration::from_millis(20);
/// The longest wait: the clock is looked at as often.
const TICK: Duration = Duration::from_millis(100);
/// Entries of the executor's rings, which have next to nothing to do.
const RING_ENTRIES: usize = 32;
/// The time slice a shard asks for: longer than the writer's, which may share the core and should run at once
/// when a sync is done.
const SLICE_NS: u64 = 300_000;
/// Memory the executor pins for file I/O, which a shard does not do.
const IO_MEMORY_BYTES: usize = 64 * 1024;

/// All that a shard needs to begin.
pub struct Setup<R> {
    /// Its place among its peers.
    pub index: usize,
    /// The processor it is pinned to.
    pub core: usize,
    /// Where it accepts.
    pub listener: TcpListener,
    /// Rings when somebody connects.
    pub doorbell: Doorbell,
    /// Limits and periods.
    pub settings: Settings,
    /// Its inbox.
    pub inbox: Inbox<Command<R>>,
    /// All shards, this one included.
    pub peers: Vec<Peer<R>>,
    /// Takes plain HTTP requests.
    pub handoff: Handoff,
}

/// Starts a shard on a thread of its own. `make` builds the application on that thread.
pub fn spawn<A: App>(
    setup: Setup<A::Remote>,
    make: impl FnOnce(&mut Engine<A::Session>) -> A + Send + 'static,
) -> io::Result<JoinHandle<io::Result<()>>> {
    std::thread::Builder::new().name(format!("shard-{}", setup.index)).spawn(move || {
        let executor = LocalExecutorBuilder::new(Placement::Fixed(setup.core))
            .name(&format!("shard-{}", setup.index))
            .io_memory(IO_MEMORY_BYTES)
            .ring_depth(RING_ENTRIES)
            .blocking_thread_pool_placement(PoolPlacement::Unbound(1))
            .make()
            .map_err(|error| io::Error::other(format!("the executor of core {} cannot start: {error}", setup.core)))?;
        crate::cores::prefer_latency(SLICE_NS);
        executor.run(async { Shard::new(setup, make)?.run() })
    })
}

struct Shard<A: App> {
    core: Core<A>,
    reactor: Reactor,
    bell: Arc<OwnedFd>,
    listener: Option<TcpListener>,
    doorbell: Doorbell,
    /// When accepting goes on after a rest.
    accept_at: Option<Instant>,
    /// Connections that have done enough in a row.
    rested: Vec<ConnId>,
    events: Vec<Event>,
}

impl<A: App> Shard<A> {
    fn new(mut setup: Setup<A::Remote>, make: impl FnOnce(&mut Engine<A::Session>) -> A) -> io::Result<Self> {
        let bell = setup.inbox.take_bell().ok_or_else(|| io::Error::other("the inbox belongs to another shard"))?;
        let mut engine = Engine::new(setup.settings)?;
        let app = make(&mut engine);
        let core = Core {
            engine,
            app,
            inbox: setup.inbox,
            peers: setup.peers,
            index: setup.index,
            handoff: setup.handoff,
            scratch: vec![0; READ_BYTES],
            opened: Vec::new(),
            begun: Instant::now(),
            adopted: Vec::new(),
            accept: false,
            close_listener: None,
            quit: false,
        };
        let mut reactor = Reactor::new()?;
        reactor.watch_bell(bell.as_raw_fd());
        setup.doorbell.watch(&setup.listener, setup.index)?;
        Ok(Self {
            core,
            reactor,
            bell,
            listener: Some(setup.listener),
            doorbell: setup.doorbell,
            accept_at: None,
            rested: Vec::new(),
            events: Vec::new(),
        })
    }

    fn run(mut self) -> io::Result<()> {
        loop {
            self.core.turn()?;
            for adopted in std::mem::take(&mut self.core.adopted) {
                self.start(adopted);
            }
            if let Some(done) = self.core.close_listener.take() {
                self.listener = None;
                drop(done);
            }
            self.accept()?;
            if self.core.quit {
                return Ok(());
            }
            self.look_after();
            let patience = self.patience();
            let before = Instant::now();
            self.reactor.wait(patience, &mut self.events)?;
            let now = Instant::now();
            let engine = &mut self.core.engine;
            let before = if patience.is_zero() { now } else { before };
            engine.pace.turned(before, now, engine.counts.delivered_frames_total);
            self.serve();
            if self.core.engine.turn_wanted {
                self.listen_on(Instant::now() + LOOKING)?;
            }
            self.core.tick();
        }
    }

    /// How long nothing has to be done but by those who are waited for.
    fn patience(&self) -> Duration {
        let engine = &self.core.engine;
        let busy = engine.turn_wanted
            || engine.has_output()
            || !engine.ended.is_empty()
            || !engine.drained.is_empty()
            || !engine.woken.is_empty()
            || !self.rested.is_empty()
            || !self.core.adopted.is_empty()
            || (self.core.accept && self.listener.is_some());
        if busy || !self.core.inbox.sleep() {
            return Duration::ZERO;
        }
        let rests = [self.accept_at, engine.rest_ends()];
        let rest = rests.into_iter().flatten().min().map(|at| at.saturating_duration_since(Instant::now()));
        rest.map_or(TICK, |rest| rest.min(TICK)).max(Duration::from_micros(1))
    }

    /// Reads those too who have spoken while others were read, so that what they say is passed on together: whoever is
    /// woken by it may take the core at once, and peers that were answered together come back within microseconds.
    fn listen_on(&mut self, until: Instant) -> io::Result<()> {
        for _ in 1..LOOKS_IN_A_ROW {
            self.reactor.wait(Duration::ZERO, &mut self.events)?;
            if self.events.is_empty() {
                break;
            }
            self.serve();
            if Instant::now() >= until {
                break;
            }
        }
        Ok(())
    }

    /// Acts on what the wait has brought, then on those who had more than their turn.
    fn serve(&mut self) {
        let mut events = std::mem::take(&mut self.events);
        let rested = std::mem::take(&mut self.rested);
        for event in events.drain(..) {
            match event {
                Event::Read { id, hung_up, watched } => {
                    let Some(conn) = self.core.engine.conn_mut(id) else { continue };
                    conn.readable = true;
                    conn.hung_up |= hung_up;
                    if !watched {
                        let fd = conn.fd();
                        self.reactor.watch(fd, id);
                    }
                    self.read(id);
                }
                Event::Room(id) => self.write(id),
                Event::Bell { watched: true } => {}
                Event::Bell { watched: false } => self.reactor.watch_bell(self.bell.as_raw_fd()),
            }
        }
        self.events = events;
        for id in rested {
            self.read(id);
        }
        if self.accept_at.is_some_and(|at| at <= Instant::now()) {
            self.accept_at = None;
            self.core.accept = true;
        }
    }

    /// Gives up the watches of connections that are gone, and looks after those that asked for it.
    fn look_after(&mut self) {
        for id in std::mem::take(&mut self.core.engine.woken) {
            let Some(conn) = self.core.engine.conn_mut(id) else { continue };
            conn.woken = false;
            if conn.blocked && !conn.room_watched {
                conn.room_watched = true;
                let fd = conn.fd();
                self.reactor.watch_room(fd, id);
            }
            self.read(id);
        }
        for (id, room) in self.core.engine.gone.drain(..) {
            self.reactor.forget(id, room);
        }
    }

    /// Accepts those who wait, a bounded number. Where descriptors or places have run out, they go on waiting in the
    /// kernel's queue and the next look comes later.
    fn accept(&mut self) -> io::Result<()> {
        if !std::mem::take(&mut self.core.accept) {
            return Ok(());
        }
        for _ in 0..ACCEPTS_IN_A_ROW {
            let Some(listener) = &self.listener else { return Ok(()) };
            if self.core.engine.connections() >= self.core.engine.settings.max_connections {
                self.accept_at = Some(Instant::now() + ACCEPT_REST);
                return Ok(());
            }
            match accept_one(listener) {
                Ok(socket) => self.admit(socket),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return self.doorbell.arm(listener, self.core.index);
                }
                // The peer gave up meanwhile.
                Err(error) if matches!(error.raw_os_error(), Some(libc::ECONNABORTED | libc::EINTR)) => {}
                Err(_) => {
                    self.core.engine.counts.accept_errors_total += 1;
                    self.accept_at = Some(Instant::now() + ACCEPT_REST);
                    return Ok(());
                }
            }
        }
        self.core.accept = true;
        Ok(())
    }

    fn admit(&mut self, fd: OwnedFd) {
        let shard = self.core.placement();
        if shard != self.core.index {
            return self.core.give(shard, fd);
        }
        self.core.peers[self.core.index].connections.fetch_add(1, Relaxed);
        self.start((fd, None));
    }

    /// Registers a socket and watches it.
    fn start(&mut self, (fd, upgraded): Adopted) {
        let socket = socket2::Socket::from(fd);
        // Replies and rows are whole when they are sent; nothing is gained by waiting for more.
        let _ = socket.set_tcp_nodelay(true);
        let fd = socket.as_raw_fd();
        let id = self.core.register(OwnedFd::from(socket));
        self.reactor.watch(fd, id);
        if let Some((head, mut bytes, encryption)) = upgraded {
            self.core.engine.encrypt(id, encryption);
            self.core.open(id, &head, Vec::new());
            self.core.on_plain(id, &mut bytes);
            self.core.dispatch();
            // Records that came before the kernel had the keys are not reported.
            if let Some(conn) = self.core.engine.conn_mut(id).filter(|conn| conn.kernel.is_some()) {
                conn.readable = true;
                self.read(id);
            }
        }
    }

    /// Reads a connection until there is nothing left, or it is the others' turn.
    fn read(&mut self, id: ConnId) {
        for _ in 0..READS_IN_A_ROW {
            let Some(conn) = self.core.engine.conn_mut(id) else { return };
            if conn.kernel.is_some_and(|keys| keys.changed) {
                conn.readable = false;
                if conn.hung_up {
                    self.core.engine.abort(id);
                    self.core.dispatch();
                }
                return;
            }
            if conn.paused || conn.choked {
                return;
            }
            if conn.stopped {
                self.core.on_bytes(id, &mut []);
                continue;
            }
            if !conn.readable {
                return;
            }
            let mut scratch = std::mem::take(&mut self.core.scratch);
            let recorded = conn.kernel.is_some();
            let received = match recorded {
                true => kernel::receive(conn.fd(), &mut scratch),
                false => receive(conn.fd(), &mut scratch).map(Received::Data),
            };
            match received {
                Ok(Received::Data(count)) if count > 0 => {
                    // A short read has taken everything; only the end can follow without being reported. But a record
                    // that is no data makes a read short as well.
                    conn.readable = recorded || count == scratch.len() || conn.hung_up;
                    self.core.on_bytes(id, &mut scratch[..count]);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => conn.readable = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(Received::Handshake) => {
                    self.core.engine.changed_keys(id);
                    self.core.dispatch();
                }
                Ok(_) | Err(_) => {
                    self.core.engine.remove(id, Ended::Peer);
                    self.core.dispatch();
                }
            }
            self.core.scratch = scratch;
        }
        let more = |conn: &crate::conn::Conn<A::Session>| conn.stopped || conn.readable;
        if self.core.engine.conn(id).is_some_and(more) && !self.rested.contains(&id) {
            self.rested.push(id);
        }
    }

    /// Writes to a socket that was full.
    fn write(&mut self, id: ConnId) {
        let Some(conn) = self.core.engine.conn_mut(id) else { return };
        conn.room_watched = false;
        if !conn.blocked {
            return;
        }
        let fd = conn.fd();
        match self.core.engine.with_next_bytes(id, |bytes| transmit(fd, bytes)) {
            Some(Ok(taken)) => self.core.engine.unblock(id, taken),
            Some(Err(error)) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                self.core.engine.wake(id);
            }
            Some(Err(_)) => self.core.engine.own_sent(id, 0, Sent::Failed(libc::EPIPE)),
            None => self.core.engine.unblock(id, 0),
        }
        self.core.dispatch();
    }
}

fn accept_one(listener: &TcpListener) -> io::Result<OwnedFd> {
    // SAFETY: no address is asked for; the result is checked before it is owned.
    unsafe {
        let fd = libc::accept4(
            listener.as_raw_fd(),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK,
        );
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(fd)) }
    }
}

fn receive(fd: RawFd, buffer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the kernel writes at most `buffer.len()` bytes to `buffer`.
    let count = unsafe { libc::recv(fd, buffer.as_mut_ptr().cast(), buffer.len(), libc::MSG_DONTWAIT) };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}

fn transmit(fd: RawFd, bytes: &[u8]) -> io::Result<usize> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the kernel reads at most `bytes.len()` bytes of `bytes`.
    let count = unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), flags) };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}
