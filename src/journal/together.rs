//! The write-ahead log as the writer's connection writes it: the pages of a transaction together.
//!
//! SQLite writes each page to the log with two calls, 24 bytes of header and the page, none of which begins at a block
//! of the file: every call finds, locks and dirties one or two blocks. What follows directly on what was written before
//! is kept here and handed over in pieces of [`PIECE_BYTES`] at most: a group of small rows is one write instead of four,
//! a batch of 100 kB one or two instead of fifty.
//!
//! Nothing else about the file changes, and the order of what is done to it stays. What is kept goes to the file before
//! anything else is done to it: a sync, a look at its length, a read. With `synchronous=FULL` each transaction ends with
//! a sync, and only then does SQLite tell other connections, which read the file by themselves, that it is longer.

use std::ffi::{CStr, c_int, c_void};
use std::sync::OnceLock;

use rusqlite::ffi;

/// The file system's name for [`rusqlite::Connection::open_with_flags_and_vfs`].
const NAME: &CStr = c"streamcast-journal";

/// Most bytes that one write takes. SQLite's own layer takes less than 128 KiB at once.
const PIECE_BYTES: usize = 120 << 10;

type ReadCall = unsafe extern "C" fn(*mut ffi::sqlite3_file, *mut c_void, c_int, i64) -> c_int;
type WriteCall = unsafe extern "C" fn(*mut ffi::sqlite3_file, *const c_void, c_int, i64) -> c_int;
type TruncateCall = unsafe extern "C" fn(*mut ffi::sqlite3_file, i64) -> c_int;
type SyncCall = unsafe extern "C" fn(*mut ffi::sqlite3_file, c_int) -> c_int;
type FileSizeCall = unsafe extern "C" fn(*mut ffi::sqlite3_file, *mut i64) -> c_int;
type CloseCall = unsafe extern "C" fn(*mut ffi::sqlite3_file) -> c_int;
type OpenCall = unsafe extern "C" fn(
    *mut ffi::sqlite3_vfs,
    ffi::sqlite3_filename,
    *mut ffi::sqlite3_file,
    c_int,
    *mut c_int,
) -> c_int;

/// SQLite's own file system, and where what belongs to a log stands behind its file.
struct Below {
    vfs: *mut ffi::sqlite3_vfs,
    open: OpenCall,
    kept_at: usize,
}

// SAFETY: SQLite's file systems live as long as the process and may be used by any thread; the rest does not change.
unsafe impl Send for Below {}
// SAFETY: as above.
unsafe impl Sync for Below {}

/// What SQLite's own file system does with a log.
struct Calls {
    /// The table that its files come with.
    table: *const ffi::sqlite3_io_methods,
    read: ReadCall,
    write: WriteCall,
    truncate: TruncateCall,
    sync: SyncCall,
    file_size: FileSizeCall,
    close: CloseCall,
    /// The same table with the functions of this module in it.
    ours: ffi::sqlite3_io_methods,
}

// SAFETY: the tables are constants of SQLite's and a copy that does not change.
unsafe impl Send for Calls {}
// SAFETY: as above.
unsafe impl Sync for Calls {}

static BELOW: OnceLock<Option<Below>> = OnceLock::new();
static CALLS: OnceLock<Option<Calls>> = OnceLock::new();

/// Bytes of a log that are not yet in the file.
struct Kept {
    at: i64,
    bytes: Vec<u8>,
}

/// The name to open the writer's connection with; `None` where SQLite has no file system to build on.
pub(super) fn vfs() -> Option<&'static CStr> {
    BELOW.get_or_init(register).as_ref().map(|_| NAME)
}

fn register() -> Option<Below> {
    // SAFETY: without a name the default file system is found, or none.
    let vfs = unsafe { ffi::sqlite3_vfs_find(std::ptr::null()) };
    // SAFETY: what SQLite has registered is valid and stays.
    let default = unsafe { vfs.as_ref() }?;
    let kept_at = (default.szOsFile as usize).next_multiple_of(align_of::<*mut Kept>());
    let below = Below { vfs, open: default.xOpen?, kept_at };
    let ours = ffi::sqlite3_vfs {
        szOsFile: (kept_at + size_of::<*mut Kept>()) as c_int,
        pNext: std::ptr::null_mut(),
        zName: NAME.as_ptr(),
        xOpen: Some(open),
        ..*default
    };
    // SAFETY: the structure is complete and is never freed. It is not made the default.
    let code = unsafe { ffi::sqlite3_vfs_register(Box::into_raw(Box::new(ours)), 0) };
    (code == ffi::SQLITE_OK).then_some(below)
}

/// Copies the table of a log's file.
///
/// # Safety
/// `table` is that of an open file of SQLite's own.
unsafe fn calls(table: *const ffi::sqlite3_io_methods) -> Option<Calls> {
    // SAFETY: the caller says so.
    let theirs = unsafe { table.as_ref() }?;
    let ours = ffi::sqlite3_io_methods {
        xRead: Some(read),
        xWrite: Some(write),
        xTruncate: Some(truncate),
        xSync: Some(sync),
        xFileSize: Some(file_size),
        xClose: Some(close),
        ..*theirs
    };
    Some(Calls {
        table,
        read: theirs.xRead?,
        write: theirs.xWrite?,
        truncate: theirs.xTruncate?,
        sync: theirs.xSync?,
        file_size: theirs.xFileSize?,
        close: theirs.xClose?,
        ours,
    })
}

unsafe extern "C" fn open(
    _: *mut ffi::sqlite3_vfs,
    name: ffi::sqlite3_filename,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    let Some(Some(below)) = BELOW.get() else { return ffi::SQLITE_CANTOPEN };
    // SAFETY: the arguments are passed on as they came; `file` has room for a file of SQLite's own and more.
    let code = unsafe { (below.open)(below.vfs, name, file, flags, out_flags) };
    if code != ffi::SQLITE_OK || flags & ffi::SQLITE_OPEN_WAL == 0 {
        return code;
    }
    // SAFETY: the file is open, so its table is set.
    let table = unsafe { (*file).pMethods };
    // SAFETY: as above.
    let Some(calls) = CALLS.get_or_init(|| unsafe { calls(table) }) else { return code };
    // A file of another kind stays as it is.
    if std::ptr::eq(calls.table, table) {
        let kept = Box::new(Kept { at: 0, bytes: Vec::with_capacity(PIECE_BYTES) });
        // SAFETY: `file` has the size that was registered, so there is room for the pointer at `kept_at`, aligned because
        // SQLite aligns files to eight bytes; the table is a constant from here on.
        unsafe {
            file.cast::<u8>().add(below.kept_at).cast::<*mut Kept>().write(Box::into_raw(kept));
            (*file).pMethods = &raw const calls.ours;
        }
    }
    code
}

/// An open log: how its file is reached, and what is kept of it.
struct Log<'a> {
    calls: &'static Calls,
    file: *mut ffi::sqlite3_file,
    kept: &'a mut Kept,
}

impl<'a> Log<'a> {
    /// # Safety
    /// `file` was opened by [`open`] as a log and is not closed. SQLite uses a file on one thread at a time.
    unsafe fn of(file: *mut ffi::sqlite3_file) -> Option<Self> {
        let (below, calls) = (BELOW.get()?.as_ref()?, CALLS.get()?.as_ref()?);
        // SAFETY: `open` has put a pointer there, which is valid until `close`.
        let kept = unsafe { (*file.cast::<u8>().add(below.kept_at).cast::<*mut Kept>()).as_mut() }?;
        Some(Self { calls, file, kept })
    }

    /// Writes what is kept. If that fails, it is gone: whoever is told writes it again or gives the transaction up.
    fn hand_over(&mut self) -> c_int {
        if self.kept.bytes.is_empty() {
            return ffi::SQLITE_OK;
        }
        let bytes = &self.kept.bytes;
        // SAFETY: the file is open, and the bytes are there for the call.
        let code = unsafe { (self.calls.write)(self.file, bytes.as_ptr().cast(), bytes.len() as c_int, self.kept.at) };
        self.kept.bytes.clear();
        code
    }

    fn write(&mut self, bytes: &[u8], at: i64) -> c_int {
        let follows = at == self.kept.at + self.kept.bytes.len() as i64;
        if !follows || self.kept.bytes.len() + bytes.len() > PIECE_BYTES {
            let code = self.hand_over();
            if code != ffi::SQLITE_OK {
                return code;
            }
            self.kept.at = at;
        }
        if bytes.len() > PIECE_BYTES {
            // SAFETY: the file is open, and the bytes are there for the call.
            return unsafe { (self.calls.write)(self.file, bytes.as_ptr().cast(), bytes.len() as c_int, at) };
        }
        self.kept.bytes.extend_from_slice(bytes);
        ffi::SQLITE_OK
    }

    /// Does something to the file that must find all of it there.
    fn after(&mut self, act: impl FnOnce(&Calls, *mut ffi::sqlite3_file) -> c_int) -> c_int {
        match self.hand_over() {
            ffi::SQLITE_OK => act(self.calls, self.file),
            code => code,
        }
    }
}

unsafe extern "C" fn write(file: *mut ffi::sqlite3_file, data: *const c_void, count: c_int, at: i64) -> c_int {
    // SAFETY: SQLite calls this for logs that `open` has opened.
    let Some(mut log) = (unsafe { Log::of(file) }) else { return ffi::SQLITE_IOERR_WRITE };
    // SAFETY: SQLite gives `count` bytes.
    log.write(unsafe { std::slice::from_raw_parts(data.cast(), count.max(0) as usize) }, at)
}

unsafe extern "C" fn read(file: *mut ffi::sqlite3_file, data: *mut c_void, count: c_int, at: i64) -> c_int {
    // SAFETY: as in `write`.
    let Some(mut log) = (unsafe { Log::of(file) }) else { return ffi::SQLITE_IOERR_READ };
    // SAFETY: the arguments are passed on as they came.
    log.after(|calls, file| unsafe { (calls.read)(file, data, count, at) })
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, length: i64) -> c_int {
    // SAFETY: as in `write`.
    let Some(mut log) = (unsafe { Log::of(file) }) else { return ffi::SQLITE_IOERR_TRUNCATE };
    // SAFETY: as in `read`.
    log.after(|calls, file| unsafe { (calls.truncate)(file, length) })
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, flags: c_int) -> c_int {
    // SAFETY: as in `write`.
    let Some(mut log) = (unsafe { Log::of(file) }) else { return ffi::SQLITE_IOERR_FSYNC };
    // SAFETY: as in `read`.
    log.after(|calls, file| unsafe { (calls.sync)(file, flags) })
}

unsafe extern "C" fn file_size(file: *mut ffi::sqlite3_file, length: *mut i64) -> c_int {
    // SAFETY: as in `write`.
    let Some(mut log) = (unsafe { Log::of(file) }) else { return ffi::SQLITE_IOERR_FSTAT };
    // SAFETY: as in `read`.
    log.after(|calls, file| unsafe { (calls.file_size)(file, length) })
}

/// What is still kept belongs to a transaction that was given up: it is dropped, not written over what others may have
/// written since.
unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: as in `write`.
    let Some(Log { calls, kept, .. }) = (unsafe { Log::of(file) }) else { return ffi::SQLITE_IOERR_CLOSE };
    // SAFETY: the pointer came from a box in `open`; SQLite does not use the file again.
    drop(unsafe { Box::from_raw(std::ptr::from_mut(kept)) });
    // SAFETY: the table is put back that the file was opened with.
    unsafe { (*file).pMethods = calls.table };
    // SAFETY: as in `read`.
    unsafe { (calls.close)(file) }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use rusqlite::{Connection, OpenFlags};

    use super::*;
    use crate::journal::settings::JournalSettings;
    use crate::journal::sql;

    fn rows(connection: &Connection) -> (i64, i64) {
        connection
            .query_row("SELECT count(*), coalesce(sum(length(body)), 0) FROM t", [], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })
            .unwrap()
    }

    fn writer(path: &Path, cache_bytes: u64) -> Connection {
        let settings = JournalSettings { cache_bytes, ..JournalSettings::default() };
        let connection = sql::open_writer(path, &settings).unwrap();
        connection.execute_batch("CREATE TABLE IF NOT EXISTS t (id INTEGER PRIMARY KEY, body TEXT)").unwrap();
        connection
    }

    fn insert(connection: &Connection, bytes: usize) {
        connection.execute("INSERT INTO t (body) VALUES (?1)", ["x".repeat(bytes)]).unwrap();
    }

    /// What a process would find that opened copies of the files now.
    fn found_after_crash(path: &Path) -> (i64, i64) {
        let directory = tempfile::tempdir().unwrap();
        let copy = directory.path().join("copy.db");
        for suffix in ["", "-wal"] {
            std::fs::copy(format!("{}{suffix}", path.display()), format!("{}{suffix}", copy.display())).unwrap();
        }
        let connection = Connection::open(&copy).unwrap();
        let verdict: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(verdict, "ok");
        rows(&connection)
    }

    #[test]
    fn a_commit_is_in_the_file_and_for_other_connections_when_it_returns() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal.db");
        let connection = writer(&path, 16 << 20);
        let other = Connection::open_with_flags(&path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
        let mut sum = 0;
        // Around the size of a piece as well, and far beyond.
        for (count, bytes) in [1, 100, 4_096, 60_000, 122_000, 122_880, 131_072, 1 << 20].into_iter().enumerate() {
            insert(&connection, bytes);
            sum += bytes as i64;
            assert_eq!(rows(&other), (count as i64 + 1, sum));
            assert_eq!(found_after_crash(&path), (count as i64 + 1, sum));
        }
        assert!(CALLS.get().is_some_and(Option::is_some), "the log was not opened through this module");
    }

    #[test]
    fn a_transaction_larger_than_the_cache_reads_and_overwrites_its_own_pages() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal.db");
        let connection = writer(&path, 64 << 10);
        for round in 0..4_i64 {
            connection.execute_batch("BEGIN IMMEDIATE").unwrap();
            let before = rows(&connection).0;
            for _ in 0..100 {
                insert(&connection, 3_000);
            }
            // Pages that were put into the log to make room are read back, and changed once more.
            assert_eq!(rows(&connection).0, before + 100);
            connection.execute("UPDATE t SET body = body || 'y' WHERE id % 3 = 0", []).unwrap();
            let all = rows(&connection);
            connection.execute_batch(if round % 2 == 0 { "COMMIT" } else { "ROLLBACK" }).unwrap();
            let expected = if round % 2 == 0 { all } else { rows(&connection) };
            assert_eq!(rows(&connection), expected);
            assert_eq!(found_after_crash(&path), expected);
            // Whatever the rollback has left is not in the way of the next ones.
            insert(&connection, 10);
            assert_eq!(found_after_crash(&path).0, expected.0 + 1);
        }
        assert_eq!(rows(&connection).0, 204);
    }

    #[test]
    fn a_log_that_begins_anew_is_written_from_its_beginning() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal.db");
        let connection = writer(&path, 16 << 20);
        for round in 1..=5 {
            insert(&connection, 10_000);
            insert(&connection, 10);
            connection.query_row("PRAGMA wal_checkpoint(RESTART)", [], |_| Ok(())).unwrap();
            insert(&connection, 100);
            assert_eq!(found_after_crash(&path).0, 3 * round);
        }
        drop(connection);
        assert_eq!(rows(&Connection::open(&path).unwrap()).0, 15);
    }
}
