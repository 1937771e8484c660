//! How background work leaves a core that it shares with a shard or the writer.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// How long a piece of background work may become before others are let in between.
const GIVES_WAY_AFTER: Duration = Duration::from_micros(50);

/// How long a thread that gives way is off the core, at least: nobody waits for its return.
const NAP: Duration = Duration::from_micros(20);

/// The longest that a brisk thread is off a core that others want: it still gets up to a third of it.
const LONGEST_BRISK_NAP: Duration = Duration::from_micros(100);

/// The longest that a patient thread is off such a core: it still gets up to a tenth of it.
const LONGEST_PATIENT_NAP: Duration = Duration::from_micros(500);

/// A thread that gets its core back so much later than it wanted shares it with somebody who wants it.
const LATE: Duration = Duration::from_micros(80);

/// How a thread that [stands back](crate::cores::stand_back) gives way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Manner {
    /// It leaves a part of the core to others while they want it: for work that somebody waits for.
    #[default]
    Brisk,
    /// It leaves most of the core to others while they want it: for work that can be done later.
    Patient,
    /// Not at all: for work of which so much is left that others have to wait for it.
    Hurried,
}

thread_local! {
    /// When the calling thread last gave way, if it is one that does.
    static SINCE: Cell<Option<Instant>> = const { Cell::new(None) };
    static MANNER: Cell<Manner> = const { Cell::new(Manner::Brisk) };
    /// How long the thread naps the next time.
    static NEXT_NAP: Cell<Duration> = const { Cell::new(NAP) };
}

/// From now on the calling thread gives way.
pub(crate) fn begin() {
    SINCE.set(Some(Instant::now()));
}

/// The calling thread need not give way: it shares its core with nobody who is in a hurry.
pub fn keep_core() {
    SINCE.set(None);
}

/// Does `work` in a manner.
pub fn in_manner<T>(manner: Manner, work: impl FnOnce() -> T) -> T {
    struct Before(Manner);
    impl Drop for Before {
        fn drop(&mut self) {
            MANNER.set(self.0);
        }
    }
    let _before = Before(MANNER.replace(manner));
    work()
}

/// To be called between small pieces of work: a thread that [stands back](crate::cores::stand_back) and has had the core
/// for a while leaves it to whoever waits. The kernel ends a time slice at its clock's next tick only, which is up to 10 ms
/// away. Other threads just go on.
///
/// It naps, because yielding is not enough: a thread that was given more than its share before is not eligible for as long
/// as anybody else could run. The kernel's own thread that ends a sync of the disk, which works for some microseconds at a
/// time, so waited for 5.6 ms (twice its time slice), again and again.
pub fn give_way() {
    let Some(since) = SINCE.get() else { return };
    let begun = Instant::now();
    let longest = match MANNER.get() {
        Manner::Hurried => return,
        Manner::Brisk => LONGEST_BRISK_NAP,
        Manner::Patient => LONGEST_PATIENT_NAP,
    };
    if begun.saturating_duration_since(since) < GIVES_WAY_AFTER {
        return;
    }
    let nap = NEXT_NAP.get().min(longest);
    std::thread::sleep(nap);
    let now = Instant::now();
    NEXT_NAP.set(next_nap(nap, now - begun, longest));
    SINCE.set(Some(now));
}

/// The nap after one of `nap` that took `took`: whoever gets the core back late shares it with somebody who wants it.
fn next_nap(nap: Duration, took: Duration, longest: Duration) -> Duration {
    if took > nap + LATE { (2 * nap).min(longest) } else { (nap / 2).max(NAP) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cores::{Distance, stand_back};

    /// Gives way after long work, on a thread of its own; returns whether it left the core.
    fn leaves(prepare: impl FnOnce() + Send + 'static, manner: Manner) -> bool {
        std::thread::spawn(move || {
            prepare();
            let before = SINCE.get();
            let begun = Instant::now();
            while begun.elapsed() < GIVES_WAY_AFTER {}
            in_manner(manner, give_way);
            assert_eq!(MANNER.get(), Manner::Brisk, "the manner ends with the work");
            SINCE.get() != before
        })
        .join()
        .expect("no panic")
    }

    #[test]
    fn who_stands_back_gives_way_now_and_then_and_nobody_else() {
        let stands_back = || stand_back(Distance::Near);
        assert!(leaves(stands_back, Manner::Brisk));
        assert!(leaves(stands_back, Manner::Patient));
        assert!(!leaves(stands_back, Manner::Hurried));
        assert!(!leaves(|| {}, Manner::Brisk));
        let keeps = move || {
            stands_back();
            keep_core();
        };
        assert!(!leaves(keeps, Manner::Patient));
    }

    #[test]
    fn short_work_is_not_interrupted() {
        let begun = Instant::now();
        SINCE.set(Some(begun));
        in_manner(Manner::Patient, give_way);
        assert!(SINCE.get() == Some(begun) || begun.elapsed() >= GIVES_WAY_AFTER);
    }

    #[test]
    fn a_thread_stays_away_longer_while_others_want_the_core_and_comes_back_soon_after() {
        for longest in [LONGEST_BRISK_NAP, LONGEST_PATIENT_NAP] {
            let late = |nap| next_nap(nap, nap + 2 * LATE, longest);
            let mut nap = NAP;
            let mut naps = vec![nap];
            while nap != late(nap) {
                nap = late(nap);
                naps.push(nap);
            }
            assert!(naps.is_sorted() && naps.len() < 10 && nap == longest, "{naps:?}");
            for _ in 0..naps.len() {
                nap = next_nap(nap, nap + LATE, longest);
            }
            assert_eq!(nap, NAP);
        }
    }

    #[test]
    fn the_manner_ends_with_a_panic_too() {
        let panics = std::panic::AssertUnwindSafe(|| in_manner(Manner::Hurried, || panic!("on purpose")));
        assert!(std::panic::catch_unwind(panics).is_err());
        assert_eq!(MANNER.get(), Manner::Brisk);
    }
}
