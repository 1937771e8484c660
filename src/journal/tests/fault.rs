//! A disk that fails on demand: the calls by which SQLite writes and syncs, interposed in the test binary.
//!
//! The linker prefers these definitions to the C library's. They pass everything through but what a test
//! has asked for, by the path of the file.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    Write,
    Sync,
}

struct Fault {
    call: Call,
    path: PathBuf,
    errno: i32,
    /// Calls that still fail.
    times: usize,
}

static ARMED: AtomicUsize = AtomicUsize::new(0);
static FAULTS: Mutex<Vec<Fault>> = Mutex::new(Vec::new());

/// A fault that is in force until it is dropped.
pub struct Armed(PathBuf, Call);

/// Makes the next `times` calls of this kind on `path` fail with `errno`.
pub fn arm(call: Call, path: &Path, errno: i32, times: usize) -> Armed {
    ARMED.fetch_add(1, Ordering::SeqCst);
    let path = std::fs::canonicalize(path).expect("the file exists");
    FAULTS.lock().expect("no panic").push(Fault { call, path: path.clone(), errno, times });
    Armed(path, call)
}

impl Drop for Armed {
    fn drop(&mut self) {
        FAULTS.lock().expect("no panic").retain(|fault| fault.path != self.0 || fault.call != self.1);
        ARMED.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Whether the call on `fd` is to fail.
fn fails(call: Call, fd: libc::c_int) -> bool {
    if ARMED.load(Ordering::SeqCst) == 0 {
        return false;
    }
    let Ok(path) = std::fs::read_link(format!("/proc/self/fd/{fd}")) else { return false };
    let mut faults = FAULTS.lock().expect("no panic");
    let hit = faults.iter_mut().find(|fault| {
        fault.call == call && fault.times > 0 && fault.path.as_os_str().as_bytes() == path.as_os_str().as_bytes()
    });
    let Some(fault) = hit else { return false };
    fault.times -= 1;
    // SAFETY: errno is the calling thread's own.
    unsafe { *libc::__errno_location() = fault.errno };
    true
}

#[unsafe(no_mangle)]
extern "C" fn fdatasync(fd: libc::c_int) -> libc::c_int {
    if fails(Call::Sync, fd) {
        return -1;
    }
    // SAFETY: the kernel checks the descriptor.
    unsafe { libc::syscall(libc::SYS_fdatasync, fd) as libc::c_int }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pwrite64(fd: libc::c_int, bytes: *const libc::c_void, count: usize, offset: i64) -> isize {
    if fails(Call::Write, fd) {
        return -1;
    }
    // SAFETY: the caller vouches for `count` bytes at `bytes`, as for the C library's function.
    unsafe { libc::syscall(libc::SYS_pwrite64, fd, bytes, count, offset) as isize }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn write(fd: libc::c_int, bytes: *const libc::c_void, count: usize) -> isize {
    if fails(Call::Write, fd) {
        return -1;
    }
    // SAFETY: the caller vouches for `count` bytes at `bytes`, as for the C library's function.
    unsafe { libc::syscall(libc::SYS_write, fd, bytes, count) as isize }
}
