//! A block: the encoded WebSocket frames of rows that were committed together.

/// Contiguous, complete WebSocket frames of one stream, in offset order.
///
/// A block is built once, by the core that gave the rows their order, and shared by every shard. Row `i`
/// occupies `frames[ends[i - 1]..ends[i]]` (from 0 for the first), header and payload.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Block {
    /// The frames' bytes, exactly as they go to the socket.
    pub frames: Vec<u8>,
    /// The end of each frame in `frames`, in bytes, ascending.
    pub ends: Vec<u32>,
    /// The offset after the last row; `None` where nothing assigns offsets.
    pub end_offset: Option<i64>,
}

impl Block {
    /// How many frames the block holds.
    #[must_use]
    pub fn count(&self) -> usize {
        self.ends.len()
    }

    /// The bytes of frame `index`, header and payload.
    #[must_use]
    pub fn frame(&self, index: usize) -> &[u8] {
        let start = if index == 0 { 0 } else { self.ends[index - 1] as usize };
        &self.frames[start..self.ends[index] as usize]
    }
}
