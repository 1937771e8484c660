//! Finished files get their names, and last.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::error::ColumnsError;
use crate::lake::DataFile;

/// A finished file that has no name yet.
#[must_use = "a file without a name is deleted"]
#[derive(Debug)]
pub struct Unnamed {
    directory: PathBuf,
    temporary: PathBuf,
    file: DataFile,
    placed: bool,
}

impl Unnamed {
    pub(super) fn new(directory: PathBuf, temporary: PathBuf, file: DataFile) -> Self {
        Self { directory, temporary, file, placed: false }
    }

    /// What it holds. It has no URI yet.
    #[must_use]
    pub fn file(&self) -> &DataFile {
        &self.file
    }

    /// Where it is until it has its name.
    pub(super) fn temporary(&self) -> &Path {
        &self.temporary
    }

    /// Gives the file its name, `name` in its directory. Afterwards it survives a crash.
    ///
    /// # Errors
    /// When the file system refuses.
    pub fn place(mut self, name: &str) -> Result<DataFile, ColumnsError> {
        let path = self.directory.join(name);
        self.file.uri = file_uri(&path)?;
        fs::rename(&self.temporary, &path).map_err(ColumnsError::io("rename to", &path))?;
        self.placed = true;
        sync(&self.directory)?;
        Ok(self.file.clone())
    }
}

impl Drop for Unnamed {
    fn drop(&mut self) {
        if !self.placed {
            remove(&self.temporary);
        }
    }
}

/// The raw URI of a file, as tables name it.
fn file_uri(path: &Path) -> Result<String, ColumnsError> {
    let absolute = std::path::absolute(path).map_err(ColumnsError::io("name", path))?;
    match absolute.to_str() {
        Some(text) => Ok(format!("file://{text}")),
        None => Err(ColumnsError::file(&path.display().to_string(), "its path is not utf-8")),
    }
}

/// Best effort: the next start removes what is left.
pub(super) fn remove(path: &Path) {
    if let Err(error) = fs::remove_file(path) {
        tracing::warn!("cannot remove the unfinished file {}: {error}", path.display());
    }
}

/// Makes a directory and those above it, each of them synced into the one above: a file in it is of no use if they are
/// gone after a crash.
pub(super) fn make_directory(path: &Path) -> Result<(), ColumnsError> {
    let missing: Vec<&Path> = path.ancestors().take_while(|directory| !directory.is_dir()).collect();
    for directory in missing.into_iter().rev() {
        match fs::create_dir(directory) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                return Err(ColumnsError::io("make the directory", directory)(error));
            }
            _ => {}
        }
        match directory.parent() {
            Some(above) if above.as_os_str().is_empty() => sync(Path::new("."))?,
            Some(above) => sync(above)?,
            None => {}
        }
    }
    Ok(())
}

fn sync(directory: &Path) -> Result<(), ColumnsError> {
    let synced = File::open(directory).and_then(|open| open.sync_all());
    synced.map_err(ColumnsError::io("sync the directory", directory))
}
