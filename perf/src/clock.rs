//! The one clock of a measurement: `CLOCK_MONOTONIC`, which publishers, receivers and the floor's sender all read.

/// Nanoseconds of `CLOCK_MONOTONIC`, the same for every process of the machine.
#[must_use]
pub fn now_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// CPU time the calling thread has used, in nanoseconds.
#[must_use]
pub fn thread_cpu_ns() -> u64 {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn read(clock: libc::clockid_t) -> u64 {
    let mut at = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `at` is a valid timespec for the call to fill; both clocks exist on every Linux.
    unsafe { libc::clock_gettime(clock, &raw mut at) };
    at.tv_sec as u64 * 1_000_000_000 + at.tv_nsec as u64
}

/// Seconds as nanoseconds.
#[must_use]
pub fn seconds_ns(seconds: f64) -> u64 {
    (seconds * 1e9).round().max(0.0) as u64
}

/// Sleeps until `at_ns` of [`now_ns`], to the nanosecond the kernel's timer allows.
pub fn sleep_until(at_ns: u64) {
    let at = libc::timespec { tv_sec: (at_ns / 1_000_000_000) as i64, tv_nsec: (at_ns % 1_000_000_000) as i64 };
    // SAFETY: `at` is a valid timespec; the remainder pointer may be null. An interrupted sleep only ends early.
    unsafe { libc::clock_nanosleep(libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME, &raw const at, std::ptr::null_mut()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeping_reaches_the_instant() {
        let at = now_ns() + 2_000_000;
        sleep_until(at);
        assert!(now_ns() >= at);
        sleep_until(0);
    }

    #[test]
    fn seconds_round_to_nanoseconds() {
        assert_eq!(seconds_ns(1.5), 1_500_000_000);
        assert_eq!(seconds_ns(-1.0), 0);
    }
}
