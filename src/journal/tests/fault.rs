//! A disk that fails on demand, and one that forgets what was not synced: the calls by which SQLite writes
//! and syncs, interposed in the test binary.
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

/// The path behind a descriptor, if any test wants to know.
fn path_of(fd: libc::c_int) -> Option<PathBuf> {
    if ARMED.load(Ordering::SeqCst) == 0 { None } else { std::fs::read_link(format!("/proc/self/fd/{fd}")).ok() }
}

#[unsafe(no_mangle)]
extern "C" fn fdatasync(fd: libc::c_int) -> libc::c_int {
    sync(libc::SYS_fdatasync, fd)
}

#[unsafe(no_mangle)]
extern "C" fn fsync(fd: libc::c_int) -> libc::c_int {
    sync(libc::SYS_fsync, fd)
}

fn sync(call: libc::c_long, fd: libc::c_int) -> libc::c_int {
    if fails(Call::Sync, fd) {
        return -1;
    }
    let path = path_of(fd);
    // What is written while the call runs need not be covered by it.
    let covered = path.as_deref().map_or(0, power::pending);
    // SAFETY: the kernel checks the descriptor.
    let code = unsafe { libc::syscall(call, fd) as libc::c_int };
    if let (Some(path), 0) = (path, code) {
        power::synced(&path, covered);
    }
    code
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pwrite64(fd: libc::c_int, bytes: *const libc::c_void, count: usize, offset: i64) -> isize {
    if fails(Call::Write, fd) {
        return -1;
    }
    // SAFETY: the caller vouches for `count` bytes at `bytes`, as for the C library's function.
    let written = unsafe { libc::syscall(libc::SYS_pwrite64, fd, bytes, count, offset) as isize };
    if let (Some(path), 1..) = (path_of(fd), written) {
        // SAFETY: the kernel has just read that many bytes there.
        let bytes = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), written as usize) };
        power::wrote(&path, offset as usize, bytes);
    }
    written
}

#[unsafe(no_mangle)]
unsafe extern "C" fn write(fd: libc::c_int, bytes: *const libc::c_void, count: usize) -> isize {
    if fails(Call::Write, fd) {
        return -1;
    }
    let path = path_of(fd);
    // SAFETY: only asks for the position.
    let offset = if path.is_some() { unsafe { libc::lseek(fd, 0, libc::SEEK_CUR) } } else { 0 };
    // SAFETY: the caller vouches for `count` bytes at `bytes`, as for the C library's function.
    let written = unsafe { libc::syscall(libc::SYS_write, fd, bytes, count) as isize };
    if let (Some(path), 0.., 1..) = (path, offset, written) {
        // SAFETY: the kernel has just read that many bytes there.
        let bytes = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), written as usize) };
        power::wrote(&path, offset as usize, bytes);
    }
    written
}

#[unsafe(no_mangle)]
extern "C" fn ftruncate64(fd: libc::c_int, length: i64) -> libc::c_int {
    // SAFETY: the kernel checks the descriptor and the length.
    let code = unsafe { libc::syscall(libc::SYS_ftruncate, fd, length) as libc::c_int };
    if let (Some(path), 0) = (path_of(fd), code) {
        power::truncated(&path, length as usize);
    }
    code
}

#[unsafe(no_mangle)]
extern "C" fn ftruncate(fd: libc::c_int, length: i64) -> libc::c_int {
    ftruncate64(fd, length)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unlink(path: *const libc::c_char) -> libc::c_int {
    // SAFETY: the caller vouches for the text, as for the C library's function.
    let (code, name) =
        unsafe { (libc::syscall(libc::SYS_unlink, path) as libc::c_int, std::ffi::CStr::from_ptr(path)) };
    if code == 0 && ARMED.load(Ordering::SeqCst) > 0 {
        power::removed(Path::new(std::ffi::OsStr::from_bytes(name.to_bytes())));
    }
    code
}

/// A disk whose power can be cut: it keeps what was synced, and of the rest whatever it likes.
pub mod power {
    use std::collections::BTreeMap;
    use std::path::{Path, PathBuf};
    use std::sync::Mutex;
    use std::sync::atomic::Ordering;

    enum Change {
        Write(usize, Vec<u8>),
        Truncate(usize),
    }

    #[derive(Default)]
    struct File {
        synced: Vec<u8>,
        changes: Vec<Change>,
    }

    struct Disk {
        root: PathBuf,
        files: BTreeMap<PathBuf, File>,
    }

    static DISKS: Mutex<Vec<Disk>> = Mutex::new(Vec::new());

    /// A directory whose files are followed until this is dropped. It must be empty at first.
    pub struct Followed(PathBuf);

    pub fn follow(root: &Path) -> Followed {
        let root = std::fs::canonicalize(root).expect("it exists");
        DISKS.lock().expect("no panic").push(Disk { root: root.clone(), files: BTreeMap::new() });
        super::ARMED.fetch_add(1, Ordering::SeqCst);
        Followed(root)
    }

    impl Drop for Followed {
        fn drop(&mut self) {
            super::ARMED.fetch_sub(1, Ordering::SeqCst);
            DISKS.lock().expect("no panic").retain(|disk| disk.root != self.0);
        }
    }

    impl Followed {
        /// Writes to `target` what is left of the journal's files when the power fails now. `keeps` says which
        /// changes that were not synced are on disk all the same.
        pub fn cut(&self, target: &Path, mut keeps: impl FnMut() -> bool) {
            let mut images = Vec::new();
            let disks = DISKS.lock().expect("no panic");
            let disk = disks.iter().find(|disk| disk.root == self.0).expect("it is followed");
            for (path, file) in &disk.files {
                let mut bytes = file.synced.clone();
                file.changes.iter().filter(|_| keeps()).for_each(|change| apply(&mut bytes, change));
                images.push((path.clone(), bytes));
            }
            // Writing comes back here to be followed.
            drop(disks);
            for (path, bytes) in images {
                let name = path.file_name().expect("a file has a name");
                if name.to_string_lossy().starts_with("journal.db") && name != "journal.db-shm" {
                    std::fs::write(target.join(name), bytes).expect("written");
                }
            }
        }
    }

    fn apply(bytes: &mut Vec<u8>, change: &Change) {
        match change {
            Change::Truncate(length) => bytes.resize(*length, 0),
            Change::Write(offset, written) => {
                let end = offset + written.len();
                if bytes.len() < end {
                    bytes.resize(end, 0);
                }
                bytes[*offset..end].copy_from_slice(written);
            }
        }
    }

    fn with<T: Default>(path: &Path, act: impl FnOnce(&mut File) -> T) -> T {
        let mut disks = DISKS.lock().expect("no panic");
        match disks.iter_mut().find(|disk| path.starts_with(&disk.root)) {
            Some(disk) => act(disk.files.entry(path.to_owned()).or_default()),
            None => T::default(),
        }
    }

    pub(super) fn wrote(path: &Path, offset: usize, bytes: &[u8]) {
        with(path, |file| file.changes.push(Change::Write(offset, bytes.to_vec())));
    }

    pub(super) fn truncated(path: &Path, length: usize) {
        with(path, |file| file.changes.push(Change::Truncate(length)));
    }

    /// Counts as synced: the journal syncs the directory before it commits anything.
    pub(super) fn removed(path: &Path) {
        let mut disks = DISKS.lock().expect("no panic");
        for disk in disks.iter_mut() {
            disk.files.remove(path);
        }
    }

    pub(super) fn pending(path: &Path) -> usize {
        with(path, |file| file.changes.len())
    }

    pub(super) fn synced(path: &Path, count: usize) {
        with(path, |file| {
            let rest = file.changes.split_off(count.min(file.changes.len()));
            let covered = std::mem::replace(&mut file.changes, rest);
            covered.iter().for_each(|change| apply(&mut file.synced, change));
        });
    }
}
