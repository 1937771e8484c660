//! Reading a stream by cursor: pages of the log, and waiting for more at its head.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, SeqCst};
use std::sync::atomic::{AtomicUsize, fence};
use std::time::Instant;

use tokio::sync::oneshot;

use super::answers::Watch;
use super::error::ApiError;
use super::limits::{MAX_PAGE_BYTES, MAX_SCAN, MAX_WAITERS};
use super::render;
use super::service::{Service, Stream};
use super::shared::{AsOf, Question, Shared};
use crate::journal::reader::{Page, PageRequest, RowFilter};
use crate::schema::{Filter, Predicate};
use crate::stream::replay::{NotReplayable, Requested, Resolution, ResolveRequest};

/// Bytes that are asked of the readers at once.
const PIECE_BYTES: usize = 256 << 10;

/// What an answer has more than the frames of its rows, in bytes: for each row its id and cursor with the names of all
/// members, and once its own cursor and the head.
const ROW_MORE_BYTES: usize = 96;
const PAGE_MORE_BYTES: usize = 128;

/// Items between a reader and the head up to which it is one of those that follow.
const NEAR_ITEMS: i64 = 1_000;

/// Where a read starts and which rows it gives.
#[derive(Clone)]
pub struct Wanted {
    /// The boundary to start at; `None` for the origin.
    pub after: Option<i64>,
    /// The most rows.
    pub limit: usize,
    /// Which rows; all if absent.
    pub filter: Option<RowFilter>,
}

impl Wanted {
    /// The boundary to start at, if this is all that comes to a stream that ends at `until`, and most of it was read.
    fn follows(&self, until: i64) -> Option<i64> {
        let after = self.after.filter(|_| self.filter.is_none())?;
        (0..=NEAR_ITEMS).contains(&until.saturating_sub(after)).then_some(after)
    }
}

/// What a read found.
#[derive(Debug, Default)]
pub struct Found {
    /// Row frames in order.
    pub frames: Vec<Vec<u8>>,
    /// How many rows.
    pub rows: usize,
    /// The boundary after what was looked at; `None` at the origin of an empty stream.
    pub next: Option<i64>,
    /// The head when the read was made.
    pub head: Option<i64>,
}

impl Found {
    /// Whether there was nothing more to look at.
    #[must_use]
    pub fn at_head(&self) -> bool {
        self.next == self.head
    }
}

impl Stream {
    /// The row filter of a `where` document.
    ///
    /// # Errors
    /// 400 if it is none, or does not suit the stream.
    pub fn filter(&self, text: &str) -> Result<RowFilter, ApiError> {
        let refuse = |error: &dyn std::error::Error| ApiError::new(400, "invalid_where", error.to_string());
        let filter = Filter::parse(text).map_err(|error| refuse(&error))?;
        let predicate = Predicate::compile(&filter, self.served.schema.as_ref()).map_err(|error| refuse(&error))?;
        Ok(Arc::new(move |row: &[u8]| predicate.matches(row)))
    }

    /// The boundary of a cursor.
    ///
    /// # Errors
    /// 400 `invalid_cursor` if it is not one of this stream.
    pub fn position(&self, cursor: &str) -> Result<i64, ApiError> {
        self.tokens.read_cursor(cursor).ok_or_else(ApiError::cursor)
    }
}

impl Service {
    /// Reads up to `wanted.limit` rows, or what makes an answer of 8 MiB. A filter that lets little through ends the read
    /// after a while with the boundary it has come to.
    ///
    /// # Errors
    /// 400 for a cursor beyond the head, 410 for one whose rows are gone, 503 when the log cannot be read.
    pub async fn read(&self, stream: &Stream, wanted: &Wanted) -> Result<Found, ApiError> {
        self.read_until(stream, wanted, None, MAX_PAGE_BYTES).await
    }

    /// As [`Service::read`], up to `until` and not to the present head, and up to so many bytes.
    pub(super) async fn read_until(
        &self,
        stream: &Stream,
        wanted: &Wanted,
        until: Option<i64>,
        max_bytes: usize,
    ) -> Result<Found, ApiError> {
        let until = until.unwrap_or_else(|| stream.end());
        let head = Some(until).filter(|end| *end > stream.served.first_offset);
        if head.is_none() || wanted.after == Some(until) {
            return match wanted.after {
                Some(after) if after > until => Err(ApiError::cursor()),
                // Where there is no item yet there is one boundary, whatever it was called.
                _ => Ok(Found { next: head, head, ..Found::default() }),
            };
        }
        let start = self.start(stream, wanted.after, until).await?;
        self.rows(stream, wanted, (start, until), max_bytes).await
    }

    /// As [`Service::read`], up to so many bytes, together with everybody who reads just this near the head. Who was
    /// [gathered](Service::gather) for the moment `turn` gets what the first of that turn has read.
    ///
    /// # Errors
    /// As [`Service::read`].
    pub(super) async fn read_shared(
        &self,
        stream: &Stream,
        wanted: &Wanted,
        max_bytes: usize,
        turn: Option<Instant>,
    ) -> Result<Arc<Shared>, ApiError> {
        let until = stream.end();
        let Some(after) = wanted.follows(until) else {
            return Ok(Shared::new(self.read_until(stream, wanted, Some(until), max_bytes).await?));
        };
        let as_of = turn.map_or(AsOf::End(until), |turn| AsOf::Turn(turn, stream.left_out.load(Acquire)));
        let question = Question { stream: stream.journal_id, after, as_of, limit: wanted.limit, max_bytes };
        let reading = self.reads.of(question, Instant::now());
        let read = || async { self.read_until(stream, wanted, Some(until), max_bytes).await.map(Shared::new) };
        let shared = Arc::clone(reading.get_or_try_init(read).await?);
        self.reads.let_go(question, &shared);
        if let Some(turn) = turn {
            self.pace.served(turn, Instant::now());
        }
        Ok(shared)
    }

    /// Where rows come all the time, waits until the others that follow read too, but no longer than to `deadline`.
    /// Returns for which moment all of them have waited.
    pub(super) async fn gather(&self, stream: &Stream, wanted: &Wanted, deadline: Instant) -> Option<Instant> {
        let (end, now) = (stream.end(), Instant::now());
        wanted.follows(end)?;
        if !stream.pulse.is_quick(end, now, self.pace.tick()) {
            return None;
        }
        let turn = self.pace.next(now);
        tokio::time::sleep_until(turn.min(deadline).into()).await;
        (turn <= deadline).then_some(turn)
    }

    /// Finds out where a read starts.
    async fn start(&self, stream: &Stream, after: Option<i64>, until: i64) -> Result<i64, ApiError> {
        let request = ResolveRequest {
            offset: after.map_or(Requested::Earliest, Requested::After),
            frontier: until,
            floor: stream.served.floor,
            max_replay: None,
        };
        let (reply, answer) = oneshot::channel();
        let reply = move |resolution| {
            // Whoever has gone does not want to know.
            let _ = reply.send(resolution);
        };
        self.readers.resolve(stream.journal_id, request, Box::new(reply));
        match answer.await {
            Ok(Resolution::Serve { start }) => Ok(start),
            // Who begins at the origin begins at the first row there is, if only the next one that comes.
            Ok(Resolution::Refuse(NotReplayable::Evicted { earliest, .. })) if after.is_none() => Ok(earliest),
            Ok(Resolution::Refuse(NotReplayable::Evicted { earliest, .. })) => {
                let message = "the entries after this cursor are not kept any more; go on from the earliest";
                let details =
                    serde_json::json!({"earliest": stream.tokens.cursor(earliest), "earliestOffset": earliest});
                Err(ApiError::new(410, "cursor_expired", message).with(details))
            }
            Ok(Resolution::Refuse(_)) => Err(ApiError::cursor()),
            Ok(Resolution::Failed(detail)) => Err(unreadable(&stream.served.name, &detail)),
            Err(_) => Err(ApiError::unavailable("the broker stops")),
        }
    }

    /// Reads rows of `[start, until)` up to the limit of rows, or `max_bytes` of an answer with them.
    async fn rows(
        &self,
        stream: &Stream,
        wanted: &Wanted,
        (start, until): (i64, i64),
        max_bytes: usize,
    ) -> Result<Found, ApiError> {
        let began = Instant::now();
        let mut found = Found { next: Some(start), head: Some(until), ..Found::default() };
        let mut next = start;
        let mut bytes = PAGE_MORE_BYTES;
        while next < until && found.rows < wanted.limit && bytes < max_bytes {
            if wanted.filter.is_some() && began.elapsed() > MAX_SCAN {
                break;
            }
            let left = wanted.limit - found.rows;
            let piece = PIECE_BYTES.min(max_bytes - bytes).min(left.saturating_mul(512).max(4 << 10));
            let page = self.page(stream, wanted.filter.clone(), (next, until), piece).await?;
            let Page::Rows { mut frames, rows, next: after, done } = page else {
                return Err(unreadable(&stream.served.name, "a page without rows"));
            };
            let (mut taken, room) = (rows as usize, max_bytes - bytes);
            let is_cut = taken > left || frames.len() + taken * ROW_MORE_BYTES > room;
            let begin = next;
            next = if done { until } else { after };
            if is_cut {
                // A row that has no room at all is given nevertheless, alone.
                let cut = cut(&mut frames, left, room, found.rows == 0);
                if cut.rows < taken {
                    (taken, next) = (cut.rows, cut.next.unwrap_or(begin));
                }
            }
            found.rows += taken;
            bytes += frames.len() + taken * ROW_MORE_BYTES;
            if !frames.is_empty() {
                found.frames.push(frames);
            }
            if taken < rows as usize {
                break;
            }
        }
        found.next = Some(next);
        Ok(found)
    }

    async fn page(
        &self,
        stream: &Stream,
        filter: Option<RowFilter>,
        (from, until): (i64, i64),
        max_bytes: usize,
    ) -> Result<Page, ApiError> {
        let (reply, answer) = oneshot::channel();
        let reply = Box::new(move |page| {
            let _ = reply.send(page);
        });
        self.readers.page(PageRequest { stream: stream.journal_id, from, until, max_bytes, filter, reply });
        match answer.await {
            Ok(Page::Failed(detail)) => Err(unreadable(&stream.served.name, &detail)),
            Ok(page) => Ok(page),
            Err(_) => Err(ApiError::unavailable("the broker stops")),
        }
    }

    /// As [`Service::read`], but waits until `deadline` where there is nothing to give.
    ///
    /// # Errors
    /// As [`Service::read`], and 429 when too many wait already.
    pub async fn read_or_wait(
        &self,
        stream: &Stream,
        wanted: &Wanted,
        deadline: Instant,
    ) -> Result<Arc<Shared>, ApiError> {
        let turn = self.gather(stream, wanted, deadline).await;
        let found = self.read_shared(stream, wanted, MAX_PAGE_BYTES, turn).await?;
        if found.rows > 0 || Instant::now() >= deadline {
            return Ok(found);
        }
        let watch = self.watch(stream)?;
        let mut wanted = wanted.clone();
        wanted.after = found.next;
        loop {
            let found = self.read_next(stream, &wanted, &watch, MAX_PAGE_BYTES, deadline).await?;
            if found.rows > 0 || Instant::now() >= deadline {
                return Ok(found);
            }
            wanted.after = found.next;
        }
    }

    /// Reads what comes after the boundary that `wanted` has come to, once there is something or it is `deadline`. May
    /// find no rows earlier where a filter lets nothing through.
    ///
    /// # Errors
    /// As [`Service::read`], 410 when the stream is deleted, and 503 when it is out of service.
    pub(super) async fn read_next(
        &self,
        stream: &Stream,
        wanted: &Wanted,
        watch: &Watch,
        max_bytes: usize,
        deadline: Instant,
    ) -> Result<Arc<Shared>, ApiError> {
        self.still_served(stream)?;
        let mut turn = self.gather(stream, wanted, deadline).await;
        let head = stream.head();
        if wanted.after == head || wanted.after == Some(stream.end()) {
            if !watch.grown_since(stream, head, deadline).await {
                return Ok(Shared::new(Found { next: head, head, ..Found::default() }));
            }
            if stream.served.is_over.load(SeqCst) {
                self.still_served(stream)?;
            }
            if turn.is_none() {
                turn = self.gather(stream, wanted, deadline).await;
            }
        }
        self.read_shared(stream, wanted, max_bytes, turn).await
    }

    /// Watches a stream for more rows.
    ///
    /// # Errors
    /// 429 when too many do already.
    pub(super) fn watch(&self, stream: &Stream) -> Result<Watch, ApiError> {
        if self.answers.watchers() >= MAX_WAITERS {
            return Err(ApiError::busy("too many requests wait for entries; try again without waiting"));
        }
        Ok(self.answers.watch(stream.journal_id))
    }
}

impl Watch {
    /// Waits until the stream has another head than `head`, or goes out of service; false at the deadline.
    pub(super) async fn grown_since(&self, stream: &Stream, head: Option<i64>, deadline: Instant) -> bool {
        let _asleep = Asleep::new(&stream.served.sleepers);
        loop {
            let grown = self.grown.notified();
            tokio::pin!(grown);
            // What comes from here on is told; what came before is seen.
            grown.as_mut().enable();
            if stream.head() != head || stream.served.is_over.load(SeqCst) {
                return true;
            }
            if tokio::time::timeout_at(deadline.into(), grown).await.is_err() {
                return stream.head() != head;
            }
        }
    }
}

/// One of the sleepers of a stream.
struct Asleep<'a>(&'a AtomicUsize);

impl<'a> Asleep<'a> {
    fn new(sleepers: &'a AtomicUsize) -> Self {
        sleepers.fetch_add(1, SeqCst);
        // The writer first stores the end and then looks for sleepers; here it is the other way round.
        fence(SeqCst);
        Self(sleepers)
    }
}

impl Drop for Asleep<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

/// What is left of frames that were cut.
struct Cut {
    rows: usize,
    /// The boundary after them, if any are left.
    next: Option<i64>,
}

/// Leaves no more than the first `rows` frames of a page, and no more than has room in an answer; but one, if `one` is set.
fn cut(frames: &mut Vec<u8>, rows: usize, room: usize, one: bool) -> Cut {
    let (mut left, mut bytes) = (Cut { rows: 0, next: None }, 0);
    render::rows_with_length(frames, |offset, _, _, length| {
        let fits = bytes + length + (left.rows + 1) * ROW_MORE_BYTES <= room || (one && left.rows == 0);
        if left.rows == rows || !fits {
            return false;
        }
        left = Cut { rows: left.rows + 1, next: Some(offset + 1) };
        bytes += length;
        true
    });
    frames.truncate(bytes);
    left
}

fn unreadable(stream: &str, detail: &str) -> ApiError {
    tracing::error!(detail, stream, "the log cannot be read");
    ApiError::unavailable("the log cannot be read; see the broker's log")
}
