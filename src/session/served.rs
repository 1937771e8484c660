//! The streams a broker serves, as every shard sees them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use crate::schema::Schema;
use crate::telemetry::StreamCounters;

/// What is chosen for a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamSettings {
    /// Whether publishers may name themselves (wire.md section 5).
    pub exactly_once: bool,
    /// Whether its frames may share a transaction (wire.md section 4.5).
    pub group_commit: bool,
    /// The most rows a replay may reach back; `None` for any number (wire.md section 7.3).
    pub max_replay: Option<u64>,
    /// Whether a subscriber that lags is served from the log again instead of being dropped.
    pub replay_when_slow: bool,
    /// Frames a subscriber may be behind.
    pub max_backlog_frames: u32,
    /// Bytes a subscriber may be behind.
    pub max_backlog_bytes: u64,
    /// Rows of all publishers that may wait for the writer.
    pub max_inbound_rows: u32,
    /// Replies one publisher may be owed.
    pub max_in_flight_frames: u32,
    /// The largest publish frame, in bytes.
    pub max_message_bytes: u32,
}

/// One stream in service.
pub struct ServedStream {
    /// Its place in the catalog.
    pub index: u32,
    /// The name it is served under.
    pub name: String,
    /// Its columns; `None` for a live-only stream of any objects.
    pub schema: Option<Schema>,
    /// Its number in the journal; `None` without a log.
    pub journal_id: Option<u32>,
    /// The UUID of a stream with a log.
    pub stream_id: Option<String>,
    /// The first offset of the log of a migrated stream.
    pub floor: Option<i64>,
    /// URIs of its metadata documents: the plain copy and the version hint.
    pub metadata: Option<(String, String)>,
    /// What was chosen for it.
    pub settings: StreamSettings,
    /// The shard that gives the rows of a live-only stream their order.
    pub home_shard: usize,
    /// What is counted of it.
    pub counters: Arc<StreamCounters>,
    /// Shards with publishers that wait for room, one bit each.
    pub waiting_shards: [AtomicU64; 4],
}

impl ServedStream {
    /// Whether it has a log.
    #[must_use]
    pub fn durable(&self) -> bool {
        self.journal_id.is_some()
    }

    /// Takes room for `rows` in the queue of the writer, unless there are others and the bound would be passed:
    /// a batch larger than the bound goes in alone (wire.md section 4.2).
    #[must_use]
    pub fn reserve(&self, rows: i64) -> bool {
        let limit = i64::from(self.settings.max_inbound_rows);
        self.counters
            .queued_rows
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |queued| {
                (queued <= 0 || queued + rows <= limit).then_some(queued + rows)
            })
            .is_ok()
    }

    /// The shards that asked for room since the last call.
    fn take_waiting(&self) -> impl Iterator<Item = usize> + use<> {
        let mut words = [0; 4];
        for (word, waiting) in words.iter_mut().zip(&self.waiting_shards) {
            if waiting.load(Ordering::Relaxed) != 0 {
                *word = waiting.swap(0, Ordering::SeqCst);
            }
        }
        (0..256).filter(move |shard| words[shard / 64] >> (shard % 64) & 1 == 1)
    }
}

/// All streams in service and the bounds they share.
pub struct Catalog {
    streams: Vec<Arc<ServedStream>>,
    by_name: HashMap<String, u32>,
    /// The sorted names that a 4404 lists.
    pub listed_names: Vec<String>,
    /// The largest message of any connection, in bytes.
    pub transport_max_bytes: u32,
    /// Bytes of rows that may wait for the writer, over all streams.
    pub max_inbound_bytes: u64,
    /// Bytes of rows that wait for the writer; kept by the writer's counters.
    queued_bytes: Arc<dyn Fn() -> i64 + Send + Sync>,
    anyone_waits: AtomicBool,
}

impl Catalog {
    /// A catalog of `streams`, whose places must be their indexes. Names for which `hidden` holds are served but
    /// not listed.
    #[must_use]
    pub fn new(
        streams: Vec<Arc<ServedStream>>,
        transport_max_bytes: u32,
        max_inbound_bytes: u64,
        queued_bytes: Arc<dyn Fn() -> i64 + Send + Sync>,
        hidden: impl Fn(&str) -> bool,
    ) -> Self {
        debug_assert!(streams.iter().enumerate().all(|(place, stream)| stream.index as usize == place));
        let by_name = streams.iter().map(|stream| (stream.name.clone(), stream.index)).collect();
        let mut listed_names: Vec<String> =
            streams.iter().map(|stream| stream.name.clone()).filter(|name| !hidden(name)).collect();
        listed_names.sort();
        Self {
            streams,
            by_name,
            listed_names,
            transport_max_bytes,
            max_inbound_bytes,
            queued_bytes,
            anyone_waits: AtomicBool::new(false),
        }
    }

    /// The stream served under a name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Arc<ServedStream>> {
        self.by_name.get(name).map(|index| &self.streams[*index as usize])
    }

    /// The stream at a place.
    #[must_use]
    pub fn get(&self, index: u32) -> Option<&Arc<ServedStream>> {
        self.streams.get(index as usize)
    }

    /// All streams by place.
    #[must_use]
    pub fn streams(&self) -> &[Arc<ServedStream>] {
        &self.streams
    }

    /// Asks for [`super::Remote::Room`] on `shard` when rows leave the writer's queue.
    pub fn wait_for_room(&self, stream: &ServedStream, shard: usize) {
        stream.waiting_shards[shard / 64 % 4].fetch_or(1 << (shard % 64), Ordering::SeqCst);
        self.anyone_waits.store(true, Ordering::SeqCst);
    }

    /// Calls `each` with every stream and shard that asked for room since the last call.
    pub fn take_waiting(&self, mut each: impl FnMut(u32, usize)) {
        if self.anyone_waits.load(Ordering::SeqCst) && self.anyone_waits.swap(false, Ordering::SeqCst) {
            for stream in &self.streams {
                stream.take_waiting().for_each(|shard| each(stream.index, shard));
            }
        }
    }

    /// Whether the writer's queue has room for `bytes` more; anything may enter an empty queue.
    #[must_use]
    pub fn has_room_for(&self, bytes: usize) -> bool {
        let queued = (self.queued_bytes)();
        queued <= 0 || queued as u64 + bytes as u64 <= self.max_inbound_bytes
    }
}

/// A stream's end, or nothing without a log.
#[must_use]
pub fn end_offset(counter: &AtomicI64) -> Option<i64> {
    Some(counter.load(Ordering::Acquire)).filter(|end| *end >= 0)
}
