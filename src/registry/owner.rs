//! The registry as the broker and the HTTP side hold it: calls in, answers out. Its worker does what was accepted.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use sha2::{Digest as _, Sha256};

use super::book::Book;
use super::definition::{object, text};
use super::error::RegistryError;
use super::fault::Fault;
use super::judge::{Change, Known, judge};
use super::profile::Profile;
use super::record::{self, Desired, Record, number};
use super::runtime::StreamRuntime;
use super::settings::RegistrySettings;
use super::store::{Receipt, ReceiptKey, Store};
use crate::schema::json::Json;

/// A mutation: what is to be changed, who asks, and under which key its receipt is kept.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    /// The principal's name.
    pub principal: &'a str,
    /// The field `Idempotency-Key`, already checked.
    pub key: &'a str,
    /// The method.
    pub method: &'a str,
    /// The change.
    pub change: Change<'a>,
}

/// The registry of a broker, or the place of one. Clones are the same one.
#[derive(Clone)]
pub struct Registry(pub(super) Arc<Inner>);

pub(super) struct Inner {
    pub(super) settings: RegistrySettings,
    pub(super) boot_id: String,
    /// Held while something is judged and kept, so that changes come one after the other. `None` without a registry.
    pub(super) store: Option<Mutex<Store>>,
    /// Held for a moment only, and inside of `store` where both are.
    pub(super) book: Mutex<Book>,
    pub(super) queue: Mutex<Queue>,
    pub(super) queued: Condvar,
    pub(super) calls: AtomicUsize,
}

/// What the worker is to do.
#[derive(Default)]
pub(super) struct Queue {
    /// Operations in the order they were accepted.
    pub(super) waiting: VecDeque<String>,
    /// Whether streams have been brought back to what they shall be.
    pub(super) open: bool,
    pub(super) closing: bool,
    /// Whether a stream came into service during the start, and with it the background work on tables.
    pub(super) maintained: bool,
    /// Whether the worker has ended, or never began.
    pub(super) idle: bool,
}

impl Registry {
    /// A broker without a registry: it can be asked and has nothing to manage.
    #[must_use]
    pub fn none(settings: RegistrySettings) -> Self {
        Self::new(settings, None, Book::default())
    }

    /// Opens the registry of a data root, and makes it if it is not there. Nothing is served before
    /// [`Registry::recover`].
    ///
    /// # Errors
    /// When the database cannot be opened, or a stream of it is in the configuration as well.
    pub fn open(root: &Path, settings: RegistrySettings) -> Result<Self, RegistryError> {
        let (store, loaded) = Store::open(root, &settings.broker_id)?;
        if let Some(twice) = loaded.records.iter().find(|record| settings.static_names.contains(&record.name)) {
            return Err(RegistryError::Twice { name: twice.name.clone() });
        }
        let waiting = loaded.pending.iter().map(|operation| operation.id.clone()).collect();
        let registry = Self::new(settings, Some(store), Book::new(loaded));
        registry.0.queue().waiting = waiting;
        Ok(registry)
    }

    fn new(settings: RegistrySettings, store: Option<Store>, book: Book) -> Self {
        let queue = Queue { open: store.is_none(), idle: true, ..Queue::default() };
        Self(Arc::new(Inner {
            settings,
            boot_id: uuid::Uuid::new_v4().simple().to_string(),
            store: store.map(Mutex::new),
            book: Mutex::new(book),
            queue: Mutex::new(queue),
            queued: Condvar::new(),
            calls: AtomicUsize::new(0),
        }))
    }

    /// The host's side.
    #[must_use]
    pub fn settings(&self) -> &RegistrySettings {
        &self.0.settings
    }

    /// Whether there is a registry.
    #[must_use]
    pub fn is_managed(&self) -> bool {
        self.0.store.is_some()
    }

    /// The declared streams, served or not.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.0.book().records.keys().cloned().collect()
    }

    /// Whether a stream of this name is declared, served or not.
    #[must_use]
    pub fn declares(&self, name: &str) -> bool {
        self.0.book().records.contains_key(name)
    }

    /// The streams that are to be served, by what was declared last.
    #[must_use]
    pub fn wanted(&self) -> Vec<String> {
        let book = self.0.book();
        let wanted = book.records.values().filter(|record| record.desired != Desired::Stopped);
        wanted.map(|record| record.name.clone()).collect()
    }

    /// Brings every stream back to what it shall be, ends what was under way when the broker ended, and starts the
    /// worker, whose thread calls `settle` first. Blocks until all of that is done. Must be called once.
    ///
    /// # Errors
    /// When the worker's thread cannot start.
    pub fn recover(
        &self,
        runtime: Arc<dyn StreamRuntime>,
        settle: impl FnOnce() + Send + 'static,
    ) -> Result<(), RegistryError> {
        super::worker::recover(&self.0, &runtime);
        super::worker::start(self.0.clone(), runtime, settle)
    }

    /// Lets calls under way end, takes no more, and waits for the operation under way, `patience` at most. What has
    /// not begun is done after the next start. True if the worker has ended.
    pub fn close(&self, patience: std::time::Duration) -> bool {
        let mut queue = self.0.queue();
        queue.closing = true;
        self.0.queued.notify_all();
        let until = std::time::Instant::now() + patience;
        while !queue.idle {
            let left = until.saturating_duration_since(std::time::Instant::now());
            if left.is_zero() {
                return false;
            }
            queue = self.0.queued.wait_timeout(queue, left).unwrap_or_else(|poisoned| poisoned.into_inner()).0;
        }
        true
    }

    /// From now on calls are refused; the worker goes on.
    pub fn refuse_calls(&self) {
        self.0.queue().closing = true;
        self.0.queued.notify_all();
    }

    /// Whether calls are taken: recovered, and not closing.
    ///
    /// # Errors
    /// [`Fault::BrokerUnavailable`] if not.
    pub fn check_open(&self) -> Result<(), Fault> {
        let queue = self.0.queue();
        if queue.open && !queue.closing { Ok(()) } else { Err(Fault::BrokerUnavailable) }
    }

    /// `GET /control/v1`.
    #[must_use]
    pub fn capabilities(&self) -> Json {
        let settings = &self.0.settings;
        let profiles = settings.rules.profiles.iter().map(|(name, profile)| (name.clone(), profile.to_json()));
        let guarded = settings.history_guards.keys().map(|name| text(name));
        object([
            ("version", Json::Int(1)),
            ("broker_id", text(&settings.broker_id)),
            ("boot_id", text(&self.0.boot_id)),
            ("transport_max_bytes", Json::Int(i64::from(settings.rules.transport_max_bytes))),
            ("control_max_bytes", number(settings.control_max_bytes as u64)),
            ("max_pending", number(settings.max_pending as u64)),
            ("storage_profiles", Json::Object(profiles.collect())),
            ("history_prefix_protected", Json::Array(guarded.collect())),
            (
                "wire_versions",
                object([("write", Json::Int(4)), ("read", Json::Array(vec![Json::Int(4), Json::Int(5)]))]),
            ),
        ])
    }

    /// `GET /control/v1/streams/{name}`: the view and its revision.
    ///
    /// # Errors
    /// [`Fault::UnknownStream`], or [`Fault::ProfileRevisionChanged`].
    pub fn view(&self, name: &str) -> Result<(Json, u64), Fault> {
        let book = self.0.book();
        let record = book.records.get(name).ok_or(Fault::UnknownStream)?;
        Ok((self.0.view(&book, record)?, record.revision))
    }

    /// `GET /control/v1/streams`: the names for which `visible` holds, `limit` of them from `cursor` on.
    ///
    /// # Errors
    /// [`Fault::CollectionChanged`] for a cursor of another state, and as [`Registry::view`].
    pub fn list(
        &self,
        limit: usize,
        cursor: Option<&super::cursor::Cursor>,
        visible: impl Fn(&str) -> bool,
    ) -> Result<Json, Fault> {
        use std::ops::Bound::{Excluded, Unbounded};
        let book = self.0.book();
        if cursor.is_some_and(|cursor| cursor.collection != book.collection) {
            return Err(Fault::CollectionChanged);
        }
        let after = cursor.map_or(Unbounded, |cursor| Excluded(cursor.after.as_str()));
        let mut shown = book.records.range::<str, _>((after, Unbounded)).filter(|(name, _)| visible(name));
        let page: Vec<&Record> = shown.by_ref().take(limit).map(|(_, record)| record).collect();
        let next = match (shown.next(), page.last()) {
            (Some(_), Some(last)) => {
                text(&super::cursor::Cursor { collection: book.collection, after: last.name.clone() }.to_text())
            }
            _ => Json::Null,
        };
        let streams: Result<Vec<Json>, Fault> = page.into_iter().map(|record| self.0.view(&book, record)).collect();
        Ok(object([("revision", number(book.collection)), ("streams", Json::Array(streams?)), ("next_cursor", next)]))
    }

    /// `GET /control/v1/operations/{id}`: the name of its stream, and the operation. May wait for the disk.
    ///
    /// # Errors
    /// [`Fault::UnknownOperation`], or [`Fault::InternalError`] if the database fails.
    pub fn operation(&self, id: &str) -> Result<(String, Json), Fault> {
        if let Some(operation) = self.0.book().pending.get(id) {
            return Ok((operation.name.clone(), operation.to_json()));
        }
        let Some(store) = self.0.store() else { return Err(Fault::UnknownOperation) };
        match store.operation(id) {
            Ok(Some(operation)) => Ok((operation.name.clone(), operation.to_json())),
            Ok(None) => Err(Fault::UnknownOperation),
            Err(error) => Err(internal(&error)),
        }
    }

    /// Judges a mutation, keeps it with its receipt, and has it done (wire.md section 11.4, checks 7 to 15). Waits for
    /// the disk; what was accepted stays so whoever goes away.
    ///
    /// # Errors
    /// The first check that fails.
    pub fn mutate(&self, call: Call<'_>) -> Result<Receipt, Fault> {
        let inner = &*self.0;
        if inner.queue().closing {
            return Err(Fault::ControlEnded);
        }
        let _entered = Entered::new(&inner.calls, inner.settings.max_pending).ok_or(Fault::ControlBusy)?;
        let name = call.change.name;
        if inner.settings.static_names.contains(name) {
            return Err(Fault::StaticStream);
        }
        let mut store = inner.store().ok_or(Fault::ManagementDisabled)?;
        let digest = digest(&call);
        match store.receipt(call.principal, call.key) {
            Ok(None) => {}
            Ok(Some((kept, receipt))) if kept == digest => return Ok(receipt),
            Ok(Some(_)) => return Err(Fault::IdempotencyMismatch),
            Err(error) => return Err(internal(&error)),
        }
        let id = uuid::Uuid::new_v4().simple().to_string();
        let closing = inner.queue().closing;
        let accepted = {
            let book = inner.book();
            let record = book.records.get(name);
            let known = Known {
                rules: &inner.settings.rules,
                guarded: inner.settings.history_guards.contains_key(name),
                record,
                pending: record.and_then(|record| book.pending_of(record)),
                state: book.state(name),
                others_pending: book.others_pending(name),
                max_pending: inner.settings.max_pending,
                closing,
            };
            judge(call.change, known, id)?
        };
        let key = ReceiptKey { principal: call.principal, key: call.key, digest };
        store.accept(&accepted.record, &accepted.operation, key, accepted.no_op).map_err(|error| internal(&error))?;
        let receipt = Receipt {
            no_op: accepted.no_op,
            operation_id: accepted.operation.id.clone(),
            revision: accepted.record.revision,
        };
        let no_op = accepted.no_op;
        inner.book().accept(accepted);
        if !no_op {
            inner.queue().waiting.push_back(receipt.operation_id.clone());
            inner.queued.notify_all();
        }
        Ok(receipt)
    }
}

impl Inner {
    pub(super) fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(super) fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(super) fn store(&self) -> Option<MutexGuard<'_, Store>> {
        Some(self.store.as_ref()?.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
    }

    /// The profile a stream was declared under.
    ///
    /// # Errors
    /// [`Fault::ProfileRevisionChanged`] if the host has changed or removed it.
    pub(super) fn profile(&self, record: &Record) -> Result<&Profile, Fault> {
        let profile = self.settings.rules.profiles.get(&record.definition.storage_profile);
        profile.filter(|profile| profile.revision == record.profile_revision).ok_or(Fault::ProfileRevisionChanged)
    }

    fn view(&self, book: &Book, record: &Record) -> Result<Json, Fault> {
        let profile = self.profile(record)?;
        let observed = book.observed.get(&record.name).ok_or(Fault::InternalError)?;
        Ok(record::view(record, profile, observed, &self.boot_id))
    }
}

/// One of the calls under way.
pub(super) struct Entered<'a>(&'a AtomicUsize);

impl<'a> Entered<'a> {
    pub(super) fn new(calls: &'a AtomicUsize, limit: usize) -> Option<Self> {
        let entered = calls.fetch_update(SeqCst, SeqCst, |calls| (calls < limit).then_some(calls + 1));
        entered.ok().map(|_| Self(calls))
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

/// What makes two calls the same: method, name, kind, body with its key order, and both preconditions.
fn digest(call: &Call<'_>) -> [u8; 32] {
    let change = &call.change;
    let tag = |tag: Option<&str>| tag.map_or(Json::Null, text);
    let parts = Json::Array(vec![
        text(call.method),
        text(change.name),
        text(change.kind.word()),
        change.body.clone(),
        tag(change.if_match),
        tag(change.if_none_match),
    ]);
    Sha256::digest(parts.to_text()).into()
}

fn internal(error: &RegistryError) -> Fault {
    tracing::error!(%error, "a control call failed");
    Fault::InternalError
}
