//! The state of one shard: its connections, its feeds, and what the application may do with them.
//!
//! Everything here happens on the shard's own thread and nothing waits. Bytes leave in `flush.rs`; timers are
//! in `timers.rs`; sockets are read in `shard.rs`.

use std::collections::VecDeque;
use std::os::fd::{OwnedFd, RawFd};
use std::time::{Duration, Instant};

use slab::Slab;

use crate::conn::{Chunk, Conn, ConnId, Ended, MAX_GENERATION, Phase};
use crate::frame;
use crate::pace::{Feed, Pace};
use crate::sender::Sender;
use crate::wheel::Wheel;

/// Limits and periods of a shard.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Idle time after which a peer is pinged, in seconds.
    pub ping_s: u32,
    /// Time a peer has for its pong, in seconds.
    pub pong_timeout_s: u32,
    /// Time a peer has for a complete request head, in seconds.
    pub head_timeout_s: u32,
    /// Time a closing handshake may take, in seconds.
    pub close_timeout_s: u32,
    /// Connections this shard holds at once; more wait in the kernel's queue.
    pub max_connections: usize,
    /// Connections begin encrypted: the HTTP plane makes the handshake and gives upgraded ones back.
    pub secure: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            ping_s: 20,
            pong_timeout_s: 20,
            head_timeout_s: 10,
            close_timeout_s: 10,
            max_connections: 1 << 20,
            secure: false,
        }
    }
}

/// Names a feed of one shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FeedId(pub(crate) u32);

/// How far subscribers of a feed may fall behind.
#[derive(Debug, Clone, Copy)]
pub struct FeedLimits {
    /// Frames that may wait for a subscriber whose socket is full or whose replay is not over.
    pub max_backlog_frames: usize,
    /// Bytes that may wait for any subscriber.
    pub max_backlog_bytes: u64,
}

/// A subscriber that has fallen too far behind; see [`Engine::append`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lagging {
    /// Who.
    pub conn: ConnId,
    /// Whether it is held, that is, still replaying.
    pub held: bool,
    /// The feed position up to which frames were accepted for it.
    pub(crate) accepted: u64,
}

/// Reasons for which a slot is passed over by the flush.
pub(crate) const HELD: u8 = 1;
pub(crate) const BLOCKED: u8 = 2;
pub(crate) const OWN_BYTES: u8 = 4;
/// Not a reason, but another way to send.
pub(crate) const SECURED: u8 = 8;
/// As in clear, but what is sent is counted.
pub(crate) const KERNEL: u8 = 16;

/// A subscriber's place in its feed: all that the flush needs to send to it.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) conn: ConnId,
    pub(crate) fd: RawFd,
    pub(crate) flags: u8,
    pub(crate) position: u64,
    /// Frames of the feed that were counted as delivered or passed by before it joined.
    pub(crate) counted_frames: u64,
}

/// What a shard has done and holds; the application publishes it.
#[derive(Debug, Default, Clone, Copy)]
pub struct Counts {
    /// Connections accepted.
    pub accepted_total: u64,
    /// Accepts that failed.
    pub accept_errors_total: u64,
    /// Row frames handed to sockets from feeds.
    pub delivered_frames_total: u64,
    /// Bytes handed to sockets.
    pub sent_bytes_total: u64,
    /// Send operations.
    pub sends_total: u64,
    /// Bytes read.
    pub received_bytes_total: u64,
    /// Bytes retained in feeds.
    pub feed_bytes: u64,
    /// The largest distance of a subscriber from the end of its feed at the last append, in frames.
    pub max_lag_frames: u64,
    /// Turns of the flush loop.
    pub turns_total: u64,
    /// Connections open now whose records the shard makes.
    pub tls_shard_connections: u64,
    /// Connections open now whose records the kernel makes.
    pub tls_kernel_connections: u64,
}

/// One shard's state; `S` is the application's per-connection state.
pub struct Engine<S> {
    pub(crate) conns: Slab<Conn<S>>,
    generation: u32,
    pub(crate) feeds: Slab<Feed>,
    pub(crate) sender: Sender,
    /// What was sealed for the batch that is being filled.
    pub(crate) sealed: Vec<u8>,
    pub(crate) settings: Settings,
    pub(crate) wheel: Wheel<ConnId>,
    /// Connections with bytes of their own to send.
    pub(crate) listed: Vec<ConnId>,
    pub(crate) listed_feeds: VecDeque<u32>,
    /// Feeds whose next pass waits for more.
    pub(crate) resting: Vec<u32>,
    pub(crate) pace: Pace,
    /// Connections that ended, for the application.
    pub(crate) ended: Vec<(ConnId, Option<S>, Ended)>,
    /// Connections whose own bytes are out, for the application.
    pub(crate) drained: Vec<ConnId>,
    /// Connections whose upgrade has waited for its admission until the time of a head was over.
    pub(crate) undecided: Vec<ConnId>,
    /// A turn is wanted whether there is something to send or not.
    pub(crate) turn_wanted: bool,
    /// Connections that the shard has to look after: reading goes on, or room is waited for.
    pub(crate) woken: Vec<ConnId>,
    /// Connections that are gone and still watched, and whether for room, too.
    pub(crate) gone: Vec<(ConnId, bool)>,
    /// What has happened.
    pub counts: Counts,
}

impl<S> Engine<S> {
    pub(crate) fn new(settings: Settings) -> std::io::Result<Self> {
        Ok(Self {
            conns: Slab::new(),
            generation: 0,
            feeds: Slab::new(),
            sender: Sender::new()?,
            sealed: Vec::new(),
            settings,
            wheel: Wheel::default(),
            listed: Vec::new(),
            listed_feeds: VecDeque::new(),
            resting: Vec::new(),
            pace: Pace::new(Instant::now()),
            ended: Vec::new(),
            drained: Vec::new(),
            undecided: Vec::new(),
            turn_wanted: false,
            woken: Vec::new(),
            gone: Vec::new(),
            counts: Counts::default(),
        })
    }

    // -- connections ------------------------------------------------------------------------------------

    pub(crate) fn insert(&mut self, socket: OwnedFd) -> ConnId {
        self.generation = (self.generation + 1) & MAX_GENERATION;
        let deadline_s = self.wheel.now_s() + self.settings.head_timeout_s;
        let index = self.conns.insert(Conn::new(socket, self.generation, deadline_s)) as u32;
        let id = ConnId { index, generation: self.generation };
        // The first look also serves the first ping, which may come sooner.
        self.wheel.set(id, self.wheel.now_s() + self.settings.head_timeout_s.min(self.settings.ping_s));
        id
    }

    pub(crate) fn conn(&self, id: ConnId) -> Option<&Conn<S>> {
        self.conns.get(id.index as usize).filter(|conn| conn.generation == id.generation)
    }

    pub(crate) fn conn_mut(&mut self, id: ConnId) -> Option<&mut Conn<S>> {
        self.conns.get_mut(id.index as usize).filter(|conn| conn.generation == id.generation)
    }

    /// Connections open now.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.conns.len()
    }

    /// The application's state of a connection that is open.
    pub fn session(&mut self, id: ConnId) -> Option<&mut S> {
        self.conn_mut(id).and_then(|conn| conn.session.as_mut())
    }

    /// Every upgraded connection that is not closing.
    #[must_use]
    pub fn open_connections(&self) -> Vec<ConnId> {
        let open = |(index, conn): (usize, &Conn<S>)| {
            (conn.phase == Phase::Open).then_some(ConnId { index: index as u32, generation: conn.generation })
        };
        self.conns.iter().filter_map(open).collect()
    }

    /// Bounds the messages this connection may send, in bytes over all fragments.
    pub fn limit_messages(&mut self, id: ConnId, limit_bytes: usize) {
        if let Some(conn) = self.conn_mut(id) {
            conn.limit_bytes = u32::try_from(limit_bytes).unwrap_or(u32::MAX);
        }
    }

    /// Queues whole frames for this connection alone, after what is queued already.
    pub fn queue(&mut self, id: ConnId, frames: Vec<u8>) {
        self.push(id, Chunk::Own(frames));
    }

    /// Queues a page of a replay.
    pub fn queue_page(&mut self, id: ConnId, frames: Vec<u8>) {
        self.push(id, Chunk::Page(frames));
    }

    /// Bytes queued for this connection alone.
    #[must_use]
    pub fn queued_bytes(&self, id: ConnId) -> usize {
        self.conn(id).map_or(0, |conn| conn.out_bytes)
    }

    /// Asks for [`crate::App::drained`] once fewer than [`crate::flush::LOW_BYTES`] are queued.
    pub fn notify_drained(&mut self, id: ConnId) {
        if let Some(conn) = self.conn_mut(id) {
            conn.want_drained = true;
            if conn.out_bytes < crate::flush::LOW_BYTES {
                conn.want_drained = false;
                self.drained.push(id);
                self.wake_flush();
            }
        }
    }

    fn push(&mut self, id: ConnId, chunk: Chunk) {
        self.finish_partial_frame(id);
        if let Some(conn) = self.conn_mut(id)
            && conn.phase != Phase::Closing
        {
            conn.push(chunk);
            self.list(id);
        }
    }

    pub(crate) fn push_control(&mut self, id: ConnId, opcode: u8, payload: &[u8]) {
        self.finish_partial_frame(id);
        if let Some(conn) = self.conn_mut(id)
            && conn.phase == Phase::Open
        {
            let mut bytes = Vec::with_capacity(payload.len() + 2);
            frame::push_frame(&mut bytes, opcode, payload);
            conn.push_control(bytes);
            self.list(id);
        }
    }

    /// Where a subscriber has taken part of a feed's frame, the rest of it goes before anything else.
    pub(crate) fn finish_partial_frame(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(id.index as usize).filter(|conn| conn.generation == id.generation) else {
            return;
        };
        let Some((feed, slot)) = conn.sub else { return };
        let feed = &mut self.feeds[feed as usize];
        let slot = &mut feed.slots[slot as usize];
        let boundary = feed.ring.boundary_after(slot.position);
        if boundary > slot.position {
            debug_assert!(conn.out.is_empty(), "bytes of its own wait for a frame boundary");
            for run in feed.ring.runs(slot.position, boundary) {
                conn.push(Chunk::Shared(run));
            }
            slot.position = boundary;
        }
    }

    /// Puts a connection with bytes of its own on the list of the flush.
    pub(crate) fn list(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(id.index as usize).filter(|conn| conn.generation == id.generation) else {
            return;
        };
        if let Some((feed, slot)) = conn.sub {
            self.feeds[feed as usize].slots[slot as usize].flags |= OWN_BYTES;
        }
        if !conn.listed && !conn.blocked {
            conn.listed = true;
            self.listed.push(id);
        }
        self.wake_flush();
    }

    pub(crate) fn list_feed(&mut self, feed: u32) {
        let found = &mut self.feeds[feed as usize];
        if !found.listed {
            found.listed = true;
            self.listed_feeds.push_back(feed);
        }
        self.wake_flush();
    }

    /// Asks for a turn of the shard: [`crate::App::heard`] is called at its beginning.
    pub fn wake_flush(&mut self) {
        self.turn_wanted = true;
    }

    /// Has the shard look after a connection.
    pub(crate) fn wake(&mut self, id: ConnId) {
        if let Some(conn) = self.conn_mut(id)
            && !conn.woken
        {
            conn.woken = true;
            self.woken.push(id);
        }
    }

    /// Stops reading from the peer; what it sends waits in the kernel.
    pub fn pause_reading(&mut self, id: ConnId) {
        if let Some(conn) = self.conn_mut(id) {
            conn.paused = true;
        }
    }

    /// Reads on, first what was kept.
    pub fn resume_reading(&mut self, id: ConnId) {
        if let Some(conn) = self.conn_mut(id)
            && conn.paused
        {
            conn.paused = false;
            self.wake(id);
        }
    }

    /// Whether the application has paused reading.
    #[must_use]
    pub fn is_paused(&self, id: ConnId) -> bool {
        self.conn(id).is_some_and(|conn| conn.paused)
    }

    /// Closes with a code and a reason (at most 123 bytes) after what is queued, and leaves the feed.
    pub fn close(&mut self, id: ConnId, code: u16, reason: &str) {
        self.finish_partial_frame(id);
        self.unsubscribe(id);
        self.begin_close(id, code, reason);
    }

    /// The same, but a subscriber that is dropped still gets the frames that were accepted for it, after its
    /// replay if it has not had it all; see [`Engine::release`].
    pub fn drop_lagging(&mut self, lagging: Lagging, code: u16, reason: &str) {
        let id = lagging.conn;
        let Some((feed, slot)) = self.conn(id).and_then(|conn| conn.sub) else { return };
        let feed = &self.feeds[feed as usize];
        let position = feed.slots[slot as usize].position;
        let runs = feed.ring.runs(position, lagging.accepted);
        self.unsubscribe(id);
        let Some(conn) = self.conn_mut(id) else { return };
        if lagging.held {
            let mut tail: Vec<Chunk> = runs.into_iter().map(Chunk::Shared).collect();
            let mut close = Vec::new();
            frame::push_close(&mut close, code, reason);
            tail.push(Chunk::Own(close));
            conn.tail = Some(tail.into_boxed_slice());
            conn.sent_close = Some(code);
        } else {
            for run in runs {
                conn.push(Chunk::Shared(run));
            }
            self.begin_close(id, code, reason);
        }
    }

    fn begin_close(&mut self, id: ConnId, code: u16, reason: &str) {
        let timeout_s = self.settings.close_timeout_s;
        let deadline_s = self.wheel.now_s() + timeout_s;
        let Some(conn) = self.conn_mut(id) else { return };
        if conn.phase == Phase::Closing {
            return;
        }
        let mut close = Vec::new();
        frame::push_close(&mut close, code, reason);
        conn.push(Chunk::Own(close));
        conn.phase = Phase::Closing;
        conn.sent_close = Some(code);
        conn.deadline_s = deadline_s;
        conn.paused = false;
        self.wake(id);
        self.wheel.set(id, deadline_s);
        self.list(id);
    }

    /// Answers the peer's close: what has not begun is forgotten except frames of its own, and the connection
    /// ends when the echo is out.
    pub fn echo_close(&mut self, id: ConnId) {
        self.finish_partial_frame(id);
        self.unsubscribe(id);
        let Some(conn) = self.conn_mut(id) else { return };
        let code = conn.peer_close.unwrap_or(1005);
        conn.discard_queued(true);
        self.begin_close(id, if code == 1005 { 1000 } else { code }, "");
    }

    /// Ends a connection at once, without a word.
    pub fn abort(&mut self, id: ConnId) {
        let code = self.conn(id).and_then(|conn| conn.sent_close);
        self.remove(id, code.map_or(Ended::TimedOut, Ended::Closed));
    }

    pub(crate) fn remove(&mut self, id: ConnId, ended: Ended) {
        if self.conn(id).is_none() {
            return;
        }
        self.unsubscribe(id);
        let mut conn = self.conns.remove(id.index as usize);
        crate::cipher::farewell(&mut conn);
        self.counts.tls_shard_connections -= u64::from(conn.secured.is_some());
        self.counts.tls_kernel_connections -= u64::from(conn.kernel.is_some());
        self.gone.push((id, conn.room_watched));
        self.ended.push((id, conn.session.take(), ended));
        self.wake_flush();
    }

    // -- feeds ------------------------------------------------------------------------------------------

    /// A new feed without frames or subscribers.
    pub fn create_feed(&mut self, limits: FeedLimits) -> FeedId {
        FeedId(self.feeds.insert(Feed::new(limits)) as u32)
    }

    /// Ends a feed that has no subscriber left; false if it has.
    pub fn remove_feed(&mut self, feed: FeedId) -> bool {
        match self.feeds.get(feed.0 as usize) {
            Some(found) if found.slots.is_empty() => {
                self.listed_feeds.retain(|listed| *listed != feed.0);
                self.resting.retain(|resting| *resting != feed.0);
                self.counts.feed_bytes -= found.ring.retained_bytes();
                self.feeds.remove(feed.0 as usize);
                true
            }
            _ => false,
        }
    }

    /// Subscribers of a feed.
    #[must_use]
    pub fn subscribers(&self, feed: FeedId) -> usize {
        self.feeds.get(feed.0 as usize).map_or(0, |feed| feed.slots.len())
    }

    /// Feeds that exist.
    #[must_use]
    pub fn feeds(&self) -> usize {
        self.feeds.len()
    }

    /// Joins a feed at its end. A held subscriber gets nothing of the feed until it is released, but what comes
    /// meanwhile is kept for it.
    pub fn subscribe(&mut self, id: ConnId, feed: FeedId, held: bool) {
        self.unsubscribe(id);
        let Some(conn) = self.conns.get_mut(id.index as usize).filter(|conn| conn.generation == id.generation) else {
            return;
        };
        let found = &mut self.feeds[feed.0 as usize];
        let mut flags = if held { HELD } else { 0 };
        flags |= if conn.blocked { BLOCKED } else { 0 };
        flags |= if conn.is_idle() { 0 } else { OWN_BYTES };
        flags |= if conn.secured.is_some() { SECURED } else { 0 };
        flags |= if conn.kernel.is_some() { KERNEL } else { 0 };
        conn.sub = Some((feed.0, found.slots.len() as u32));
        found.slots.push(Slot {
            conn: id,
            fd: conn.fd(),
            flags,
            position: found.ring.end(),
            counted_frames: found.ring.frames_total(),
        });
    }

    /// The replay is over: the feed's frames follow; or, if the subscriber was dropped during its replay, the
    /// frames accepted for it and the close.
    pub fn release(&mut self, id: ConnId) {
        let timeout_s = self.settings.close_timeout_s;
        let deadline_s = self.wheel.now_s() + timeout_s;
        let Some(conn) = self.conn_mut(id) else { return };
        if let Some(tail) = conn.tail.take() {
            for chunk in tail {
                conn.push(chunk);
            }
            conn.phase = Phase::Closing;
            conn.deadline_s = deadline_s;
            self.wheel.set(id, deadline_s);
            self.list(id);
            return;
        }
        if let Some((feed, slot)) = conn.sub {
            self.feeds[feed as usize].slots[slot as usize].flags &= !HELD;
            self.list_feed(feed);
        }
    }

    /// Leaves the feed at a frame boundary. Returned is the first frame that it did not get, if there is one.
    pub fn leave(&mut self, id: ConnId) -> Option<Vec<u8>> {
        self.finish_partial_frame(id);
        let (feed, slot) = self.conn(id)?.sub?;
        let found = &self.feeds[feed as usize];
        let position = found.slots[slot as usize].position;
        let next = found.ring.advance(position, 1);
        let frame = found
            .ring
            .runs(position, next)
            .first()
            .map(|run| run.segment.with(run.start, (run.end - run.start) as usize, <[u8]>::to_vec));
        self.unsubscribe(id);
        frame
    }

    /// Whether the socket is full and its peer has taken nothing for this long.
    #[must_use]
    pub fn is_stuck(&self, id: ConnId, time: Duration) -> bool {
        self.conn(id).is_some_and(|conn| conn.blocked && conn.unsent_for().is_none_or(|silence| silence >= time))
    }

    /// Leaves the feed, if it is in one. Bytes of a frame that was partly sent are the caller's care.
    pub fn unsubscribe(&mut self, id: ConnId) {
        let Some((feed, slot)) = self.conn_mut(id).and_then(|conn| conn.sub.take()) else { return };
        let found = &mut self.feeds[feed as usize];
        let left = found.slots.swap_remove(slot as usize);
        let taken = found.ring.frames_total() - found.ring.lag_frames(left.position) as u64;
        self.counts.delivered_frames_total += taken.saturating_sub(left.counted_frames);
        if let Some(moved) = found.slots.get(slot as usize).map(|slot| slot.conn)
            && let Some(conn) = self.conn_mut(moved)
        {
            conn.sub = Some((feed, slot));
        }
        // What only the leaver held back can be freed.
        self.list_feed(feed);
    }

    /// Appends whole frames to a feed. Returned are the subscribers that have fallen too far behind: the caller
    /// drops each with [`Engine::drop_lagging`] or takes it out with [`Engine::unsubscribe`] before it appends
    /// again.
    ///
    /// A subscriber whose socket takes bytes is not blamed for what the shard has not sent yet, unless it is
    /// four backlogs behind or over the limit in bytes; one that had taken everything may have any batch, unless it
    /// is held.
    pub fn append(&mut self, feed: FeedId, bytes: &[u8], ends: &[u32]) -> Vec<Lagging> {
        let Some(found) = self.feeds.get_mut(feed.0 as usize) else { return Vec::new() };
        if found.slots.is_empty() || ends.is_empty() {
            return Vec::new();
        }
        let waiting = found.ring.retained_frames();
        let offered = found.offered(&self.pace);
        let retained_before = found.ring.retained_bytes();
        found.ring.append(bytes, ends.iter().copied());
        self.counts.feed_bytes += found.ring.retained_bytes() - retained_before;
        let limits = found.limits;
        let mut lagging = Vec::new();
        if waiting + ends.len() > limits.max_backlog_frames || found.ring.retained_bytes() > limits.max_backlog_bytes {
            for slot in &found.slots {
                if slot.position >= offered && slot.flags & HELD == 0 {
                    continue;
                }
                let lag = found.ring.lag_frames(slot.position);
                let patient = slot.flags & (HELD | BLOCKED) == 0;
                let allowed = limits.max_backlog_frames.saturating_mul(if patient { 4 } else { 1 });
                if lag > allowed || found.ring.end() - slot.position > limits.max_backlog_bytes {
                    let accepted = found.ring.advance(slot.position, limits.max_backlog_frames);
                    lagging.push(Lagging { conn: slot.conn, held: slot.flags & HELD != 0, accepted });
                }
            }
        }
        // What is retained is what the slowest has not taken.
        self.counts.max_lag_frames = waiting as u64;
        self.list_feed(feed.0);
        lagging
    }

    /// The feed has lost frames (its shard was overrun): every subscriber is lagging.
    #[must_use]
    pub fn overrun(&self, feed: FeedId) -> Vec<Lagging> {
        let Some(found) = self.feeds.get(feed.0 as usize) else { return Vec::new() };
        let lagging = |slot: &Slot| Lagging {
            conn: slot.conn,
            held: slot.flags & HELD != 0,
            accepted: found.ring.advance(slot.position, found.limits.max_backlog_frames),
        };
        found.slots.iter().map(lagging).collect()
    }
}
