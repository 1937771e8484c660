//! The folder of a demo: the one it was given, or one of its own that goes with it.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Names tried before giving up.
const MAX_TRIES: u32 = 16;

/// A folder; a temporary one is removed with everything in it when this is dropped.
pub struct Root {
    path: PathBuf,
    temporary: bool,
}

impl Root {
    /// The given folder (made when it is first used), or a new one below the system's temporary folder that only
    /// this user can enter.
    ///
    /// # Errors
    /// If no folder can be made.
    pub fn new(given: Option<PathBuf>) -> io::Result<Self> {
        if let Some(path) = given {
            return Ok(Self { path, temporary: false });
        }
        let below = std::env::temp_dir();
        let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.subsec_nanos());
        let mut tries = 0;
        loop {
            let path = below.join(format!("streamcast-demo-{}-{:06x}", std::process::id(), (nanos >> 4) + tries));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Self { path, temporary: true }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && tries < MAX_TRIES => tries += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is removed at the end.
    pub fn is_temporary(&self) -> bool {
        self.temporary
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        if self.temporary
            && let Err(error) = std::fs::remove_dir_all(&self.path)
        {
            tracing::warn!(%error, root = %self.path.display(), "the demo's folder stays behind");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_own_folder_goes_and_a_given_one_stays() {
        let own = Root::new(None).expect("a folder");
        let (path, other) = (own.path().to_owned(), Root::new(None).expect("another folder"));
        assert!(own.is_temporary() && path.is_dir() && other.path() != path);
        std::fs::write(path.join("journal"), "rows").expect("written");
        drop(own);
        assert!(!path.exists());
        let given = Root::new(Some(other.path().to_owned())).expect("given");
        assert!(!given.is_temporary());
        drop(given);
        assert!(other.path().is_dir());
    }
}
