//! One owner per data root: a lock file that the serving process holds for its life.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use super::error::JournalError;

/// The lock file's name below the data root.
pub const LOCK_FILE: &str = "journal.lock";

/// Holds a data root; released when dropped or when the process ends, however it ends.
#[derive(Debug)]
pub struct RootLock {
    root: PathBuf,
    file: File,
}

impl RootLock {
    /// Creates `root` if needed and takes it for this process.
    ///
    /// # Errors
    /// [`JournalError::InUse`] when another process holds it, [`JournalError::Io`] when the file system refuses.
    pub fn acquire(root: &Path) -> Result<Self, JournalError> {
        let fail = |action, path: &Path| {
            let path = path.to_owned();
            move |source| JournalError::Io { action, path, source }
        };
        fs::create_dir_all(root).map_err(fail("create the data root", root))?;
        let root = fs::canonicalize(root).map_err(fail("resolve the data root", root))?;
        let path = root.join(LOCK_FILE);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(fail("open the lock file", &path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(JournalError::InUse { root, holder: holder(&mut file) }),
            Err(TryLockError::Error(source)) => return Err(fail("lock", &path)(source)),
        }
        let pid = format!("{}\n", std::process::id());
        file.set_len(0)
            .and_then(|()| file.seek(SeekFrom::Start(0)))
            .and_then(|_| file.write_all(pid.as_bytes()))
            .map_err(fail("write the lock file", &path))?;
        Ok(Self { root, file })
    }

    /// The data root as an absolute path without links.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }
}

impl Drop for RootLock {
    fn drop(&mut self) {
        // Closing is not enough: a child process that is just being started holds the same open file.
        if let Err(error) = self.file.unlock() {
            let root = self.root.display();
            tracing::warn!(%error, %root, "the data root is not given up before the process ends");
        }
    }
}

/// The process that wrote the lock file, for the error text.
fn holder(file: &mut File) -> String {
    let mut text = String::new();
    match file.take(32).read_to_string(&mut text) {
        Ok(_) if !text.trim().is_empty() && text.trim().bytes().all(|byte| byte.is_ascii_digit()) => {
            text.trim().to_owned()
        }
        _ => "unknown".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_owner_is_told_the_root_and_the_process() {
        let dir = tempfile::tempdir().expect("a directory");
        let root = dir.path().join("deep/root");
        let held = RootLock::acquire(&root).expect("free");
        let error = RootLock::acquire(&root).expect_err("held").to_string();
        assert!(error.contains(&held.root().display().to_string()), "{error}");
        assert!(error.contains(&format!("process {}:", std::process::id())), "{error}");
        drop(held);
        RootLock::acquire(&root).expect("free again");
    }
}
