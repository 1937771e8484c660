//! Keeping the writer's core awake while transactions follow each other closely.
//!
//! A core with nothing to do goes to sleep, and waking it for the end of a sync, or for the next row, takes longer than
//! all that is done with a small row: some 30 µs a sync in a virtual machine, where sleeping and waking leave it, and on
//! hardware as long as the sleep was deep. So while it pays, a thread of the lowest priority there is has the core's idle
//! time: it does nothing, gives way to everybody at once, and ends soon after the transactions do.
//!
//! It pays while transactions come faster than [`DENSE`] and publishers wait for them before they send more: nobody has
//! more than one frame in this one, or nothing came while the last one was on its way. Rows that come by the clock, and those
//! of publishers that do not wait, leave the core its sleep.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::thread::{only_when_idle, pin_to};

/// Transactions follow each other closely when they begin less than this apart, on average.
const DENSE: Duration = Duration::from_micros(700);

/// The longest distance that is believed: after a pause it takes a few transactions to be close again.
const MAX_APART: Duration = Duration::from_millis(5);

/// How long the core stays awake after the last transaction began; a commit and the way back of those it answers fit.
const LINGER: Duration = Duration::from_millis(1);

/// How many transactions there have been lately.
#[derive(Debug)]
struct Rhythm {
    last: Option<Instant>,
    /// How far apart transactions begin, smoothed.
    apart: Duration,
}

impl Rhythm {
    const fn new() -> Self {
        Self { last: None, apart: MAX_APART }
    }

    /// A transaction begins at `now`; whether they are close.
    fn is_dense(&mut self, now: Instant) -> bool {
        let apart = self.last.map_or(MAX_APART, |last| now.saturating_duration_since(last).min(MAX_APART));
        self.last = Some(now);
        self.apart = (self.apart * 7 + apart) / 8;
        self.apart < DENSE
    }
}

struct Shared {
    /// What the times below are counted from.
    epoch: Instant,
    /// Until when the core is kept awake, in nanoseconds.
    until: AtomicU64,
    resting: AtomicBool,
    ends: AtomicBool,
}

impl Shared {
    fn now(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }
}

/// The thread, and when it is wanted.
pub(super) struct Awake {
    rhythm: Rhythm,
    shared: Arc<Shared>,
    /// None where nobody said which core it is, or where the system has no such priority.
    thread: Option<JoinHandle<()>>,
}

impl Awake {
    /// Starts the thread for `core`. Without a core, or if it cannot start, nothing is kept awake.
    pub(super) fn start(core: Option<usize>) -> Self {
        let epoch = Instant::now();
        let (until, resting, ends) = (AtomicU64::new(0), AtomicBool::new(false), AtomicBool::new(false));
        let shared = Arc::new(Shared { epoch, until, resting, ends });
        let thread = core.and_then(|core| {
            let shared = Arc::clone(&shared);
            let thread = std::thread::Builder::new().name("sc-awake".to_owned()).spawn(move || {
                pin_to(&[core]);
                if only_when_idle() {
                    stay(&shared);
                }
            });
            thread.inspect_err(|error| tracing::warn!(%error, core, "the writer's core cannot be kept awake")).ok()
        });
        Self { rhythm: Rhythm::new(), shared, thread }
    }

    /// A transaction begins at `now`; `awaited` says whether publishers wait for it.
    pub(super) fn begun(&mut self, now: Instant, awaited: bool) {
        let Some(thread) = &self.thread else { return };
        if !(self.rhythm.is_dense(now) && awaited) {
            return;
        }
        let until = now.saturating_duration_since(self.shared.epoch) + LINGER;
        self.shared.until.store(until.as_nanos() as u64, Ordering::SeqCst);
        if self.shared.resting.load(Ordering::SeqCst) && self.shared.resting.swap(false, Ordering::SeqCst) {
            thread.thread().unpark();
        }
    }
}

impl Drop for Awake {
    /// The thread is not waited for: whoever keeps the core busy would decide how long that takes. It owns nothing.
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::SeqCst);
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

/// Has the core as long as it is wanted awake, and rests otherwise.
fn stay(shared: &Shared) {
    while !shared.ends.load(Ordering::SeqCst) {
        if shared.now() < shared.until.load(Ordering::Relaxed) {
            for _ in 0..16 {
                std::hint::spin_loop();
            }
            continue;
        }
        // Said before the second look, so that a transaction that begins in between is not missed.
        shared.resting.store(true, Ordering::SeqCst);
        if shared.now() >= shared.until.load(Ordering::SeqCst) && !shared.ends.load(Ordering::SeqCst) {
            std::thread::park();
        }
        shared.resting.store(false, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_transactions_that_keep_coming_are_close() {
        let (mut rhythm, mut now) = (Rhythm::new(), Instant::now());
        let mut play = |rhythm: &mut Rhythm, apart_us: u64, count: usize| {
            (0..count)
                .map(|_| {
                    now += Duration::from_micros(apart_us);
                    rhythm.is_dense(now)
                })
                .filter(|dense| *dense)
                .count()
        };
        assert_eq!(play(&mut rhythm, 1_000, 500), 0, "a thousand a second come by the clock");
        let dense = play(&mut rhythm, 250, 100);
        assert!((80..100).contains(&dense), "{dense}");
        assert!(play(&mut rhythm, 1_000, 100) < 20);
        // A burst of a few, long after the last one.
        assert_eq!(play(&mut rhythm, 1_000_000, 20) + play(&mut rhythm, 10, 5), 0);
    }

    #[test]
    fn the_thread_is_awake_as_long_as_it_is_wanted_and_ends_with_the_writer() {
        let core = streamcast_shards::cores::allowed_cores().first().copied();
        let mut awake = Awake::start(core);
        let rests = |awake: &Awake| {
            let begun = Instant::now();
            while !awake.shared.resting.load(Ordering::SeqCst) {
                assert!(begun.elapsed() < Duration::from_secs(60), "it does not rest");
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        rests(&awake);
        let now = Instant::now();
        awake.rhythm = Rhythm { last: Some(now), apart: Duration::from_micros(10) };
        awake.begun(now, false);
        assert_eq!(awake.shared.until.load(Ordering::SeqCst), 0, "nobody waits");
        awake.begun(now, true);
        assert!(awake.shared.until.load(Ordering::SeqCst) > 0);
        rests(&awake);
        assert!(awake.shared.now() >= awake.shared.until.load(Ordering::SeqCst), "it rested before its time");
        let shared = Arc::clone(&awake.shared);
        drop(awake);
        let begun = Instant::now();
        while Arc::strong_count(&shared) > 1 {
            assert!(begun.elapsed() < Duration::from_secs(60), "it does not end");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn without_a_core_there_is_no_thread() {
        let mut awake = Awake::start(None);
        for _ in 0..100 {
            awake.begun(Instant::now(), true);
        }
        assert!(awake.thread.is_none());
        assert_eq!(awake.shared.until.load(Ordering::SeqCst), 0);
    }
}
