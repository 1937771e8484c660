//! What is asked of the writer and what it answers.

use std::sync::Arc;

use streamcast_shards::Block;

use super::insert::Insert;
use super::office::Errand;
use crate::wire::batch::RowBatch;
use crate::wire::publish::Seq;

/// The publisher id of an exactly-once connection; the claim is held by the connection's token.
pub type ClaimRef = Arc<str>;

/// One thing for the writer to do. Jobs are done in the order they were sent.
#[derive(Debug)]
pub enum Job {
    /// Rows to commit.
    Append(Append),
    /// A connection takes a publisher id; from this point of the queue on, an older holder commits nothing
    /// more (wire.md section 5.4). Answered with [`CommitSink::claimed`].
    Claim {
        /// The stream's number in the journal.
        stream: u32,
        /// The id.
        publisher: ClaimRef,
        /// The connection.
        token: u64,
    },
    /// A connection gives its id back, if it still holds it. Not answered.
    Release {
        /// The stream's number in the journal.
        stream: u32,
        /// The id.
        publisher: ClaimRef,
        /// The connection.
        token: u64,
    },
    /// Rows below an offset are safe elsewhere: their batches are deleted in small steps between transactions. A batch
    /// that reaches beyond the offset stays. Not answered; a step that fails is not tried again until it is asked for.
    Evict {
        /// The stream's number in the journal.
        stream: u32,
        /// The offset.
        below: i64,
    },
    /// Comes back as [`CommitSink::note`] once everything sent before it is committed and delivered, and
    /// before anything sent after it is.
    Note(u64, u64, u64),
    /// Called once everything sent before it is committed and delivered, and before anything sent after it is.
    Errand(Errand),
}

/// One publish frame: its rows are committed together, next to each other, or not at all.
#[derive(Debug)]
pub struct Append {
    /// The stream's number in the journal.
    pub stream: u32,
    /// The connection, returned with the outcome.
    pub token: u64,
    /// The publisher id that the connection claimed, on an exactly-once connection.
    pub claim: Option<ClaimRef>,
    /// The sequence number of the first row, on an exactly-once connection.
    pub first_seq: Option<Seq>,
    /// The rows, validated and in canonical form.
    pub rows: RowBatch,
    /// When the frame was checked, in microseconds. An insert gets its stamp when it is committed.
    pub ts_us: i64,
    /// What an insert of the batch API is more than a frame.
    pub insert: Option<Box<Insert>>,
}

/// What became of an [`Append`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// On disk.
    Ok {
        /// Offsets of leading rows that were in the log already, where remembered.
        prior: Vec<Option<i64>>,
        /// The offset of the first row appended now; meaningless if `count` is 0.
        first: i64,
        /// How many rows were appended now.
        count: u32,
    },
    /// The frame does not follow the publisher's last row.
    Gap {
        /// The sequence number it had to start at.
        expected: u64,
        /// The one it started at.
        got: Seq,
    },
    /// Storage failed, with the reason; nothing is stored.
    CommitFailed(String),
    /// An insert is on disk.
    Inserted {
        /// The offset of its first row.
        first: i64,
        /// How many rows it has.
        count: u32,
        /// Their stamp, in microseconds.
        ts_us: i64,
        /// Whether an earlier request with the same key did it.
        duplicate: bool,
    },
    /// The key of an insert was used for another body; nothing is stored.
    KeyReused,
    /// There is no room for one more receipt; nothing is stored.
    ReceiptsFull,
    /// The rows of an insert passed another validator than the stream has now; nothing is stored.
    Stale,
    /// Another connection has the publisher id now: answer nothing, the 4409 is on its way.
    Lost,
}

/// What one committed or failed transaction did.
#[derive(Debug, Default)]
pub struct GroupCommit {
    /// For each stream that got rows: its number, their frames, how many, and the stamp of the last.
    pub blocks: Vec<(u32, Arc<Block>, u32, i64)>,
    /// For each frame: the connection's token, the stream's number, the outcome; in queue order.
    pub outcomes: Vec<(u64, u32, Outcome)>,
}

/// Takes what the writer has to say, on the writer's thread. Must not block.
pub trait CommitSink: Send {
    /// Whether anybody gets the frames of a stream's rows. Where nobody does, blocks say only where the stream ends.
    fn wants_frames(&self, stream: u32) -> bool;

    /// A transaction is on disk (or failed): blocks are to be offered to subscribers first, then outcomes
    /// answered.
    fn deliver(&mut self, commit: GroupCommit);

    /// A [`Job::Claim`] took effect; the mark covers every row the older holder had queued.
    fn claimed(&mut self, stream: u32, token: u64, last_seq: u64, last_offset: Option<i64>);

    /// A [`Job::Claim`] cannot be answered because the mark could not be read.
    fn claim_failed(&mut self, stream: u32, token: u64, detail: String);

    /// Another connection took the id that `token` held.
    fn superseded(&mut self, stream: u32, token: u64);

    /// A [`Job::Note`] came to its turn.
    fn note(&mut self, a: u64, b: u64, c: u64);
}
