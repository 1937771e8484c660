//! The tasks of a stream: one for each kind of work, each on its own clock, started again when it fails.

use std::future::Future;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::error::MoverError;
use super::shared::Shared;
use super::stream::Moved;
use super::{clean, compact, evict, gather, holes, publish, purge, seal};

/// Waits after a first, second, … failure in a row.
const BACKOFF: [Duration; 5] = [
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(10),
];

/// While the same thing goes on failing, it is said this often.
const SAY_AGAIN: Duration = Duration::from_secs(60);

/// How many times states of the table are looked through while one of them is kept.
const EXPIRIES_PER_RETENTION: u32 = 12;

/// How often states of the table are looked through, at the most and at the least.
const EXPIRE_EVERY: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(300);

/// How often what a purge waits for is looked at, at the least.
const PURGE_LOOK_EVERY: Duration = Duration::from_secs(60);

/// How often files that nothing refers to are looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(4 * 3600);

/// The task that is told when there is something to do.
const PURGING: &str = "purging";

/// How often files that nothing refers to are looked for while a purge waits for files to be deleted.
const PURGE_SWEEP_EVERY: Duration = Duration::from_secs(600);

/// How often is looked for rows that are kept no longer.
const RETAIN_EVERY: Duration = Duration::from_secs(3600);

/// Rows are sealed by size when their frames have this many times the bytes that they take as Arrow.
const FRAME_BYTES_PER_ARROW_BYTE: f64 = 1.5;

/// Starts the tasks of a stream; they end when `stop` becomes true.
pub(super) fn start(shared: &Arc<Shared>, stream: &Arc<Moved>, stop: &watch::Receiver<bool>) -> Vec<JoinHandle<()>> {
    let every = &stream.settings;
    let mut slots = Slots::new(every.flush_every);
    let sealing = run(shared, stream, stop, "sealing", every.seal_every, move |shared, stream| {
        if slots.begun() {
            stream.flush_due.store(true, Relaxed);
        }
        async move {
            if stream.flush_due.swap(false, Relaxed) {
                let outcome = seal::seal_all(&shared, &stream, i64::MAX, false).await;
                if outcome.is_err() {
                    stream.flush_due.store(true, Relaxed);
                }
                return outcome.map(|_| ());
            }
            while is_enough(&stream) && seal::seal_one(&shared, &stream, i64::MAX, false).await?.is_some() {}
            Ok(())
        }
    });
    let publishing = run(shared, stream, stop, "publishing", every.publish_every, |shared, stream| async move {
        let gathered = gather::gather(&shared, &stream).await;
        // Where files cannot be gathered they are published as they are.
        publish::publish(&shared, &stream).await?;
        publish::look_at_lag(&shared, &stream)?;
        gathered.map(|_| ())
    });
    let merging = run(shared, stream, stop, "merging", every.compact_every, |shared, stream| async move {
        let mut more = true;
        while more && !stream.stopped.load(Relaxed) {
            more = compact::compact(&shared, &stream).await?;
        }
        Ok(())
    });
    let expire_every =
        (every.snapshot_retention / EXPIRIES_PER_RETENTION).clamp(*EXPIRE_EVERY.start(), *EXPIRE_EVERY.end());
    let mut expired = None;
    let mut swept = None;
    let mut retained = None;
    let cleaning = run(shared, stream, stop, "cleaning", every.clean_every, move |shared, stream| {
        let expire = is_due(&mut expired, expire_every);
        let sweep = is_due(&mut swept, SWEEP_EVERY);
        let asked = stream.retain_due.swap(false, Relaxed);
        let retain = is_due(&mut retained, RETAIN_EVERY) || asked;
        async move {
            evict::evict_by_policy(&shared, &stream).await?;
            shared.evict_journal(&stream, stream.view(&shared.catalog)?.sealed_end);
            clean::empty_trash(&shared).await?;
            shared.measure();
            shared.cursors.close_idle();
            if retain {
                clean::retain(&shared, &stream).await;
            }
            if expire {
                clean::expire(&shared, &stream).await?;
            }
            if sweep {
                clean::sweep_here(&shared, &stream, clean::SAFETY_AGE, false).await?;
                clean::sweep(&shared, &stream, false).await?;
            }
            Ok(())
        }
    });
    vec![sealing, publishing, merging, cleaning, start_purging(shared, stream, stop)]
}

/// Starts the task of a stream that purges files of erased rows.
pub(super) fn start_purging(shared: &Arc<Shared>, stream: &Arc<Moved>, stop: &watch::Receiver<bool>) -> JoinHandle<()> {
    let every = &stream.settings;
    let look_every = (every.snapshot_retention / 4).clamp(Duration::from_secs(1), PURGE_LOOK_EVERY);
    let mut looked = None;
    let mut swept = Some(Instant::now());
    run(shared, stream, stop, PURGING, every.clean_every, move |shared, stream| {
        let look = is_due(&mut looked, look_every);
        let sweep = is_due(&mut swept, PURGE_SWEEP_EVERY);
        async move {
            holes::complete_documents(&shared, &stream).await?;
            holes::publish_holes(&shared, &stream).await?;
            if purge::purge(&shared, &stream, look).await? && sweep {
                // What a crash has left may hold erased rows, too.
                clean::sweep_here(&shared, &stream, clean::SAFETY_AGE, false).await?;
                clean::sweep(&shared, &stream, false).await?;
            }
            Ok(())
        }
    })
}

/// Whether there are rows for a whole file.
fn is_enough(stream: &Moved) -> bool {
    let wanted = stream.settings.target_seal_bytes as f64 * FRAME_BYTES_PER_ARROW_BYTE;
    let enough_rows = stream.settings.target_seal_rows.is_some_and(|rows| {
        let sealed_end = stream.counters.lake.sealed_end().unwrap_or(0);
        stream.counters.end_offset.load(Relaxed) - sealed_end >= i64::try_from(rows).unwrap_or(i64::MAX)
    });
    enough_rows || seal::unsealed_bytes(stream) as f64 >= wanted
}

fn is_due(last: &mut Option<Instant>, every: Duration) -> bool {
    let due = last.is_none_or(|last| last.elapsed() >= every);
    if due {
        *last = Some(Instant::now());
    }
    due
}

/// The times at which everything has to be sealed: whole multiples of the interval on the wall clock. The one that the
/// process started in counts as done.
#[derive(Debug, Clone, Copy)]
struct Slots {
    every: Option<Duration>,
    done: u128,
}

impl Slots {
    fn new(every: Option<Duration>) -> Self {
        let mut slots = Self { every: every.filter(|every| !every.is_zero()), done: 0 };
        slots.done = slots.now().unwrap_or(0);
        slots
    }

    fn now(&self) -> Option<u128> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Some(since.as_micros() / self.every?.as_micros().max(1))
    }

    /// Whether one began since the last call.
    fn begun(&mut self) -> bool {
        let now = self.now().filter(|now| *now != self.done);
        self.done = now.unwrap_or(self.done);
        now.is_some()
    }
}

/// Runs `pass` every so often until `stop` or until the stream has gone, with waits after failures. A pass that panics
/// has failed.
fn run<F, P>(
    shared: &Arc<Shared>,
    stream: &Arc<Moved>,
    stop: &watch::Receiver<bool>,
    what: &'static str,
    every: Duration,
    mut pass: P,
) -> JoinHandle<()>
where
    F: Future<Output = Result<(), MoverError>> + Send + 'static,
    P: FnMut(Arc<Shared>, Arc<Moved>) -> F + Send + 'static,
{
    let (shared, stream, mut stop) = (Arc::clone(shared), Arc::clone(stream), stop.clone());
    tokio::spawn(async move {
        let mut failing = Failing::default();
        let mut began: Option<Instant> = None;
        let mut wait = every;
        loop {
            // Made before the look, so that a stream that goes in between is not slept through.
            let left = stream.left.notified();
            if stream.stopped.load(SeqCst) {
                return;
            }
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                // Not again within the usual time: each pass takes all erasures that there are.
                () = stream.erased.notified(), if what == PURGING && began.is_none_or(|at| at.elapsed() >= every) => {}
                () = left => return,
                changed = stop.wait_for(|stop| *stop) => {
                    let _ = changed;
                    return;
                }
            }
            began = Some(Instant::now());
            let outcome = match tokio::spawn(pass(Arc::clone(&shared), Arc::clone(&stream))).await {
                Ok(outcome) => outcome,
                Err(error) => Err(MoverError::Broken(error.to_string())),
            };
            wait = match outcome {
                Ok(()) => {
                    failing.went_well(&stream, what);
                    every
                }
                Err(error) => failing.failed(&stream, what, &error).max(every.min(BACKOFF[0])),
            };
        }
    })
}

/// Failures in a row of one task.
#[derive(Default)]
struct Failing {
    times: usize,
    said: Option<Instant>,
}

impl Failing {
    fn failed(&mut self, stream: &Moved, what: &str, error: &MoverError) -> Duration {
        stream.counters.lake.failed(format!("{what}: {error}"));
        if self.said.is_none_or(|said| said.elapsed() >= SAY_AGAIN) {
            self.said = Some(Instant::now());
            tracing::warn!(stream = stream.name, %error, times = self.times + 1, "{what} failed and is tried again");
        }
        self.times += 1;
        BACKOFF[(self.times - 1).min(BACKOFF.len() - 1)]
    }

    fn went_well(&mut self, stream: &Moved, what: &str) {
        if self.times > 0 {
            tracing::info!(stream = stream.name, times = self.times, "{what} works again");
            stream.counters.lake.went_well();
            *self = Self::default();
        }
    }
}
