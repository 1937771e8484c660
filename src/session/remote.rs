//! What other cores tell a shard's sessions.

use std::sync::Arc;

use streamcast_shards::{Block, ConnId};

use crate::journal::Outcome;
use crate::journal::reader::Page;
use crate::stream::replay::Resolution;
use crate::wire::RowBatch;

/// A connection anywhere in the process: its shard and its id there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token {
    /// The shard.
    pub shard: usize,
    /// The connection on it.
    pub conn: ConnId,
}

impl Token {
    /// As one word: the shard in the high eight bits.
    #[must_use]
    pub fn to_word(self) -> u64 {
        (self.shard as u64) << 56 | self.conn.to_word()
    }

    /// The inverse of [`Token::to_word`].
    #[must_use]
    pub fn from_word(word: u64) -> Self {
        Self { shard: (word >> 56) as usize, conn: ConnId::from_word(word) }
    }
}

/// Rows for a live-only stream, on their way to the shard that orders them.
#[derive(Debug)]
pub struct LiveRows {
    /// The stream's place in the catalog.
    pub stream: u32,
    /// Who published; [`LIVE_ORIGIN_NONE`] for rows of the broker's own.
    pub origin: u64,
    /// The rows.
    pub rows: RowBatch,
    /// When they were checked, in microseconds.
    pub ts_us: i64,
}

/// The origin of rows that nobody waits for.
pub const LIVE_ORIGIN_NONE: u64 = u64::MAX;

/// One message to the sessions of a shard.
#[derive(Debug)]
pub enum Remote {
    /// Rows are durable (or ordered, without a log): first the blocks, then the outcomes.
    Commit {
        /// Stream and frames.
        blocks: Vec<(u32, Arc<Block>)>,
        /// Connection of this shard and what became of its oldest unanswered frame.
        outcomes: Vec<(ConnId, Outcome)>,
    },
    /// A block was left out because this shard is too far behind; the stream's end after it.
    Skipped {
        /// The stream.
        stream: u32,
        /// The offset after the block's last row.
        end_offset: Option<i64>,
    },
    /// From here on this shard gets the stream's blocks; everything below the frontier is readable.
    Interested {
        /// The stream.
        stream: u32,
        /// The frontier; `None` without a log.
        end_offset: Option<i64>,
    },
    /// A shard wants (or no longer wants) the blocks of a live-only stream whose home is here.
    Interest {
        /// The stream.
        stream: u32,
        /// The shard.
        shard: usize,
        /// Whether it wants them.
        on: bool,
    },
    /// Rows to put in order here.
    Live(LiveRows),
    /// The publisher id is this connection's; its mark.
    Claimed {
        /// The connection.
        conn: ConnId,
        /// The number of the last row.
        last_seq: u64,
        /// Its offset.
        last_offset: Option<i64>,
    },
    /// The mark could not be read.
    ClaimFailed {
        /// The connection.
        conn: ConnId,
        /// Why, for the log.
        detail: String,
    },
    /// A newer connection took the publisher id.
    Superseded {
        /// The connection that had it.
        conn: ConnId,
    },
    /// The credential that a connection showed has been checked.
    Checked {
        /// The connection, whose upgrade waits.
        conn: ConnId,
    },
    /// Rows have left the writer's queue.
    Room {
        /// The stream.
        stream: u32,
    },
    /// Where a replay starts.
    Resolved {
        /// The connection.
        conn: ConnId,
        /// The answer.
        resolution: Resolution,
    },
    /// A page of a replay.
    Page {
        /// The connection.
        conn: ConnId,
        /// The page.
        page: Page,
    },
    /// Close every connection of a stream: it goes out of service.
    StopStream {
        /// The stream.
        stream: u32,
    },
    /// Close every connection: the broker stops.
    Stop,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_survives_being_one_word() {
        for (shard, index, generation) in [(0, 0, 1), (255, (1 << 28) - 1, (1 << 28) - 1), (3, 70_000, 5)] {
            let token = Token { shard, conn: ConnId { index, generation } };
            assert_eq!(Token::from_word(token.to_word()), token);
        }
    }
}
