//! The lake of a data root: opened with the broker, which then has its rows moved in the background, or by a command on
//! a root that nobody serves.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::error::MoverError;
use super::replay::LakeArchive;
use super::settings::LakeSettings;
use super::shared::Shared;
use super::stream::{LakeStream, Moved};
use super::{background, clean, compact, evict, find, holes, publish, purge, repair, seal, tasks};
use crate::journal::reader::RowFilter;
use crate::journal::{Archive, JobSender, RowReader, StreamRecord};
use crate::lake::catalog::{Catalog, LogView};
use crate::lake::documents::Objects;
use crate::lake::store::Store;
use crate::lake::table::{Swept, Table};
use crate::telemetry::Telemetry;

/// How long a task that works when it is told to stop may go on, beyond the deadline of the stop.
const TASK_GRACE: Duration = Duration::from_millis(500);

/// The lake of a data root. Its calls wait, so they belong on threads that may; none may come from its own tasks.
pub struct Lake {
    shared: Arc<Shared>,
    runtime: Option<Runtime>,
    stop: watch::Sender<bool>,
    /// The tasks of each stream, by its number in the journal.
    tasks: Mutex<Vec<(u32, Vec<JoinHandle<()>>)>>,
}

impl std::fmt::Debug for Lake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lake").field("root", &self.shared.root).finish_non_exhaustive()
    }
}

/// What [`Lake::flush`] came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flushed {
    /// Everything before this offset is in files.
    pub sealed_end: i64,
    /// Everything before this offset is in the table.
    pub published_end: i64,
    /// Rows that were sealed now.
    pub rows: u64,
}

/// What a stop could not finish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unfinished {
    /// The stream.
    pub stream: String,
    /// Rows that are in no file.
    pub unsealed_rows: u64,
    /// Rows that are not in the table.
    pub unpublished_rows: u64,
    /// Why, if something failed.
    pub error: Option<String>,
}

impl Lake {
    /// Opens the catalog below the data root `root`, an absolute path whose lock the caller holds, beside the journal
    /// `journal`. Nothing moves yet.
    ///
    /// # Errors
    /// When the catalog cannot be opened or a thread cannot start.
    pub fn open(root: &Path, journal: &Path, settings: &LakeSettings) -> Result<Self, MoverError> {
        let shared = Arc::new(Shared::open(root, journal, settings)?);
        let runtime = background::start(&settings.cores, settings.shares_cores).map_err(|source| MoverError::Io {
            action: "start the threads of the lake below",
            path: root.to_owned(),
            source,
        })?;
        let (stop, _) = watch::channel(false);
        Ok(Self { shared, runtime: Some(runtime), stop, tasks: Mutex::default() })
    }

    /// Takes a stream into the lake, or takes it in anew when its log or its settings have changed. Files that a crash
    /// left of it are deleted, unless they can only be judged by a table that cannot be reached: they wait. With
    /// [`Lake::start`] done, its rows begin to move.
    ///
    /// # Errors
    /// When the catalog or the journal refuses, or its columns have no form as a table.
    pub fn add(&self, stream: &LakeStream<'_>) -> Result<(), MoverError> {
        self.remove(stream.record.id);
        let moved = Arc::new(Moved::new(&self.shared.root, &self.shared.catalog, stream)?);
        let view = moved.view(&self.shared.catalog)?;
        moved.counters.lake.saw(&seal::view_numbers(&view));
        seal::measure(&self.shared, &moved)?;
        self.block_on(async {
            clean::sweep_here(&self.shared, &moved, Duration::ZERO, false).await?;
            match repair::repair(&self.shared, &moved).await {
                Err(error) if error.is_transient() => {
                    tracing::warn!(stream = moved.name, %error, "what a crash left cannot be settled yet");
                    Ok(())
                }
                outcome => outcome,
            }
        })?;
        publish::look_at_lag(&self.shared, &moved)?;
        self.shared.streams.write().unwrap_or_else(PoisonError::into_inner).insert(moved.id, Arc::clone(&moved));
        if self.shared.jobs.get().is_some() {
            self.start_tasks(&moved);
        }
        Ok(())
    }

    /// Ends the work on a stream, when its current step is done. What is sealed and published stays as it is.
    pub fn remove(&self, stream: u32) {
        let moved = self.shared.streams.write().unwrap_or_else(PoisonError::into_inner).remove(&stream);
        if let Some(moved) = moved {
            moved.stopped.store(true, SeqCst);
            moved.left.notify_waiters();
        }
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        let ending: Vec<_> = tasks.extract_if(.., |(id, _)| *id == stream).flat_map(|(_, tasks)| tasks).collect();
        drop(tasks);
        self.end(ending, Instant::now() + Duration::from_secs(10));
    }

    /// Whether this process moves the rows of a stream by itself.
    #[must_use]
    pub fn maintains(&self, stream: u32) -> bool {
        self.shared.stream(stream).is_some_and(|stream| stream.settings.maintain)
    }

    /// Has rows that are kept no longer cut off soon and not within the hour, after what is kept has changed.
    pub fn retain_soon(&self, stream: u32) {
        if let Some(moved) = self.shared.stream(stream) {
            moved.retain_due.store(true, Relaxed);
        }
    }

    /// The way to a bucket, if a published prefix is in one.
    #[must_use]
    pub fn bucket(&self, published: Option<&str>) -> Option<Arc<dyn Objects>> {
        published.filter(|prefix| prefix.starts_with("s3://")).map(|_| Arc::new(self.shared.store.clone()) as _)
    }

    /// The stamp of the first row of a stream's current log, in microseconds, as far as it can be told.
    #[must_use]
    pub fn first_ts_us(&self, record: &StreamRecord) -> Option<i64> {
        let view = self.shared.catalog.find(&record.name, &record.log).ok();
        if let Some(first) = view.as_ref().and_then(|view| view.files.first()) {
            return Some(first.ts_us.0);
        }
        let from = record.floor.unwrap_or(record.first_offset);
        let read = |reader: &RowReader| {
            let mut first = None;
            reader.rows(record.id, from, i64::MAX, |_, ts_us, _| {
                first = Some(ts_us);
                false
            })?;
            Ok(first)
        };
        self.shared.read(read).ok().flatten()
    }

    /// Begins to move rows of the streams whose settings say so. The writer is told what it may delete.
    pub fn start(&self, jobs: JobSender, telemetry: Arc<Telemetry>) {
        // A second start changes nothing.
        let _ = self.shared.telemetry.set(telemetry);
        let _ = self.shared.jobs.set(jobs);
        self.shared.measure();
        for stream in self.shared.all() {
            self.start_tasks(&stream);
        }
    }

    /// What has left the journal, for the threads that read for replays.
    #[must_use]
    pub fn archive(&self) -> Arc<dyn Archive> {
        let handle = self.runtime.as_ref().map(|runtime| runtime.handle().clone());
        Arc::new(LakeArchive::new(Arc::clone(&self.shared), handle))
    }

    /// The catalog of files.
    #[must_use]
    pub fn catalog(&self) -> &Catalog {
        &self.shared.catalog
    }

    /// The stores of tables.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.shared.store
    }

    /// The data root.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.shared.root
    }

    /// The files of a stream's current log.
    ///
    /// # Errors
    /// When the stream is not in the lake.
    pub fn view(&self, stream: &str) -> Result<Arc<LogView>, MoverError> {
        self.shared.named(stream)?.view(&self.shared.catalog)
    }

    /// The table of a stream's current log; `None` if nothing was published yet.
    ///
    /// # Errors
    /// When the stream is not in the lake or the table cannot be read.
    pub fn table(&self, stream: &str) -> Result<Option<Table>, MoverError> {
        let stream = self.shared.named(stream)?;
        self.block_on(async { Ok(Table::open(&self.shared.store, &stream.location).await?) })
    }

    /// Seals everything that is in the journal now and publishes everything that is sealed. Where no writer runs, the
    /// journal keeps the rows until the caller deletes those before [`Flushed::sealed_end`].
    ///
    /// # Errors
    /// When the stream is not in the lake, or something could not be done; what was done is complete in itself.
    pub fn flush(&self, stream: &str) -> Result<Flushed, MoverError> {
        let stream = self.shared.named(stream)?;
        self.block_on(async {
            let rows = seal::seal_all(&self.shared, &stream, i64::MAX, true).await?;
            publish::publish(&self.shared, &stream).await?;
            publish::look_at_lag(&self.shared, &stream)?;
            let view = stream.view(&self.shared.catalog)?;
            Ok(Flushed { sealed_end: view.sealed_end, published_end: view.published_end, rows })
        })
    }

    /// Publishes everything that is sealed.
    ///
    /// # Errors
    /// As [`Lake::flush`].
    pub fn publish(&self, stream: &str) -> Result<(), MoverError> {
        let stream = self.shared.named(stream)?;
        self.block_on(async { publish::publish(&self.shared, &stream).await.map(|_| ()) })
    }

    /// Merges files until nothing is left to merge.
    ///
    /// # Errors
    /// As [`Lake::flush`].
    pub fn compact(&self, stream: &str) -> Result<(), MoverError> {
        let stream = self.shared.named(stream)?;
        self.block_on(async {
            while compact::compact(&self.shared, &stream).await? {}
            Ok(())
        })
    }

    /// Takes everything that is published out of the local tier, whatever the settings keep: replays read it no longer,
    /// unless the stream is declared with `replay_published`. Returns how many files left.
    ///
    /// # Errors
    /// As [`Lake::flush`].
    pub fn evict(&self, stream: &str) -> Result<usize, MoverError> {
        let stream = self.shared.named(stream)?;
        self.block_on(evict::evict_all(&self.shared, &stream))
    }

    /// Deletes what is due: states of the table that are too old, and files that nobody names any more.
    ///
    /// # Errors
    /// As [`Lake::flush`].
    pub fn clean(&self, stream: &str) -> Result<(), MoverError> {
        let stream = self.shared.named(stream)?;
        self.block_on(async {
            evict::evict_by_policy(&self.shared, &stream).await?;
            clean::empty_trash(&self.shared).await?;
            clean::expire(&self.shared, &stream).await
        })
    }

    /// Purges files of erased rows as far as it can be done now, and publishes which offsets hold none. Returns whether
    /// files that may hold such rows still wait to be deleted.
    ///
    /// # Errors
    /// As [`Lake::flush`].
    pub fn purge(&self, stream: &str) -> Result<bool, MoverError> {
        let stream = self.shared.named(stream)?;
        self.block_on(async {
            holes::publish_holes(&self.shared, &stream).await?;
            purge::purge(&self.shared, &stream, true).await
        })
    }

    /// Rows of a stream were erased: its files are purged soon. For a stream that is not here nothing happens.
    pub fn purge_soon(&self, stream: u32) {
        if let Some(stream) = self.shared.stream(stream) {
            stream.erased.notify_one();
        }
    }

    /// The latest erasure of a stream of whose rows, and of those of all erasures before it, nothing is left in files, as
    /// far as this process has found out.
    #[must_use]
    pub fn purged_through(&self, stream: u32) -> Option<i64> {
        let through = self.shared.stream(stream)?.purged_through.load(Relaxed);
        Some(through).filter(|through| *through != i64::MIN)
    }

    /// The offsets of matching rows of a stream that are not erased and that no replay gives, because they are in logs
    /// that are over or only in the table; ascending, and no more than `most` of them. Waits for the table's store.
    ///
    /// # Errors
    /// As [`Lake::flush`], and when a file is damaged.
    pub fn find_unreplayed(&self, stream: u32, matches: RowFilter, most: usize) -> Result<Vec<i64>, MoverError> {
        let Some(stream) = self.shared.stream(stream) else { return Ok(Vec::new()) };
        self.block_on(find::find(&self.shared, &stream, matches, most))
    }

    /// What all tasks share.
    #[cfg(test)]
    pub(super) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }

    /// A stream that is here.
    #[cfg(test)]
    pub(super) fn moved(&self, stream: &str) -> Arc<Moved> {
        self.shared.named(stream).expect("it is here")
    }

    /// Finds files that nothing refers to, in the table's store and here, and deletes them unless it is a dry run.
    ///
    /// # Errors
    /// As [`Lake::flush`].
    pub fn sweep(&self, stream: &str, dry_run: bool) -> Result<(Swept, Vec<PathBuf>), MoverError> {
        let stream = self.shared.named(stream)?;
        self.block_on(async {
            let here = clean::sweep_here(&self.shared, &stream, clean::SAFETY_AGE, dry_run).await?;
            Ok((clean::sweep(&self.shared, &stream, dry_run).await?, here))
        })
    }

    /// Runs something on the lake's threads and waits for it.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        match &self.runtime {
            Some(runtime) => runtime.block_on(future),
            // panics: never, the runtime is only taken when the lake is dropped
            None => unreachable!("the lake is dropped"),
        }
    }

    /// Seals and publishes everything, then ends all work, until `deadline` at the latest. The writer must have
    /// committed everything by now, and still run. Returns the streams that are not finished.
    pub fn stop(&self, deadline: Instant) -> Vec<Unfinished> {
        for stream in self.shared.all() {
            stream.stopped.store(true, Relaxed);
        }
        self.stop.send_replace(true);
        let tasks: Vec<_> = {
            let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
            tasks.drain(..).flat_map(|(_, tasks)| tasks).collect()
        };
        self.end(tasks, deadline);
        let mut unfinished = Vec::new();
        for stream in self.shared.all().into_iter().filter(|stream| stream.settings.maintain) {
            let error = self.finish(&stream, deadline).err().map(|error| error.to_string());
            let end_offset = stream.counters.end_offset.load(Acquire);
            let Ok(view) = stream.view(&self.shared.catalog) else { continue };
            let left = |end: i64| u64::try_from(end_offset - end).unwrap_or(0);
            let (unsealed_rows, unpublished_rows) = (left(view.sealed_end), left(view.published_end));
            if error.is_some() {
                unfinished.push(Unfinished { stream: stream.name.clone(), unsealed_rows, unpublished_rows, error });
            }
        }
        self.shared.close_readers();
        unfinished
    }

    fn finish(&self, stream: &Arc<Moved>, deadline: Instant) -> Result<(), MoverError> {
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(100));
        // Without `flush_every` rows are only ever sealed when there are enough.
        let flush = stream.settings.flush_every.is_some();
        self.block_on(async {
            let work = async {
                if flush {
                    seal::seal_all(&self.shared, stream, i64::MAX, true).await?;
                }
                publish::publish(&self.shared, stream).await?;
                holes::publish_holes(&self.shared, stream).await?;
                publish::look_at_lag(&self.shared, stream)
            };
            match tokio::time::timeout(left, work).await {
                Ok(outcome) => outcome,
                Err(_) => Err(MoverError::Broken("the time for stopping was up".to_owned())),
            }
        })
    }

    fn start_tasks(&self, stream: &Arc<Moved>) {
        if !stream.settings.maintain && !stream.settings.purge {
            return;
        }
        let Some(runtime) = &self.runtime else { return };
        let _entered = runtime.enter();
        let stop = self.stop.subscribe();
        let started = if stream.settings.maintain {
            tasks::start(&self.shared, stream, &stop)
        } else {
            vec![tasks::start_purging(&self.shared, stream, &stop)]
        };
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).push((stream.id, started));
    }

    /// Waits until tasks have ended, and breaks off those that have not in time.
    fn end(&self, tasks: Vec<JoinHandle<()>>, deadline: Instant) {
        if tasks.is_empty() {
            return;
        }
        self.block_on(async {
            let until = tokio::time::Instant::from_std(deadline + TASK_GRACE);
            for mut task in tasks {
                if tokio::time::timeout_at(until, &mut task).await.is_err() {
                    task.abort();
                }
            }
        });
    }
}

impl Drop for Lake {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Some(runtime) = self.runtime.take() {
            // A merge may be under way; nobody waits for it, the next start deletes what it leaves.
            runtime.shutdown_timeout(TASK_GRACE);
        }
    }
}
