//! The batch API of one broker: finds streams and brings inserts to the writer.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::AtomicI64;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::answers::Answers;
use super::body::{self, InsertBody};
use super::error::ApiError;
use super::limits::{INLINE_BODY_BYTES, MAX_BODIES_BYTES, MAX_CHANGING, MAX_PARSING, MAX_QUEUE_WAIT};
use super::name;
use super::purge::Purges;
use super::render::Inserted;
use super::retention::Retention;
use super::shared::{Pace, Pulse, Reads};
use super::signature::Signature;
use super::token::Tokens;
use super::validator::Validator;
use crate::journal::reader::{ReaderHandle, RowFilter};
use crate::journal::{
    Append, Deleted, Errand, Insert, Job, JobSender, JournalError, Keyed, Office, Operation, Outcome, Receipt, Recorded,
};
use crate::session::{Catalog, ServedStream, now_us};
use crate::telemetry::Telemetry;
use crate::wire::{FrameParser, RowBatch};

/// How long the validator may take for one batch.
const VALIDATION: Duration = Duration::from_secs(10);

/// How often an insert whose validator has changed under way is checked again.
const MAX_STALE: usize = 100;

/// Bytes that one permit for bodies stands for.
const BODY_UNIT_BYTES: usize = 1 << 10;

thread_local! {
    static PARSER: RefCell<FrameParser> = RefCell::new(FrameParser::new());
}

/// The streams of a broker, as the batch API needs them.
pub trait Directory: Send + Sync {
    /// Whether only this host can reach the broker and no policy says who may do what.
    fn open_to_this_host(&self) -> bool;

    /// The streams in service.
    fn catalog(&self) -> Arc<Catalog>;

    /// Creates a stream and takes it into service; of any objects if it has no schema. Waits for the disk.
    ///
    /// # Errors
    /// 409 if the name is taken, 422 if the schema is none.
    fn create(&self, name: &str, schema: Option<&Value>) -> Result<Arc<ServedStream>, ApiError>;

    /// Takes a stream out of service for ever: its name is free. Waits for the disk and for peers.
    ///
    /// # Errors
    /// 409 if others than the batch API decide about the stream.
    fn delete(&self, stream: &ServedStream) -> Result<Deleted, ApiError>;

    /// The offsets of matching rows of a stream that no replay gives, because they are in logs that are over or only in
    /// the table; no more than `most` of them. Waits for the disk, and for the table's store.
    ///
    /// # Errors
    /// 503 when they cannot be read.
    fn find_unreplayed(&self, stream: u32, matches: RowFilter, most: usize) -> Result<Vec<i64>, ApiError>;

    /// Rows of a stream were erased: its files and its table are to be purged of them.
    fn purge_soon(&self, stream: u32);

    /// The latest erasure of a stream of whose rows, and of those of all erasures before it, no file has any.
    fn purged_through(&self, stream: u32) -> Option<i64>;

    /// How long the rows of a stream with a log are kept. Waits for the disk.
    ///
    /// # Errors
    /// 503 when its documents cannot be read.
    fn retention(&self, stream: &ServedStream) -> Result<Retention, ApiError>;

    /// Sets how long they are kept, in microseconds; for ever with `None`. Waits for the disk.
    ///
    /// # Errors
    /// 409 for a stream whose whole history is guarded, 503 when its documents cannot be written.
    fn retain(&self, stream: &ServedStream, max_age_us: Option<i64>) -> Result<(), ApiError>;

    /// Takes away what a deleted stream has left outside of the journal. Waits for the disk.
    ///
    /// # Errors
    /// When the disk refuses; to be tried again.
    fn clear(&self, deleted: &Deleted) -> Result<(), ApiError>;
}

/// A stream with what the batch API adds to it.
pub struct Stream {
    /// The stream in service.
    pub served: Arc<ServedStream>,
    /// Its number in the journal.
    pub journal_id: u32,
    /// Its id.
    pub id: String,
    /// Makes its cursors and ids.
    pub tokens: Tokens,
    check: RwLock<Arc<Check>>,
    /// Offsets below the end that hold no entry.
    pub(super) left_out: AtomicI64,
    pub(super) pulse: Pulse,
}

/// The validator of a stream at one moment.
pub struct Check {
    /// Grows with every change; 0 before there was one.
    pub version: u64,
    /// The expression.
    pub source: Option<String>,
    pub(super) validator: Option<Validator>,
}

impl Stream {
    /// The validator now.
    #[must_use]
    pub fn check(&self) -> Arc<Check> {
        Arc::clone(&self.check.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The offset after the last item.
    #[must_use]
    pub fn end(&self) -> i64 {
        self.served.counters.end_offset.load(Acquire)
    }

    /// Checks what comes from now on by another validator, unless there is a newer one.
    pub(super) fn set_check(&self, check: Check) {
        let mut present = self.check.write().unwrap_or_else(PoisonError::into_inner);
        if check.version > present.version {
            *present = Arc::new(check);
        }
    }

    /// How many entries it has ever had, less those that were erased.
    #[must_use]
    pub fn entry_count(&self) -> i64 {
        (self.end() - self.served.first_offset - self.left_out.load(Relaxed)).max(0)
    }

    /// Its columns as a JSON Schema; `None` where entries are any objects.
    #[must_use]
    pub fn schema_document(&self) -> Option<serde_json::Value> {
        self.served.schema.as_ref().and_then(|schema| serde_json::from_str(schema.canonical()).ok())
    }

    /// The head as a cursor position; `None` for a stream that never had an item.
    #[must_use]
    pub fn head(&self) -> Option<i64> {
        Some(self.end()).filter(|end| *end > self.served.first_offset)
    }
}

/// The batch API.
pub struct Service {
    directory: Arc<dyn Directory>,
    jobs: JobSender,
    pub(super) readers: ReaderHandle,
    pub(super) answers: Answers,
    telemetry: Arc<Telemetry>,
    known: RwLock<HashMap<u32, Arc<Stream>>>,
    pub(super) recorded: Mutex<Recorded>,
    pub(super) purges: Purges,
    bodies: Arc<Semaphore>,
    parsing: Arc<Semaphore>,
    changing: Arc<Semaphore>,
    pub(super) reads: Reads,
    pub(super) pace: Pace,
}

impl Service {
    /// A service that asks these, with what was recorded at start.
    #[must_use]
    pub fn new(
        directory: Arc<dyn Directory>,
        jobs: JobSender,
        readers: ReaderHandle,
        answers: Answers,
        telemetry: Arc<Telemetry>,
        recorded: Recorded,
    ) -> Self {
        Self {
            directory,
            jobs,
            readers,
            answers,
            telemetry,
            known: RwLock::default(),
            recorded: Mutex::new(recorded),
            purges: Purges::default(),
            bodies: Arc::new(Semaphore::new(MAX_BODIES_BYTES / BODY_UNIT_BYTES)),
            parsing: Arc::new(Semaphore::new(MAX_PARSING)),
            changing: Arc::new(Semaphore::new(MAX_CHANGING)),
            reads: Reads::default(),
            pace: Pace::default(),
        }
    }

    /// What the writer has for requests; see [`Answers::run`].
    #[must_use]
    pub fn answers(&self) -> &Answers {
        &self.answers
    }

    /// Whether everybody who reaches the broker is of this host, and may manage its streams.
    #[must_use]
    pub fn is_open_to_this_host(&self) -> bool {
        self.directory.open_to_this_host()
    }

    /// The stream of a name or an id.
    ///
    /// # Errors
    /// 404 if there is none, 409 if it has no log.
    pub fn find(&self, name: &str) -> Result<Arc<Stream>, ApiError> {
        let catalog = self.directory.catalog();
        let served = match name::uuid_of(name) {
            Some(uuid) => catalog.served().find(|stream| stream.stream_id.as_deref() == Some(&uuid)),
            None => catalog.find(name).filter(|stream| !(catalog.bounds.hidden)(&stream.name)),
        };
        match served {
            Some(served) => self.stream(served),
            None => Err(self.gone(name).unwrap_or_else(|| ApiError::no_stream(name))),
        }
    }

    /// Whether a stream that was found is in service still.
    ///
    /// # Errors
    /// 410 if it was deleted, 503 if it is out of service.
    pub(super) fn still_served(&self, stream: &Stream) -> Result<(), ApiError> {
        let catalog = self.directory.catalog();
        if catalog.find(&stream.served.name).is_some_and(|served| Arc::ptr_eq(served, &stream.served)) {
            return Ok(());
        }
        let stopped = || ApiError::unavailable("the stream is out of service; try again later");
        Err(self.gone(&stream.id).unwrap_or_else(stopped))
    }

    /// Forgets a stream that is out of service for ever.
    pub(super) fn forget(&self, stream: &Stream) {
        self.known.write().unwrap_or_else(PoisonError::into_inner).remove(&stream.journal_id);
    }

    /// The answer for the id of a deleted stream.
    fn gone(&self, id: &str) -> Option<ApiError> {
        let uuid = name::uuid_of(id)?;
        let recorded = self.recorded.lock().unwrap_or_else(PoisonError::into_inner);
        let deleted = recorded.deleted.iter().find(|deleted| deleted.stream_id == uuid)?;
        let state = if deleted.purged_us.is_some() { "deleted" } else { "deleting" };
        Some(ApiError::deleted(id).with(json!({"id": id, "name": deleted.name, "state": state})))
    }

    /// All streams with a log, by name.
    #[must_use]
    pub fn list(&self) -> Vec<Arc<Stream>> {
        let catalog = self.directory.catalog();
        let names = catalog.listed_names.iter().filter_map(|name| catalog.find(name));
        names.filter_map(|served| self.stream(served).ok()).collect()
    }

    fn stream(&self, served: &Arc<ServedStream>) -> Result<Arc<Stream>, ApiError> {
        let (Some(journal_id), Some(stream_id)) = (served.journal_id, &served.stream_id) else {
            let message =
                format!("the stream {:?} is not durable: it has no history to insert into or read", served.name);
            return Err(ApiError::new(409, "stream_not_durable", message));
        };
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner).get(&journal_id).cloned();
        if let Some(stream) = known.filter(|stream| Arc::ptr_eq(&stream.served, served)) {
            return Ok(stream);
        }
        let (version, source, left_out) = {
            let recorded = self.recorded.lock().unwrap_or_else(PoisonError::into_inner);
            let (version, source) = recorded.validators.get(&journal_id).cloned().unwrap_or_default();
            (version, source, recorded.left_out.get(&journal_id).copied().unwrap_or_default())
        };
        let validator = match source.as_deref().map(Validator::compile).transpose() {
            Ok(validator) => validator,
            Err(error) => {
                tracing::error!(%error, stream = served.name, "a recorded validator does not compile any more");
                return Err(ApiError::unavailable(
                    "the stream's validator does not compile in this version; replace it",
                ));
            }
        };
        let stream = Arc::new(Stream {
            served: Arc::clone(served),
            journal_id,
            id: name::id_of(stream_id),
            tokens: Tokens::new(stream_id),
            check: RwLock::new(Arc::new(Check { version, source, validator })),
            left_out: AtomicI64::new(left_out),
            pulse: Pulse::default(),
        });
        self.known.write().unwrap_or_else(PoisonError::into_inner).insert(journal_id, Arc::clone(&stream));
        Ok(stream)
    }

    /// Room for a body of so many bytes, to be had before it is read and held while it is used.
    ///
    /// # Errors
    /// 429 when there is none for a while.
    pub async fn room_for_body(&self, bytes: usize) -> Result<OwnedSemaphorePermit, ApiError> {
        let units = bytes.div_ceil(BODY_UNIT_BYTES).clamp(1, MAX_BODIES_BYTES / BODY_UNIT_BYTES) as u32;
        let room = Arc::clone(&self.bodies).acquire_many_owned(units);
        match tokio::time::timeout(MAX_QUEUE_WAIT, room).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_)) | Err(_) => Err(ApiError::busy("too many large requests are under way; try again")),
        }
    }

    /// Inserts the entries of a body. Returns what it did and whether the answer lists the entries.
    ///
    /// # Errors
    /// Everything in docs/batches.md, "Inserting".
    pub async fn insert(&self, stream: &Arc<Stream>, body: Bytes) -> Result<(Inserted, bool), ApiError> {
        let mut check = stream.check();
        let parsed = match stream.served.retired {
            Some(_) => Err(ApiError::retired()),
            None => self.parse(stream, &check, body.clone()).await,
        };
        let (parsed, keyed) = match parsed {
            Ok(parsed) => parsed,
            Err(refusal) => return self.inserted_before(stream, body, refusal).await,
        };
        let InsertBody { return_entry_ids, mut rows, .. } = parsed;
        for _ in 0..MAX_STALE {
            // Kept for another try, in case that the validator changes under way.
            let again = rows.clone();
            match self.commit(stream, &check, rows, keyed.clone()).await? {
                Outcome::Inserted { first, count, ts_us, duplicate } => {
                    return Ok((Inserted { first, count, ts_us, duplicate }, return_entry_ids));
                }
                Outcome::KeyReused => return Err(ApiError::key_reused()),
                Outcome::ReceiptsFull => {
                    return Err(ApiError::busy("too many idempotency keys are remembered; try without one, or later"));
                }
                Outcome::CommitFailed(detail) => {
                    self.still_served(stream)?;
                    return Err(ApiError::unavailable(format!("nothing was inserted: {detail}")));
                }
                Outcome::Stale => {
                    // The writer knows the new validator first; here it is known a moment later.
                    tokio::time::sleep(Duration::from_millis(2)).await;
                    check = stream.check();
                    rows = self.validated(Arc::clone(&check), again).await?;
                }
                Outcome::Ok { .. } | Outcome::Gap { .. } | Outcome::Lost => {
                    return Err(ApiError::unavailable("the writer gave no answer to an insert"));
                }
            }
        }
        Err(ApiError::unavailable("the stream's validator changes too often; try again"))
    }

    /// What the same insert did that is refused now: since then the stream may have got another validator or other columns,
    /// or been retired.
    async fn inserted_before(
        &self,
        stream: &Stream,
        body: Bytes,
        refusal: ApiError,
    ) -> Result<(Inserted, bool), ApiError> {
        if !matches!(refusal.status, 409 | 422) {
            return Err(refusal);
        }
        let Some(Signature { keyed, return_entry_ids }) = self.sign(Operation::Insert, body).await? else {
            return Err(refusal);
        };
        let (id, body_hash) = (stream.journal_id, keyed.body_hash);
        match self.errand(move |office| office.receipt(id, &keyed, now_us())).await? {
            Some(Receipt { body_hash: known, first_offset: first, count, ts_us }) if known == body_hash => {
                Ok((Inserted { first, count, ts_us, duplicate: true }, return_entry_ids))
            }
            Some(_) => Err(ApiError::key_reused()),
            None => Err(refusal),
        }
    }

    /// The signature of a body, if it has a key; on a thread of its own if that may take long.
    pub(super) async fn sign(&self, operation: Operation, body: Bytes) -> Result<Option<Signature>, ApiError> {
        let inline = body.len() <= INLINE_BODY_BYTES;
        let sign = move || Ok(Signature::of(operation, &body));
        if inline { sign() } else { self.apart(sign).await }
    }

    /// Reads a body and checks its entries, on a thread of its own if that may take long.
    async fn parse(
        &self,
        stream: &Arc<Stream>,
        check: &Arc<Check>,
        body: Bytes,
    ) -> Result<(InsertBody, Option<Keyed>), ApiError> {
        let inline = body.len() <= INLINE_BODY_BYTES;
        let (stream, check) = (Arc::clone(stream), Arc::clone(check));
        let parse = move || {
            let schema = stream.served.schema.as_ref();
            let parsed = PARSER.with_borrow_mut(|parser| body::parse(&body, schema, parser))?;
            let keyed = parsed.key.clone().map(|key| Keyed {
                operation: Operation::Insert,
                key,
                body_hash: Sha256::digest(&body).into(),
            });
            if let Some(validator) = &check.validator {
                validator.check(&parsed.rows, Instant::now() + VALIDATION)?;
            }
            Ok((parsed, keyed))
        };
        if inline { parse() } else { self.apart(parse).await }
    }

    async fn validated(&self, check: Arc<Check>, rows: RowBatch) -> Result<RowBatch, ApiError> {
        if check.validator.is_none() {
            return Ok(rows);
        }
        let run = move || {
            if let Some(validator) = &check.validator {
                validator.check(&rows, Instant::now() + VALIDATION)?;
            }
            Ok(rows)
        };
        self.apart(run).await
    }

    /// Runs `work` where it keeps nobody else waiting; a few at a time.
    ///
    /// # Errors
    /// Those of `work`, and 500 if it panics.
    pub async fn apart<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        Self::one_of(&self.parsing, work).await
    }

    /// The same for changes of streams, which wait for the disk and for one another and not for bodies.
    pub(super) async fn changing<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        Self::one_of(&self.changing, work).await
    }

    async fn one_of<T: Send + 'static>(
        room: &Arc<Semaphore>,
        work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let permit = Arc::clone(room).acquire_owned().await;
        let Ok(permit) = permit else { return Err(ApiError::unavailable("the broker stops")) };
        let work = move || {
            // Held until it is done, even if nobody waits for it any more.
            let _permit = permit;
            work()
        };
        tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(ended_by_panic(&error)))
    }

    /// Carries `work` to its end even if whoever asked for it goes away: what is on disk has to be known here, too.
    pub(super) async fn to_the_end<T: Send + 'static>(
        work: impl Future<Output = Result<T, ApiError>> + Send + 'static,
    ) -> Result<T, ApiError> {
        tokio::spawn(work).await.unwrap_or_else(|error| Err(ended_by_panic(&error)))
    }

    /// Has the writer do something between two transactions.
    pub(super) async fn errand<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Office<'_>) -> Result<T, JournalError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let (answer, answered) = oneshot::channel();
        let errand = Errand::new(move |office| {
            // Whoever has gone does not want to know.
            let _ = answer.send(work(office));
        });
        self.jobs.send(Job::Errand(errand)).map_err(|_| ApiError::unavailable("the broker stops"))?;
        match answered.await {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(error)) => {
                tracing::error!(%error, "the journal refuses");
                Err(ApiError::unavailable(error.to_string()))
            }
            Err(_) => Err(ApiError::unavailable("the broker stops")),
        }
    }

    /// The streams of the broker.
    pub(super) fn directory(&self) -> Arc<dyn Directory> {
        Arc::clone(&self.directory)
    }

    /// Brings rows to the writer and waits for what becomes of them.
    async fn commit(
        &self,
        stream: &Stream,
        check: &Check,
        rows: RowBatch,
        keyed: Option<Keyed>,
    ) -> Result<Outcome, ApiError> {
        let (count, bytes) = (rows.count() as i64, rows.body.len());
        self.reserve(&stream.served, count, bytes).await?;
        let (token, outcome) = self.answers.ticket();
        let append = Append {
            stream: stream.journal_id,
            token,
            claim: None,
            first_seq: None,
            rows,
            ts_us: now_us(),
            insert: Some(Box::new(Insert { keyed, validator_version: check.version })),
        };
        if self.jobs.send(Job::Append(append)).is_err() {
            self.answers.forget(token);
            stream.served.counters.queued_rows.fetch_sub(count, Relaxed);
            self.telemetry.writer.queued_bytes.fetch_sub(bytes as i64, Relaxed);
            return Err(ApiError::unavailable("the broker stops"));
        }
        outcome.await.map_err(|_| ApiError::unavailable("the broker stops"))
    }

    /// Waits for room in the writer's queue.
    async fn reserve(&self, served: &ServedStream, rows: i64, bytes: usize) -> Result<(), ApiError> {
        let deadline = Instant::now() + MAX_QUEUE_WAIT;
        let mut pause = Duration::from_millis(1);
        loop {
            if self.directory.catalog().has_room_for(bytes) && served.reserve(rows) {
                self.telemetry.writer.queued_bytes.fetch_add(bytes as i64, Relaxed);
                return Ok(());
            }
            if Instant::now() + pause > deadline {
                return Err(ApiError::busy("the stream's queue is full; try again"));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(50));
        }
    }
}

/// 500: work that ended by a panic.
fn ended_by_panic(error: &tokio::task::JoinError) -> ApiError {
    tracing::error!(%error, "a request ended by a panic");
    ApiError::new(500, "internal", "an error of the broker's own; see its log")
}
