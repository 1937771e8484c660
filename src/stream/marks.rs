//! Exactly-once marks of one stream (wire.md section 5.3): which rows of a publisher are in the log already.
//!
//! The truth is a table in the journal; this is the memory in front of it. Frames of one transaction are
//! judged in queue order against marks that move tentatively, and the whole transaction settles or is
//! abandoned together.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use crate::stream::offsets::{AssignedOffset, CommitProof};
use crate::wire::publish::Seq;

/// Appended ranges whose offsets are remembered for one publisher.
pub const REMEMBERED_RANGES: usize = 64;

/// Publishers remembered for one stream.
pub const CACHED_PUBLISHERS: usize = 4096;

/// How far one publisher's sequence is in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mark {
    /// The sequence number of its last row; 0 before the first.
    pub last_seq: u64,
    /// The offset of that row; `None` while `last_seq` is 0.
    pub last_offset: Option<i64>,
}

/// What is to happen with one frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The frame starts beyond the next sequence number: nothing of it may be appended.
    Gap {
        /// The sequence number it had to start at.
        expected: u64,
    },
    /// The first `prior.len()` rows are in the log; the rest is to be appended.
    Take {
        /// The offsets of the rows that are in the log, where they are remembered.
        prior: Vec<Option<i64>>,
    },
}

/// Rows that were appended together: adjacent in sequence and in offset.
#[derive(Debug, Clone, Copy)]
struct Range {
    first_seq: u64,
    rows: u32,
    first_offset: i64,
}

impl Range {
    /// Fills in the offsets of the rows that `prior` (whose row 0 has number `first_seq`) shares with this range.
    fn recall(&self, first_seq: u64, prior: &mut [Option<i64>]) {
        let start = self.first_seq.max(first_seq);
        let end = (self.first_seq + u64::from(self.rows)).min(first_seq + prior.len() as u64);
        for seq in start..end {
            prior[(seq - first_seq) as usize] = Some(self.first_offset + (seq - self.first_seq) as i64);
        }
    }
}

/// One publisher: what is settled, and what the open transaction would make of it.
#[derive(Debug)]
struct Entry {
    mark: Mark,
    ranges: VecDeque<Range>,
    used: u64,
    tentative: Option<Tentative>,
}

#[derive(Debug)]
struct Tentative {
    mark: Mark,
    ranges: VecDeque<Range>,
}

impl Entry {
    fn current(&self) -> Mark {
        self.tentative.as_ref().map_or(self.mark, |tentative| tentative.mark)
    }

    /// The offsets of the `skip` rows from `first_seq` on. Older ranges than the last [`REMEMBERED_RANGES`],
    /// those of the open transaction included, are forgotten.
    fn recall(&self, first_seq: u64, skip: usize) -> Vec<Option<i64>> {
        let mut prior = vec![None; skip];
        let fresh = self.tentative.as_ref().map_or(0, |tentative| tentative.ranges.len());
        let surplus = (self.ranges.len() + fresh).saturating_sub(REMEMBERED_RANGES);
        for range in self.ranges.iter().skip(surplus) {
            range.recall(first_seq, &mut prior);
        }
        for range in self.tentative.iter().flat_map(|tentative| &tentative.ranges) {
            range.recall(first_seq, &mut prior);
        }
        let mark = self.current();
        if let Some(at) = mark.last_seq.checked_sub(first_seq).filter(|at| *at < skip as u64) {
            prior[at as usize] = mark.last_offset;
        }
        prior
    }
}

fn remember(ranges: &mut VecDeque<Range>, range: Range) {
    if ranges.len() == REMEMBERED_RANGES {
        ranges.pop_front();
    }
    ranges.push_back(range);
}

/// The marks of one stream, as far as they are in memory.
#[derive(Debug)]
pub struct Marks {
    capacity: usize,
    entries: HashMap<Arc<str>, Entry>,
    /// Publishers by the time of their last use; the first is the next to be forgotten.
    by_use: BTreeMap<u64, Arc<str>>,
    uses: u64,
    /// Publishers that the open transaction moves, in the order it first touched them.
    moving: Vec<Arc<str>>,
}

impl Default for Marks {
    fn default() -> Self {
        Self::with_capacity(CACHED_PUBLISHERS)
    }
}

impl Marks {
    /// Marks that remember at most `capacity` publishers (at least one).
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        Self {
            capacity: capacity.max(1),
            entries: HashMap::new(),
            by_use: BTreeMap::new(),
            uses: 0,
            moving: Vec::new(),
        }
    }

    /// The settled mark of `publisher` if it is in memory. If not, the caller reads the table and calls
    /// [`Marks::admit`].
    pub fn settled(&mut self, publisher: &str) -> Option<Mark> {
        self.touch(publisher);
        self.entries.get(publisher).map(|entry| entry.mark)
    }

    /// Takes the mark of a publisher that was not in memory from the table (the default if it has no row).
    pub fn admit(&mut self, publisher: Arc<str>, mark: Mark) {
        debug_assert!(!self.entries.contains_key(&publisher), "only an unknown publisher is admitted");
        self.uses += 1;
        self.by_use.insert(self.uses, Arc::clone(&publisher));
        self.entries.insert(publisher, Entry { mark, ranges: VecDeque::new(), used: self.uses, tentative: None });
        self.forget_surplus();
    }

    /// Judges a frame of `rows` rows that starts at `first_seq`, on top of what the open transaction has
    /// already moved. Changes nothing. `None` if the publisher is not in memory.
    pub fn judge(&mut self, publisher: &str, first_seq: &Seq, rows: u32) -> Option<Verdict> {
        self.touch(publisher);
        let entry = self.entries.get(publisher)?;
        let expected = entry.current().last_seq + 1;
        let first_seq = match first_seq {
            // 0 never gets here: the frame would have been `bad_frame`.
            Seq::Small(seq) if (1..=expected).contains(seq) => *seq,
            Seq::Small(_) | Seq::Huge(_) => return Some(Verdict::Gap { expected }),
        };
        let skip = u64::from(rows).min(expected - first_seq) as usize;
        Some(Verdict::Take { prior: entry.recall(first_seq, skip) })
    }

    /// Moves the mark over `rows` rows that the open transaction appends at `first_offset`.
    ///
    /// The publisher must have been judged in this transaction, and `rows` be what the verdict left over.
    pub fn advance(&mut self, publisher: &Arc<str>, rows: u32, first_offset: AssignedOffset) {
        debug_assert!(rows > 0, "a frame without new rows moves no mark");
        let Some(entry) = self.entries.get_mut(publisher) else {
            debug_assert!(false, "the publisher was judged in this transaction");
            return;
        };
        let mark = entry.mark;
        let tentative = entry.tentative.get_or_insert_with(|| {
            self.moving.push(Arc::clone(publisher));
            Tentative { mark, ranges: VecDeque::new() }
        });
        let first_seq = tentative.mark.last_seq + 1;
        remember(&mut tentative.ranges, Range { first_seq, rows, first_offset: first_offset.get() });
        tentative.mark = Mark {
            last_seq: tentative.mark.last_seq + u64::from(rows),
            last_offset: Some(first_offset.get() + i64::from(rows) - 1),
        };
    }

    /// The marks that the open transaction has to write.
    pub fn moving(&self) -> impl Iterator<Item = (&str, Mark)> {
        self.moving.iter().filter_map(|publisher| Some((&**publisher, self.entries.get(publisher)?.current())))
    }

    /// The transaction committed.
    pub fn settle(&mut self, _proof: &CommitProof) {
        for publisher in self.moving.drain(..) {
            let Some(entry) = self.entries.get_mut(&publisher) else { continue };
            if let Some(tentative) = entry.tentative.take() {
                entry.mark = tentative.mark;
                for range in tentative.ranges {
                    remember(&mut entry.ranges, range);
                }
            }
        }
        self.forget_surplus();
    }

    /// The transaction failed: nothing moved.
    pub fn abandon(&mut self) {
        for publisher in self.moving.drain(..) {
            if let Some(entry) = self.entries.get_mut(&publisher) {
                entry.tentative = None;
            }
        }
        self.forget_surplus();
    }

    fn touch(&mut self, publisher: &str) {
        if let Some(entry) = self.entries.get_mut(publisher)
            && let Some(name) = self.by_use.remove(&entry.used)
        {
            self.uses += 1;
            entry.used = self.uses;
            self.by_use.insert(self.uses, name);
        }
    }

    /// Forgets the longest unused publishers above the capacity, except those that are moving.
    fn forget_surplus(&mut self) {
        let surplus = self.entries.len().saturating_sub(self.capacity);
        if surplus == 0 {
            return;
        }
        let still = |name: &Arc<str>| self.entries.get(name).is_some_and(|entry| entry.tentative.is_none());
        let newest = self.uses;
        let victims: Vec<u64> = self
            .by_use
            .iter()
            .filter(|(used, name)| **used != newest && still(name))
            .take(surplus)
            .map(|(used, _)| *used)
            .collect();
        for used in victims {
            if let Some(name) = self.by_use.remove(&used) {
                self.entries.remove(&name);
            }
        }
    }
}

#[cfg(test)]
mod tests;
