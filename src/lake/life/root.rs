//! A data root that no broker serves, as the commands work on it: one step at a time, each waited for.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::future::FutureExt as _;

use super::error::LifeError;
use super::estate::{Estate, Grounds};
use super::ingest::{self, Load, LoadError, Loaded, Loading, Target};
use super::migrate::{Migrated, migrate};
use super::moving::{LakeMoving, add};
use super::restore::{Restored, Wanted, restore};
use super::retain::{Passed, preview, retain, retention_pass};
use super::retire::{retire, revive};
use super::{finish, reconcile, time};
use crate::journal::{self, Journal, JournalSettings};
use crate::lake::documents::{Current, Declared, Documents, LiveLog, Retirement, ensure};
use crate::lake::mover::{Lake, LakeSettings, MoverSettings};
use crate::schema::Schema;
use crate::stream::record::StreamRecord;

/// What is in a published table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Published {
    /// Its rows.
    pub rows: u64,
    /// The offset after the last of them.
    pub end: i64,
}

/// What is chosen for a stream, as far as it is not recorded.
#[derive(Debug, Clone, Default)]
pub struct Chosen {
    /// Where its tables are to be, as in [`Declared::published`]. It counts for a stream that was made and never served.
    pub published: Option<String>,
    /// How its rows move.
    pub moving: MoverSettings,
}

/// A data root, held for this process alone.
pub struct Root {
    pub(super) root: PathBuf,
    pub(super) lake: Arc<Lake>,
    pub(super) journal: Journal,
    moving: LakeMoving,
    streams: BTreeMap<String, Chosen>,
    others: MoverSettings,
}

impl std::fmt::Debug for Root {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Root").field("root", &self.root).finish_non_exhaustive()
    }
}

impl Root {
    /// Takes the data root for this process, and does what a crash left to do.
    ///
    /// # Errors
    /// When a broker has it, or something in it cannot be read or written.
    pub fn open(root: &Path, settings: &LakeSettings) -> Result<Self, LifeError> {
        let mut journal = journal::open(root, JournalSettings::default())?;
        let root = journal.root().to_owned();
        reconcile::reconcile(&root, &mut journal)?;
        let lake = Arc::new(Lake::open(&root, journal.path(), settings)?);
        reconcile::follow_files(&root, lake.catalog(), &mut journal)?;
        let moving = LakeMoving(Arc::clone(&lake));
        Ok(Self { root, lake, journal, moving, streams: BTreeMap::new(), others: MoverSettings::default() })
    }

    /// Says what is chosen for streams by name, and how the rows of all others move.
    #[must_use]
    pub fn choosing(mut self, streams: BTreeMap<String, Chosen>, others: MoverSettings) -> Self {
        (self.streams, self.others) = (streams, others);
        self
    }

    /// As [`migrate`].
    ///
    /// # Errors
    /// As there.
    pub fn migrate(
        &mut self,
        stream: &str,
        schema: &Schema,
        sort_by: Option<&[String]>,
    ) -> Result<Migrated, LifeError> {
        self.add(stream)?;
        self.with(async |estate| migrate(estate, stream, schema, sort_by).await)
    }

    /// As [`retire`].
    ///
    /// # Errors
    /// As there.
    pub fn retire(&mut self, stream: &str) -> Result<Retirement, LifeError> {
        self.add(stream)?;
        let retirement = self.with(async |estate| retire(estate, stream).await)?;
        // The table has everything, and replays read it from there.
        self.lake.evict(stream)?;
        Ok(retirement)
    }

    /// As [`revive`].
    ///
    /// # Errors
    /// As there.
    pub fn revive(&mut self, stream: &str) -> Result<LiveLog, LifeError> {
        self.with(async |estate| revive(estate, stream).await)
    }

    /// As [`restore`].
    ///
    /// # Errors
    /// As there.
    pub fn restore(&mut self, wanted: &Wanted<'_>) -> Result<Restored, LifeError> {
        self.with(async |estate| restore(estate, wanted).await)
    }

    /// As [`retain`].
    ///
    /// # Errors
    /// As there.
    pub fn retain(&mut self, stream: &str, window_us: Option<i64>) -> Result<(), LifeError> {
        self.with(async |estate| {
            let (_, documents, _) = estate.find(stream).await?;
            retain(&documents, stream, window_us).await
        })
    }

    /// What a retention pass would do now, under `window_us` or what is set.
    ///
    /// # Errors
    /// As [`retention_pass`], and when there is no such stream.
    pub fn preview_retention(&mut self, stream: &str, window_us: Option<Option<i64>>) -> Result<Passed, LifeError> {
        self.with(async |estate| preview(estate.grounds, stream, window_us, time::now_us()).await)
    }

    /// One retention pass over a stream; see [`retention_pass`].
    ///
    /// # Errors
    /// As there.
    pub fn retention_pass(&mut self, stream: &str) -> Result<Passed, LifeError> {
        self.with(async |estate| retention_pass(estate.grounds, stream, time::now_us()).await)
    }

    /// Moves every row of a stream into its published table; with `evict` nothing of them stays anywhere else.
    ///
    /// # Errors
    /// When the stream is not there, or rows cannot be moved.
    pub fn flush(&mut self, stream: &str, evict: bool) -> Result<Published, LifeError> {
        let (record, current) = self.add(stream)?;
        if current.document.retirement.is_none() {
            let flushed = self.lake.flush(stream)?;
            self.journal.evict(record.id, flushed.sealed_end)?;
        }
        if evict {
            self.lake.evict(stream)?;
        }
        let log = self.lake.view(stream)?;
        Ok(Published { rows: log.rows(), end: log.published_end })
    }

    /// Loads files into a stream; their rows follow those that are there. `progress` is told now and then.
    ///
    /// # Errors
    /// When the stream is not there or retired, a source does not fit, or something cannot be read or written; the
    /// error says what is loaded nevertheless.
    pub fn ingest(&mut self, load: &Load<'_>, progress: &mut dyn FnMut(Loading)) -> Result<Loaded, LoadError> {
        let (record, current) = self.find(load.stream)?;
        if current.document.retirement.is_some() {
            return Err(LifeError::Retired { stream: load.stream.to_owned() }.into());
        }
        let live = &current.document.live_log;
        let layout = finish::layout(load.stream, live)?;
        let sources = ingest::open(load, &layout)?;
        self.add(load.stream)?;
        // Files follow each other in offsets, so what is in the journal goes first.
        let flushed = self.lake.flush(load.stream)?;
        self.journal.evict(record.id, flushed.sealed_end)?;
        let log = self.lake.view(load.stream)?;
        let target = Target {
            root: &self.root,
            catalog: self.lake.catalog(),
            log: &log,
            live,
            layout: &layout,
            end: record.end_offset,
            last_ts_us: self.journal.last_ts_us(record.id).unwrap_or(0),
        };
        let journal = &mut self.journal;
        let mut committed = |end, ts_us| Ok(journal.advance(record.id, end, ts_us).map(|_| ())?);
        let loaded = ingest::run(&target, load, sources, &mut committed, progress)?;
        self.lake
            .publish(load.stream)
            .map_err(|error| LoadError { loaded: Some(loaded), cause: Box::new(error.into()) })?;
        Ok(loaded)
    }

    /// A stream's record and document. A stream that was made and never served gets its first document now.
    pub(super) fn find(&self, stream: &str) -> Result<(StreamRecord, Current), LifeError> {
        let missing = || LifeError::NoStream { stream: stream.to_owned() };
        let record = self.journal.streams().into_iter().find(|record| record.name == stream).ok_or_else(missing)?;
        let documents = Documents::new(&self.root, stream, None);
        // Only the disk is asked, so there is nothing to wait for.
        let mut current = documents.current().now_or_never().transpose()?.flatten();
        if current.is_none() {
            let declared = Declared {
                published: self.streams.get(stream).and_then(|chosen| chosen.published.as_deref()),
                first_ts_us: self.journal.last_ts_us(record.id).filter(|_| record.end_offset > record.first_offset),
                bucket: Some(Arc::new(self.lake.store().clone())),
            };
            ensure(&self.root, &record, &declared)?;
            current = documents.current().now_or_never().transpose()?.flatten();
        }
        Ok((record, current.ok_or_else(missing)?))
    }

    /// Takes a stream into the lake, so that its rows can be moved.
    pub(super) fn add(&self, stream: &str) -> Result<(StreamRecord, Current), LifeError> {
        let (record, current) = self.find(stream)?;
        let settings = self.streams.get(stream).map_or(&self.others, |chosen| &chosen.moving);
        add(&self.lake, &record, &current.document.live_log, settings)?;
        Ok((record, current))
    }

    fn with<T>(&mut self, work: impl AsyncFnOnce(&mut Estate<'_>) -> Result<T, LifeError>) -> Result<T, LifeError> {
        let mut estate = Estate {
            grounds: Grounds { root: &self.root, store: self.lake.store(), catalog: self.lake.catalog() },
            ledger: &mut self.journal,
            moving: &self.moving,
        };
        self.lake.block_on(work(&mut estate))
    }
}
