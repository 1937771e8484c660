//! Placing a thread on processors.

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
