//! Offsets of a stream that hold no row, as they are kept in the journal and in the document of holes
//! (docs/storage.md, "Holes").

/// Offsets that hold no row: `[first, end)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hole {
    /// The first of them.
    pub first: i64,
    /// The offset after the last of them.
    pub end: i64,
    /// The offset of the erasure that took the rows; `None` if there never were any.
    pub marker: Option<i64>,
}

/// An erasure as it is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Erasure {
    /// Its own offset.
    pub marker: i64,
    /// How many rows it took.
    pub records: u32,
    /// When it was made, in microseconds.
    pub ts_us: i64,
}
