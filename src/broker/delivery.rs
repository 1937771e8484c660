//! From the writer to the shards: blocks to those that have subscribers, outcomes to those that have the
//! publishers, in one message a shard and transaction.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::fence;

use streamcast_shards::inbox::InboxSender;
use streamcast_shards::{Block, Command, ConnId};

use crate::batches::Answers;
use crate::journal::{CommitSink, GroupCommit, Outcome};
use crate::session::{Catalog, CatalogCell, Remote, Token, end_offset};

/// Bytes that may wait in a shard's inbox before blocks are left out for it. Its subscribers then go on from
/// the log, or are dropped where there is none to go on from.
const MAX_INBOX_BYTES: u64 = 256 << 20;

/// What one transaction has for one shard.
#[derive(Default)]
struct Parcel {
    blocks: Vec<(u32, Arc<Block>)>,
    outcomes: Vec<(ConnId, Outcome)>,
    bytes: usize,
}

/// The sink of the writer.
pub(super) struct Delivery {
    catalog: Arc<CatalogCell>,
    /// The catalog as it was last seen, and its number.
    seen: Arc<Catalog>,
    version: u64,
    inboxes: Vec<InboxSender<Command<Remote>>>,
    /// By stream: its end, and the shards that get its blocks.
    streams: Vec<(Option<i64>, Vec<usize>)>,
    parcels: Vec<Parcel>,
    /// Requests that wait.
    answers: Answers,
}

impl Delivery {
    pub(super) fn new(catalog: Arc<CatalogCell>, inboxes: Vec<InboxSender<Command<Remote>>>, answers: Answers) -> Self {
        let parcels = inboxes.iter().map(|_| Parcel::default()).collect();
        let seen = catalog.current();
        Self { catalog, seen, version: 0, inboxes, streams: Vec::new(), parcels, answers }
    }

    /// Sees streams that have come. What is said of a stream is said after it is in the catalog.
    fn look_up(&mut self) {
        if self.catalog.refresh(&mut self.version, &mut self.seen) {
            let new = &self.seen.places()[self.streams.len()..];
            self.streams.extend(new.iter().map(|stream| (end_offset(&stream.counters.end_offset), Vec::new())));
        }
    }

    fn send(&self, shard: usize, message: Remote, bytes: usize) {
        if let Some(inbox) = self.inboxes.get(shard) {
            inbox.send(Command::App(message), bytes);
        }
    }

    fn tell(&self, token: u64, message: impl FnOnce(ConnId) -> Remote) {
        let token = Token::from_word(token);
        self.send(token.shard, message(token.conn), 0);
    }
}

impl CommitSink for Delivery {
    fn wants_frames(&self, stream: u32) -> bool {
        // A stream that was not looked up yet was asked for by nobody.
        let served = self.seen.of_journal(stream).and_then(|served| self.streams.get(served.index as usize));
        served.is_some_and(|(_, shards)| !shards.is_empty())
    }

    fn deliver(&mut self, mut commit: GroupCommit) {
        self.look_up();
        // Taken out first and sent last: what is acknowledged has been offered to everybody.
        let mut news = self.answers.take(&mut commit);
        // The ends of the streams are known by now: who has not seen them is seen to sleep.
        fence(SeqCst);
        for (journal_id, block, _, _) in commit.blocks {
            let Some(served) = self.seen.of_journal(journal_id) else { continue };
            let stream = served.index;
            if served.sleepers.load(Relaxed) > 0 {
                news.grown.push(journal_id);
            }
            let (end, shards) = &mut self.streams[stream as usize];
            *end = block.end_offset;
            for &shard in shards.iter() {
                let parcel = &mut self.parcels[shard];
                parcel.bytes += block.frames.len();
                parcel.blocks.push((stream, Arc::clone(&block)));
            }
        }
        for (token, _, outcome) in commit.outcomes {
            let token = Token::from_word(token);
            if let Some(parcel) = self.parcels.get_mut(token.shard) {
                parcel.outcomes.push((token.conn, outcome));
            }
        }
        for shard in 0..self.parcels.len() {
            let mut parcel = std::mem::take(&mut self.parcels[shard]);
            if parcel.blocks.is_empty() && parcel.outcomes.is_empty() {
                continue;
            }
            if !parcel.blocks.is_empty() && self.inboxes[shard].queued_bytes() > MAX_INBOX_BYTES {
                for (stream, block) in parcel.blocks.drain(..) {
                    self.send(shard, Remote::Skipped { stream, end_offset: block.end_offset }, 0);
                }
                parcel.bytes = 0;
            }
            let Parcel { blocks, outcomes, bytes } = parcel;
            self.send(shard, Remote::Commit { blocks, outcomes }, bytes);
        }
        self.answers.deliver(news);
        let inboxes = &self.inboxes;
        self.seen.take_waiting(|stream, shard| {
            if let Some(inbox) = inboxes.get(shard) {
                inbox.send(Command::App(Remote::Room { stream }), 0);
            }
        });
    }

    fn claimed(&mut self, _stream: u32, token: u64, last_seq: u64, last_offset: Option<i64>) {
        self.tell(token, |conn| Remote::Claimed { conn, last_seq, last_offset });
    }

    fn claim_failed(&mut self, _stream: u32, token: u64, detail: String) {
        self.tell(token, |conn| Remote::ClaimFailed { conn, detail });
    }

    fn superseded(&mut self, _stream: u32, token: u64) {
        self.tell(token, |conn| Remote::Superseded { conn });
    }

    /// A shard wants a stream's blocks from here on (`on` is 1), or no longer.
    fn note(&mut self, stream: u64, shard: u64, on: u64) {
        self.look_up();
        let shard = shard as usize;
        let Some((end, shards)) = self.streams.get_mut(stream as usize) else { return };
        shards.retain(|other| *other != shard);
        if on == 1 && shard < self.inboxes.len() {
            shards.push(shard);
            let message = Remote::Interested { stream: stream as u32, end_offset: *end };
            self.send(shard, message, 0);
        }
    }
}
