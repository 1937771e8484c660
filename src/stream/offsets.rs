//! Offsets in two states that the compiler keeps apart: given out, and safe on disk.
//!
//! A row gets an [`AssignedOffset`] while its transaction is being written. Only a transaction whose sync
//! has returned turns it into a [`DurableOffset`], and only a `DurableOffset` can be encoded for subscribers
//! or acknowledged. Nothing can become visible before it is durable without a type error.

/// The first offset of a stream that never held a row (0 is EARLIEST on the wire and never given out).
pub const FIRST_OFFSET: i64 = 1;

/// The offset of a row whose transaction has not been committed yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct AssignedOffset(i64);

/// The offset of a row whose transaction is on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DurableOffset(i64);

/// Evidence that a transaction was committed with full sync. The journal makes one, in one place, after
/// COMMIT has returned.
#[derive(Debug)]
pub struct CommitProof(());

impl CommitProof {
    /// To be called once COMMIT has returned without error, and nowhere else.
    pub(crate) fn after_commit() -> Self {
        Self(())
    }
}

impl AssignedOffset {
    /// The number, for writing it into the transaction that is to make it durable.
    #[must_use]
    pub fn get(self) -> i64 {
        self.0
    }

    /// The same offset, now that its transaction is on disk.
    #[must_use]
    pub fn settle(self, _proof: &CommitProof) -> DurableOffset {
        DurableOffset(self.0)
    }
}

impl DurableOffset {
    /// An offset that was read back from the log, where only committed rows are.
    pub(crate) fn stored(offset: i64) -> Self {
        Self(offset)
    }

    /// The number, for frames and replies.
    #[must_use]
    pub fn get(self) -> i64 {
        self.0
    }
}

/// The end of one stream's log: how far rows are durable and how far offsets are given out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndOffset {
    durable: i64,
    assigned: i64,
}

impl EndOffset {
    /// A log whose next row gets `end_offset`.
    #[must_use]
    pub fn new(end_offset: i64) -> Self {
        Self { durable: end_offset, assigned: end_offset }
    }

    /// The offset after the last durable row.
    #[must_use]
    pub fn durable(&self) -> i64 {
        self.durable
    }

    /// The offset the next row gets if everything assigned so far commits.
    #[must_use]
    pub fn assigned(&self) -> i64 {
        self.assigned
    }

    /// Gives `rows` adjacent offsets to one frame and returns the first; `None` when the offset space of
    /// 63 bits has no room left, in which case nothing is given out.
    pub fn assign(&mut self, rows: u32) -> Option<AssignedOffset> {
        let first = self.assigned;
        self.assigned = first.checked_add(i64::from(rows))?;
        Some(AssignedOffset(first))
    }

    /// The transaction committed: what was assigned is durable.
    pub fn settle(&mut self, _proof: &CommitProof) {
        self.durable = self.assigned;
    }

    /// The transaction failed: what was assigned was never given out.
    pub fn abandon(&mut self) {
        self.assigned = self.durable;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_of_a_failed_transaction_are_given_out_again_and_those_of_a_committed_one_never() {
        let mut end = EndOffset::new(FIRST_OFFSET);
        assert_eq!(end.assign(2).map(AssignedOffset::get), Some(1));
        assert_eq!(end.assign(3).map(AssignedOffset::get), Some(3));
        assert_eq!((end.durable(), end.assigned()), (1, 6));
        end.abandon();
        let first = end.assign(2).expect("room");
        let proof = CommitProof::after_commit();
        end.settle(&proof);
        assert_eq!(first.settle(&proof).get(), 1);
        assert_eq!((end.durable(), end.assigned()), (3, 3));
    }

    #[test]
    fn the_end_of_the_offset_space_refuses_and_gives_nothing_out() {
        let mut end = EndOffset::new(i64::MAX - 1);
        assert_eq!(end.assign(2), None);
        assert_eq!(end.assigned(), i64::MAX - 1);
        assert!(end.assign(1).is_some());
    }
}
