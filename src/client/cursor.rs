//! A cursor file: the last row a consumer has handled, replaced as a whole so that a crash leaves the old or the new.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Largest cursor file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 4_096;

/// What a cursor file holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// Offset of the last row that was handled; the next one to ask for is one above.
    pub offset: u64,
    /// The stream it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream_id: Option<String>,
}

/// Why a cursor file could not be used.
#[derive(Debug, thiserror::Error)]
pub enum CursorError {
    /// Reading failed.
    #[error("cursor file {}: cannot be read: {source}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Writing failed.
    #[error("cursor file {}: cannot be written: {source}", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Something else is in the file.
    #[error("{} is no cursor file; name another, or remove it to start over", .path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
}

/// A cursor file.
#[derive(Debug, Clone)]
pub struct Cursor {
    path: PathBuf,
    temporary: PathBuf,
}

impl Cursor {
    /// A cursor kept in this file; nothing is read or written yet.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        let mut temporary = path.as_os_str().to_owned();
        temporary.push(".new");
        Self { path: path.to_owned(), temporary: temporary.into() }
    }

    /// The saved position, `None` when there is no file yet. A file with nothing but a number is taken too.
    ///
    /// # Errors
    /// When the file cannot be read or holds something else.
    pub fn load(&self) -> Result<Option<Position>, CursorError> {
        let failed = |source| CursorError::Read { path: self.path.clone(), source };
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let mut bytes = Vec::new();
        file.take(MAX_FILE_BYTES).read_to_end(&mut bytes).map_err(failed)?;
        let text = String::from_utf8_lossy(&bytes);
        let plain = text.trim().parse().map(|offset| Position { offset, stream_id: None });
        let object = || text.starts_with('{').then(|| serde_json::from_str(&text).ok()).flatten();
        match plain.ok().or_else(object) {
            Some(position) => Ok(Some(position)),
            None => Err(CursorError::Foreign { path: self.path.clone() }),
        }
    }

    /// Replaces the saved position; it is on disk when this returns.
    ///
    /// # Errors
    /// When the file cannot be written; the old position is there still.
    pub fn save(&self, position: &Position) -> Result<(), CursorError> {
        let save = || -> io::Result<()> {
            let mut text = serde_json::to_vec(position)?;
            text.push(b'\n');
            let mut file = File::create(&self.temporary)?;
            file.write_all(&text)?;
            file.sync_data()?;
            fs::rename(&self.temporary, &self.path)
        };
        save().map_err(|source| CursorError::Write { path: self.path.clone(), source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_saved_is_loaded() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("c");
        let cursor = Cursor::new(&path);
        assert_eq!(cursor.load().expect("no file is fine"), None);
        for (offset, stream_id) in [(0, None), (41, Some("x".to_owned())), (7, None)] {
            let position = Position { offset, stream_id };
            cursor.save(&position).expect("saved");
            assert_eq!(cursor.load().expect("loaded"), Some(position));
        }
        fs::write(&path, "400").expect("written");
        assert_eq!(cursor.load().expect("a plain number"), Some(Position { offset: 400, stream_id: None }));
        let left: Vec<_> = fs::read_dir(directory.path()).expect("listed").collect();
        assert_eq!(left.len(), 1);
    }

    #[test]
    fn what_is_no_cursor_is_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("c");
        for bad in ["", "-1", "{}", "1.5", "[1]", "trades\n", "{\"offset\":-1}"] {
            fs::write(&path, bad).expect("written");
            assert!(matches!(Cursor::new(&path).load(), Err(CursorError::Foreign { .. })), "{bad}");
        }
        assert!(matches!(Cursor::new(directory.path()).load(), Err(CursorError::Read { .. })));
        let nowhere = Cursor::new(&directory.path().join("no/such"));
        assert!(matches!(nowhere.save(&Position { offset: 1, stream_id: None }), Err(CursorError::Write { .. })));
    }
}
