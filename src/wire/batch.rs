//! The rows of one publish frame in canonical form.

/// Canonical rows, each followed by a line feed: the body that the journal stores.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct RowBatch {
    /// The rows' JSON, one a line.
    pub body: Vec<u8>,
    /// For each row the index in `body` behind its line feed, ascending.
    pub ends: Vec<u32>,
}

impl RowBatch {
    /// How many rows the batch has.
    #[must_use]
    pub fn count(&self) -> usize {
        self.ends.len()
    }

    /// The JSON of row `index`, without its line feed.
    ///
    /// # Panics
    /// If there is no such row.
    #[must_use]
    pub fn row(&self, index: usize) -> &[u8] {
        let start = if index == 0 { 0 } else { self.ends[index - 1] as usize };
        &self.body[start..self.ends[index] as usize - 1]
    }

    /// The rows in order, each without its line feed.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        (0..self.count()).map(|index| self.row(index))
    }
}
