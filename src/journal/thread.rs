//! Where a thread runs and how soon it gets there.

/// The time slice that the writer asks for. The kernel takes 0.1 ms at least.
const SHORT_SLICE_NS: u64 = 100_000;

/// Lets the calling thread run on `cores` only. Empty means anywhere. A refusal is logged and ignored: the
/// thread then runs where the system puts it.
pub(super) fn pin_to(cores: &[usize]) {
    if cores.is_empty() {
        return;
    }
    // SAFETY: an all-zero cpu_set_t is a valid empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for core in cores.iter().filter(|core| **core < libc::CPU_SETSIZE as usize) {
        // SAFETY: `set` is a valid set and `core` is below CPU_SETSIZE.
        unsafe { libc::CPU_SET(*core, &mut set) };
    }
    // SAFETY: the size is that of `set`, which outlives the call; 0 is the calling thread.
    let refused = unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) } != 0;
    if refused {
        let error = std::io::Error::last_os_error();
        tracing::warn!(?cores, %error, "cannot pin the thread; it runs wherever the system puts it");
    }
}

/// Asks the scheduler for short time slices, in return for which the calling thread gets the processor soon
/// after every sync, even when others compute on the same core. It gets no larger share by it.
///
/// Kernels before 6.12 do not know this and a thread with a real-time policy does not need it: both stay as
/// they are.
pub(super) fn prefer_latency() {
    // SAFETY: an all-zero sched_attr is valid; the kernel fills it in.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    let size = size_of::<libc::sched_attr>() as u32;
    // SAFETY: `attributes` is writable and `size` is its size; 0 is the calling thread.
    let known = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) } == 0;
    if !known || attributes.sched_policy != libc::SCHED_OTHER as u32 {
        return;
    }
    attributes.size = size;
    attributes.sched_runtime = SHORT_SLICE_NS;
    // SAFETY: `attributes` is what the kernel gave for this thread, but for the slice.
    if unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) } != 0 {
        let error = std::io::Error::last_os_error();
        tracing::debug!(%error, "the scheduler grants no short time slices");
    }
}

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
            prefer_latency();
            assert_eq!(allowed(), [last]);
        })
        .join()
        .expect("no panic");
    }
}
