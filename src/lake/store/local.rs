//! Files. Everything here blocks; what it has written is on disk when it returns, and a crash leaves the old file, the
//! new one, or a temporary one whose name starts with a dot and ends in `.tmp`.

use std::collections::BTreeSet;
use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind, Read as _, Seek as _, SeekFrom, Write as _};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, UNIX_EPOCH};

use bytes::Bytes;

use super::error::StoreError;
use super::objects::{MAX_WHOLE_BYTES, Object};
use super::uri;

/// How long a lock is waited for. Its holders make a few requests.
const MAX_LOCK_WAIT: Duration = Duration::from_secs(30);
const LOCK_POLL: Duration = Duration::from_millis(5);

fn fail(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    let uri = format!("file://{}", path.display());
    move |source| StoreError::Io { action, uri, source }
}

pub(super) fn get(path: &Path) -> Result<Option<Bytes>, StoreError> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if absent(&error) => return Ok(None),
        Err(error) => return Err(fail("read", path)(error)),
    };
    let size_bytes = file.metadata().map_err(fail("read", path))?.len();
    if size_bytes > MAX_WHOLE_BYTES {
        return Err(StoreError::TooLarge { uri: uri::of_path(path)?, size_bytes, max_bytes: MAX_WHOLE_BYTES });
    }
    let mut bytes = Vec::with_capacity(usize::try_from(size_bytes).unwrap_or(0) + 1);
    file.read_to_end(&mut bytes).map_err(fail("read", path))?;
    Ok(Some(bytes.into()))
}

pub(super) fn get_range(path: &Path, range: &Range<u64>) -> Result<Bytes, StoreError> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if absent(&error) => return Err(StoreError::NotFound { uri: uri::of_path(path)? }),
        Err(error) => return Err(fail("read", path)(error)),
    };
    let length = range.end.saturating_sub(range.start).min(MAX_WHOLE_BYTES);
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
    file.seek(SeekFrom::Start(range.start)).map_err(fail("read", path))?;
    file.read_exact(&mut bytes).map_err(fail("read", path))?;
    Ok(bytes.into())
}

pub(super) fn head(path: &Path) -> Result<Option<Object>, StoreError> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => Ok(Some(object(path, &metadata)?)),
        Ok(_) => Ok(None),
        Err(error) if absent(&error) => Ok(None),
        Err(error) => Err(fail("look at", path)(error)),
    }
}

/// Replaces a file as a whole.
pub(super) fn put(path: &Path, bytes: &[u8]) -> Result<(), StoreError> {
    let temporary = fill(path, |file| file.write_all(bytes))?;
    place(&temporary, path)
}

/// Writes a file that is not there yet; `false` if it is.
pub(super) fn put_if_absent(path: &Path, bytes: &[u8]) -> Result<bool, StoreError> {
    let temporary = fill(path, |file| file.write_all(bytes))?;
    // A link, unlike a rename, does not replace.
    let linked = fs::hard_link(&temporary, path);
    let _ = fs::remove_file(&temporary);
    match linked {
        Ok(()) => sync_parent(path).map(|()| true),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(fail("write", path)(error)),
    }
}

/// Copies a file to another place, which has the whole of it or nothing. The size is returned.
pub(super) fn copy(from: &Path, to: &Path) -> Result<u64, StoreError> {
    let mut source = File::open(from).map_err(fail("read", from))?;
    let mut copied = 0;
    let temporary = fill(to, |file| {
        copied = io::copy(&mut source, file)?;
        Ok(())
    })?;
    place(&temporary, to)?;
    Ok(copied)
}

/// A temporary file beside `path`, filled and synced.
pub(super) fn fill(path: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> Result<PathBuf, StoreError> {
    let temporary = temporary_for(path)?;
    let filled = File::create_new(&temporary).and_then(|mut file| {
        write(&mut file)?;
        file.sync_all()
    });
    match filled {
        Ok(()) => Ok(temporary),
        Err(error) => {
            let _ = fs::remove_file(&temporary);
            Err(fail("write", path)(error))
        }
    }
}

/// A name for a temporary file beside `path`, whose directory is made.
pub(super) fn temporary_for(path: &Path) -> Result<PathBuf, StoreError> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
        return Err(StoreError::Uri { uri: format!("file://{}", path.display()), why: "it names no file" });
    };
    make_directory(directory)?;
    Ok(directory.join(format!(".{name}.{}.tmp", uuid::Uuid::new_v4().simple())))
}

/// Moves a complete temporary file to its place.
pub(super) fn place(temporary: &Path, path: &Path) -> Result<(), StoreError> {
    if let Err(error) = fs::rename(temporary, path) {
        let _ = fs::remove_file(temporary);
        return Err(fail("write", path)(error));
    }
    sync_parent(path)
}

/// Deletes files, those that are gone already included, and makes it last.
pub(super) fn delete(paths: &[PathBuf]) -> Result<(), StoreError> {
    let mut touched = BTreeSet::new();
    for path in paths {
        match fs::remove_file(path) {
            Ok(()) => {
                touched.extend(path.parent());
            }
            Err(error) if absent(&error) => {}
            Err(error) => return Err(fail("delete", path)(error)),
        }
    }
    for directory in touched {
        match File::open(directory).and_then(|directory| directory.sync_all()) {
            Err(error) if !absent(&error) => return Err(fail("sync", directory)(error)),
            _ => {}
        }
    }
    Ok(())
}

/// Removes `path` and the directories below it that hold nothing.
pub(super) fn delete_empty_directories(path: &Path) -> Result<(), StoreError> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if absent(&error) => return Ok(()),
        Err(error) => return Err(fail("list", path)(error)),
    };
    for entry in entries {
        let entry = entry.map_err(fail("list", path))?;
        if entry.file_type().map_err(fail("list", path))?.is_dir() {
            delete_empty_directories(&entry.path())?;
        }
    }
    match fs::remove_dir(path) {
        Err(error) if error.kind() != ErrorKind::DirectoryNotEmpty && !absent(&error) => {
            Err(fail("delete", path)(error))
        }
        _ => Ok(()),
    }
}

/// Waits until nobody else holds the lock file at `path`, half a minute at most, and holds it until the value is dropped.
pub(super) fn lock(path: &Path) -> Result<File, StoreError> {
    if let Some(directory) = path.parent() {
        make_directory(directory)?;
    }
    let open = File::options().create(true).truncate(false).write(true).open(path);
    let file = open.map_err(fail("open", path))?;
    let began = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if began.elapsed() < MAX_LOCK_WAIT => thread::sleep(LOCK_POLL),
            Err(TryLockError::WouldBlock) => {
                let why = format!("another process has held the lock for over {} s", MAX_LOCK_WAIT.as_secs());
                return Err(StoreError::Unavailable { action: "lock", uri: uri::of_path(path)?, why });
            }
            Err(TryLockError::Error(error)) => return Err(fail("lock", path)(error)),
        }
    }
}

/// The files in a directory, by name, and its directories. Nothing there is nothing found.
pub(super) fn read_directory(path: &Path) -> Result<(Vec<Object>, Vec<PathBuf>), StoreError> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if absent(&error) => return Ok((Vec::new(), Vec::new())),
        Err(error) => return Err(fail("list", path)(error)),
    };
    let (mut files, mut directories) = (Vec::new(), Vec::new());
    for entry in entries {
        let entry = entry.map_err(fail("list", path))?;
        let metadata = match entry.metadata() {
            Ok(metadata) => metadata,
            Err(error) if absent(&error) => continue, // deleted meanwhile
            Err(error) => return Err(fail("list", path)(error)),
        };
        if metadata.is_dir() {
            directories.push(entry.path());
        } else if metadata.is_file() {
            files.push(object(&entry.path(), &metadata)?);
        }
    }
    files.sort_by(|a, b| a.uri.cmp(&b.uri));
    directories.sort_by(|a, b| b.cmp(a));
    Ok((files, directories))
}

fn object(path: &Path, metadata: &fs::Metadata) -> Result<Object, StoreError> {
    let modified = metadata.modified().map_err(fail("look at", path))?;
    let modified_ms = modified.duration_since(UNIX_EPOCH).map_or(0, |age| age.as_millis());
    Ok(Object {
        uri: uri::of_path(path)?,
        size_bytes: metadata.len(),
        modified_ms: i64::try_from(modified_ms).unwrap_or(i64::MAX),
    })
}

/// Makes a directory and those above it, each of them synced into the one above.
fn make_directory(path: &Path) -> Result<(), StoreError> {
    let mut missing = Vec::new();
    let mut at = path;
    while !at.is_dir() {
        missing.push(at);
        match at.parent() {
            Some(parent) => at = parent,
            None => break,
        }
    }
    for directory in missing.into_iter().rev() {
        match fs::create_dir(directory) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::AlreadyExists && directory.is_dir() => {}
            Err(error) => return Err(fail("create", directory)(error)),
        }
        sync_parent(directory)?;
    }
    Ok(())
}

fn sync_parent(path: &Path) -> Result<(), StoreError> {
    let Some(parent) = path.parent() else { return Ok(()) };
    File::open(parent).and_then(|directory| directory.sync_all()).map_err(fail("sync", parent))
}

/// Not there, or below something that is not a directory.
fn absent(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_created_once() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("a b/é%41/x.bin");
        assert_eq!(get(&path).expect("read"), None);
        assert!(put_if_absent(&path, b"one").expect("written"));
        assert!(!put_if_absent(&path, b"two").expect("refused"));
        assert_eq!(get(&path).expect("read").as_deref(), Some(&b"one"[..]));
        put(&path, b"three").expect("written");
        assert_eq!(get_range(&path, &(1..3)).expect("read"), &b"hr"[..]);
        assert_eq!(head(&path).expect("looked").map(|object| object.size_bytes), Some(5));
        let (files, _) = read_directory(path.parent().expect("a parent")).expect("listed");
        assert_eq!(files.len(), 1, "no temporary file is left: {files:?}");
        delete(&[path.clone(), path.clone()]).expect("deleted");
        assert_eq!(get(&path).expect("read"), None);
        delete_empty_directories(&dir.path().join("a b")).expect("deleted");
        assert!(!dir.path().join("a b").exists());
    }

    #[test]
    fn a_failed_write_leaves_what_was_there() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("x");
        put(&path, b"old").expect("written");
        let failed = fill(&path, |_| Err(io::Error::other("no")));
        assert!(matches!(failed, Err(StoreError::Io { action: "write", .. })));
        assert_eq!(get(&path).expect("read").as_deref(), Some(&b"old"[..]));
        let (files, _) = read_directory(dir.path()).expect("listed");
        assert_eq!(files.len(), 1);
    }
}
