//! Sending: connections' own bytes first, then every feed to every subscriber that is ready, each with one
//! send for as many frames as wait for it, in batches of one system call.

use std::ops::Range;
use std::time::Instant;

use crate::cipher::BATCH_BYTES;
use crate::conn::{Chunk, ConnId, Ended, Phase};
use crate::engine::{BLOCKED, Engine, KERNEL, OWN_BYTES, SECURED};
use crate::sender::{BATCH_SENDS, Sent};

/// The most bytes of one send: enough to pay for the system call, little enough to be fair.
pub(crate) const SEND_BYTES: usize = 64 * 1024;

/// Sends of replays' pages in one turn while feeds wait, and the most bytes of each: the kernel carries out a send as a
/// whole, and what came live goes first.
const PAGES_A_TURN: usize = 4;
const PAGE_SEND_BYTES: usize = 32 * 1024;

/// Above this many queued bytes nothing more is read from the peer.
pub(crate) const HIGH_BYTES: usize = 1024 * 1024;

/// Below this many queued bytes a connection counts as drained.
pub(crate) const LOW_BYTES: usize = 128 * 1024;

/// A send of a connection's own bytes: how many there were, and where they are if they were sealed for the batch.
struct OwnSend {
    id: ConnId,
    offered: usize,
    sealed: Option<Range<usize>>,
    sent: Sent,
}

/// A send of a feed's bytes to the subscriber in a slot: how many there were before they were sealed, and where they are
/// then.
struct FeedSend {
    slot: u32,
    offered: usize,
    sealed: Option<Range<usize>>,
    sent: Sent,
}

impl<S> Engine<S> {
    /// Whether anything can be sent.
    pub(crate) fn has_output(&self) -> bool {
        !self.listed.is_empty() || !self.listed_feeds.is_empty()
    }

    /// Sends until nothing more can be sent or `deadline` has passed.
    pub(crate) fn flush(&mut self, deadline: Instant) -> std::io::Result<()> {
        self.rest(Instant::now());
        let mut pages = PAGES_A_TURN;
        while self.has_output() {
            self.flush_own(&mut pages)?;
            if let Some(feed) = self.listed_feeds.pop_front() {
                let found = &mut self.feeds[feed as usize];
                if found.rests_until(&self.pace).is_some_and(|until| until > Instant::now()) {
                    self.resting.push(feed);
                    continue;
                }
                found.listed = false;
                self.flush_feed(feed, deadline)?;
            }
            if Instant::now() >= deadline {
                break;
            }
        }
        Ok(())
    }

    /// Ends the rest of feeds whose time has come.
    fn rest(&mut self, now: Instant) {
        let mut resting = std::mem::take(&mut self.resting);
        resting.retain(|&feed| {
            let rests = self.feeds[feed as usize].rests_until(&self.pace).is_some_and(|until| until > now);
            if !rests {
                self.listed_feeds.push_back(feed);
            }
            rests
        });
        self.resting = resting;
    }

    /// When the first of the feeds that rest is to go on.
    pub(crate) fn rest_ends(&self) -> Option<Instant> {
        // One that need not rest any more goes on at once.
        let until = |feed: &u32| self.feeds[*feed as usize].rests_until(&self.pace).unwrap_or_else(Instant::now);
        self.resting.iter().map(until).min()
    }

    /// One send for every connection with bytes of its own; of replays no more than `pages` while feeds wait.
    fn flush_own(&mut self, pages: &mut usize) -> std::io::Result<()> {
        let live = !self.listed_feeds.is_empty();
        let ready = std::mem::take(&mut self.listed);
        let mut ready = ready.into_iter();
        let mut results: Vec<OwnSend> = Vec::with_capacity(ready.len().min(BATCH_SENDS));
        while ready.len() > 0 {
            results.clear();
            self.sealed.clear();
            while results.len() < BATCH_SENDS
                && self.sealed.len() < BATCH_BYTES
                && let Some(id) = ready.next()
            {
                let Some(conn) = self.conns.get_mut(id.index as usize).filter(|conn| conn.generation == id.generation)
                else {
                    continue;
                };
                let mut limit_bytes = SEND_BYTES;
                if live && !conn.blocked && matches!(conn.out.front(), Some(Chunk::Page(_))) {
                    if *pages == 0 {
                        self.listed.push(id);
                        continue;
                    }
                    *pages -= 1;
                    limit_bytes = PAGE_SEND_BYTES;
                }
                conn.listed = false;
                if conn.blocked {
                    continue;
                }
                if let Some(sealed) = conn.seal_own_into(limit_bytes, &mut self.sealed) {
                    results.push(OwnSend { id, offered: sealed.len(), sealed: Some(sealed), sent: Sent::Full });
                    continue;
                }
                let (fd, tag) = (conn.fd(), results.len() as u64);
                let mut push = |bytes: &[u8]| {
                    // SAFETY: the bytes are neither changed nor freed before the batch is submitted below.
                    unsafe { self.sender.push(fd, bytes, tag) };
                    bytes.len()
                };
                let offered = match (&conn.secured, conn.out.front()) {
                    (Some(secured), _) if secured.pending().is_empty() => continue,
                    (Some(secured), _) => push(secured.pending()),
                    (None, Some(chunk)) => chunk.with(conn.out_sent, limit_bytes, push),
                    (None, None) => continue,
                };
                results.push(OwnSend { id, offered, sealed: None, sent: Sent::Full });
            }
            for (tag, send) in results.iter().enumerate() {
                if let Some(sealed) = &send.sealed
                    && let Some(conn) = self.conns.get(send.id.index as usize)
                {
                    // SAFETY: nothing is sealed into the batch any more before it is submitted below.
                    unsafe { self.sender.push(conn.fd(), &self.sealed[sealed.clone()], tag as u64) };
                }
            }
            if self.sender.is_empty() {
                continue;
            }
            self.sender.submit(|tag, sent| results[tag as usize].sent = sent)?;
            for send in &results {
                match &send.sealed {
                    None => self.own_sent(send.id, send.offered, send.sent),
                    Some(sealed) => self.sealed_sent(send.id, sealed.clone(), send.sent),
                }
            }
        }
        Ok(())
    }

    /// Books the result of a send of a connection's own bytes.
    pub(crate) fn own_sent(&mut self, id: ConnId, offered: usize, sent: Sent) {
        let Some(taken) = self.count_own(id, sent) else { return };
        let Some(conn) = self.conn_mut(id) else { return };
        match &mut conn.secured {
            Some(secured) => secured.advance(taken),
            None => conn.advance_out(taken),
        }
        self.encrypted(id, taken);
        if taken < offered {
            self.block(id);
        }
        self.after_own(id);
    }

    /// Books the result of a send of a connection's own bytes that were sealed for the batch.
    fn sealed_sent(&mut self, id: ConnId, sealed: Range<usize>, sent: Sent) {
        let Some(taken) = self.count_own(id, sent) else { return };
        let left = &self.sealed[sealed.start + taken..sealed.end];
        let Some(conn) = self.conns.get_mut(id.index as usize).filter(|conn| conn.generation == id.generation) else {
            return;
        };
        if let (false, Some(secured)) = (left.is_empty(), &mut conn.secured) {
            secured.keep(left);
            self.block(id);
        }
        self.after_own(id);
    }

    /// Counts a send; how much was taken, unless the connection is gone by now.
    fn count_own(&mut self, id: ConnId, sent: Sent) -> Option<usize> {
        self.counts.sends_total += 1;
        let taken = match sent {
            Sent::Bytes(bytes) => bytes,
            Sent::Full => 0,
            Sent::Failed(_) => {
                self.remove(id, Ended::Peer);
                return None;
            }
        };
        self.counts.sent_bytes_total += taken as u64;
        Some(taken)
    }

    /// What follows when a connection's own bytes have moved.
    fn after_own(&mut self, id: ConnId) {
        let Some(conn) = self.conn_mut(id) else { return };
        if conn.want_drained && conn.out_bytes < LOW_BYTES {
            conn.want_drained = false;
            self.drained.push(id);
        }
        let Some(conn) = self.conn_mut(id) else { return };
        if conn.choked && conn.out_bytes < LOW_BYTES {
            conn.choked = false;
            self.wake(id);
        }
        let Some(conn) = self.conn_mut(id) else { return };
        if !conn.is_idle() {
            return self.list(id);
        }
        if conn.phase == Phase::Closing && conn.peer_close.is_some() {
            let code = conn.sent_close.unwrap_or(1000);
            let ended = if conn.peer_close == Some(code) || code == 1000 { Ended::Peer } else { Ended::Closed(code) };
            return self.remove(id, ended);
        }
        if conn.phase == Phase::Closing && conn.deaf {
            // Its close cannot be understood any more: it sees our close and the end of the stream, and the
            // connection ends when it goes, without a reset that could overtake the close.
            crate::cipher::farewell(conn);
            // SAFETY: the connection is in the table, so its descriptor is open.
            unsafe { libc::shutdown(conn.fd(), libc::SHUT_WR) };
            return;
        }
        if let Some((feed, slot)) = conn.sub {
            let found = &mut self.feeds[feed as usize];
            let slot = &mut found.slots[slot as usize];
            slot.flags &= !OWN_BYTES;
            if slot.position < found.ring.end() {
                self.list_feed(feed);
            }
        }
    }

    /// The socket is full: the shard waits until it is not.
    fn block(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(id.index as usize).filter(|conn| conn.generation == id.generation) else {
            return;
        };
        conn.blocked = true;
        if let Some((feed, slot)) = conn.sub {
            self.feeds[feed as usize].slots[slot as usize].flags |= BLOCKED;
        }
        self.wake(id);
    }

    /// One send for every subscriber of a feed that is ready and behind; interrupted at `deadline`.
    fn flush_feed(&mut self, feed: u32, deadline: Instant) -> std::io::Result<()> {
        let found = &mut self.feeds[feed as usize];
        found.begin_pass(Instant::now());
        let mut index = if found.cursor < found.slots.len() { found.cursor } else { 0 };
        let first = index;
        let mut more = false;
        let mut results: Vec<FeedSend> = Vec::with_capacity(found.slots.len().min(BATCH_SENDS));
        let finished = loop {
            results.clear();
            self.sealed.clear();
            let found = &self.feeds[feed as usize];
            let (end, count) = (found.ring.end(), found.slots.len());
            while index < count && results.len() < BATCH_SENDS && self.sealed.len() < BATCH_BYTES {
                let slot = &found.slots[index];
                if slot.flags & !(SECURED | KERNEL) == 0
                    && slot.position < end
                    && let Some(segment) = found.ring.segment_at(slot.position)
                {
                    let tag = results.len() as u64;
                    let sealed = slot.flags & SECURED != 0;
                    let conn = if sealed { self.conns.get_mut(slot.conn.index as usize) } else { None };
                    let secured = conn.and_then(|conn| conn.secured.as_mut());
                    let (offered, sealed) = segment.with(slot.position, SEND_BYTES, |bytes| {
                        let sealed = secured.map(|secured| secured.seal_into(bytes, &mut self.sealed));
                        if sealed.is_none() {
                            // SAFETY: the feed is not changed before the batch is submitted.
                            unsafe { self.sender.push(slot.fd, bytes, tag) };
                        }
                        (bytes.len(), sealed)
                    });
                    results.push(FeedSend { slot: index as u32, offered, sealed, sent: Sent::Full });
                }
                index += 1;
            }
            for (tag, send) in results.iter().enumerate() {
                if let Some(sealed) = &send.sealed {
                    let fd = found.slots[send.slot as usize].fd;
                    // SAFETY: nothing is sealed into the batch any more before it is submitted.
                    unsafe { self.sender.push(fd, &self.sealed[sealed.clone()], tag as u64) };
                }
            }
            if self.sender.is_empty() {
                break true;
            }
            self.sender.submit(|tag, sent| results[tag as usize].sent = sent)?;
            more |= self.feed_sent(feed, &results);
            if index >= self.feeds[feed as usize].slots.len() {
                break true;
            }
            if Instant::now() >= deadline {
                more = true;
                break false;
            }
        };
        self.feeds[feed as usize].cursor = if finished { 0 } else { index };
        self.trim(feed);
        if more || first > 0 {
            self.list_feed(feed);
        }
        Ok(())
    }

    /// Books the results of a batch; true if somebody is still behind and ready.
    fn feed_sent(&mut self, feed: u32, results: &[FeedSend]) -> bool {
        let mut more = false;
        let mut full = Vec::new();
        let mut failed = Vec::new();
        let mut used_up = Vec::new();
        let found = &mut self.feeds[feed as usize];
        let (end, frames) = (found.ring.end(), found.ring.frames_total());
        self.counts.sends_total += results.len() as u64;
        self.pace.sends_total += results.len() as u64;
        for send in results {
            let slot = &mut found.slots[send.slot as usize];
            let taken = match send.sent {
                Sent::Bytes(bytes) => bytes,
                Sent::Full => 0,
                Sent::Failed(_) => {
                    failed.push(slot.conn);
                    continue;
                }
            };
            self.counts.sent_bytes_total += taken as u64;
            // What was sealed is out of the feed, whether the socket has taken it or not.
            let (taken, whole) = match &send.sealed {
                None => (taken, taken == send.offered),
                Some(sealed) => {
                    let left = &self.sealed[sealed.start + taken..sealed.end];
                    let conn = self.conns.get_mut(slot.conn.index as usize);
                    if let (false, Some(secured)) = (left.is_empty(), conn.and_then(|conn| conn.secured.as_mut())) {
                        secured.keep(left);
                    }
                    (send.offered, left.is_empty())
                }
            };
            slot.position += taken as u64;
            if slot.flags & KERNEL != 0
                && let Some(keys) = self.conns.get_mut(slot.conn.index as usize).and_then(|conn| conn.kernel.as_mut())
                && keys.spend(taken)
            {
                used_up.push(slot.conn);
            }
            if !whole {
                full.push(slot.conn);
            } else if slot.position == end {
                self.counts.delivered_frames_total += frames - slot.counted_frames;
                slot.counted_frames = frames;
            } else {
                more = true;
                let position = slot.position;
                found.passed(position);
            }
        }
        for id in full {
            self.block(id);
        }
        for id in used_up {
            self.encrypted(id, 0);
        }
        // Whoever fills the place of a subscriber that is gone may have been passed over.
        more |= !failed.is_empty();
        for id in failed {
            self.remove(id, Ended::Peer);
        }
        more
    }

    /// Frees what no subscriber of a feed needs any more.
    fn trim(&mut self, feed: u32) {
        let found = &mut self.feeds[feed as usize];
        let before = found.ring.retained_bytes();
        let lowest = found.slots.iter().map(|slot| slot.position).min().unwrap_or_else(|| found.ring.end());
        found.ring.trim(lowest);
        self.counts.feed_bytes -= before - found.ring.retained_bytes();
    }

    /// Calls `send` with the next bytes of a connection whose socket was full; `None` if there are none.
    pub(crate) fn with_next_bytes<R>(&mut self, id: ConnId, send: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let conn = self.conns.get_mut(id.index as usize).filter(|conn| conn.generation == id.generation)?;
        conn.seal_own(SEND_BYTES);
        match (&conn.secured, conn.out.front()) {
            (Some(secured), _) if !secured.pending().is_empty() => return Some(send(secured.pending())),
            (None, Some(chunk)) => return Some(chunk.with(conn.out_sent, SEND_BYTES, send)),
            // What its feed has for an encrypted connection goes with the next flush.
            (Some(_), _) => return None,
            (None, None) => {}
        }
        let (feed, slot) = conn.sub?;
        let found = &self.feeds[feed as usize];
        let slot = &found.slots[slot as usize];
        if slot.flags & crate::engine::HELD != 0 {
            return None;
        }
        let segment = found.ring.segment_at(slot.position)?;
        Some(segment.with(slot.position, SEND_BYTES, send))
    }

    /// A socket that was full has taken `taken` bytes, or there was nothing for it: the flush goes on with it.
    pub(crate) fn unblock(&mut self, id: ConnId, taken: usize) {
        let Some(conn) = self.conns.get_mut(id.index as usize).filter(|conn| conn.generation == id.generation) else {
            return;
        };
        conn.blocked = false;
        self.counts.sends_total += 1;
        self.counts.sent_bytes_total += taken as u64;
        let own = match &mut conn.secured {
            Some(secured) => {
                secured.advance(taken);
                true
            }
            None => !conn.out.is_empty(),
        };
        if own && conn.secured.is_none() {
            conn.advance_out(taken);
        }
        if let Some((feed, slot)) = conn.sub {
            let slot = &mut self.feeds[feed as usize].slots[slot as usize];
            slot.flags &= !BLOCKED;
            if !own {
                slot.position += taken as u64;
            }
            self.list_feed(feed);
        }
        self.encrypted(id, taken);
        self.after_own(id);
    }
}
