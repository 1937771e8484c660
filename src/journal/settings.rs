//! What can be chosen about the journal, with the defaults that measurements favoured (docs/storage.md).

/// Settings of the journal; the defaults are right for almost everyone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalSettings {
    /// Page size of a new journal; an existing one keeps its own.
    pub page_size_bytes: u32,
    /// Pages the writer keeps in memory.
    pub cache_bytes: u64,
    /// Length that the write-ahead log gets at start, so that commits overwrite it from the beginning.
    pub wal_reserve_bytes: u64,
    /// Growth of the write-ahead log after which it is moved into the file in the background.
    pub wal_step_bytes: u64,
    /// Length of the write-ahead log at which all of it is moved, so that it starts over.
    pub wal_checkpoint_bytes: u64,
    /// Length of the write-ahead log at which commits wait until it is moved.
    pub wal_limit_bytes: u64,
    /// Rows at which a transaction takes no further frame.
    pub max_group_rows: u32,
    /// Bytes of rows at which a transaction takes no further frame.
    pub max_group_bytes: usize,
    /// Bytes of rows in one SQL row; a larger batch is spread over several.
    pub max_batch_bytes: usize,
    /// How long a commit waits for another process that locks the file.
    pub busy_timeout_ms: u64,
    /// Whether the writer's core is kept awake while transactions follow each other closely.
    pub keep_awake: bool,
    /// Where the thread that moves the write-ahead log into the file may run; empty is anywhere.
    pub checkpoint_cores: Vec<usize>,
}

impl Default for JournalSettings {
    fn default() -> Self {
        Self {
            page_size_bytes: 4096,
            cache_bytes: 16 << 20,
            wal_reserve_bytes: 20 << 20,
            wal_step_bytes: 1 << 20,
            wal_checkpoint_bytes: 16 << 20,
            wal_limit_bytes: 256 << 20,
            max_group_rows: 10_000,
            max_group_bytes: 8 << 20,
            max_batch_bytes: 256 << 10,
            busy_timeout_ms: 2000,
            keep_awake: true,
            checkpoint_cores: Vec::new(),
        }
    }
}
