//! A stream on one shard: its feeds, its frontier, and whether the shard gets its blocks.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use streamcast_shards::{Block, ConnId, Engine, FeedId, FeedLimits, Lagging};

use super::app::Session;
use super::served::ServedStream;
use crate::schema::{Dispatch, Predicate, RowIndex};
use crate::wire::row::row_of_frame;

/// Seconds a stream's blocks still come after its last subscriber on the shard has left.
const INTEREST_LINGER_S: u8 = 5;

/// Whether the shard gets a stream's blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Interest {
    /// No.
    Off,
    /// It has asked.
    Asked,
    /// Yes, from the frontier on.
    On,
}

struct FilteredFeed {
    feed: FeedId,
    predicate: Arc<Predicate>,
    /// The matching frames of the block that is being appended.
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

/// One stream's state on one shard.
pub(super) struct Hub {
    pub(super) stream: Arc<ServedStream>,
    pub(super) interest: Interest,
    /// The end of what the feeds have had; `None` without a log.
    pub(super) frontier: Option<i64>,
    /// Subscribers that wait for the interest to be confirmed.
    pub(super) waiting: Vec<ConnId>,
    /// Subscribers that are in no feed because they read the log, and will join one at the frontier.
    pub(super) away: usize,
    /// Publishers that wait for room in the writer's queue.
    pub(super) waiting_publishers: Vec<ConnId>,
    feed: Option<FeedId>,
    /// Feeds of filters; the place of one that has gone is used again.
    filtered: Vec<Option<FilteredFeed>>,
    /// Where the feed of a filter is, by [`Predicate::key`].
    by_key: HashMap<String, u32>,
    dispatch: Dispatch,
    /// Feeds that the block being appended has rows for.
    touched: Vec<u32>,
    /// Shards that get the blocks of a live-only stream from here.
    pub(super) interested_shards: Vec<usize>,
    idle_s: u8,
}

impl Hub {
    pub(super) fn new(stream: Arc<ServedStream>) -> Self {
        Self {
            stream,
            interest: Interest::Off,
            frontier: None,
            waiting: Vec::new(),
            away: 0,
            waiting_publishers: Vec::new(),
            feed: None,
            filtered: Vec::new(),
            by_key: HashMap::new(),
            dispatch: Dispatch::new(),
            touched: Vec::new(),
            interested_shards: Vec::new(),
            idle_s: 0,
        }
    }

    fn limits(&self) -> FeedLimits {
        FeedLimits {
            max_backlog_frames: self.stream.settings.max_backlog_frames as usize,
            max_backlog_bytes: self.stream.settings.max_backlog_bytes,
        }
    }

    /// The feed of a predicate, or of all rows; made if it is not there. Subscribers with equal filters share one.
    pub(super) fn feed(&mut self, engine: &mut Engine<Session>, predicate: Option<&Arc<Predicate>>) -> FeedId {
        let limits = self.limits();
        match predicate {
            None => *self.feed.get_or_insert_with(|| engine.create_feed(limits)),
            Some(predicate) => {
                if let Some(FilteredFeed { feed, .. }) = self.by_key.get(predicate.key()).and_then(|at| self.at(*at)) {
                    return *feed;
                }
                let feed = engine.create_feed(limits);
                let made = FilteredFeed { feed, predicate: Arc::clone(predicate), bytes: Vec::new(), ends: Vec::new() };
                let free = self.filtered.iter().position(Option::is_none);
                let at = free.unwrap_or_else(|| {
                    self.filtered.push(None);
                    self.filtered.len() - 1
                });
                self.filtered[at] = Some(made);
                self.by_key.insert(predicate.key().to_owned(), at as u32);
                self.dispatch.insert(at as u32, predicate);
                feed
            }
        }
    }

    fn at(&self, place: u32) -> Option<&FilteredFeed> {
        self.filtered.get(place as usize)?.as_ref()
    }

    /// Appends a block to every feed and moves the frontier; returned are the subscribers that lag too far.
    pub(super) fn append(&mut self, engine: &mut Engine<Session>, block: &Block, index: &mut RowIndex) -> Vec<Lagging> {
        self.frontier = block.end_offset;
        let mut lagging = Vec::new();
        if let Some(feed) = self.feed {
            lagging = engine.append(feed, &block.frames, &block.ends);
            let lag = i64::try_from(engine.counts.max_lag_frames).unwrap_or(i64::MAX);
            self.stream.counters.peak_lag_frames.fetch_max(lag, Relaxed);
        }
        if self.by_key.is_empty() {
            return lagging;
        }
        let schema = self.stream.schema.as_ref();
        let Self { filtered, dispatch, touched, .. } = self;
        for number in 0..block.count() {
            let frame = block.frame(number);
            let row = row_of_frame(frame);
            index.scan(schema, row);
            dispatch.candidates(row, index, |place| {
                let Some(Some(filtered)) = filtered.get_mut(place as usize) else { return };
                if filtered.predicate.matches_indexed(row, index) {
                    if filtered.ends.is_empty() {
                        touched.push(place);
                    }
                    filtered.bytes.extend_from_slice(frame);
                    filtered.ends.push(filtered.bytes.len() as u32);
                }
            });
        }
        for place in touched.drain(..) {
            let Some(Some(filtered)) = filtered.get_mut(place as usize) else { continue };
            lagging.append(&mut engine.append(filtered.feed, &filtered.bytes, &filtered.ends));
            filtered.bytes.clear();
            filtered.ends.clear();
            // A filter that let a large block through once should not hold its memory for ever.
            filtered.bytes.shrink_to(64 * 1024);
        }
        lagging
    }

    /// A block was lost on the way here: everybody lags.
    pub(super) fn overrun(&self, engine: &Engine<Session>) -> Vec<Lagging> {
        let feeds = self.feed.iter().copied().chain(self.filtered.iter().flatten().map(|filtered| filtered.feed));
        feeds.flat_map(|feed| engine.overrun(feed)).collect()
    }

    /// Forgets feeds without subscribers. True when the stream has had none for a while and the shard can do
    /// without its blocks.
    pub(super) fn tidy(&mut self, engine: &mut Engine<Session>) -> bool {
        for (place, slot) in self.filtered.iter_mut().enumerate() {
            if let Some(gone) = slot.take_if(|filtered| engine.remove_feed(filtered.feed)) {
                self.by_key.remove(gone.predicate.key());
                self.dispatch.remove(place as u32);
            }
        }
        if self.feed.is_some_and(|feed| engine.remove_feed(feed)) {
            self.feed = None;
        }
        let idle = self.feed.is_none() && self.by_key.is_empty() && self.waiting.is_empty() && self.away == 0;
        self.idle_s = if idle { self.idle_s.saturating_add(1) } else { 0 };
        self.interest == Interest::On && self.idle_s > INTEREST_LINGER_S
    }
}
