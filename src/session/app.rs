//! The application of a shard: routes connections to publisher and subscriber sessions and messages from
//! other cores to both.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use streamcast_shards::inbound::Violation;
use streamcast_shards::inbox::InboxSender;
use streamcast_shards::{Admission, App, Command, ConnId, Ended, Engine, Lagging, UpgradeHead, frame};

use super::hub::{Hub, Interest};
use super::outbox::Outbox;
use super::passes::Passes;
use super::publisher::Publisher;
use super::remote::{Remote, Token};
use super::served::{Catalog, CatalogCell, ServedStream};
use super::subscriber::Subscriber;
use crate::auth::Gate;
use crate::journal::reader::ReaderHandle;
use crate::journal::{Job, JobSender};
use crate::schema::RowIndex;
use crate::telemetry::{CloseCause, ShardCounters, Telemetry};
use crate::wire::{BadTarget, CloseReason, FrameParser, Target, target};

/// A turn longer than this is counted as a stall.
const STALL: Duration = Duration::from_millis(10);

/// Where the sessions of a shard reach the other cores.
pub struct Links {
    /// The shard's place among its peers.
    pub shard: usize,
    /// The streams.
    pub catalog: Arc<CatalogCell>,
    /// The writer.
    pub jobs: JobSender,
    /// The readers.
    pub readers: ReaderHandle,
    /// Every shard's inbox, this one's included.
    pub inboxes: Vec<InboxSender<Command<Remote>>>,
    /// Who is let in.
    pub gate: Gate,
    /// Counters.
    pub telemetry: Arc<Telemetry>,
}

/// State of one connection.
pub enum Session {
    /// Upgraded, not yet routed.
    Opening(Box<Result<Target, BadTarget>>),
    /// Sends rows.
    Publisher(Box<Publisher>),
    /// Gets rows.
    Subscriber(Box<Subscriber>),
    /// Refused: the close is on its way.
    Refused,
}

/// The sessions of one shard.
pub struct SessionApp {
    pub(super) links: Links,
    /// The streams as this shard last saw them; every one has its hub.
    pub(super) catalog: Arc<Catalog>,
    catalog_version: u64,
    pub(super) hubs: Vec<Hub>,
    pub(super) parser: FrameParser,
    pub(super) index: RowIndex,
    /// Replies are put together here.
    pub(super) scratch: Vec<u8>,
    pub(super) stopping: bool,
    pub(super) passes: Passes,
    outbox: Outbox,
}

impl SessionApp {
    /// No connection yet.
    #[must_use]
    pub fn new(links: Links) -> Self {
        let catalog = links.catalog.current();
        let mut app = Self {
            links,
            catalog,
            catalog_version: 0,
            hubs: Vec::new(),
            parser: FrameParser::new(),
            index: RowIndex::new(),
            scratch: Vec::new(),
            stopping: false,
            passes: Passes::default(),
            outbox: Outbox::default(),
        };
        app.look_up();
        app
    }

    /// Sees streams that have come or gone.
    fn look_up(&mut self) {
        if self.links.catalog.refresh(&mut self.catalog_version, &mut self.catalog) {
            let new = &self.catalog.places()[self.hubs.len()..];
            self.hubs.extend(new.iter().map(|stream| Hub::new(Arc::clone(stream))));
        }
    }

    pub(super) fn token(&self, conn: ConnId) -> u64 {
        Token { shard: self.links.shard, conn }.to_word()
    }

    /// Queues a job for the writer; it goes with the next turn, or at once where there are many.
    pub(super) fn job(&mut self, engine: &mut Engine<Session>, job: Job) {
        if self.outbox.push(job) {
            self.hand_over();
        } else {
            engine.wake_flush();
        }
    }

    /// Gives the writer the jobs that are there.
    fn hand_over(&mut self) {
        let jobs = self.outbox.take();
        if jobs.is_empty() {
            return;
        }
        if let Err(jobs) = self.links.jobs.send_all(jobs) {
            // The writer ends only after the shards have closed their publishers; nothing is answered then.
            jobs.into_iter().for_each(|job| self.forget(job));
        }
    }

    pub(super) fn counters(&self) -> &ShardCounters {
        &self.links.telemetry.shards[self.links.shard]
    }

    pub(super) fn count_closed(&self, cause: CloseCause) {
        self.counters().closed_total[cause as usize].fetch_add(1, Relaxed);
    }

    /// Closes with a reason of the table in wire.md section 9.1.
    pub(super) fn close(&self, engine: &mut Engine<Session>, id: ConnId, reason: &CloseReason) {
        engine.close(id, reason.code(), &reason.reason());
    }

    /// Refuses a connection in place of its greeting.
    fn refuse(&self, engine: &mut Engine<Session>, id: ConnId, reason: &CloseReason) {
        if let Some(session) = engine.session(id) {
            *session = Session::Refused;
        }
        self.close(engine, id, reason);
    }

    /// Finds the stream a target names, in the order of wire.md section 1.2.
    fn route(&self, target: &Target) -> Result<Arc<ServedStream>, CloseReason> {
        if let Some(stream) = self.catalog.find(&target.name) {
            return Ok(Arc::clone(stream));
        }
        if self.catalog.holds(&target.name) {
            return Err(CloseReason::StreamStopping);
        }
        if !target::is_managed_name(&target.name) {
            return Err(CloseReason::BadRequest { detail: "this is not a stream's name".to_owned() });
        }
        let serves = self.catalog.bounds.tells_names.then(|| self.catalog.listed_names.clone());
        Err(CloseReason::NoSuchStream { serves })
    }

    fn begin(
        &mut self,
        engine: &mut Engine<Session>,
        id: ConnId,
        parsed: Result<Target, BadTarget>,
    ) -> Result<(), CloseReason> {
        if self.stopping {
            return Err(CloseReason::StreamStopping);
        }
        let target = parsed.map_err(|bad| CloseReason::BadRequest { detail: bad.detail })?;
        let stream = self.route(&target)?;
        if target.publish {
            if let Some((at_us, end_offset)) = stream.retired {
                return Err(CloseReason::StreamRetired { at_us, end_offset });
            }
            self.begin_publisher(engine, id, stream, target.publisher)
        } else {
            self.begin_subscriber(engine, id, stream, target.offset, target.filter)
        }
    }

    /// Asks for a stream's blocks, unless they come already.
    pub(super) fn want_blocks(&mut self, engine: &mut Engine<Session>, stream: u32) {
        let shard = self.links.shard;
        let hub = &mut self.hubs[stream as usize];
        if hub.interest != Interest::Off {
            return;
        }
        hub.interest = Interest::Asked;
        if hub.stream.durable() {
            self.job(engine, Job::Note(u64::from(stream), shard as u64, 1));
        } else if hub.stream.home_shard == shard {
            self.interested(engine, stream, None);
        } else {
            self.tell(self.hubs[stream as usize].stream.home_shard, Remote::Interest { stream, shard, on: true }, 0);
        }
    }

    pub(super) fn tell(&self, shard: usize, message: Remote, bytes: usize) {
        self.links.inboxes[shard].send(Command::App(message), bytes);
    }

    fn interested(&mut self, engine: &mut Engine<Session>, stream: u32, end_offset: Option<i64>) {
        let hub = &mut self.hubs[stream as usize];
        hub.interest = Interest::On;
        hub.frontier = end_offset;
        for conn in std::mem::take(&mut hub.waiting) {
            self.attach(engine, conn);
        }
    }

    fn tidy(&mut self, engine: &mut Engine<Session>) {
        let shard = self.links.shard;
        for place in 0..self.hubs.len() {
            if !self.hubs[place].tidy(engine) {
                continue;
            }
            let hub = &mut self.hubs[place];
            hub.interest = Interest::Off;
            let stream = place as u32;
            if hub.stream.durable() {
                self.job(engine, Job::Note(u64::from(stream), shard as u64, 0));
            } else if hub.stream.home_shard != shard {
                let home = hub.stream.home_shard;
                self.tell(home, Remote::Interest { stream, shard, on: false }, 0);
            }
        }
    }

    pub(super) fn lagging(&mut self, engine: &mut Engine<Session>, lagging: Vec<Lagging>) {
        for lagging in lagging {
            self.subscriber_lags(engine, lagging);
        }
    }

    fn stop(&mut self, engine: &mut Engine<Session>) {
        self.stopping = true;
        self.dismiss(engine, |_| true);
    }

    /// A stream goes out of service: its connections are closed, publishers once they have their answers.
    fn stop_stream(&mut self, engine: &mut Engine<Session>, stream: u32) {
        self.dismiss(engine, |served| served.index == stream);
    }

    fn dismiss(&mut self, engine: &mut Engine<Session>, of: impl Fn(&ServedStream) -> bool) {
        for id in engine.open_connections() {
            match engine.session(id) {
                Some(Session::Publisher(publisher)) if of(&publisher.stream) => {
                    self.end_publisher(engine, id, CloseReason::StreamStopping);
                }
                Some(Session::Subscriber(subscriber)) if of(subscriber.stream()) => {
                    self.close(engine, id, &CloseReason::StreamStopping);
                }
                _ => {}
            }
        }
    }
}

impl App for SessionApp {
    type Session = Session;
    type Remote = Remote;

    fn admit(&mut self, engine: &mut Engine<Session>, id: ConnId, head: &mut UpgradeHead) -> Admission {
        self.judge(engine, id, head)
    }

    fn opened(&mut self, _: &mut Engine<Session>, id: ConnId, head: &UpgradeHead) -> Session {
        self.passes.keep(id, head);
        Session::Opening(Box::new(target::parse(&head.target)))
    }

    fn started(&mut self, engine: &mut Engine<Session>, id: ConnId) {
        self.look_up();
        engine.limit_messages(id, self.catalog.bounds.transport_max_bytes as usize);
        let Some(session) = engine.session(id) else { return };
        let Session::Opening(parsed) = std::mem::replace(session, Session::Refused) else { return };
        if let Err(reason) = self.begin(engine, id, *parsed) {
            self.refuse(engine, id, &reason);
        }
    }

    fn message(&mut self, engine: &mut Engine<Session>, id: ConnId, payload: &mut [u8], _text: bool) {
        // What a subscriber sends is read and discarded (wire.md section 1.1).
        if matches!(engine.session(id), Some(Session::Publisher(_))) {
            self.publish(engine, id, payload);
        }
    }

    fn violation(&mut self, engine: &mut Engine<Session>, id: ConnId, violation: Violation) {
        let reason = match violation {
            Violation::Protocol(what) => {
                tracing::debug!(what, "a peer broke the protocol");
                CloseReason::ProtocolError
            }
            Violation::NotUtf8 => CloseReason::InvalidUtf8,
            Violation::TooBig { size_bytes } => match engine.session(id) {
                Some(Session::Publisher(publisher)) => CloseReason::TooBig {
                    size: size_bytes,
                    limit: u64::from(
                        publisher.stream.settings.max_message_bytes.min(self.catalog.bounds.transport_max_bytes),
                    ),
                    stream: publisher.stream.name.clone(),
                },
                _ => CloseReason::FrameTooLarge,
            },
        };
        match engine.session(id) {
            Some(Session::Publisher(_)) => self.end_publisher(engine, id, reason),
            _ => self.close(engine, id, &reason),
        }
    }

    fn peer_closed(&mut self, engine: &mut Engine<Session>, id: ConnId) {
        match engine.session(id) {
            Some(Session::Publisher(_)) => self.publisher_leaves(engine, id),
            _ => engine.echo_close(id),
        }
    }

    fn closed(&mut self, engine: &mut Engine<Session>, id: ConnId, session: Session, ended: Ended) {
        self.passes.forget(id);
        self.count_closed(match ended {
            Ended::Peer | Ended::HandedOver => CloseCause::Peer,
            Ended::TimedOut | Ended::Closed(1011) => CloseCause::Keepalive,
            Ended::Closed(1001) => CloseCause::Stopping,
            Ended::Closed(4409) => CloseCause::Superseded,
            Ended::Closed(4429) => CloseCause::TooSlow,
            Ended::Closed(1002 | 1007 | 1009) => CloseCause::Protocol,
            Ended::Closed(code) if code >= 4400 => CloseCause::Refused,
            Ended::Closed(_) => CloseCause::Peer,
        });
        match session {
            Session::Publisher(publisher) => self.publisher_gone(engine, id, *publisher),
            Session::Subscriber(mut subscriber) => {
                subscriber.comes_back(&mut self.hubs[subscriber.stream().index as usize]);
                subscriber.gone();
            }
            Session::Opening(_) | Session::Refused => {}
        }
    }

    fn drained(&mut self, engine: &mut Engine<Session>, id: ConnId) {
        self.next_page(engine, id);
    }

    fn remote(&mut self, engine: &mut Engine<Session>, message: Remote) {
        self.look_up();
        match message {
            Remote::Commit { blocks, outcomes } => {
                for (stream, block) in blocks {
                    let Some(hub) = self.hubs.get_mut(stream as usize) else { continue };
                    let lagging = hub.append(engine, &block, &mut self.index);
                    self.lagging(engine, lagging);
                }
                self.settle(engine, outcomes);
            }
            Remote::Skipped { stream, end_offset } => {
                if let Some(hub) = self.hubs.get(stream as usize) {
                    // Whoever goes on from the log starts at the frontier before the gap.
                    let lagging = hub.overrun(engine);
                    self.lagging(engine, lagging);
                    self.hubs[stream as usize].frontier = end_offset;
                }
            }
            Remote::Interested { stream, end_offset } => self.interested(engine, stream, end_offset),
            Remote::Interest { stream, shard, on } => {
                let hub = &mut self.hubs[stream as usize];
                hub.interested_shards.retain(|other| *other != shard);
                if on {
                    hub.interested_shards.push(shard);
                    self.tell(shard, Remote::Interested { stream, end_offset: None }, 0);
                }
            }
            Remote::Live(rows) => self.order_live(engine, rows),
            Remote::Claimed { conn, last_seq, last_offset } => self.claimed(engine, conn, last_seq, last_offset),
            Remote::ClaimFailed { conn, detail } => {
                tracing::error!(detail, "a publisher's mark cannot be read");
                self.close(engine, conn, &CloseReason::Unexpected);
            }
            Remote::Checked { conn } => engine.look_again(conn),
            Remote::Superseded { conn } => self.close(engine, conn, &CloseReason::Superseded),
            Remote::Room { stream } => self.room(engine, stream),
            Remote::Resolved { conn, resolution } => self.resolved(engine, conn, resolution),
            Remote::Page { conn, page } => self.page(engine, conn, page),
            Remote::StopStream { stream } => self.stop_stream(engine, stream),
            Remote::Stop => self.stop(engine),
        }
    }

    fn heard(&mut self) {
        self.hand_over();
    }

    fn tick(&mut self, engine: &mut Engine<Session>) {
        self.tidy(engine);
        self.end_passes(engine);
    }

    fn turned(&mut self, engine: &mut Engine<Session>, took: Duration) {
        let counts = engine.counts;
        let counters = self.counters();
        counters.connections.store(engine.connections() as i64, Relaxed);
        counters.accepted_total.store(counts.accepted_total, Relaxed);
        counters.accept_errors_total.store(counts.accept_errors_total, Relaxed);
        counters.delivered_frames_total.store(counts.delivered_frames_total, Relaxed);
        counters.sent_bytes_total.store(counts.sent_bytes_total, Relaxed);
        counters.sends_total.store(counts.sends_total, Relaxed);
        counters.received_bytes_total.store(counts.received_bytes_total, Relaxed);
        counters.feed_bytes.store(counts.feed_bytes as i64, Relaxed);
        counters.feeds.store(engine.feeds() as i64, Relaxed);
        counters.max_lag_frames.store(counts.max_lag_frames as i64, Relaxed);
        counters.turns_total.store(counts.turns_total, Relaxed);
        counters.tls_shard_connections.store(counts.tls_shard_connections as i64, Relaxed);
        counters.tls_kernel_connections.store(counts.tls_kernel_connections as i64, Relaxed);
        if took > STALL {
            counters.stalls_total.fetch_add(1, Relaxed);
        }
        counters.longest_turn_us.fetch_max(took.as_micros() as u64, Relaxed);
    }
}

/// A text frame of `payload`.
pub(super) fn text_frame(payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(payload.len() + 10);
    frame::push_frame(&mut bytes, frame::opcode::TEXT, payload);
    bytes
}
