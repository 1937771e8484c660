//! Subscribers that are counted together.

use std::ops::Range;

use super::connection::Reader;
use crate::record::Recorder;
use crate::row::StampReader;
use crate::wire::{Sink, Wire, WireError};

/// What offsets of one connection must do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Each is one above the one before: nothing lost, nothing doubled.
    Dense,
    /// Each is above the one before.
    Rising,
}

/// Subscribers that are counted together, and what they saw.
#[derive(Debug)]
pub struct Group {
    pub order: Order,
    /// Latency of every n-th message: an unbiased sample.
    pub latency: Recorder,
    /// Latency of the first message of every read, the oldest in it: holds the true maximum.
    pub oldest: Recorder,
    every: u64,
    left: u64,
    window: Range<u64>,
    /// Messages since the group began, and within the window.
    pub messages: u64,
    pub messages_in_window: u64,
    pub bytes_in_window: u64,
    pub reads_in_window: u64,
    /// Connections that are open.
    pub open: usize,
    /// Connections that the server ended, and why the first one was.
    pub dropped: usize,
    pub first_drop: Option<String>,
    /// Reads whose offsets broke the order, and how the first one did.
    pub faults: u64,
    pub first_fault: Option<String>,
    /// When the last message came.
    pub last_message_ns: u64,
}

impl Group {
    /// A group whose latency is taken from every `every`-th message.
    #[must_use]
    pub fn new(every: u64, order: Order) -> Self {
        Self {
            order,
            latency: Recorder::default(),
            oldest: Recorder::default(),
            every: every.max(1),
            left: every.max(1),
            window: 0..0,
            messages: 0,
            messages_in_window: 0,
            bytes_in_window: 0,
            reads_in_window: 0,
            open: 0,
            dropped: 0,
            first_drop: None,
            faults: 0,
            first_fault: None,
            last_message_ns: 0,
        }
    }

    /// Begins a measured window.
    pub fn open_window(&mut self, window: Range<u64>) {
        self.latency.open(window.clone());
        self.oldest.open(window.clone());
        self.window = window;
        self.messages_in_window = 0;
        self.bytes_in_window = 0;
        self.reads_in_window = 0;
    }

    /// Takes what one read brought; returns the bytes used.
    pub(super) fn take(
        &mut self,
        wire: &dyn Wire,
        reader: &mut Reader,
        bytes: &[u8],
        now_ns: u64,
        stamps: &StampReader,
        answer: &mut Vec<u8>,
    ) -> Result<usize, WireError> {
        let latency = &mut self.latency;
        let mut sampled = |message: &[u8]| {
            if let Some(stamp) = stamps.read(message) {
                latency.record(stamp, now_ns);
            }
        };
        let mut sink = Sink { left: &mut self.left, every: self.every, sampled: &mut sampled, answer };
        let found = wire.messages(bytes, &mut sink)?;
        if found.messages == 0 {
            return Ok(found.used);
        }
        self.messages += found.messages;
        self.last_message_ns = now_ns;
        if self.window.contains(&now_ns) {
            self.messages_in_window += found.messages;
            self.bytes_in_window += found.used as u64;
            self.reads_in_window += 1;
        }
        if self.every > 1
            && let Some(stamp) = stamps.read(found.first)
        {
            self.oldest.record(stamp, now_ns);
        }
        if let (Some(first), Some(last)) = (wire.offset(found.first), wire.offset(found.last)) {
            self.check_order(reader, first, last, found.messages);
        }
        Ok(found.used)
    }

    /// The true maximum of the window, in microseconds.
    #[must_use]
    pub fn max_us(&self) -> f64 {
        self.latency.quantile_us(1.0).max(self.oldest.quantile_us(1.0))
    }

    fn check_order(&mut self, reader: &mut Reader, first: u64, last: u64, messages: u64) {
        let expected = reader.next_offset;
        let sound = match self.order {
            Order::Dense => expected.is_none_or(|next| first == next) && last.wrapping_sub(first) == messages - 1,
            Order::Rising => expected.is_none_or(|next| first >= next) && last.wrapping_sub(first) >= messages - 1,
        };
        reader.next_offset = Some(last.wrapping_add(1));
        if !sound {
            self.faults += 1;
            self.first_fault.get_or_insert_with(|| {
                format!("{messages} messages from offset {first} to {last}, expected from {expected:?}")
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::row::{RowWriter, trade};
    use crate::wire::{self, Kind};

    fn frames(offsets: &[u64], stamp: u64) -> Vec<u8> {
        let mut out = Vec::new();
        for offset in offsets {
            let text = format!("[{offset},1,{{\"event_ts\":{stamp}}}]");
            out.extend([0x81, text.len() as u8]);
            out.extend(text.as_bytes());
        }
        out
    }

    fn take(group: &mut Group, reader: &mut Reader, bytes: &[u8], now: u64) -> usize {
        let address: SocketAddr = "127.0.0.1:1".parse().unwrap();
        let wire = wire::of(Kind::Streamcast, address, true);
        let stamps = RowWriter::new(&trade()).unwrap().stamps();
        group.take(&*wire, reader, bytes, now, &stamps, &mut Vec::new()).unwrap()
    }

    #[test]
    fn counts_and_times_messages_of_the_window() {
        let mut group = Group::new(2, Order::Dense);
        let mut reader = Reader { group: 0, next_offset: Some(1) };
        group.open_window(100..200);
        let bytes = frames(&[1, 2, 3], 150);
        assert_eq!(take(&mut group, &mut reader, &bytes, 190), bytes.len());
        take(&mut group, &mut reader, &frames(&[4], 150), 250);
        take(&mut group, &mut reader, &frames(&[5], 250), 260);
        assert_eq!((group.messages, group.messages_in_window, group.reads_in_window), (5, 3, 1));
        assert_eq!(group.latency.count(), 2, "every second message that was due in the window");
        assert_eq!(group.oldest.count(), 2, "the first of each read that was due in the window");
        assert!((group.max_us() - 0.1).abs() < 0.001);
        assert_eq!(group.faults, 0);
    }

    #[test]
    fn gaps_and_doubles_are_faults() {
        for (reads, order, faults) in [
            (vec![vec![1, 2], vec![3]], Order::Dense, 0),
            (vec![vec![1, 2], vec![4]], Order::Dense, 1),
            (vec![vec![1, 3]], Order::Dense, 1),
            (vec![vec![1, 2], vec![2]], Order::Dense, 1),
            (vec![vec![2]], Order::Dense, 1),
            (vec![vec![1, 30], vec![40]], Order::Rising, 0),
            (vec![vec![1, 30], vec![30]], Order::Rising, 1),
        ] {
            let mut group = Group::new(1, order);
            let mut reader = Reader { group: 0, next_offset: Some(1) };
            for read in &reads {
                take(&mut group, &mut reader, &frames(read, 1), 1);
            }
            assert_eq!(group.faults, faults, "{reads:?}");
        }
    }
}
