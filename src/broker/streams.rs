//! Streams that come and go while the broker runs.
//!
//! Coming: the writer takes the stream up, its documents are written, and last it is put into the catalog, where
//! connections find it. Going is the way back: out of the catalog first, then its connections are closed, and the
//! writer lets go of it when they are gone.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};
use std::time::{Duration, Instant};

use streamcast_shards::Command;
use streamcast_shards::inbox::InboxSender;

use super::build::{self, Parts};
use super::error::BrokerError;
use super::restraint::Restraint;
use super::tables::Place;
use crate::batches::Answers;
use crate::config::{Config, StreamConfig};
use crate::journal::reader::{Page, PageRequest, ReaderHandle};
use crate::journal::{Errand, Job, JobSender, Office, StreamRecord};
use crate::lake::mover::Lake;
use crate::registry::Registry;
use crate::session::{Catalog, CatalogCell, Remote, ServedStream};
use crate::telemetry::Telemetry;
use crate::wire::row::row_of_frame;

/// How long the writer may take to come to an errand.
const ERRAND_TIMEOUT: Duration = Duration::from_secs(30);

/// How often a stop looks whether everybody is gone.
const STOP_POLL: Duration = Duration::from_millis(2);

/// Where the streams of a running broker are started and stopped. Its calls wait for the writer, for the disk and
/// for peers: they belong on a background thread.
pub struct Streams {
    config: Config,
    root: PathBuf,
    catalog: Arc<CatalogCell>,
    jobs: JobSender,
    inboxes: Vec<InboxSender<Command<Remote>>>,
    telemetry: Arc<Telemetry>,
    readers: ReaderHandle,
    lake: Arc<Lake>,
    /// How many streams came into service.
    started: AtomicU64,
    /// What is declared at run time, from when it is brought back.
    registry: OnceLock<Registry>,
    /// Where requests wait for rows.
    answers: OnceLock<Answers>,
    /// Held through a change, so that changes come one after the other.
    changing: Mutex<Restraint>,
}

impl std::fmt::Debug for Streams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Streams").field("root", &self.root).finish_non_exhaustive()
    }
}

impl Streams {
    pub(super) fn new(
        config: Config,
        catalog: Arc<CatalogCell>,
        jobs: JobSender,
        inboxes: Vec<InboxSender<Command<Remote>>>,
        telemetry: Arc<Telemetry>,
        readers: ReaderHandle,
        lake: Arc<Lake>,
    ) -> Self {
        let started = AtomicU64::new(config.streams.len() as u64);
        let root = lake.root().to_owned();
        let restraint = Restraint::new(Arc::clone(&telemetry));
        let (registry, answers, changing) = (OnceLock::new(), OnceLock::new(), Mutex::new(restraint));
        Self { config, root, catalog, jobs, inboxes, telemetry, readers, lake, started, registry, answers, changing }
    }

    /// From here on streams that this registry declares are its own to create, and nobody's to delete.
    pub(super) fn managed_by(&self, registry: &Registry) {
        // Only the first one counts; a broker has one.
        let _known = self.registry.set(registry.clone());
    }

    /// From here on requests that wait here for rows of a stream hear of it when it goes out of service.
    pub(super) fn heard_by(&self, answers: &Answers) {
        // Only the first one counts; a broker has one.
        let _known = self.answers.set(answers.clone());
    }

    /// Whether a stream of this name is declared through the control API, served or not.
    pub(super) fn is_managed(&self, name: &str) -> bool {
        self.registry.get().is_some_and(|registry| registry.declares(name))
    }

    /// How many streams came into service in this process, those of the configuration included.
    #[must_use]
    pub fn started(&self) -> u64 {
        self.started.load(Relaxed)
    }

    /// From here on connections to these names are closed 1001 and not 4404 as long as they are not served
    /// (wire.md section 9.3), until they are served or released.
    pub fn hold(&self, names: &[String]) {
        self.catalog.change(|catalog| catalog.holding(names));
    }

    /// A name that was held and is not served is unknown from here on.
    pub fn release(&self, name: &str) {
        self.catalog.change(|catalog| catalog.releasing(name));
    }

    /// What the journal records of a stream, served or not.
    ///
    /// # Errors
    /// When the writer has stopped or the journal refuses.
    pub fn record(&self, name: &str) -> Result<Option<StreamRecord>, BrokerError> {
        let name = name.to_owned();
        Ok(self.errand(move |office| office.record(&name))??)
    }

    /// The stored text of the row at an offset, if the log has it.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn row(&self, stream: u32, offset: i64) -> Result<Option<String>, BrokerError> {
        let (answer, answered) = mpsc::sync_channel(1);
        self.readers.page(PageRequest {
            stream,
            from: offset,
            until: offset.saturating_add(1),
            max_bytes: usize::MAX,
            filter: None,
            reply: Box::new(move |page| {
                // Nobody waits any more after the time-out.
                let _ = answer.send(page);
            }),
        });
        match answered.recv_timeout(ERRAND_TIMEOUT).map_err(|_| BrokerError::ReadersGone)? {
            Page::Failed(detail) => Err(BrokerError::Unreadable { detail }),
            Page::Rows { frames, rows, .. } if rows > 0 => {
                Ok(Some(String::from_utf8_lossy(row_of_frame(&frames)).into_owned()))
            }
            Page::Rows { .. } => Ok(None),
        }
    }

    /// The streams in service now.
    #[must_use]
    pub fn catalog(&self) -> Arc<Catalog> {
        self.catalog.current()
    }

    /// The stream that is served under a name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<Arc<ServedStream>> {
        self.catalog.current().find(name).cloned()
    }

    /// The files and tables behind the streams.
    #[must_use]
    pub fn lake(&self) -> &Arc<Lake> {
        &self.lake
    }

    /// Where jobs for the writer go.
    #[must_use]
    pub fn jobs(&self) -> &JobSender {
        &self.jobs
    }

    /// The configuration that the broker was started with.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The data root.
    #[must_use]
    pub fn root(&self) -> &std::path::Path {
        &self.root
    }

    /// Takes a stream into service: creates its log, or opens it if there is one.
    ///
    /// # Errors
    /// When a stream of that name is served already, its declaration is not valid or differs from its log, or the
    /// disk refuses. It is not served then.
    pub fn start(&self, declared: &StreamConfig) -> Result<Arc<ServedStream>, BrokerError> {
        build::check_name(declared)?;
        let mut one_at_a_time = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let _change = one_at_a_time.begin();
        if self.find(&declared.name).is_some() {
            return Err(BrokerError::Served { name: declared.name.clone() });
        }
        if declared.published.is_some() {
            let name = declared.name.clone();
            if self.errand(move |office| office.is_deleting(&name))?? {
                return Err(BrokerError::Deleting { name: declared.name.clone() });
            }
        }
        let schema = build::compile(declared)?;
        let (record, counters) = match build::spec(declared, schema.as_ref()) {
            None => (None, build::counters_of(declared, None)),
            Some(spec) => {
                let declaration = declared.clone();
                let (record, counters) = self.errand(move |office| {
                    let mut counters = None;
                    let record = office.attach(&spec, |record| {
                        let made = build::counters_of(&declaration, Some(record));
                        Arc::clone(counters.insert(made))
                    });
                    record.map(|record| (record, counters))
                })??;
                let counters = counters.unwrap_or_else(|| build::counters_of(declared, Some(&record)));
                (Some(record), counters)
            }
        };
        let settled = record.as_ref().zip(schema.as_ref()).map(|(record, schema)| {
            let place = Place { config: &self.config, declared, root: &self.root };
            place.settle(&self.lake, record, schema, &counters)
        });
        let documents = match settled.transpose() {
            Ok(documents) => documents,
            Err(error) => {
                if let Some(record) = &record {
                    let id = record.id;
                    self.errand(move |office| office.detach(id))?;
                }
                return Err(error);
            }
        };
        let parts = Parts { schema, record, documents, counters: Arc::clone(&counters) };
        let settings = build::settings(&self.config, declared);
        let catalog = self.catalog.change(|catalog| {
            let place = catalog.next_place();
            catalog.with(Arc::new(build::served(declared, settings, place, self.inboxes.len(), parts)))
        });
        self.telemetry.add_stream(counters);
        self.started.fetch_add(1, Relaxed);
        tracing::info!(stream = declared.name, "a stream came into service");
        catalog.find(&declared.name).cloned().ok_or_else(|| BrokerError::NotServed { name: declared.name.clone() })
    }

    /// Takes a stream out of service: who comes from now on is told that it is unknown, who is connected gets a
    /// 1001, publishers after the answers they are owed, and requests that wait for rows are answered. Returns when
    /// peers are gone, or after `patience`, and then frames that are still under way are refused.
    ///
    /// # Errors
    /// When no stream of that name is served, the writer has stopped, or rows could not be published; in the last
    /// case the stream is out of service nevertheless.
    pub fn stop(&self, name: &str, patience: Duration) -> Result<(), BrokerError> {
        self.take_out(name, patience, |stream| {
            if let (Some(answers), Some(journal_id)) = (self.answers.get(), stream.journal_id) {
                stream.is_over.store(true, SeqCst);
                answers.wake(journal_id);
            }
        })
    }

    /// As [`Streams::stop`], with what is done as soon as nobody finds the stream any more in place of answering requests
    /// that wait for its rows.
    pub(super) fn take_out(
        &self,
        name: &str,
        patience: Duration,
        once_out: impl FnOnce(&ServedStream),
    ) -> Result<(), BrokerError> {
        let mut one_at_a_time = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let _change = one_at_a_time.begin();
        let Some(stream) = self.find(name) else { return Err(BrokerError::NotServed { name: name.to_owned() }) };
        self.catalog.change(|catalog| catalog.without(name));
        once_out(&stream);
        for inbox in &self.inboxes {
            inbox.send(Command::App(Remote::StopStream { stream: stream.index }), 0);
        }
        let deadline = Instant::now() + patience;
        let counters = &stream.counters;
        while counters.subscribers.load(Relaxed) > 0 || counters.publishers.load(Relaxed) > 0 {
            if Instant::now() >= deadline {
                tracing::warn!(stream = name, "some peers did not close in time; the stream stops without them");
                break;
            }
            std::thread::sleep(STOP_POLL);
        }
        if let Some(id) = stream.journal_id {
            // Everything that was queued before is committed when the errand is run.
            self.errand(|_| ())?;
            // What cannot be published now waits in the journal; the stream stops nevertheless.
            let flushed = if self.lake.maintains(id) { self.lake.flush(name).map(|_| ()) } else { Ok(()) };
            self.lake.remove(id);
            self.telemetry.remove_stream(counters);
            self.errand(move |office| office.detach(id))?;
            flushed?;
        } else {
            self.telemetry.remove_stream(counters);
        }
        tracing::info!(stream = name, "a stream went out of service");
        Ok(())
    }

    /// Has the writer do something between two transactions, and waits for what comes of it.
    ///
    /// # Errors
    /// When the writer has stopped, or does not come to it in time.
    pub fn errand<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Office<'_>) -> T + Send + 'static,
    ) -> Result<T, BrokerError> {
        let (answer, answered) = mpsc::sync_channel(1);
        let errand = Errand::new(move |office| {
            // Nobody waits any more after the time-out.
            let _ = answer.send(work(office));
        });
        self.jobs.send(Job::Errand(errand)).map_err(|_| BrokerError::WriterGone)?;
        answered.recv_timeout(ERRAND_TIMEOUT).map_err(|_| BrokerError::WriterGone)
    }
}
