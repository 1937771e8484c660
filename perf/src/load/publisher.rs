//! Publishers: frames on schedule or as answers allow, and their acknowledgements.

use std::collections::VecDeque;
use std::ops::Range;

use super::connection::Outbox;
use crate::clock;
use crate::net::mask::MaskKeys;
use crate::net::poll::Interest;
use crate::record::Recorder;
use crate::row::RowWriter;
use crate::schedule::Schedule;
use crate::wire::{Reply, Request, Wire, WireError};

/// Bytes a publisher may have waiting for its socket before the load counts as not taken.
const MAX_WAITING_BYTES: usize = 64 << 20;

/// Bytes written between two looks at the sockets.
const TURN_BYTES: usize = 256 << 10;

/// When frames go out.
#[derive(Debug)]
pub enum Pace {
    /// Not at all.
    Stopped,
    /// When they are due, over all publishers in turn, whatever the server does: an open loop.
    Rate(Schedule),
    /// When an answer makes room: so many frames unanswered a publisher, a closed loop.
    Window(usize),
}

/// All publishers of a load.
pub struct Publishing {
    pub(super) members: Vec<Member>,
    pub pace: Pace,
    /// Rows a frame.
    pub batch: u32,
    /// No more rows than this are sent.
    pub row_limit: u64,
    /// From when a frame was due to when its answer was read.
    pub acks: Recorder,
    window: Range<u64>,
    /// Number of the next row.
    pub next_index: u64,
    pub acked_rows: u64,
    pub acked_rows_in_window: u64,
    /// Frames that were refused, and how the first one was.
    pub refused: u64,
    pub first_refusal: Option<String>,
    /// Publishers that the server ended, and why the first one was.
    pub dropped: usize,
    pub first_drop: Option<String>,
    /// Whether a socket took so little that the load was given up.
    pub choked: bool,
    /// The stream whose publishers have their turn; all when absent.
    only: Option<String>,
    /// Members that have their turn, by place.
    turn: Vec<usize>,
    pub(super) writer: RowWriter,
    pub(super) keys: MaskKeys,
    replies: Vec<Reply>,
}

pub(super) struct Member {
    pub slot: usize,
    pub connection: u64,
    stream: String,
    pub out: Outbox,
    /// Next sequence number of an exactly-once publisher.
    pub seq: Option<u64>,
    pub open: bool,
    pub interest: Interest,
    flights: VecDeque<Flight>,
}

struct Flight {
    due_ns: u64,
    rows: u32,
    replies_left: u32,
}

impl Publishing {
    pub(super) fn new(writer: RowWriter) -> Self {
        Self {
            members: Vec::new(),
            pace: Pace::Stopped,
            batch: 1,
            row_limit: u64::MAX,
            acks: Recorder::default(),
            window: 0..0,
            next_index: 0,
            acked_rows: 0,
            acked_rows_in_window: 0,
            refused: 0,
            first_refusal: None,
            dropped: 0,
            first_drop: None,
            choked: false,
            only: None,
            turn: Vec::new(),
            writer,
            keys: MaskKeys::new(clock::now_ns()),
            replies: Vec::new(),
        }
    }

    /// Begins a measured window.
    pub fn open_window(&mut self, window: Range<u64>) {
        self.acks.open(window.clone());
        self.window = window;
        self.acked_rows_in_window = 0;
    }

    /// Frames sent and not answered yet.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.members.iter().map(|member| member.flights.len()).sum()
    }

    /// Has frames go to one stream from now on, or in turn to all that there are publishers for.
    pub fn publish_to(&mut self, stream: Option<&str>) {
        self.only = stream.map(str::to_owned);
        self.turn = (0..self.members.len()).filter(|&place| self.has_turn(&self.members[place].stream)).collect();
    }

    /// Whether publishers of this stream have their turn.
    fn has_turn(&self, stream: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only == stream)
    }

    pub(super) fn join(&mut self, slot: usize, connection: u64, stream: &str, seq: Option<u64>) -> usize {
        if self.has_turn(stream) {
            self.turn.push(self.members.len());
        }
        let flights = VecDeque::new();
        self.members.push(Member {
            slot,
            connection,
            stream: stream.to_owned(),
            out: Outbox::default(),
            seq,
            open: true,
            interest: Interest::READ,
            flights,
        });
        self.members.len() - 1
    }

    /// When the next frame is due; `u64::MAX` when that depends on answers or there is none.
    pub(super) fn next_due_ns(&self) -> u64 {
        match &self.pace {
            Pace::Rate(schedule) if !self.turn.is_empty() => schedule.next_due_ns().unwrap_or(u64::MAX),
            _ => u64::MAX,
        }
    }

    /// Writes the frames that are due; members with something to send are added to `touched`.
    pub(super) fn write_due(&mut self, wire: &dyn Wire, now_ns: u64, touched: &mut Vec<usize>) {
        let mut written = 0;
        while written < TURN_BYTES {
            let Pace::Rate(schedule) = &mut self.pace else { return };
            if self.turn.is_empty() {
                return;
            }
            let Some((due_ns, index)) = schedule.take_due(now_ns) else { return };
            let member = self.turn[(index % self.turn.len() as u64) as usize];
            written += self.write(wire, member, due_ns);
            if touched.last() != Some(&member) {
                touched.push(member);
            }
        }
    }

    /// Fills a member's window; true if anything was written.
    pub(super) fn refill(&mut self, wire: &dyn Wire, member: usize) -> bool {
        let Pace::Window(window) = self.pace else { return false };
        if !self.has_turn(&self.members[member].stream) {
            return false;
        }
        let mut written = false;
        while self.members[member].flights.len() < window && self.next_index < self.row_limit {
            self.write(wire, member, clock::now_ns());
            written = true;
        }
        written
    }

    fn write(&mut self, wire: &dyn Wire, number: usize, due_ns: u64) -> usize {
        let rows = u64::from(self.batch).min(self.row_limit.saturating_sub(self.next_index)) as u32;
        let member = &mut self.members[number];
        if !member.open || self.choked || rows == 0 {
            return 0;
        }
        let before = member.out.bytes.len();
        let request = Request {
            stream: &member.stream,
            writer: &self.writer,
            first_index: self.next_index,
            rows,
            due_ns,
            seq: member.seq,
            connection: member.connection,
        };
        wire.request(&mut member.out.bytes, &mut self.keys, &request);
        member.seq = member.seq.map(|seq| seq + u64::from(rows));
        member.flights.push_back(Flight { due_ns, rows, replies_left: wire.replies_per_request(rows) });
        self.next_index += u64::from(rows);
        self.choked |= member.out.waiting_bytes() > MAX_WAITING_BYTES;
        member.out.bytes.len() - before
    }

    /// Takes a member's answers; returns the bytes used.
    pub(super) fn take(
        &mut self,
        wire: &dyn Wire,
        number: usize,
        bytes: &[u8],
        now_ns: u64,
        answer: &mut Vec<u8>,
    ) -> Result<usize, WireError> {
        let mut replies = std::mem::take(&mut self.replies);
        let used = wire.replies(bytes, &mut replies, answer)?;
        for reply in replies.drain(..) {
            let member = &mut self.members[number];
            let Some(flight) = member.flights.front_mut() else {
                return Err(WireError::Protocol("an answer to nothing".into()));
            };
            flight.replies_left -= 1;
            if let Reply::Refused(text) = reply {
                self.refused += 1;
                self.first_refusal.get_or_insert(text);
            }
            if flight.replies_left > 0 {
                continue;
            }
            let (due_ns, rows) = (flight.due_ns, u64::from(flight.rows));
            member.flights.pop_front();
            self.acks.record(due_ns, now_ns);
            self.acked_rows += rows;
            if self.window.contains(&now_ns) {
                self.acked_rows_in_window += rows;
            }
        }
        self.replies = replies;
        Ok(used)
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::row::trade;
    use crate::wire::{self, Kind};

    #[test]
    fn frames_go_to_the_stream_that_has_its_turn() {
        let address: SocketAddr = "127.0.0.1:1".parse().unwrap();
        let wire = wire::of(Kind::StreamcastHttp, address, true);
        let mut publishing = Publishing::new(RowWriter::new(&trade()).unwrap());
        for (slot, stream) in ["a", "b", "b"].into_iter().enumerate() {
            publishing.join(slot, slot as u64, stream, None);
        }
        let due = |publishing: &mut Publishing, frames: u64| {
            let mut schedule = Schedule::new(0, 1e9).unwrap();
            schedule.end_at(frames);
            publishing.pace = Pace::Rate(schedule);
            let mut touched = Vec::new();
            publishing.write_due(&*wire, frames, &mut touched);
            touched
        };
        assert_eq!(due(&mut publishing, 4), [0, 1, 2, 0], "all in turn");
        publishing.publish_to(Some("b"));
        assert_eq!(due(&mut publishing, 3), [1, 2, 1]);
        publishing.join(3, 3, "b", None);
        publishing.join(4, 4, "a", None);
        assert_eq!(due(&mut publishing, 3), [1, 2, 3], "who comes later is of a stream, too");
        publishing.publish_to(Some("a"));
        assert_eq!(due(&mut publishing, 2), [0, 4]);
        publishing.publish_to(Some("c"));
        assert_eq!((due(&mut publishing, 5), publishing.next_due_ns()), (vec![], u64::MAX), "nobody is there for it");
        publishing.publish_to(None);
        assert_eq!(due(&mut publishing, 5), [0, 1, 2, 3, 4]);
        let text = String::from_utf8_lossy(&publishing.members[4].out.bytes).into_owned();
        assert!(text.contains("/a/") && !text.contains("/b/"), "a request names the stream of its publisher: {text}");

        publishing.publish_to(Some("a"));
        publishing.pace = Pace::Window(publishing.in_flight() + 1);
        assert!(publishing.refill(&*wire, 0));
        assert!(!publishing.refill(&*wire, 1), "it does not have its turn");
    }
}
