//! The streams a broker serves, as every shard sees them.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

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
    /// The offset of the first row it ever gave or will give.
    pub first_offset: i64,
    /// When a stream with a log was created, in microseconds.
    pub created_us: i64,
    /// The first offset of the log of a migrated stream.
    pub floor: Option<i64>,
    /// URIs of its metadata documents: the plain copy and the version hint.
    pub metadata: Option<(String, String)>,
    /// What was chosen for it.
    pub settings: StreamSettings,
    /// When it was retired, in microseconds, and where its log ends: it takes no rows any more (wire.md section 7.6).
    pub retired: Option<(i64, i64)>,
    /// The shard that gives the rows of a live-only stream their order.
    pub home_shard: usize,
    /// What is counted of it.
    pub counters: Arc<StreamCounters>,
    /// Shards with publishers that wait for room, one bit each.
    pub waiting_shards: [AtomicU64; 4],
    /// Requests that sleep until it has another row: nobody is to be told of one as long as there are none.
    pub sleepers: AtomicUsize,
    /// Whether it has gone out of service, and sleepers are to wake for that. One that is deleted says so only once that
    /// is recorded, so that they learn it.
    pub is_over: AtomicBool,
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

/// What every catalog of a broker shares.
pub struct CatalogBounds {
    /// The largest message of any connection, in bytes.
    pub transport_max_bytes: u32,
    /// Bytes of rows that may wait for the writer, over all streams.
    pub max_inbound_bytes: u64,
    /// Bytes of rows that wait for the writer; kept by the writer's counters.
    pub queued_bytes: Box<dyn Fn() -> i64 + Send + Sync>,
    /// Names that are served but not listed.
    pub hidden: fn(&str) -> bool,
    /// Whether a 4404 lists the names that are served; not where a registry may have more of them.
    pub tells_names: bool,
    /// Whether anybody has asked for room since it was last given.
    anyone_waits: AtomicBool,
}

impl CatalogBounds {
    /// Bounds of a new broker.
    #[must_use]
    pub fn new(
        transport_max_bytes: u32,
        max_inbound_bytes: u64,
        queued_bytes: Box<dyn Fn() -> i64 + Send + Sync>,
        hidden: fn(&str) -> bool,
    ) -> Self {
        let anyone_waits = AtomicBool::new(false);
        Self { transport_max_bytes, max_inbound_bytes, queued_bytes, hidden, tells_names: true, anyone_waits }
    }
}

/// The streams in service at one moment. Never changed: a stream that comes or goes makes a new catalog, which
/// the cores find through [`CatalogCell`].
#[derive(Clone)]
pub struct Catalog {
    /// By place; a stream that has gone keeps its place, so that what is under way for it finds it.
    streams: Vec<Arc<ServedStream>>,
    by_name: HashMap<String, u32>,
    by_journal_id: HashMap<u32, u32>,
    /// Names that are between two states: who asks for them is told to come back.
    held: HashSet<String>,
    /// The sorted names that a 4404 lists.
    pub listed_names: Vec<String>,
    /// What all catalogs of the broker share.
    pub bounds: Arc<CatalogBounds>,
}

impl Catalog {
    /// A catalog without streams.
    #[must_use]
    pub fn new(bounds: CatalogBounds) -> Self {
        Self {
            streams: Vec::new(),
            by_name: HashMap::new(),
            by_journal_id: HashMap::new(),
            held: HashSet::new(),
            listed_names: Vec::new(),
            bounds: Arc::new(bounds),
        }
    }

    /// The place that the next stream gets.
    #[must_use]
    pub fn next_place(&self) -> u32 {
        self.streams.len() as u32
    }

    /// This catalog and one stream more, whose index must be [`Catalog::next_place`]. It takes the name over.
    #[must_use]
    pub fn with(&self, stream: Arc<ServedStream>) -> Self {
        debug_assert_eq!(stream.index, self.next_place(), "a stream is at its index");
        let mut next = self.clone();
        next.held.remove(&stream.name);
        next.by_name.insert(stream.name.clone(), stream.index);
        if let Some(journal_id) = stream.journal_id {
            next.by_journal_id.insert(journal_id, stream.index);
        }
        next.streams.push(stream);
        next.list();
        next
    }

    /// This catalog without the stream that is served under `name`.
    #[must_use]
    pub fn without(&self, name: &str) -> Self {
        let mut next = self.clone();
        next.by_name.remove(name);
        next.list();
        next
    }

    /// This catalog with `names` held: they are not unknown, they are about to be served or have just been.
    #[must_use]
    pub fn holding(&self, names: &[String]) -> Self {
        let mut next = self.clone();
        next.held.extend(names.iter().cloned());
        next
    }

    /// This catalog with `name` held no longer.
    #[must_use]
    pub fn releasing(&self, name: &str) -> Self {
        let mut next = self.clone();
        next.held.remove(name);
        next
    }

    /// Whether a name is held.
    #[must_use]
    pub fn holds(&self, name: &str) -> bool {
        self.held.contains(name)
    }

    fn list(&mut self) {
        self.listed_names = self.by_name.keys().filter(|name| !(self.bounds.hidden)(name)).cloned().collect();
        self.listed_names.sort();
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

    /// The stream of a number in the journal, the last one that had it.
    #[must_use]
    pub fn of_journal(&self, journal_id: u32) -> Option<&Arc<ServedStream>> {
        self.by_journal_id.get(&journal_id).and_then(|index| self.get(*index))
    }

    /// All streams by place, those that have gone included.
    #[must_use]
    pub fn places(&self) -> &[Arc<ServedStream>] {
        &self.streams
    }

    /// The streams in service by place.
    pub fn served(&self) -> impl Iterator<Item = &Arc<ServedStream>> {
        self.streams.iter().filter(|stream| self.by_name.get(&stream.name) == Some(&stream.index))
    }

    /// Asks for [`super::Remote::Room`] on `shard` when rows leave the writer's queue.
    pub fn wait_for_room(&self, stream: &ServedStream, shard: usize) {
        stream.waiting_shards[shard / 64 % 4].fetch_or(1 << (shard % 64), Ordering::SeqCst);
        self.bounds.anyone_waits.store(true, Ordering::SeqCst);
    }

    /// Calls `each` with every stream and shard that asked for room since the last call.
    pub fn take_waiting(&self, mut each: impl FnMut(u32, usize)) {
        let waits = &self.bounds.anyone_waits;
        if waits.load(Ordering::SeqCst) && waits.swap(false, Ordering::SeqCst) {
            for stream in &self.streams {
                stream.take_waiting().for_each(|shard| each(stream.index, shard));
            }
        }
    }

    /// Whether the writer's queue has room for `bytes` more; anything may enter an empty queue.
    #[must_use]
    pub fn has_room_for(&self, bytes: usize) -> bool {
        let queued = (self.bounds.queued_bytes)();
        queued <= 0 || queued as u64 + bytes as u64 <= self.bounds.max_inbound_bytes
    }
}

/// Where the cores find the present catalog. A core keeps the one it has until it sees another number: one load
/// a message, and the lock is taken only when a stream has come or gone.
pub struct CatalogCell {
    version: AtomicU64,
    current: Mutex<Arc<Catalog>>,
}

impl CatalogCell {
    /// A cell with its first catalog.
    #[must_use]
    pub fn new(catalog: Catalog) -> Self {
        Self { version: AtomicU64::new(1), current: Mutex::new(Arc::new(catalog)) }
    }

    /// The present catalog.
    #[must_use]
    pub fn current(&self) -> Arc<Catalog> {
        Arc::clone(&self.current.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the catalog by what `change` makes of it. Whoever hears afterwards of a stream of the new one finds
    /// it there.
    pub fn change(&self, change: impl FnOnce(&Catalog) -> Catalog) -> Arc<Catalog> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        *current = Arc::new(change(&current));
        self.version.fetch_add(1, Ordering::Release);
        Arc::clone(&current)
    }

    /// Puts the present catalog into `seen` if it is another one. True if it was.
    pub fn refresh(&self, version: &mut u64, seen: &mut Arc<Catalog>) -> bool {
        let present = self.version.load(Ordering::Acquire);
        if present == *version {
            return false;
        }
        *seen = self.current();
        *version = present;
        true
    }
}

/// A stream's end, or nothing without a log.
#[must_use]
pub fn end_offset(counter: &AtomicI64) -> Option<i64> {
    Some(counter.load(Ordering::Acquire)).filter(|end| *end >= 0)
}
