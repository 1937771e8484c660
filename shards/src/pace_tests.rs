use std::io::Read;
use std::os::unix::net::UnixStream;

use super::*;
use crate::conn::Phase;
use crate::engine::{Engine, FeedId, Settings};

const LIMITS: FeedLimits = FeedLimits { max_backlog_frames: 1_000, max_backlog_bytes: 1 << 20 };

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// A shard's clock, and what it has done until then.
struct Shard {
    pace: Pace,
    now: Instant,
    frames: u64,
}

impl Shard {
    fn new() -> Self {
        let now = Instant::now();
        Self { pace: Pace::new(now), now, frames: 0 }
    }

    /// One window in which the shard waits for so many milliseconds and sends so many frames with each of 100 sends.
    fn window(&mut self, waits: u64, frames_a_send: u64) -> bool {
        self.pace.sends_total += 100;
        self.frames += 100 * frames_a_send;
        let before = self.now + WINDOW - ms(waits);
        self.now += WINDOW;
        self.pace.turned(before, self.now, self.frames);
        self.pace.saturated
    }
}

#[test]
fn a_shard_is_saturated_while_it_hardly_waits_and_its_sends_carry_much() {
    let mut shard = Shard::new();
    assert!(!shard.window(6, 50), "with time left");
    assert!(!shard.window(0, 2), "with small sends");
    assert!(shard.window(5, 3));
    assert!(shard.window(12, 50), "the space it gets by waiting must not end the waiting");
    assert!(!shard.window(13, 50));
    assert!(!shard.window(12, 50), "calm again");
    assert!(shard.window(0, 50));
    shard.now += ms(500);
    shard.pace.turned(shard.now - ms(500), shard.now, shard.frames);
    assert!(!shard.pace.saturated, "after silence");
}

#[test]
fn a_shard_that_sends_nothing_is_not_saturated_however_busy() {
    let mut shard = Shard::new();
    for _ in 0..3 {
        shard.now += WINDOW;
        shard.pace.turned(shard.now, shard.now, 0);
        assert!(!shard.pace.saturated);
    }
}

/// A feed whose last pass carried `frames` of 100 bytes, and a saturated shard.
fn passed(frames: usize, limits: FeedLimits) -> (Feed, Pace, Instant) {
    let mut feed = Feed::new(limits);
    let now = Instant::now();
    append(&mut feed, frames);
    feed.begin_pass(now);
    (feed, Pace { saturated: true, ..Pace::new(now) }, now)
}

fn append(feed: &mut Feed, frames: usize) {
    feed.ring.append(&vec![0; 100 * frames], (1..=frames as u32).map(|frame| 100 * frame));
}

#[test]
fn a_feed_rests_when_its_passes_carry_something_and_the_shard_is_saturated() {
    let (mut feed, mut pace, now) = passed(3, LIMITS);
    append(&mut feed, 1);
    assert_eq!(feed.rests_until(&pace), Some(now + SPACE));
    feed.begin_pass(now);
    feed.begin_pass(now + ms(1));
    assert_eq!(feed.rests_until(&pace), None, "one more frame is not worth it");
    append(&mut feed, 3);
    feed.begin_pass(now);
    feed.begin_pass(now + ms(1));
    assert_eq!(feed.rests_until(&pace), Some(now + SPACE), "a pass with what was left is no pass");
    feed.cursor = 1;
    assert_eq!(feed.rests_until(&pace), None, "in the middle of a pass");
    feed.cursor = 0;
    pace.saturated = false;
    assert_eq!(feed.rests_until(&pace), None, "with time left");
    let (feed, pace, _) = passed(2, LIMITS);
    assert_eq!(feed.rests_until(&pace), None, "with small sends");
    assert_eq!(Feed::new(LIMITS).rests_until(&pace), None, "before the first pass");
}

#[test]
fn a_feed_does_not_rest_when_it_has_enough_or_somebody_is_far_behind() {
    let (mut feed, pace, _) = passed(3, LIMITS);
    append(&mut feed, 491);
    assert!(feed.rests_until(&pace).is_some());
    append(&mut feed, 1);
    assert!(feed.rests_until(&pace).is_none(), "a send is full");

    let few = FeedLimits { max_backlog_frames: 7, ..LIMITS };
    let (mut feed, pace, _) = passed(3, few);
    append(&mut feed, 3);
    assert!(feed.rests_until(&pace).is_some());
    append(&mut feed, 1);
    assert!(feed.rests_until(&pace).is_none(), "near the limit in frames");

    let small = FeedLimits { max_backlog_bytes: 1_000, ..LIMITS };
    let (mut feed, pace, _) = passed(3, small);
    append(&mut feed, 4);
    assert!(feed.rests_until(&pace).is_some());
    append(&mut feed, 1);
    assert!(feed.rests_until(&pace).is_none(), "near the limit in bytes");

    let (mut feed, pace, _) = passed(600, LIMITS);
    feed.passed(60_000 - FULL_BYTES + 1);
    assert!(feed.rests_until(&pace).is_some());
    feed.passed(60_000 - FULL_BYTES);
    assert!(feed.rests_until(&pace).is_none(), "somebody has more to get");
}

fn frames(engine: &mut Engine<()>, feed: FeedId, count: u8) {
    let (bytes, ends): (Vec<u8>, Vec<u32>) = (1..=count).map(|number| (number, u32::from(number))).unzip();
    assert_eq!(engine.append(feed, &bytes, &ends), []);
}

#[test]
fn what_rests_goes_out_when_the_space_is_over_and_at_once_when_the_core_has_time() {
    let mut engine = Engine::new(Settings::default()).unwrap();
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    theirs.set_nonblocking(true).unwrap();
    let id = engine.insert(ours.into());
    engine.conn_mut(id).unwrap().phase = Phase::Open;
    let feed = engine.create_feed(LIMITS);
    engine.subscribe(id, feed, false);
    let mut read = || {
        let mut bytes = [0; 64];
        theirs.read(&mut bytes).unwrap_or(0)
    };
    let deadline = || Instant::now() + ms(60_000);

    engine.pace.saturated = true;
    engine.pace.space = ms(3_600_000);
    frames(&mut engine, feed, 5);
    engine.flush(deadline()).unwrap();
    assert_eq!((read(), engine.rest_ends()), (5, None), "the first pass waits for nothing");

    frames(&mut engine, feed, 5);
    engine.flush(deadline()).unwrap();
    frames(&mut engine, feed, 2);
    engine.flush(deadline()).unwrap();
    assert!(engine.rest_ends().is_some_and(|until| until > Instant::now() + ms(1_000_000)));
    assert_eq!((read(), engine.has_output()), (0, false), "it rests, and nothing else is to be done");
    engine.pace.space = Duration::ZERO;
    engine.flush(deadline()).unwrap();
    assert_eq!((read(), engine.rest_ends()), (7, None));

    engine.pace.space = ms(3_600_000);
    frames(&mut engine, feed, 4);
    engine.flush(deadline()).unwrap();
    assert_eq!(read(), 0);
    engine.pace.saturated = false;
    engine.flush(deadline()).unwrap();
    assert_eq!((read(), engine.has_output()), (4, false));

    engine.pace.saturated = true;
    frames(&mut engine, feed, 4);
    engine.flush(deadline()).unwrap();
    engine.unsubscribe(id);
    assert!(engine.remove_feed(feed) && engine.rest_ends().is_none());
    engine.flush(deadline()).unwrap();
}

#[test]
fn whoever_keeps_up_with_a_feed_that_rests_may_have_any_batch() {
    let mut engine = Engine::new(Settings::default()).unwrap();
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let id = engine.insert(ours.into());
    engine.conn_mut(id).unwrap().phase = Phase::Open;
    let feed = engine.create_feed(FeedLimits { max_backlog_frames: 20, ..LIMITS });
    engine.subscribe(id, feed, false);
    engine.pace.saturated = true;
    engine.pace.space = ms(3_600_000);
    frames(&mut engine, feed, 5);
    engine.flush(Instant::now() + ms(60_000)).unwrap();
    frames(&mut engine, feed, 5);
    engine.flush(Instant::now() + ms(60_000)).unwrap();
    assert!(engine.rest_ends().is_some());
    frames(&mut engine, feed, 200);
    engine.flush(Instant::now() + ms(60_000)).unwrap();
    let mut bytes = [0; 256];
    assert_eq!(theirs.read(&mut bytes).unwrap(), 210, "the batch ends the rest");
}

#[test]
fn pages_of_replays_stand_behind_what_came_live() {
    let mut engine = Engine::new(Settings::default()).unwrap();
    let mut open = || {
        let (ours, theirs) = UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        let id = engine.insert(ours.into());
        engine.conn_mut(id).unwrap().phase = Phase::Open;
        (id, theirs)
    };
    let (live, _taker) = open();
    let replays: Vec<_> = (0..6).map(|_| open()).collect();
    let feed = engine.create_feed(LIMITS);
    engine.subscribe(live, feed, false);
    for (id, _) in &replays {
        engine.queue_page(*id, vec![7; 40 * 1024]);
    }
    frames(&mut engine, feed, 1);
    let sent = |engine: &Engine<()>| {
        let left: Vec<usize> = replays.iter().map(|(id, _)| 40 - engine.queued_bytes(*id) / 1024).collect();
        left
    };
    // What is live is over when the loop of the flush comes to its end for the first time.
    engine.flush(Instant::now()).unwrap();
    assert_eq!(sent(&engine), [32, 32, 32, 32, 0, 0]);
    assert_eq!(engine.counts.delivered_frames_total, 1);
    engine.flush(Instant::now() + ms(60_000)).unwrap();
    assert_eq!(sent(&engine), [40; 6]);
}
