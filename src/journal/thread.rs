//! Where a thread runs and how soon it gets there.

pub(super) use streamcast_shards::cores::{only_when_idle, pin_to, prefer_latency};

/// The time slice that the writer asks for; the kernel gives 0.1 ms at least.
pub(super) const WRITER_SLICE_NS: u64 = 100_000;

/// The time slice of the thread that moves the log into the file. A pass is about a millisecond of work, for which the
/// writer and a shard on the same core would wait in one piece. It is longer than the writer's, because the kernel lets who
/// wakes interrupt who runs only if its slice is the shorter one; with equal slices the writer waited for the next tick.
pub(super) const CHECKPOINT_SLICE_NS: u64 = 300_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed() -> Vec<usize> {
        // SAFETY: an all-zero cpu_set_t is a valid empty set.
        let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        // SAFETY: the size is that of `set`, which outlives the call; 0 is the calling thread.
        assert_eq!(unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) }, 0);
        // SAFETY: `set` is a valid set and every index is below CPU_SETSIZE.
        (0..libc::CPU_SETSIZE as usize).filter(|core| unsafe { libc::CPU_ISSET(*core, &set) }).collect()
    }

    #[test]
    fn a_thread_runs_where_it_is_told_if_that_exists() {
        std::thread::spawn(|| {
            let before = allowed();
            pin_to(&[]);
            pin_to(&[libc::CPU_SETSIZE as usize - 1]);
            pin_to(&[usize::MAX]);
            assert_eq!(allowed(), before);
            let last = *before.last().expect("somewhere");
            pin_to(&[last]);
            prefer_latency(WRITER_SLICE_NS);
            assert_eq!(allowed(), [last]);
        })
        .join()
        .expect("no panic");
    }
}
