//! One connection as the engine sees it: bytes waiting to go out, the decoder of what comes in, its timers.

use std::collections::VecDeque;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

use crate::cipher::Secured;
use crate::feed::Run;
use crate::inbound::Inbound;
use crate::kernel::Keys;

/// Names a connection of one shard; never reused for another within a process's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConnId {
    /// Slot in the shard's table.
    pub index: u32,
    /// Distinguishes the connections that had the slot.
    pub generation: u32,
}

impl ConnId {
    /// Both halves in the low 56 bits of one word, for messages to other cores.
    #[must_use]
    pub fn to_word(self) -> u64 {
        u64::from(self.generation) << INDEX_BITS | u64::from(self.index)
    }

    /// The inverse of [`ConnId::to_word`]; higher bits are ignored.
    #[must_use]
    pub fn from_word(word: u64) -> Self {
        let index = word & ((1 << INDEX_BITS) - 1);
        Self { index: index as u32, generation: (word >> INDEX_BITS) as u32 & MAX_GENERATION }
    }
}

/// Bits of a connection's index in a word; its generation has as many.
const INDEX_BITS: u32 = 28;

/// Generations wrap around after this one.
pub(crate) const MAX_GENERATION: u32 = (1 << 28) - 1;

/// Bytes on their way to one socket, besides those of its feed.
#[derive(Debug)]
pub(crate) enum Chunk {
    /// Whole frames of this connection alone: greeting, replies, control frames.
    Own(Vec<u8>),
    /// A page of a replay; control frames may overtake it while it has not begun.
    Page(Vec<u8>),
    /// Frames of a feed that this connection has left.
    Shared(Run),
}

impl Chunk {
    pub(crate) fn len(&self) -> usize {
        match self {
            Chunk::Own(bytes) | Chunk::Page(bytes) => bytes.len(),
            Chunk::Shared(run) => (run.end - run.start) as usize,
        }
    }

    pub(crate) fn with<R>(&self, from: usize, limit_bytes: usize, read: impl FnOnce(&[u8]) -> R) -> R {
        match self {
            Chunk::Own(bytes) | Chunk::Page(bytes) => {
                read(&bytes[from..bytes.len().min(from.saturating_add(limit_bytes))])
            }
            Chunk::Shared(run) => {
                let left = (run.end - run.start) as usize - from;
                run.segment.with(run.start + from as u64, left.min(limit_bytes), read)
            }
        }
    }
}

/// Frames of its own are put together up to this many bytes.
const MERGED_BYTES: usize = 16 * 1024;

/// Where a connection is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The request head is being read.
    Head,
    /// Upgraded.
    Open,
    /// A close frame of ours is queued or sent; what the peer says is no longer passed on.
    Closing,
}

/// Why a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The peer closed, or its socket failed.
    Peer,
    /// We closed it; the code we sent.
    Closed(u16),
    /// No pong, or no complete request head, in time.
    TimedOut,
    /// The HTTP plane has the socket now.
    HandedOver,
}

pub(crate) struct Conn<S> {
    pub(crate) generation: u32,
    pub(crate) socket: OwnedFd,
    pub(crate) phase: Phase,
    /// The socket took less than was offered; the shard waits for room.
    pub(crate) blocked: bool,
    /// The reactor watches for room.
    pub(crate) room_watched: bool,
    /// Bytes have come that were not read yet.
    pub(crate) readable: bool,
    /// Nothing comes after what can be read.
    pub(crate) hung_up: bool,
    /// In the engine's list of connections to look after.
    pub(crate) woken: bool,
    /// The application does not want to read.
    pub(crate) paused: bool,
    /// The decoder stopped early and may hold whole messages.
    pub(crate) stopped: bool,
    /// The peer broke the protocol: what it goes on to send is thrown away.
    pub(crate) deaf: bool,
    /// In the engine's list of connections with bytes of their own.
    pub(crate) listed: bool,
    /// The application wants to know when its bytes are out.
    pub(crate) want_drained: bool,
    /// A ping is unanswered.
    pub(crate) awaiting_pong: bool,
    /// The code the peer closed with, if it did; 1005 for none.
    pub(crate) peer_close: Option<u16>,
    /// The code we closed with.
    pub(crate) sent_close: Option<u16>,
    /// Too much is queued for a peer that goes on talking: reading waits.
    pub(crate) choked: bool,
    /// Closing timeouts without progress, and what was queued at the last.
    pub(crate) looks: u8,
    pub(crate) looked_bytes: usize,
    /// When the wheel's next look matters, in wheel seconds.
    pub(crate) deadline_s: u32,
    pub(crate) limit_bytes: u32,
    pub(crate) session: Option<S>,
    pub(crate) inbound: Inbound,
    /// How it is encrypted, if the shard does it.
    pub(crate) secured: Option<Box<Secured>>,
    /// What its keys are good for, if the kernel encrypts it.
    pub(crate) kernel: Option<Keys>,
    pub(crate) out: VecDeque<Chunk>,
    /// Bytes of the first chunk that are sent.
    pub(crate) out_sent: usize,
    pub(crate) out_bytes: usize,
    /// What follows the replay when the feed has dropped this connection meanwhile.
    pub(crate) tail: Option<Box<[Chunk]>>,
    /// Feed and slot.
    pub(crate) sub: Option<(u32, u32)>,
}

impl<S> Conn<S> {
    pub(crate) fn new(socket: OwnedFd, generation: u32, deadline_s: u32) -> Self {
        Self {
            generation,
            socket,
            phase: Phase::Head,
            blocked: false,
            room_watched: false,
            readable: false,
            hung_up: false,
            woken: false,
            paused: false,
            stopped: false,
            deaf: false,
            listed: false,
            want_drained: false,
            awaiting_pong: false,
            peer_close: None,
            sent_close: None,
            choked: false,
            looks: 0,
            looked_bytes: 0,
            deadline_s,
            limit_bytes: u32::MAX,
            session: None,
            inbound: Inbound::default(),
            secured: None,
            kernel: None,
            out: VecDeque::new(),
            out_sent: 0,
            out_bytes: 0,
            tail: None,
            sub: None,
        }
    }

    /// Whether nothing of its own waits to be sent.
    pub(crate) fn is_idle(&self) -> bool {
        self.out.is_empty() && self.secured.as_ref().is_none_or(|secured| secured.pending().is_empty())
    }

    /// Bytes of its own that wait, sealed or not.
    pub(crate) fn left_bytes(&self) -> usize {
        self.out_bytes + self.secured.as_ref().map_or(0, |secured| secured.pending().len())
    }

    /// Seals the next of its own bytes, unless sealed ones wait.
    pub(crate) fn seal_own(&mut self, limit_bytes: usize) {
        self.take_own(limit_bytes, Secured::seal);
    }

    /// As [`Conn::seal_own`], but appends to `batch` and says where.
    pub(crate) fn seal_own_into(&mut self, limit_bytes: usize, batch: &mut Vec<u8>) -> Option<Range<usize>> {
        self.take_own(limit_bytes, |secured, bytes| secured.seal_into(bytes, batch))
    }

    fn take_own<R>(&mut self, limit_bytes: usize, seal: impl FnOnce(&mut Secured, &[u8]) -> R) -> Option<R> {
        let secured = self.secured.as_mut().filter(|secured| secured.pending().is_empty())?;
        let chunk = self.out.front()?;
        let (taken, sealed) = chunk.with(self.out_sent, limit_bytes, |bytes| (bytes.len(), seal(secured, bytes)));
        self.advance_out(taken);
        Some(sealed)
    }

    /// The socket's descriptor, open as long as the connection is in the table.
    pub(crate) fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// How long ago the kernel last sent bytes: as long as a peer's window is shut it sends none, and what a reactor says of
    /// room comes only when a good part of the socket's buffer is free. `None` if the kernel does not say.
    pub(crate) fn unsent_for(&self) -> Option<Duration> {
        // SAFETY: any bytes are a `tcp_info`, which is nothing but integers.
        let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
        let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
        // SAFETY: both pointers are good for writes of `length` bytes and of a length.
        let answer = unsafe {
            libc::getsockopt(self.fd(), libc::IPPROTO_TCP, libc::TCP_INFO, (&raw mut info).cast(), &raw mut length)
        };
        (answer == 0).then(|| Duration::from_millis(info.tcpi_last_data_sent.into()))
    }

    pub(crate) fn push(&mut self, chunk: Chunk) {
        let length = chunk.len();
        if length == 0 {
            return;
        }
        self.out_bytes += length;
        let begun = self.out_sent > 0 && self.out.len() == 1;
        match (self.out.back_mut(), chunk) {
            // What is queued together goes out with one send: the answer to the upgrade and the greeting, say.
            (Some(Chunk::Own(last)), Chunk::Own(bytes)) if !begun && last.len() + length <= MERGED_BYTES => {
                last.extend_from_slice(&bytes);
            }
            (_, chunk) => self.out.push_back(chunk),
        }
    }

    /// Queues a control frame ahead of replay pages that have not begun.
    pub(crate) fn push_control(&mut self, bytes: Vec<u8>) {
        self.out_bytes += bytes.len();
        let begun = usize::from(self.out_sent > 0);
        let page = self.out.iter().skip(begun).position(|chunk| matches!(chunk, Chunk::Page(_)));
        match page {
            Some(index) => self.out.insert(begun + index, Chunk::Own(bytes)),
            None => self.out.push_back(Chunk::Own(bytes)),
        }
    }

    /// Forgets what has not begun, but for frames of its own when `keep_own`.
    pub(crate) fn discard_queued(&mut self, keep_own: bool) {
        let begun = usize::from(self.out_sent > 0);
        let mut index = 0;
        self.out.retain(|chunk| {
            index += 1;
            index <= begun || (keep_own && matches!(chunk, Chunk::Own(_)))
        });
        self.out_bytes = self.out.iter().map(Chunk::len).sum::<usize>() - self.out_sent;
        self.tail = None;
    }

    /// Counts `sent` bytes of the queue as taken by the socket.
    pub(crate) fn advance_out(&mut self, mut sent: usize) {
        self.out_bytes -= sent;
        while sent > 0 {
            let Some(first) = self.out.front() else { return };
            let left = first.len() - self.out_sent;
            if sent < left {
                self.out_sent += sent;
                return;
            }
            sent -= left;
            self.out_sent = 0;
            self.out.pop_front();
        }
        if self.out.is_empty() && self.out.capacity() > 8 {
            self.out.shrink_to_fit();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conn() -> Conn<()> {
        Conn::new(std::os::unix::net::UnixStream::pair().unwrap().0.into(), 1, 0)
    }

    fn queued(conn: &Conn<()>) -> Vec<u8> {
        conn.out.iter().flat_map(|chunk| chunk.with(0, usize::MAX, <[u8]>::to_vec)).skip(conn.out_sent).collect()
    }

    #[test]
    fn control_frames_overtake_pages_that_have_not_begun() {
        let mut conn = conn();
        conn.push(Chunk::Own(b"greeting ".to_vec()));
        conn.push(Chunk::Page(b"page1 ".to_vec()));
        conn.push(Chunk::Page(b"page2 ".to_vec()));
        conn.push_control(b"pong ".to_vec());
        assert_eq!(queued(&conn), b"greeting pong page1 page2 ");
        conn.advance_out(16); // "greeting pong pa"
        conn.push_control(b"pong ".to_vec());
        assert_eq!(queued(&conn), b"ge1 pong page2 ");
    }

    #[test]
    fn advancing_crosses_chunks_and_counts() {
        let mut conn = conn();
        conn.push(Chunk::Own(b"abc".to_vec()));
        conn.push(Chunk::Own(Vec::new()));
        conn.push(Chunk::Page(b"defg".to_vec()));
        conn.advance_out(5);
        assert_eq!((queued(&conn), conn.out_bytes), (b"fg".to_vec(), 2));
        conn.advance_out(2);
        assert!(conn.out.is_empty() && conn.out_bytes == 0 && conn.out_sent == 0);
    }

    #[test]
    fn small_frames_queued_together_are_one_chunk_unless_it_has_begun() {
        let mut conn = conn();
        conn.push(Chunk::Own(b"101 ".to_vec()));
        conn.push(Chunk::Own(b"greeting ".to_vec()));
        assert_eq!((conn.out.len(), conn.out_bytes), (1, 13));
        conn.advance_out(1);
        conn.push(Chunk::Own(b"reply ".to_vec()));
        conn.push(Chunk::Own(b"reply ".to_vec()));
        conn.push(Chunk::Own(vec![b'x'; MERGED_BYTES]));
        assert_eq!((conn.out.len(), conn.out_bytes), (3, 24 + MERGED_BYTES));
        assert!(queued(&conn).starts_with(b"01 greeting reply reply xxx"));
    }

    #[test]
    fn discarding_keeps_what_has_begun() {
        let mut conn = conn();
        conn.push(Chunk::Page(b"begun".to_vec()));
        conn.push(Chunk::Own(b"own".to_vec()));
        conn.push(Chunk::Page(b"page".to_vec()));
        conn.advance_out(1);
        conn.discard_queued(true);
        assert_eq!((queued(&conn), conn.out_bytes), (b"egunown".to_vec(), 7));
        conn.discard_queued(false);
        assert_eq!((queued(&conn), conn.out_bytes), (b"egun".to_vec(), 4));
    }
}
