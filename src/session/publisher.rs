//! Publisher sessions (wire.md sections 4 and 5): frames in, jobs to the writer, replies in order.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{SystemTime, UNIX_EPOCH};

use streamcast_shards::frame::{self, opcode};
use streamcast_shards::{ConnId, Engine};

use super::app::{Session, SessionApp, text_frame};
use super::hub::Interest;
use super::remote::{LIVE_ORIGIN_NONE, LiveRows, Remote, Token};
use super::served::{ServedStream, end_offset};
use crate::journal::{Append, Job, Outcome};
use crate::wire::row::build_block;
use crate::wire::{CloseReason, Greeting, Numbering, PublishFrame, PublisherMark, Refusal, reply};

/// What ends a publisher once its replies are queued.
enum Ending {
    /// Close with a reason.
    Close(CloseReason),
    /// Answer the peer's close.
    Echo,
}

/// A connection that publishes.
pub struct Publisher {
    pub(super) stream: Arc<ServedStream>,
    /// The exactly-once id, as asked for and from the claim on.
    publisher: Option<Arc<str>>,
    /// Replies in frame order; an absent one is the writer's to give. The first is always absent.
    owed: VecDeque<Option<Vec<u8>>>,
    /// Replies that are next in line, as frames.
    replies: Vec<u8>,
    /// A frame that waits for room in the writer's queue.
    stashed: Option<PublishFrame>,
    ending: Option<Ending>,
}

impl Publisher {
    /// The reply to a frame that is not (or not alone) the writer's to answer.
    fn reply(&mut self, payload: &[u8]) {
        if self.owed.is_empty() {
            frame::push_frame(&mut self.replies, opcode::TEXT, payload);
        } else {
            self.owed.push_back(Some(text_frame(payload)));
        }
    }

    /// The writer has answered the oldest of its frames; `payload` is `None` where nothing is to be said.
    fn settle(&mut self, payload: Option<&[u8]>) {
        self.owed.pop_front();
        if let Some(payload) = payload {
            frame::push_frame(&mut self.replies, opcode::TEXT, payload);
        }
        while let Some(Some(_)) = self.owed.front() {
            if let Some(Some(reply)) = self.owed.pop_front() {
                self.replies.extend_from_slice(&reply);
            }
        }
    }

    fn may_read(&self) -> bool {
        self.stashed.is_none()
            && self.ending.is_none()
            && self.owed.len() < self.stream.settings.max_in_flight_frames as usize
    }
}

impl SessionApp {
    pub(super) fn begin_publisher(
        &mut self,
        engine: &mut Engine<Session>,
        id: ConnId,
        stream: Arc<ServedStream>,
        publisher: Option<String>,
    ) -> Result<(), CloseReason> {
        if publisher.is_some() && !(stream.settings.exactly_once && stream.durable()) {
            return Err(CloseReason::ExactlyOnceUnavailable);
        }
        engine.limit_messages(
            id,
            stream.settings.max_message_bytes.min(self.catalog.bounds.transport_max_bytes) as usize,
        );
        stream.counters.publishers.fetch_add(1, Relaxed);
        let publisher: Option<Arc<str>> = publisher.map(Into::into);
        let session = Publisher {
            stream: Arc::clone(&stream),
            publisher: publisher.clone(),
            owed: VecDeque::new(),
            replies: Vec::new(),
            stashed: None,
            ending: None,
        };
        if let Some(slot) = engine.session(id) {
            *slot = Session::Publisher(Box::new(session));
        }
        match (publisher, stream.journal_id) {
            (Some(publisher), Some(journal_id)) => {
                // Nothing is read before the claim is settled and the greeting with its mark is queued.
                engine.pause_reading(id);
                let token = self.token(id);
                self.job(engine, Job::Claim { stream: journal_id, publisher, token });
            }
            _ => self.greet_publisher(engine, id, &stream, None),
        }
        Ok(())
    }

    fn greet_publisher(
        &self,
        engine: &mut Engine<Session>,
        id: ConnId,
        stream: &ServedStream,
        mark: Option<PublisherMark<'_>>,
    ) {
        let greeting =
            Greeting { end_offset: end_offset(&stream.counters.end_offset), publisher: mark, ..stream.greeting() };
        engine.queue(id, text_frame(greeting.to_json().as_bytes()));
    }

    pub(super) fn claimed(
        &mut self,
        engine: &mut Engine<Session>,
        id: ConnId,
        last_seq: u64,
        last_offset: Option<i64>,
    ) {
        let Some(Session::Publisher(session)) = engine.session(id) else { return };
        let (stream, Some(publisher)) = (Arc::clone(&session.stream), session.publisher.clone()) else { return };
        let mark = PublisherMark { id: &publisher, last_seq, last_offset };
        self.greet_publisher(engine, id, &stream, Some(mark));
        engine.resume_reading(id);
    }

    /// A publish frame (wire.md section 4.2).
    pub(super) fn publish(&mut self, engine: &mut Engine<Session>, id: ConnId, payload: &[u8]) {
        let Some(Session::Publisher(session)) = engine.session(id) else { return };
        if session.ending.is_some() {
            return;
        }
        let numbering = if session.publisher.is_some() { Numbering::ExactlyOnce } else { Numbering::Plain };
        match self.parser.parse(session.stream.schema.as_ref(), numbering, payload) {
            Ok(frame) => self.submit(engine, id, frame),
            Err(refusal) => {
                session.stream.counters.refused_frames_total.fetch_add(1, Relaxed);
                self.scratch.clear();
                match refusal {
                    Refusal::BadFrame(detail) => reply::push_bad_frame(&mut self.scratch, &detail),
                    Refusal::Rejected(detail) => reply::push_rejected(&mut self.scratch, &detail),
                }
                session.reply(&self.scratch);
                self.after_replies(engine, id);
            }
        }
    }

    /// Queues an accepted frame for commit, or keeps it until there is room.
    fn submit(&mut self, engine: &mut Engine<Session>, id: ConnId, frame: PublishFrame) {
        let token = self.token(id);
        let shard = self.links.shard;
        let Some(Session::Publisher(session)) = engine.session(id) else { return };
        let stream = Arc::clone(&session.stream);
        let ts_us = now_us();
        let Some(journal_id) = stream.journal_id else {
            session.owed.push_back(None);
            let rows = LiveRows { stream: stream.index, origin: token, rows: frame.rows, ts_us };
            self.pause_if_full(engine, id);
            return if stream.home_shard == shard {
                self.order_live(engine, rows);
            } else {
                let bytes = rows.rows.body.len();
                self.tell(stream.home_shard, Remote::Live(rows), bytes);
            };
        };
        let rows = frame.rows.count() as i64;
        let bytes = frame.rows.body.len();
        if !(self.catalog.has_room_for(bytes) && stream.reserve(rows)) {
            // Asked for before the second look, so that room made in between is not missed.
            self.catalog.wait_for_room(&stream, shard);
            if !(self.catalog.has_room_for(bytes) && stream.reserve(rows)) {
                session.stashed = Some(frame);
                engine.pause_reading(id);
                self.hubs[stream.index as usize].waiting_publishers.push(id);
                return;
            }
        }
        self.links.telemetry.writer.queued_bytes.fetch_add(bytes as i64, Relaxed);
        session.owed.push_back(None);
        let append = Append {
            stream: journal_id,
            token,
            claim: session.publisher.clone(),
            first_seq: frame.first_seq,
            rows: frame.rows,
            ts_us,
            insert: None,
        };
        self.job(engine, Job::Append(append));
        self.pause_if_full(engine, id);
    }

    /// A job that the writer did not take any more: its rows are not queued.
    pub(super) fn forget(&self, job: Job) {
        let Job::Append(append) = job else { return };
        if let Some(stream) = self.catalog.of_journal(append.stream) {
            stream.counters.queued_rows.fetch_sub(append.rows.count() as i64, Relaxed);
        }
        self.links.telemetry.writer.queued_bytes.fetch_sub(append.rows.body.len() as i64, Relaxed);
    }

    fn pause_if_full(&self, engine: &mut Engine<Session>, id: ConnId) {
        if let Some(Session::Publisher(session)) = engine.session(id)
            && !session.may_read()
        {
            engine.pause_reading(id);
        }
    }

    /// Rows have left the writer's queue: frames that waited try again.
    pub(super) fn room(&mut self, engine: &mut Engine<Session>, stream: u32) {
        let waiting = std::mem::take(&mut self.hubs[stream as usize].waiting_publishers);
        for id in waiting {
            let Some(Session::Publisher(session)) = engine.session(id) else { continue };
            let Some(frame) = session.stashed.take().filter(|_| session.ending.is_none()) else { continue };
            self.submit(engine, id, frame);
            self.resume_if_room(engine, id);
        }
    }

    fn resume_if_room(&self, engine: &mut Engine<Session>, id: ConnId) {
        if let Some(Session::Publisher(session)) = engine.session(id)
            && session.may_read()
        {
            engine.resume_reading(id);
        }
    }

    /// The writer's answers, in the order of the frames of each connection.
    pub(super) fn settle(&mut self, engine: &mut Engine<Session>, outcomes: Vec<(ConnId, Outcome)>) {
        let mut last = None;
        for (id, outcome) in outcomes {
            if last.is_some_and(|last| last != id) {
                self.after_replies(engine, last.unwrap_or(id));
            }
            last = Some(id);
            let Some(Session::Publisher(session)) = engine.session(id) else { continue };
            self.scratch.clear();
            let answered = match outcome {
                Outcome::Ok { prior, first, count } => {
                    let first = session.stream.durable().then_some(first);
                    reply::push_ok(&mut self.scratch, &prior, first, count);
                    true
                }
                Outcome::Gap { expected, got } => {
                    reply::push_gap(&mut self.scratch, expected, &got);
                    true
                }
                Outcome::CommitFailed(detail) => {
                    reply::push_commit_failed(&mut self.scratch, &detail);
                    true
                }
                // Inserts come from elsewhere.
                Outcome::Lost
                | Outcome::Inserted { .. }
                | Outcome::KeyReused
                | Outcome::ReceiptsFull
                | Outcome::Stale => false,
            };
            session.settle(answered.then_some(&self.scratch));
        }
        if let Some(id) = last {
            self.after_replies(engine, id);
        }
    }

    /// Queues the replies that are in line, then ends or reads on.
    fn after_replies(&mut self, engine: &mut Engine<Session>, id: ConnId) {
        let Some(Session::Publisher(session)) = engine.session(id) else { return };
        let replies = std::mem::take(&mut session.replies);
        let ending = if session.owed.is_empty() { session.ending.take() } else { None };
        if !replies.is_empty() {
            engine.queue(id, replies);
        }
        match ending {
            Some(Ending::Close(reason)) => self.close(engine, id, &reason),
            Some(Ending::Echo) => engine.echo_close(id),
            None => self.resume_if_room(engine, id),
        }
    }

    /// Takes no more frames and closes with `reason` when everything accepted is answered.
    pub(super) fn end_publisher(&mut self, engine: &mut Engine<Session>, id: ConnId, reason: CloseReason) {
        self.end(engine, id, Ending::Close(reason));
    }

    /// The peer closes: its accepted frames are answered first.
    pub(super) fn publisher_leaves(&mut self, engine: &mut Engine<Session>, id: ConnId) {
        self.end(engine, id, Ending::Echo);
    }

    fn end(&mut self, engine: &mut Engine<Session>, id: ConnId, ending: Ending) {
        let Some(Session::Publisher(session)) = engine.session(id) else { return };
        session.stashed = None;
        session.ending.get_or_insert(ending);
        engine.pause_reading(id);
        self.after_replies(engine, id);
    }

    pub(super) fn publisher_gone(&mut self, engine: &mut Engine<Session>, id: ConnId, publisher: Publisher) {
        publisher.stream.counters.publishers.fetch_sub(1, Relaxed);
        if let (Some(claim), Some(stream)) = (publisher.publisher, publisher.stream.journal_id) {
            let token = self.token(id);
            self.job(engine, Job::Release { stream, publisher: claim, token });
        }
        self.hubs[publisher.stream.index as usize].waiting_publishers.retain(|waiting| *waiting != id);
    }

    /// Puts rows of a live-only stream in order: its home shard is where they all come together.
    pub(super) fn order_live(&mut self, engine: &mut Engine<Session>, live: LiveRows) {
        let hub = &mut self.hubs[live.stream as usize];
        let count = live.rows.count() as u32;
        let block = build_block(None, &[(count, live.ts_us)], live.rows.iter(), live.rows.body.len());
        let counters = &hub.stream.counters;
        counters.rows_total.fetch_add(u64::from(count), Relaxed);
        counters.frame_bytes_total.fetch_add(block.frames.len() as u64, Relaxed);
        counters.last_send_us.store(live.ts_us, Relaxed);
        counters.last_send_after_us.store(counters.started.1.elapsed().as_micros() as i64, Relaxed);
        let block = Arc::new(block);
        let lagging = match hub.interest {
            Interest::On => hub.append(engine, &block, &mut self.index),
            Interest::Off | Interest::Asked => Vec::new(),
        };
        let origin = (live.origin != LIVE_ORIGIN_NONE).then(|| Token::from_word(live.origin));
        let mut shards = self.hubs[live.stream as usize].interested_shards.clone();
        if let Some(origin) = origin
            && origin.shard != self.links.shard
            && !shards.contains(&origin.shard)
        {
            shards.push(origin.shard);
        }
        for shard in shards {
            let wants = self.hubs[live.stream as usize].interested_shards.contains(&shard);
            let blocks = if wants { vec![(live.stream, Arc::clone(&block))] } else { Vec::new() };
            let outcomes = match origin {
                Some(origin) if origin.shard == shard => vec![(origin.conn, ordered(count))],
                _ => Vec::new(),
            };
            self.tell(shard, Remote::Commit { blocks, outcomes }, block.frames.len());
        }
        self.lagging(engine, lagging);
        if let Some(origin) = origin
            && origin.shard == self.links.shard
        {
            self.settle(engine, vec![(origin.conn, ordered(count))]);
        }
    }
}

/// The outcome of rows that have no offsets.
fn ordered(count: u32) -> Outcome {
    Outcome::Ok { prior: Vec::new(), first: 0, count }
}

/// The wall clock in microseconds.
pub fn now_us() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as i64)
}

impl ServedStream {
    /// What every greeting of the stream says.
    pub(super) fn greeting(&self) -> Greeting<'_> {
        Greeting {
            stream: &self.name,
            durable: self.durable(),
            group_commit: self.durable() && self.settings.group_commit,
            schema: self.schema.as_ref().map(|schema| schema.canonical()),
            metadata: self.metadata.as_ref().map(|(plain, _)| plain.as_str()),
            metadata_hint: self.metadata.as_ref().map(|(_, hint)| hint.as_str()),
            stream_id: self.stream_id.as_deref(),
            ..Greeting::default()
        }
    }
}
