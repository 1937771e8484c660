//! Which cores a thread or a child process may use, and how exactly its timers fire.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// Restricts the calling thread (and what it starts from now on) to `cores`.
///
/// # Errors
/// When none of the cores exists or may be used.
pub fn pin(cores: &[usize]) -> io::Result<()> {
    // SAFETY: an all-zero cpu_set_t is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for &core in cores.iter().filter(|&&core| core < libc::CPU_SETSIZE as usize) {
        // SAFETY: `core` is below CPU_SETSIZE, checked above.
        unsafe { libc::CPU_SET(core, &mut set) };
    }
    // SAFETY: the set is a valid cpu_set_t of the size given; 0 means the calling thread.
    let failed = unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) } != 0;
    if failed { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Has a program that is started with `command` begin on `cores`.
pub fn pin_child(command: &mut Command, cores: &[usize]) {
    let cores = cores.to_vec();
    // SAFETY: between fork and exec only one system call is made, which needs no lock and no allocation.
    unsafe { command.pre_exec(move || pin(&cores)) };
}

/// Lets this thread's timers fire on time rather than up to 50 µs late.
pub fn exact_timers() {
    // SAFETY: PR_SET_TIMERSLACK takes one integer and touches no memory.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong) };
}

/// Raises the limit of open files to the most this process may have.
pub fn raise_open_files() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid rlimit to fill and then to read.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
}
