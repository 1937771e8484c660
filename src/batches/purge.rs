//! Taking the bytes of erased rows away: out of the journal, out of files and tables, and out of what is free.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::change::TRY_AGAIN;
use super::error::ApiError;
use super::service::Service;
use crate::session::now_us;

/// How long is waited before what is left is looked at again: twice as long each time, since it may be there for as long
/// as the table's readers have.
const FIRST_WAIT: Duration = Duration::from_millis(250);
const LAST_WAIT: Duration = Duration::from_secs(10);

/// How often the journal's free pages are overwritten and its log begins anew, at most: commits wait for the latter.
const SCRUB_EVERY: Duration = Duration::from_secs(10);

/// The streams that are being purged. Each has one task, however many erasures there are.
#[derive(Default)]
pub(super) struct Purges {
    running: Mutex<HashMap<u32, Arc<Notify>>>,
    /// When the journal was scrubbed last; held while it is.
    scrubbed: tokio::sync::Mutex<Option<Instant>>,
}

/// How far the journal is purged of a stream's erased rows, by the latest erasure.
struct Journal {
    /// Batches have none of them.
    rewritten: i64,
    /// Nothing in the file or its log has any of them.
    scrubbed: i64,
}

impl Purges {
    /// Tells the task of a stream that there is more to do; if there is none, it is the caller's to be it.
    fn begin(&self, stream: u32) -> Option<Arc<Notify>> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(more) = running.get(&stream) {
            more.notify_one();
            return None;
        }
        Some(Arc::clone(running.entry(stream).or_default()))
    }

    /// Ends the task of a stream, unless it was told that there is more to do.
    fn end(&self, stream: u32, more: &Notify) -> bool {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let told = futures_util::FutureExt::now_or_never(more.notified()).is_some();
        if !told {
            running.remove(&stream);
        }
        !told
    }
}

impl Service {
    /// Takes the bytes of a stream's erased rows away, in the background, until they are gone.
    pub(super) fn purge(self: &Arc<Self>, stream: u32) {
        let Some(more) = self.purges.begin(stream) else { return };
        let service = Arc::clone(self);
        tokio::spawn(async move {
            let mut journal = Journal { rewritten: i64::MIN, scrubbed: i64::MIN };
            let mut wait = FIRST_WAIT;
            loop {
                match service.purge_pass(stream, &mut journal).await {
                    Ok(false) if service.purges.end(stream, &more) => return,
                    Ok(_) => {}
                    Err(error) => {
                        tracing::warn!(%error, stream, "erased rows cannot be purged yet");
                        wait = TRY_AGAIN;
                    }
                }
                let told = tokio::time::timeout(wait, more.notified()).await.is_ok();
                wait = if told { FIRST_WAIT } else { (wait * 2).min(LAST_WAIT) };
            }
        });
    }

    /// Does what can be done now. Returns whether anything is left to do.
    async fn purge_pass(&self, stream: u32, journal: &mut Journal) -> Result<bool, ApiError> {
        let unpurged = self.errand(move |office| office.unpurged(stream)).await?;
        let (Some(first), Some(newest)) = (unpurged.first().copied(), unpurged.last().copied()) else {
            return Ok(false);
        };
        if newest > journal.rewritten {
            self.directory().purge_soon(stream);
            let mut from = Some(i64::MIN);
            while let Some(at) = from {
                from = self.errand(move |office| office.purge_step(stream, at)).await?;
                tokio::task::yield_now().await;
            }
            journal.rewritten = newest;
        }
        if journal.rewritten > journal.scrubbed && self.scrub().await? {
            journal.scrubbed = journal.rewritten;
        }
        let through = self.directory().purged_through(stream).map(|through| through.min(journal.scrubbed));
        if let Some(through) = through.filter(|through| *through >= first) {
            self.errand(move |office| office.note_purged(stream, through, now_us())).await?;
        }
        // What is left, or that nothing is, is found out by the next pass.
        Ok(true)
    }

    /// Overwrites what is free in the journal, for rows that were sealed have left pages behind; false if it has to be
    /// tried again later.
    async fn scrub(&self) -> Result<bool, ApiError> {
        let mut scrubbed = self.purges.scrubbed.lock().await;
        if scrubbed.is_some_and(|at| at.elapsed() < SCRUB_EVERY) {
            return Ok(false);
        }
        while self.errand(|office| office.scrub_step()).await? {
            tokio::task::yield_now().await;
        }
        if !self.errand(|office| office.renew_log()).await? {
            return Ok(false);
        }
        *scrubbed = Some(Instant::now());
        Ok(true)
    }
}
