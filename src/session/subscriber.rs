//! Subscriber sessions (wire.md sections 6 to 8): attach, replay, live, and back to the log when too slow.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use streamcast_shards::{Command, ConnId, Engine, Lagging, frame};

use super::app::{Session, SessionApp, text_frame};
use super::hub::{Hub, Interest};
use super::remote::Remote;
use super::served::ServedStream;
use crate::journal::reader::{Page, PageRequest, RowFilter};
use crate::schema::{Filter, Predicate};
use crate::stream::replay::{NotReplayable, Requested, Resolution, ResolveRequest};
use crate::wire::{CloseReason, Greeting, OffsetParam};

/// Bytes of one page of a replay.
const PAGE_BYTES: usize = 256 * 1024;

/// Queued bytes above which the next page is not read yet.
const PAGES_AHEAD_BYTES: usize = 512 * 1024;

/// A replay that has run this long and still moves is not ended by what came live meanwhile; it goes on from
/// the log. A shorter one is bound by `max_backlog` as wire.md section 8 says.
const SETTLED_REPLAY: Duration = Duration::from_secs(1);

/// A replay has stopped moving when its socket is full and its peer took nothing for this long.
const STALLED_REPLAY: Duration = Duration::from_secs(2);

/// A connection that gets rows.
pub struct Subscriber {
    stream: Arc<ServedStream>,
    filter: Option<(Filter, Arc<Predicate>)>,
    offset: Option<OffsetParam>,
    phase: Phase,
    counted: bool,
    /// Whether the hub counts it among those who read the log and are in no feed.
    away: bool,
}

enum Phase {
    /// The shard does not get the stream's blocks yet.
    Waiting,
    /// The readers find out where the replay starts.
    Resolving,
    /// Rows come from the log.
    Replay(Replay),
    /// Rows come from the feed.
    Live,
}

struct Replay {
    /// The next offset to read.
    next: i64,
    /// The offset to stop before.
    until: i64,
    /// Whether the feed keeps what comes from `until` on.
    attached: bool,
    /// Whether a page is being read.
    reading: bool,
    begun: Instant,
}

impl Subscriber {
    pub(super) fn stream(&self) -> &ServedStream {
        &self.stream
    }

    /// The connection is gone.
    pub(super) fn gone(self) {
        if self.counted {
            self.stream.counters.subscribers.fetch_sub(1, Relaxed);
        }
    }

    /// Reads the log from here on, out of any feed: the shard goes on getting the stream's blocks, for the frontier at
    /// which it comes back.
    fn goes_away(&mut self, hub: &mut Hub) {
        if !std::mem::replace(&mut self.away, true) {
            hub.away += 1;
        }
    }

    /// Is in a feed again, or has no use for one any more.
    pub(super) fn comes_back(&mut self, hub: &mut Hub) {
        if std::mem::take(&mut self.away) {
            hub.away -= 1;
        }
    }

    fn row_filter(&self) -> Option<RowFilter> {
        let (_, predicate) = self.filter.as_ref()?;
        let predicate = Arc::clone(predicate);
        Some(Arc::new(move |row: &[u8]| predicate.matches(row)))
    }
}

impl SessionApp {
    pub(super) fn begin_subscriber(
        &mut self,
        engine: &mut Engine<Session>,
        id: ConnId,
        stream: Arc<ServedStream>,
        offset: Option<OffsetParam>,
        filter: Option<Filter>,
    ) -> Result<(), CloseReason> {
        let filter = match filter {
            None => None,
            Some(filter) => {
                let predicate = Predicate::compile(&filter, stream.schema.as_ref())
                    .map_err(|error| CloseReason::BadRequest { detail: error.to_string() })?;
                Some((filter, Arc::new(predicate)))
            }
        };
        if offset.is_some() && !stream.durable() {
            return Err(CloseReason::NotDurable);
        }
        let place = stream.index;
        if let Some(session) = engine.session(id) {
            let subscriber = Subscriber { stream, filter, offset, phase: Phase::Waiting, counted: false, away: false };
            *session = Session::Subscriber(Box::new(subscriber));
        }
        if self.hubs[place as usize].interest == Interest::On {
            self.attach(engine, id);
        } else {
            self.hubs[place as usize].waiting.push(id);
            self.want_blocks(engine, place);
        }
        Ok(())
    }

    /// The shard gets the stream's blocks: join the feed, or first find out where the replay starts.
    pub(super) fn attach(&mut self, engine: &mut Engine<Session>, id: ConnId) {
        let Some(Session::Subscriber(session)) = engine.session(id) else { return };
        let Some(offset) = session.offset.take() else { return self.join(engine, id, None) };
        session.phase = Phase::Resolving;
        let stream = Arc::clone(&session.stream);
        let hub = &mut self.hubs[stream.index as usize];
        let (Some(journal_id), Some(frontier)) = (stream.journal_id, hub.frontier) else {
            return self.close(engine, id, &CloseReason::NotDurable);
        };
        session.goes_away(hub);
        let request = ResolveRequest {
            offset: match offset {
                OffsetParam::At(0) => Requested::Earliest,
                OffsetParam::At(offset) => Requested::At(offset),
                OffsetParam::BeyondI64(digits) => Requested::Beyond(digits),
            },
            frontier,
            floor: stream.floor,
            max_replay: stream.settings.max_replay,
        };
        let inbox = self.links.inboxes[self.links.shard].clone();
        let reply = move |resolution| inbox.send(Command::App(Remote::Resolved { conn: id, resolution }), 0);
        self.links.readers.resolve(journal_id, request, Box::new(reply));
    }

    /// Where the replay starts, or why there is none.
    pub(super) fn resolved(&mut self, engine: &mut Engine<Session>, id: ConnId, resolution: Resolution) {
        if !matches!(engine.session(id), Some(Session::Subscriber(_))) {
            return;
        }
        match resolution {
            Resolution::Serve { start } => self.join(engine, id, Some(start)),
            Resolution::Refuse(refusal) => {
                let reason = refused(refusal);
                if let Some(session) = engine.session(id) {
                    if let Session::Subscriber(session) = session {
                        session.comes_back(&mut self.hubs[session.stream.index as usize]);
                    }
                    *session = Session::Refused;
                }
                self.close(engine, id, &reason);
            }
            Resolution::Failed(detail) => {
                tracing::error!(detail, "the log cannot be read");
                self.close(engine, id, &CloseReason::Unexpected);
            }
        }
    }

    /// Joins the feed and takes the frontier in one step (wire.md section 2.2), then greets.
    fn join(&mut self, engine: &mut Engine<Session>, id: ConnId, start: Option<i64>) {
        let Some(Session::Subscriber(session)) = engine.session(id) else { return };
        let hub = &mut self.hubs[session.stream.index as usize];
        session.comes_back(hub);
        let frontier = hub.frontier;
        let replay = start.zip(frontier);
        let greeting = Greeting {
            end_offset: frontier,
            replay,
            filter: session.filter.as_ref().map(|(filter, _)| filter.text()),
            ..session.stream.greeting()
        };
        let frame = text_frame(greeting.to_json().as_bytes());
        session.stream.counters.subscribers.fetch_add(1, Relaxed);
        session.counted = true;
        let empty = replay.is_none_or(|(start, frontier)| start >= frontier);
        session.phase = match replay {
            Some((next, until)) if !empty => {
                Phase::Replay(Replay { next, until, attached: true, reading: false, begun: Instant::now() })
            }
            _ => Phase::Live,
        };
        let predicate = session.filter.as_ref().map(|(_, predicate)| Arc::clone(predicate));
        engine.queue(id, frame);
        let feed = hub.feed(engine, predicate.as_ref());
        engine.subscribe(id, feed, !empty);
        if !empty {
            self.next_page(engine, id);
        }
    }

    /// Reads the next page unless enough is queued.
    pub(super) fn next_page(&mut self, engine: &mut Engine<Session>, id: ConnId) {
        let queued_bytes = engine.queued_bytes(id);
        let Some(Session::Subscriber(session)) = engine.session(id) else { return };
        let filter = session.row_filter();
        let Some(stream) = session.stream.journal_id else { return };
        let Phase::Replay(replay) = &mut session.phase else { return };
        if replay.reading {
            return;
        }
        if queued_bytes >= PAGES_AHEAD_BYTES {
            return engine.notify_drained(id);
        }
        replay.reading = true;
        let inbox = self.links.inboxes[self.links.shard].clone();
        self.links.readers.page(PageRequest {
            stream,
            from: replay.next,
            until: replay.until,
            max_bytes: PAGE_BYTES,
            filter,
            reply: Box::new(move |page| inbox.send(Command::App(Remote::Page { conn: id, page }), 0)),
        });
    }

    /// A page of the log.
    pub(super) fn page(&mut self, engine: &mut Engine<Session>, id: ConnId, page: Page) {
        let Some(Session::Subscriber(session)) = engine.session(id) else { return };
        let Phase::Replay(replay) = &mut session.phase else { return };
        replay.reading = false;
        match page {
            Page::Failed(detail) => {
                tracing::error!(detail, stream = session.stream.name, "the log cannot be read");
                self.close(engine, id, &CloseReason::Unexpected);
            }
            Page::Rows { frames, next, done, .. } => {
                replay.next = if done { replay.until } else { next };
                let over = replay.next >= replay.until;
                engine.queue_page(id, frames);
                if over {
                    self.caught_up(engine, id);
                } else {
                    self.next_page(engine, id);
                }
            }
        }
    }

    /// The log is read up to where it was to be read.
    fn caught_up(&mut self, engine: &mut Engine<Session>, id: ConnId) {
        let Some(Session::Subscriber(session)) = engine.session(id) else { return };
        let Phase::Replay(replay) = &mut session.phase else { return };
        if replay.attached {
            session.phase = Phase::Live;
            return engine.release(id);
        }
        let hub = &mut self.hubs[session.stream.index as usize];
        let frontier = hub.frontier.unwrap_or(replay.until);
        let behind = frontier - replay.next;
        replay.until = frontier;
        replay.attached = behind <= i64::from(session.stream.settings.max_backlog_frames);
        if replay.attached {
            session.comes_back(hub);
            let predicate = session.filter.as_ref().map(|(_, predicate)| Arc::clone(predicate));
            if behind <= 0 {
                session.phase = Phase::Live;
            }
            let feed = hub.feed(engine, predicate.as_ref());
            engine.subscribe(id, feed, behind > 0);
        }
        self.next_page(engine, id);
    }

    /// A subscriber has fallen too far behind its feed (wire.md section 8).
    pub(super) fn subscriber_lags(&mut self, engine: &mut Engine<Session>, lagging: Lagging) {
        let id = lagging.conn;
        let stuck = engine.is_stuck(id, STALLED_REPLAY);
        let Some(Session::Subscriber(session)) = engine.session(id) else { return };
        let settings = &session.stream.settings;
        let moving = match &session.phase {
            Phase::Replay(replay) => replay.begun.elapsed() > SETTLED_REPLAY && !stuck,
            _ => false,
        };
        if session.stream.durable() && (settings.replay_when_slow || moving) {
            self.demote(engine, id);
        } else {
            let reason = CloseReason::TooSlow { backlog: u64::from(settings.max_backlog_frames) };
            engine.drop_lagging(lagging, reason.code(), &reason.reason());
        }
    }

    /// Takes a subscriber out of its feed; it goes on from the log.
    fn demote(&mut self, engine: &mut Engine<Session>, id: ConnId) {
        let Some(Session::Subscriber(session)) = engine.session(id) else { return };
        let replaying = matches!(session.phase, Phase::Replay(_));
        let hub = &mut self.hubs[session.stream.index as usize];
        let frontier = hub.frontier.unwrap_or(0);
        session.goes_away(hub);
        self.counters().demoted_total.fetch_add(1, Relaxed);
        let frame = engine.leave(id);
        let Some(Session::Subscriber(session)) = engine.session(id) else { return };
        if replaying {
            if let Phase::Replay(replay) = &mut session.phase {
                replay.attached = false;
            }
            return;
        }
        let next = frame.as_deref().and_then(offset_of_frame).unwrap_or(frontier);
        session.phase =
            Phase::Replay(Replay { next, until: frontier, attached: false, reading: false, begun: Instant::now() });
        self.next_page(engine, id);
    }
}

/// The offset in a row frame of ours.
fn offset_of_frame(frame: &[u8]) -> Option<i64> {
    let digits = frame::payload(frame).get(1..)?;
    let end = memchr::memchr(b',', digits)?;
    std::str::from_utf8(&digits[..end]).ok()?.parse().ok()
}

/// A refusal of the log as a close.
fn refused(refusal: NotReplayable) -> CloseReason {
    match refusal {
        NotReplayable::Ahead { offset, end_offset } => CloseReason::Ahead {
            offset: offset.parse().map_or(OffsetParam::BeyondI64(offset), OffsetParam::At),
            end_offset,
        },
        NotReplayable::TooOld { offset, behind, max_replay } => CloseReason::TooOld {
            offset,
            behind: i64::try_from(behind).unwrap_or(i64::MAX),
            max_replay: i64::try_from(max_replay).unwrap_or(i64::MAX),
        },
        NotReplayable::Evicted { offset, earliest } => CloseReason::Evicted { offset, earliest },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::row::push_row_frame;

    #[test]
    fn the_offset_is_read_back_from_a_frame_of_any_length() {
        for (offset, length) in [(1, 2), (12_345, 200), (i64::MAX, 70_000)] {
            let mut frame = Vec::new();
            push_row_frame(&mut frame, Some(offset), 1_700_000_000_000_000, &vec![b' '; length]);
            assert_eq!(offset_of_frame(&frame), Some(offset));
        }
        let mut frame = Vec::new();
        push_row_frame(&mut frame, None, 1, b"{}");
        assert_eq!(offset_of_frame(&frame), None);
    }
}
