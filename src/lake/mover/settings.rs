//! When rows are moved, how large files get, and how long they are kept (docs/storage.md, "Moving rows").

use std::time::Duration;

use crate::lake::store::StoreConfig;

/// What is chosen for one stream.
#[derive(Debug, Clone, PartialEq)]
pub struct MoverSettings {
    /// Whether this process moves rows by itself.
    pub maintain: bool,
    /// Whether this process purges files of erased rows by itself, and publishes which offsets hold no rows.
    pub purge: bool,
    /// Every row is sealed, and then published, at least this often; `None` for only when there are enough.
    pub flush_every: Option<Duration>,
    /// How often is looked whether there are enough rows for a file.
    pub seal_every: Duration,
    /// How often sealed files are published.
    pub publish_every: Duration,
    /// How often is looked for files to merge.
    pub compact_every: Duration,
    /// How often what is not needed any more is deleted.
    pub clean_every: Duration,
    /// A sealed file is ended when its rows take this many bytes as Arrow.
    pub target_seal_bytes: u64,
    /// A sealed file is ended at this many rows, if that comes first.
    pub target_seal_rows: Option<u64>,
    /// Files of this size are not merged any more.
    pub target_compact_bytes: u64,
    /// Files of about one size that are merged at a time, at least 2.
    pub compact_min_files: usize,
    /// Bytes of files that are kept here, the newest; older ones only when they are published elsewhere.
    pub local_max_bytes: Option<u64>,
    /// How long files are kept here after their last row; only when they are published elsewhere.
    pub local_retention: Option<Duration>,
    /// How long a state of the table that was superseded stays readable.
    pub snapshot_retention: Duration,
}

impl Default for MoverSettings {
    fn default() -> Self {
        Self {
            maintain: true,
            purge: true,
            flush_every: Some(Duration::from_secs(60)),
            seal_every: Duration::from_millis(250),
            publish_every: Duration::from_secs(10),
            compact_every: Duration::from_secs(10),
            clean_every: Duration::from_secs(10),
            target_seal_bytes: 8 << 20,
            target_seal_rows: None,
            target_compact_bytes: 512 << 20,
            compact_min_files: 8,
            local_max_bytes: Some(4 << 30),
            local_retention: None,
            snapshot_retention: Duration::from_secs(3600),
        }
    }
}

/// What is chosen for all streams.
#[derive(Debug, Clone, Default)]
pub struct LakeSettings {
    /// How object stores are reached.
    pub store: StoreConfig,
    /// The cores that background work may run on; anywhere if empty.
    pub cores: Vec<usize>,
    /// Whether a shard or the writer runs on one of them.
    pub shares_cores: bool,
}
