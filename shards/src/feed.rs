//! A feed: the encoded frames that subscribers of one (stream, transform) have not all taken yet.
//!
//! Frames lie contiguously in segments; a subscriber is a position. Nothing is copied or queued per
//! subscriber, and what everybody has taken is freed.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// A segment grows to this many bytes before a new one is begun. A larger frame has one of its own.
pub const SEGMENT_BYTES: usize = 256 * 1024;

/// Contiguous bytes of whole frames.
#[derive(Debug)]
pub struct Segment {
    /// The feed position of the first byte.
    start: u64,
    bytes: RefCell<Vec<u8>>,
}

impl Segment {
    fn end(&self) -> u64 {
        self.start + self.bytes.borrow().len() as u64
    }

    /// Calls `read` with up to `limit_bytes` from `position` on.
    pub fn with<R>(&self, position: u64, limit_bytes: usize, read: impl FnOnce(&[u8]) -> R) -> R {
        let bytes = self.bytes.borrow();
        let from = (position - self.start) as usize;
        read(&bytes[from..bytes.len().min(from.saturating_add(limit_bytes))])
    }
}

/// A run of bytes that keeps its segment alive after the feed has moved on.
#[derive(Debug, Clone)]
pub struct Run {
    /// Where the bytes are.
    pub segment: Rc<Segment>,
    /// The first byte, as a feed position.
    pub start: u64,
    /// After the last byte.
    pub end: u64,
}

/// The ring of segments with the ends of the frames in them. Positions count bytes since the feed began.
#[derive(Debug, Default)]
pub struct Ring {
    segments: VecDeque<Rc<Segment>>,
    /// The position after each retained frame, ascending.
    ends: VecDeque<u64>,
    /// Frames whose end is no longer retained.
    dropped_frames: u64,
    start: u64,
    end: u64,
}

impl Ring {
    /// The position after the last frame.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Bytes retained.
    #[must_use]
    pub fn retained_bytes(&self) -> u64 {
        self.end - self.start
    }

    /// Frames retained.
    #[must_use]
    pub fn retained_frames(&self) -> usize {
        self.ends.len()
    }

    /// Frames ever appended.
    #[must_use]
    pub fn frames_total(&self) -> u64 {
        self.dropped_frames + self.ends.len() as u64
    }

    /// Appends whole frames; `ends` are relative to `bytes`.
    pub fn append(&mut self, bytes: &[u8], ends: impl Iterator<Item = u32>) {
        if bytes.is_empty() {
            return;
        }
        let mut base = self.end;
        let mut done = 0usize;
        let mut ends = ends.peekable();
        while done < bytes.len() {
            let room = self.room();
            // As many whole frames as fit; at least one, which may have to have a segment of its own.
            let mut take = 0usize;
            while let Some(&end) = ends.peek() {
                let length = end as usize - done;
                if take > 0 && length > room {
                    break;
                }
                take = length;
                self.ends.push_back(base + u64::from(end) - done as u64);
                ends.next();
            }
            if take == 0 {
                // More bytes than frame ends: a caller's error, kept harmless.
                debug_assert!(false, "frames without ends");
                take = bytes.len() - done;
                self.ends.push_back(base + take as u64);
            }
            if take > room {
                self.segments.push_back(Rc::new(Segment {
                    start: self.end,
                    bytes: RefCell::new(Vec::with_capacity(take.max(if self.segments.is_empty() {
                        0
                    } else {
                        SEGMENT_BYTES / 4
                    }))),
                }));
            }
            if let Some(segment) = self.segments.back() {
                segment.bytes.borrow_mut().extend_from_slice(&bytes[done..done + take]);
            }
            done += take;
            base += take as u64;
            self.end += take as u64;
        }
    }

    /// Bytes the last segment still takes.
    fn room(&self) -> usize {
        self.segments.back().map_or(0, |segment| SEGMENT_BYTES.saturating_sub(segment.bytes.borrow().len()))
    }

    /// How many retained frames end at or before `position`.
    fn frames_before(&self, position: u64) -> usize {
        // Subscribers are mostly at one of the two ends.
        if position >= self.end {
            return self.ends.len();
        }
        if position <= self.start {
            return 0;
        }
        self.ends.partition_point(|end| *end <= position)
    }

    /// Frames from `position` to the end; a frame that is partly before `position` does not count.
    #[must_use]
    pub fn lag_frames(&self, position: u64) -> usize {
        let whole = self.ends.len() - self.frames_before(position);
        whole - usize::from(whole > 0 && !self.is_boundary(position))
    }

    /// Whether a frame begins (or the feed ends) at `position`.
    #[must_use]
    pub fn is_boundary(&self, position: u64) -> bool {
        if position == self.end || position == self.start {
            return true;
        }
        let before = self.frames_before(position);
        before > 0 && self.ends[before - 1] == position
    }

    /// The first frame boundary at or after `position`.
    #[must_use]
    pub fn boundary_after(&self, position: u64) -> u64 {
        if self.is_boundary(position) { position } else { self.ends[self.frames_before(position)] }
    }

    /// The position `frames` whole frames after the first boundary at or after `position`, at most the end.
    #[must_use]
    pub fn advance(&self, position: u64, frames: usize) -> u64 {
        let boundary = self.boundary_after(position);
        if frames == 0 {
            return boundary;
        }
        self.ends.get(self.frames_before(boundary) + frames - 1).copied().unwrap_or(self.end)
    }

    /// The segment that holds the byte at `position`, which must be before the end.
    #[must_use]
    pub fn segment_at(&self, position: u64) -> Option<&Rc<Segment>> {
        let last = self.segments.back()?;
        if position >= last.start {
            return (position < self.end).then_some(last);
        }
        let index = self.segments.partition_point(|segment| segment.end() <= position);
        self.segments.get(index).filter(|segment| segment.start <= position)
    }

    /// The bytes of `[from, to)` as runs that outlive the feed's own retention.
    #[must_use]
    pub fn runs(&self, from: u64, to: u64) -> Vec<Run> {
        let mut runs = Vec::new();
        let mut position = from;
        while position < to {
            let Some(segment) = self.segment_at(position) else { break };
            let end = segment.end().min(to);
            runs.push(Run { segment: Rc::clone(segment), start: position, end });
            position = end;
        }
        runs
    }

    /// Frees what lies before `position`, the lowest that anybody still needs.
    pub fn trim(&mut self, position: u64) {
        if position <= self.start {
            return;
        }
        while let Some(&end) = self.ends.front() {
            if end > position {
                break;
            }
            self.ends.pop_front();
            self.dropped_frames += 1;
            // The start stays a frame boundary: of a frame partly taken the beginning still counts.
            self.start = end;
        }
        while self.segments.len() > 1 && self.segments[0].end() <= position {
            self.segments.pop_front();
        }
        if position == self.end {
            self.forget_last();
            if self.ends.capacity() > 1024 {
                self.ends.shrink_to(64);
            }
        }
    }

    /// Everything was taken: the last segment's memory is reused if nobody else holds it.
    fn forget_last(&mut self) {
        if let Some(last) = self.segments.pop_back()
            && let Ok(segment) = Rc::try_unwrap(last)
        {
            let mut bytes = segment.bytes.into_inner();
            if bytes.capacity() <= 2 * SEGMENT_BYTES {
                bytes.clear();
                self.segments.push_back(Rc::new(Segment { start: self.end, bytes: RefCell::new(bytes) }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn append(ring: &mut Ring, frames: &[&[u8]]) {
        let mut ends = Vec::new();
        let mut bytes = Vec::new();
        for frame in frames {
            bytes.extend_from_slice(frame);
            ends.push(bytes.len() as u32);
        }
        ring.append(&bytes, ends.into_iter());
    }

    fn read(ring: &Ring, from: u64, to: u64) -> Vec<u8> {
        let mut out = Vec::new();
        for run in ring.runs(from, to) {
            run.segment.with(run.start, (run.end - run.start) as usize, |bytes| out.extend_from_slice(bytes));
        }
        out
    }

    #[test]
    fn positions_and_boundaries() {
        let mut ring = Ring::default();
        append(&mut ring, &[b"aa", b"bbb", b"c"]);
        assert_eq!((ring.end(), ring.retained_frames()), (6, 3));
        for (position, boundary, lag) in [(0, 0, 3), (1, 2, 2), (2, 2, 2), (3, 5, 1), (5, 5, 1), (6, 6, 0)] {
            assert_eq!(ring.boundary_after(position), boundary, "boundary after {position}");
            assert_eq!(ring.lag_frames(position), lag, "lag at {position}");
        }
        assert_eq!(ring.advance(1, 0), 2);
        assert_eq!(ring.advance(1, 1), 5);
        assert_eq!(ring.advance(0, 99), 6);
    }

    #[test]
    fn runs_outlive_the_feed() {
        let mut ring = Ring::default();
        append(&mut ring, &[b"aa", b"bbb"]);
        let runs = ring.runs(1, 5);
        ring.trim(5);
        append(&mut ring, &[b"later"]);
        runs[0].segment.with(1, 4, |bytes| assert_eq!(bytes, b"abbb"));
        assert_eq!(read(&ring, 5, 10), b"later");
    }

    #[test]
    fn memory_is_reused_when_everybody_has_caught_up() {
        let mut ring = Ring::default();
        for _ in 0..10_000 {
            append(&mut ring, &[&[7; 100]]);
            ring.trim(ring.end());
            assert!(ring.segments.len() <= 1 && ring.retained_bytes() == 0);
        }
        assert!(ring.segments[0].bytes.borrow().capacity() < 1024);
        assert_eq!(ring.frames_total(), 10_000);
    }

    #[test]
    fn a_frame_larger_than_a_segment_lies_in_one_piece() {
        let mut ring = Ring::default();
        append(&mut ring, &[b"a", &vec![1; SEGMENT_BYTES * 2], b"b"]);
        let runs = ring.runs(1, 1 + 2 * SEGMENT_BYTES as u64);
        assert_eq!(runs.len(), 1);
    }

    proptest! {
        /// Against a plain byte vector and a list of ends.
        #[test]
        fn a_ring_is_a_window_on_a_byte_stream(
            blocks in prop::collection::vec((prop::collection::vec(1usize..90_000, 1..6), 0u32..100), 1..12)
        ) {
            let (mut ring, mut model, mut ends, mut low) = (Ring::default(), Vec::new(), Vec::new(), 0u64);
            for (lengths, trim_percent) in blocks {
                let frames: Vec<Vec<u8>> = lengths.iter().map(|length| vec![(length % 251) as u8; *length]).collect();
                append(&mut ring, &frames.iter().map(Vec::as_slice).collect::<Vec<_>>());
                for frame in &frames {
                    model.extend_from_slice(frame);
                    ends.push(model.len() as u64);
                }
                low += (model.len() as u64 - low) * u64::from(trim_percent) / 100;
                ring.trim(low);
                prop_assert_eq!(ring.end(), model.len() as u64);
                prop_assert_eq!(read(&ring, low, ring.end()), &model[low as usize..]);
                let boundary = if low == 0 { 0 } else { ends.iter().copied().find(|end| *end >= low).unwrap_or(low) };
                prop_assert_eq!(ring.boundary_after(low), boundary);
                let lag = ends.iter().filter(|end| **end > boundary).count();
                prop_assert_eq!(ring.lag_frames(boundary), lag);
                prop_assert_eq!(ring.frames_total(), ends.len() as u64);
            }
        }
    }
}
