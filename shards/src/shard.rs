//! The tasks of one shard on its glommio executor: accepting, reading, flushing, the clock.
//!
//! The executor (glommio 0.9) can go to sleep on tasks that are ready: when something lies in its latency ring at
//! the moment it begins to run tasks - its preemption timer, or a wake-up from another thread whose task it has
//! already seen - it runs none, takes the ring's entry for nothing, and parks. Seen as stalls until the next
//! timer, and more often the shorter the preemption timer is. So nothing here uses that ring: there is no
//! preemption (tasks are short and rest by themselves, see `rest`), other threads ring a socket, and the clock
//! ticks often enough to bound what might be left of it.
//!
//! This is the only file that knows the executor. A connection's task reads with the shard's one buffer and,
//! when the socket was full, writes again when it has room; everything else is the flush task's.

use std::cell::RefCell;
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use futures_lite::future::poll_fn;
use futures_lite::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use glommio::net::{TcpStream, UnixStream};
use glommio::{LocalExecutorBuilder, Placement, PoolPlacement};

use crate::conn::{ConnId, Ended};
use crate::core::{Adopted, App, Command, Core, Handoff, Peer};
use crate::doorbell::Doorbell;
use crate::engine::{Engine, Settings};
use crate::inbox::Inbox;
use crate::sender::Sent;

/// Bytes one read takes at most.
const READ_BYTES: usize = 64 * 1024;
/// Reads of one connection in a row before the others' turn.
const READS_IN_A_ROW: usize = 4;
/// Connections accepted in a row before the others' turn.
const ACCEPTS_IN_A_ROW: usize = 64;
/// How long accepting rests when there is no descriptor or no place for another connection.
const ACCEPT_REST: Duration = Duration::from_millis(20);
/// The executor's own preemption, out of the way.
const PREEMPT: Duration = Duration::from_secs(3600);
/// Entries of the executor's rings. As many completions in one go would preempt, too.
const RING_ENTRIES: usize = 1024;
/// How long a busy task waits so that the executor looks at its rings: past the first look at the timer, and over
/// when the rings have been looked at.
const REST: Duration = Duration::from_nanos(500);
/// Between two ticks of the clock.
const TICK: Duration = Duration::from_millis(10);
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
            .preempt_timer(PREEMPT)
            .ring_depth(RING_ENTRIES)
            .blocking_thread_pool_placement(PoolPlacement::Unbound(1))
            .make()
            .map_err(|error| io::Error::other(format!("the executor of core {} cannot start: {error}", setup.core)))?;
        crate::cores::prefer_latency(SLICE_NS);
        executor.run(run(setup, make))
    })
}

async fn run<A: App>(mut setup: Setup<A::Remote>, make: impl FnOnce(&mut Engine<A::Session>) -> A) -> io::Result<()> {
    let bell = setup.inbox.take_bell().ok_or_else(|| io::Error::other("the inbox belongs to another shard"))?;
    let mut engine = Engine::new(setup.settings)?;
    let app = make(&mut engine);
    let core = Rc::new(RefCell::new(Core {
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
        rested: Vec::new(),
    }));
    let bell = glommio::spawn_local(answer(Rc::clone(&core), bell));
    let (index, doorbell) = (setup.index, setup.doorbell);
    doorbell.watch(&setup.listener, index)?;
    let mut listener = Some(setup.listener);
    let clock = glommio::spawn_local(clock(Rc::clone(&core)));
    loop {
        let (adopted, closing, quit) = {
            let mut core = core.borrow_mut();
            core.turn()?;
            (std::mem::take(&mut core.adopted), core.close_listener.take(), core.quit)
        };
        for adopted in adopted {
            start(&core, adopted);
        }
        if let Some(done) = closing {
            listener = None;
            drop(done);
        }
        let rung = std::mem::take(&mut core.borrow_mut().accept);
        if let Some(listener) = listener.as_ref().filter(|_| rung) {
            accept(&core, listener, &doorbell)?;
        }
        if quit {
            break;
        }
        let busy = {
            let core = core.borrow();
            core.engine.has_output() || core.accept || !core.rested.is_empty()
        };
        if busy {
            glommio::timer::sleep(REST).await;
            std::mem::take(&mut core.borrow_mut().rested).into_iter().for_each(Waker::wake);
        } else {
            work(&core).await;
        }
    }
    clock.cancel().await;
    bell.cancel().await;
    Ok(())
}

/// Waits until there is something for a turn to do.
async fn work<A: App>(core: &Rc<RefCell<Core<A>>>) {
    poll_fn(|context| {
        let mut core = core.borrow_mut();
        if core.engine.turn_wanted || !core.engine.ended.is_empty() || !core.engine.drained.is_empty() {
            return Poll::Ready(());
        }
        core.engine.flush_waker = Some(context.waker().clone());
        if core.inbox.sleep() { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
}

/// Wakes the flush task when another thread has rung.
async fn answer<A: App>(core: Rc<RefCell<Core<A>>>, bell: std::os::unix::net::UnixStream) {
    // SAFETY: the executor's stream is the descriptor's only owner from here on.
    let mut bell = unsafe { UnixStream::from_raw_fd(bell.into_raw_fd()) };
    let mut rung = [0; 64];
    while let Ok(1..) = bell.read(&mut rung).await {
        core.borrow_mut().engine.wake_flush();
    }
}

async fn clock<A: App>(core: Rc<RefCell<Core<A>>>) {
    loop {
        glommio::timer::sleep(TICK).await;
        let mut core = core.borrow_mut();
        core.tick();
        core.engine.wake_flush();
    }
}

/// Accepts those who wait, a bounded number. Where descriptors or places have run out, they go on waiting in the
/// kernel's queue and the next look comes later.
fn accept<A: App>(core: &Rc<RefCell<Core<A>>>, listener: &TcpListener, doorbell: &Doorbell) -> io::Result<()> {
    for _ in 0..ACCEPTS_IN_A_ROW {
        let full = core.borrow().engine.connections() >= core.borrow().engine.settings.max_connections;
        if full {
            look_later(core);
            return Ok(());
        }
        match accept_one(listener) {
            Ok(socket) => admit(core, socket),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return doorbell.arm(listener, core.borrow().index);
            }
            // The peer gave up meanwhile.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ECONNABORTED | libc::EINTR)) => {}
            Err(_) => {
                core.borrow_mut().engine.counts.accept_errors_total += 1;
                look_later(core);
                return Ok(());
            }
        }
    }
    core.borrow_mut().accept = true;
    Ok(())
}

fn look_later<A: App>(core: &Rc<RefCell<Core<A>>>) {
    let core = Rc::clone(core);
    glommio::spawn_local(async move {
        glommio::timer::sleep(ACCEPT_REST).await;
        let mut core = core.borrow_mut();
        core.accept = true;
        core.engine.wake_flush();
    })
    .detach();
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

fn admit<A: App>(core: &Rc<RefCell<Core<A>>>, fd: OwnedFd) {
    let shard = core.borrow().placement();
    if shard != core.borrow().index {
        return core.borrow().give(shard, fd);
    }
    {
        let core = core.borrow();
        core.peers[core.index].connections.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
    start(core, (fd, None));
}

/// Registers a socket and starts the task that reads it.
fn start<A: App>(core: &Rc<RefCell<Core<A>>>, (fd, upgraded): Adopted) {
    let socket = socket2::Socket::from(fd);
    // Replies and rows are whole when they are sent; nothing is gained by waiting for more.
    let _ = socket.set_tcp_nodelay(true);
    let id = core.borrow_mut().register(&socket);
    // SAFETY: the descriptor is open and has no other owner from here on.
    let stream = unsafe { TcpStream::from_raw_fd(socket.into_raw_fd()) };
    glommio::spawn_local(serve(Rc::clone(core), id, stream)).detach();
    if let Some((head, mut bytes, cipher)) = upgraded {
        let mut core = core.borrow_mut();
        core.secure(id, cipher);
        core.open(id, &head, Vec::new());
        core.on_plain(id, &mut bytes);
        core.dispatch();
    }
}

/// Reads a connection until it is gone. The socket closes when this ends.
async fn serve<A: App>(core: Rc<RefCell<Core<A>>>, id: ConnId, mut stream: TcpStream) {
    poll_fn(|context| {
        let mut core = core.borrow_mut();
        if write(&mut core, id, &mut stream, context).is_ready() {
            return Poll::Ready(());
        }
        for _ in 0..READS_IN_A_ROW {
            let Some(conn) = core.engine.conn_mut(id) else { return Poll::Ready(()) };
            match &conn.waker {
                Some(waker) if waker.will_wake(context.waker()) => {}
                _ => conn.waker = Some(context.waker().clone()),
            }
            if conn.paused || conn.choked {
                return Poll::Pending;
            }
            if conn.stopped {
                core.on_bytes(id, &mut []);
                continue;
            }
            let mut scratch = std::mem::take(&mut core.scratch);
            let read = Pin::new(&mut stream).poll_read(context, &mut scratch);
            match read {
                Poll::Ready(Ok(count)) if count > 0 => core.on_bytes(id, &mut scratch[..count]),
                Poll::Ready(_) => {
                    core.engine.remove(id, Ended::Peer);
                    core.dispatch();
                }
                Poll::Pending => {
                    core.scratch = scratch;
                    return Poll::Pending;
                }
            }
            core.scratch = scratch;
        }
        // The others' turn, and the rings'.
        core.rested.push(context.waker().clone());
        core.engine.wake_flush();
        Poll::Pending
    })
    .await;
}

/// Writes to a socket that was full; ready when the connection is gone.
fn write<A: App>(core: &mut Core<A>, id: ConnId, stream: &mut TcpStream, context: &mut Context<'_>) -> Poll<()> {
    let Some(conn) = core.engine.conn(id) else { return Poll::Ready(()) };
    if !conn.blocked {
        return Poll::Pending;
    }
    let written = core.engine.with_next_bytes(id, |bytes| Pin::new(&mut *stream).poll_write(context, bytes));
    match written {
        Some(Poll::Pending) => {}
        Some(Poll::Ready(Ok(taken))) => core.engine.unblock(id, taken),
        Some(Poll::Ready(Err(_))) => core.engine.own_sent(id, 0, Sent::Failed(libc::EPIPE)),
        None => core.engine.unblock(id, 0),
    }
    core.dispatch();
    if core.engine.conn(id).is_some() { Poll::Pending } else { Poll::Ready(()) }
}
