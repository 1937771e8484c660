//! Counters that the cores write and the observers read: plain atomics, no lock, nothing to wait for.
//!
//! A shard or the writer is the only writer of its own counters; `/stats`, `/metrics` and the console read
//! them with relaxed loads. Names carry their unit; `_total` only ever grows.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Instant, SystemTime};

/// Everything that is observed of one broker process.
pub struct Telemetry {
    /// One entry a shard, by shard index.
    pub shards: Vec<ShardCounters>,
    /// The writer core.
    pub writer: WriterCounters,
    /// The streams in the order they came into service.
    streams: RwLock<Vec<Arc<StreamCounters>>>,
}

impl Telemetry {
    /// Counters for `shards` shards, all zero.
    #[must_use]
    pub fn new(shards: usize) -> Self {
        Self {
            shards: (0..shards).map(|_| ShardCounters::default()).collect(),
            writer: WriterCounters::default(),
            streams: RwLock::default(),
        }
    }

    /// Lists a stream that came into service.
    pub fn add_stream(&self, stream: Arc<StreamCounters>) {
        self.streams.write().unwrap_or_else(|poisoned| poisoned.into_inner()).push(stream);
    }

    /// Takes a stream off the list that went out of service.
    pub fn remove_stream(&self, stream: &Arc<StreamCounters>) {
        let mut streams = self.streams.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        streams.retain(|listed| !Arc::ptr_eq(listed, stream));
    }

    /// The streams in service, in the order they came.
    #[must_use]
    pub fn streams(&self) -> Vec<Arc<StreamCounters>> {
        self.streams.read().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }
}

/// One stream. `end_offset` is -1 where there is no log.
pub struct StreamCounters {
    /// The name it is served under.
    pub name: String,
    /// Whether it has a log.
    pub durable: bool,
    /// When it came into service, on the wall and on the monotonic clock.
    pub started: (SystemTime, Instant),
    /// The offset the next row gets; -1 without a log.
    pub end_offset: AtomicI64,
    /// Subscribers attached now, over all shards.
    pub subscribers: AtomicI64,
    /// Publisher connections open now, over all shards.
    pub publishers: AtomicI64,
    /// Wall clock of the last publish in this process, in microseconds; 0 before the first.
    pub last_send_us: AtomicI64,
    /// The same on the monotonic clock, in microseconds since `started`.
    pub last_send_after_us: AtomicI64,
    /// Rows committed (or fanned out, without a log) by this process.
    pub rows_total: AtomicU64,
    /// Bytes of row frames built by this process.
    pub frame_bytes_total: AtomicU64,
    /// Frames answered `bad_frame` or `rejected`.
    pub refused_frames_total: AtomicU64,
    /// Rows queued for commit now.
    pub queued_rows: AtomicI64,
    /// The largest distance of a subscriber from the end of its feed, in frames, since the console last looked: a shard
    /// raises it with `fetch_max`, the console takes it with `swap(0)`.
    pub peak_lag_frames: AtomicI64,
    /// Its sealed files and its table.
    pub lake: LakeCounters,
}

/// What is known of a stream's files. Ends are -1 where there is no lake.
#[derive(Default)]
pub struct LakeCounters {
    /// Everything before this offset is in files, plus one; 0 where that is not known.
    sealed_end_plus_one: AtomicI64,
    /// Everything before this offset is in the table, plus one; 0 where that is not known.
    published_end_plus_one: AtomicI64,
    /// Everything before this offset has left the journal, plus one; 0 where that is not known.
    evicted_end_plus_one: AtomicI64,
    /// Files of the current log.
    pub files: AtomicU64,
    /// Their bytes.
    pub file_bytes: AtomicU64,
    /// The stamp of the first row that is not in the table, in microseconds; 0 if all are.
    pub unpublished_since_us: AtomicI64,
    /// Rows sealed by this process.
    pub sealed_rows_total: AtomicU64,
    /// Files merged by this process.
    pub merged_files_total: AtomicU64,
    /// Passes that failed.
    pub errors_total: AtomicU64,
    /// What went wrong last, and when; `None` since it went well again.
    last_error: Mutex<Option<(SystemTime, String)>>,
}

/// What a look at a stream's files gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LakeNumbers {
    /// Everything before this offset is in files.
    pub sealed_end: i64,
    /// Everything before this offset is in the table.
    pub published_end: i64,
    /// Files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The lowest stamp in a file that is not in the table, in microseconds.
    pub unpublished_since_us: Option<i64>,
}

impl LakeCounters {
    /// Takes in what a look at the files gave.
    pub fn saw(&self, numbers: &LakeNumbers) {
        self.sealed_end_plus_one.store(numbers.sealed_end.saturating_add(1), Relaxed);
        self.published_end_plus_one.store(numbers.published_end.saturating_add(1), Relaxed);
        self.files.store(numbers.files, Relaxed);
        self.file_bytes.store(numbers.bytes, Relaxed);
        if let Some(since_us) = numbers.unpublished_since_us {
            self.unpublished_since_us.store(since_us, Relaxed);
        }
    }

    /// Everything before this offset is in files, if that is known.
    #[must_use]
    pub fn sealed_end(&self) -> Option<i64> {
        self.sealed_end_plus_one.load(Relaxed).checked_sub(1).filter(|end| *end >= 0)
    }

    /// Everything before this offset is in the table, if that is known.
    #[must_use]
    pub fn published_end(&self) -> Option<i64> {
        self.published_end_plus_one.load(Relaxed).checked_sub(1).filter(|end| *end >= 0)
    }

    /// Everything before this offset has left the journal.
    pub fn evicted(&self, end: i64) {
        self.evicted_end_plus_one.store(end.saturating_add(1), Relaxed);
    }

    /// Everything before this offset has left the journal, if that is known.
    #[must_use]
    pub fn evicted_end(&self) -> Option<i64> {
        self.evicted_end_plus_one.load(Relaxed).checked_sub(1).filter(|end| *end >= 0)
    }

    /// How long ago the first row that is not in the table was taken, in seconds; 0 if all are there.
    #[must_use]
    pub fn lag_s(&self, wall: SystemTime) -> f64 {
        let since_us = self.unpublished_since_us.load(Relaxed);
        let now_us = wall.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_micros() as i64);
        if since_us <= 0 { 0.0 } else { (now_us - since_us).max(0) as f64 / 1e6 }
    }

    /// Something went wrong.
    pub fn failed(&self, error: String) {
        self.errors_total.fetch_add(1, Relaxed);
        *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = Some((SystemTime::now(), error));
    }

    /// It went well again.
    pub fn went_well(&self) {
        *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// What is wrong now, and since when it was last tried.
    #[must_use]
    pub fn last_error(&self) -> Option<(SystemTime, String)> {
        self.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl StreamCounters {
    /// A stream that comes into service now.
    #[must_use]
    pub fn new(name: &str, durable: bool, end_offset: Option<i64>) -> Self {
        Self {
            name: name.to_owned(),
            durable,
            started: (SystemTime::now(), Instant::now()),
            end_offset: AtomicI64::new(end_offset.unwrap_or(-1)),
            subscribers: AtomicI64::new(0),
            publishers: AtomicI64::new(0),
            last_send_us: AtomicI64::new(0),
            last_send_after_us: AtomicI64::new(0),
            rows_total: AtomicU64::new(0),
            frame_bytes_total: AtomicU64::new(0),
            refused_frames_total: AtomicU64::new(0),
            queued_rows: AtomicI64::new(0),
            peak_lag_frames: AtomicI64::new(0),
            lake: LakeCounters::default(),
        }
    }
}

/// Why a connection ended at the server's wish; the index into [`ShardCounters::closed_total`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseCause {
    /// The peer closed, or its socket failed.
    Peer,
    /// 4429.
    TooSlow,
    /// 1011, no pong in time.
    Keepalive,
    /// 1002, 1007 or 1009.
    Protocol,
    /// 44xx in place of the greeting.
    Refused,
    /// 4409.
    Superseded,
    /// 1001.
    Stopping,
}

impl CloseCause {
    /// Every cause with its label in metrics.
    pub const ALL: [(CloseCause, &'static str); 7] = [
        (CloseCause::Peer, "peer"),
        (CloseCause::TooSlow, "too_slow"),
        (CloseCause::Keepalive, "keepalive"),
        (CloseCause::Protocol, "protocol"),
        (CloseCause::Refused, "refused"),
        (CloseCause::Superseded, "superseded"),
        (CloseCause::Stopping, "stopping"),
    ];
}

/// One shard core.
#[derive(Default)]
pub struct ShardCounters {
    /// The processor it is pinned to, plus one; 0 before it runs.
    pub core_plus_one: AtomicU64,
    /// Connections open now.
    pub connections: AtomicI64,
    /// Connections accepted.
    pub accepted_total: AtomicU64,
    /// Accepts that failed (out of descriptors, mostly).
    pub accept_errors_total: AtomicU64,
    /// Connections ended, by [`CloseCause`].
    pub closed_total: [AtomicU64; CloseCause::ALL.len()],
    /// Row frames handed to sockets.
    pub delivered_frames_total: AtomicU64,
    /// Bytes handed to sockets.
    pub sent_bytes_total: AtomicU64,
    /// Send operations.
    pub sends_total: AtomicU64,
    /// Bytes read from sockets.
    pub received_bytes_total: AtomicU64,
    /// Bytes held in feeds for subscribers that have not taken them.
    pub feed_bytes: AtomicI64,
    /// Feeds that exist now.
    pub feeds: AtomicI64,
    /// The largest distance of a subscriber from the end of its feed, in frames, at the last look.
    pub max_lag_frames: AtomicI64,
    /// Turns of the flush loop.
    pub turns_total: AtomicU64,
    /// Turns that took longer than 10 ms.
    pub stalls_total: AtomicU64,
    /// The longest turn, in microseconds.
    pub longest_turn_us: AtomicU64,
    /// Subscribers moved from the feed back to the log.
    pub demoted_total: AtomicU64,
    /// Connections open now whose records of TLS the shard makes.
    pub tls_shard_connections: AtomicI64,
    /// Connections open now whose records of TLS the kernel makes.
    pub tls_kernel_connections: AtomicI64,
}

/// The writer core.
#[derive(Default)]
pub struct WriterCounters {
    /// Transactions committed.
    pub commits_total: AtomicU64,
    /// Transactions that failed.
    pub failed_commits_total: AtomicU64,
    /// Rows committed.
    pub rows_total: AtomicU64,
    /// Publish frames committed.
    pub frames_total: AtomicU64,
    /// Time of one transaction, from BEGIN to the end of its fsync.
    pub commit_us: Histogram,
    /// Rows in one transaction.
    pub group_rows: Histogram,
    /// Bytes of the write-ahead log at the last look.
    pub wal_bytes: AtomicU64,
    /// Checkpoints of the write-ahead log.
    pub checkpoints_total: AtomicU64,
    /// Batches deleted from the journal because their rows are in sealed files.
    pub evicted_batches_total: AtomicU64,
    /// Bytes of rows in them.
    pub evicted_bytes_total: AtomicU64,
    /// Bytes of the journal's file at the last look.
    pub journal_bytes: AtomicU64,
    /// Bytes of rows queued for commit now, over all streams.
    pub queued_bytes: AtomicI64,
    /// Pages read for replays.
    pub replay_pages_total: AtomicU64,
    /// Rows read for replays.
    pub replay_rows_total: AtomicU64,
}

/// A histogram of powers of two with one writer: bucket `i` counts values below `2^i`.
#[derive(Default)]
pub struct Histogram {
    /// Counts per bucket, not cumulative.
    pub buckets: [AtomicU64; 32],
    /// Sum of all values.
    pub sum: AtomicU64,
    /// The same counts, finer.
    pub fine: FineBuckets,
}

/// Four buckets for each of the histogram's, not cumulative: bucket `4 * e + s` counts values from `2^e * (1 + s / 4)`
/// to below `2^e * (1 + (s + 1) / 4)`; the first one also counts 0, the last one everything above it.
pub struct FineBuckets(pub [AtomicU64; 128]);

impl Default for FineBuckets {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl FineBuckets {
    /// The bucket of a value.
    #[must_use]
    pub fn index(value: u64) -> usize {
        let value = value.max(1);
        let exponent = value.ilog2();
        let quarter = if exponent >= 2 { value >> (exponent - 2) } else { value << (2 - exponent) } & 3;
        (4 * exponent as usize + quarter as usize).min(127)
    }

    /// The least value of a bucket, and the least value above it.
    #[must_use]
    pub fn bounds(index: usize) -> (f64, f64) {
        let edge = |index: usize| (1u64 << (index / 4)) as f64 * (1.0 + (index % 4) as f64 / 4.0);
        (if index == 0 { 0.0 } else { edge(index) }, edge(index + 1))
    }
}

impl Histogram {
    /// Counts one value.
    pub fn record(&self, value: u64) {
        let bucket = (64 - value.leading_zeros() as usize).min(self.buckets.len() - 1);
        self.buckets[bucket].fetch_add(1, Relaxed);
        self.fine.0[FineBuckets::index(value)].fetch_add(1, Relaxed);
        self.sum.fetch_add(value, Relaxed);
    }

    /// How many values were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|bucket| bucket.load(Relaxed)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_within_the_bounds_of_its_bucket() {
        for value in (0..3_000).chain((12..31).flat_map(|bits| [(1u64 << bits) - 1, 1 << bits, (1 << bits) + 1])) {
            let (low, high) = FineBuckets::bounds(FineBuckets::index(value));
            assert!(low <= value as f64 && (value as f64) < high, "{value} is not from {low} to below {high}");
            assert!(value < 8 || high <= low * 1.25, "from {low} to {high} is wide");
        }
        assert_eq!(FineBuckets::index(u64::MAX), 127);
    }
}
