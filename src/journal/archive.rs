//! Rows that have left the journal, as a replay sees them.

/// Where rows of a stream are after they were deleted from the journal. Asked on the reader threads.
///
/// A row is there before it is deleted from the journal. Who wants to know everything therefore asks the journal first
/// and this afterwards.
pub trait Archive: Send + Sync {
    /// The lowest offset of the first stretch of rows that reaches `offset` or begins above it, and the offset after
    /// that stretch. Single offsets within may have been skipped (docs/storage.md).
    ///
    /// # Errors
    /// When it cannot be told; the text is for the operator.
    fn stretch_at_or_above(&self, stream: u32, offset: i64) -> Result<Option<(i64, i64)>, String>;

    /// Gives rows of `[from, until)` in order, as offset, stamp in microseconds and canonical row, from the first one
    /// there is on and until `take` returns false or an adjacent stretch ends.
    ///
    /// # Errors
    /// When they cannot be read; the text is for the operator.
    fn rows(
        &self,
        stream: u32,
        from: i64,
        until: i64,
        take: &mut dyn FnMut(i64, i64, &[u8]) -> bool,
    ) -> Result<(), String>;
}

/// No rows have left the journal.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoArchive;

impl Archive for NoArchive {
    fn stretch_at_or_above(&self, _stream: u32, _offset: i64) -> Result<Option<(i64, i64)>, String> {
        Ok(None)
    }

    fn rows(
        &self,
        _stream: u32,
        _from: i64,
        _until: i64,
        _take: &mut dyn FnMut(i64, i64, &[u8]) -> bool,
    ) -> Result<(), String> {
        Ok(())
    }
}
