//! The files of a stream's metadata: their places and names, and writing one so that a crash leaves old or new.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use crate::lake::error::LakeError;

/// The file in the directory of versions that names the current one.
pub(super) const HINT: &str = "version-hint.text";

/// The end of a version's name.
const VERSION: &str = ".metadata.json";
/// The end of a manifest's name.
const MANIFEST: &str = ".manifest.parquet";

/// Where the documents of one stream are: below a directory of the data root, or below a prefix of a bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Places {
    /// The directory of versions and hint.
    pub versions: String,
    /// The file that names the current version.
    pub hint: String,
    /// The copy of the current version.
    pub plain: String,
    /// The copy of the current manifest.
    pub plain_manifest: String,
}

impl Places {
    /// The places below `home`, a path or a URI without a slash at its end.
    pub(super) fn new(home: &str, name: &str) -> Self {
        let versions = format!("{home}/{name}.metadata");
        Self {
            hint: format!("{versions}/{HINT}"),
            plain: format!("{home}/{name}{VERSION}"),
            plain_manifest: format!("{home}/{name}{MANIFEST}"),
            versions,
        }
    }

    /// A file beside the hint.
    pub(super) fn beside_hint(&self, name: &str) -> String {
        format!("{}/{name}", self.versions)
    }
}

/// The name of a version and that of its manifest: one tag for both.
pub(super) fn version_names(number: u64) -> (String, String) {
    let tag = uuid::Uuid::new_v4().simple();
    (format!("{number:05}-{tag}{VERSION}"), format!("{number:05}-{tag}{MANIFEST}"))
}

/// The number in the name of a version: five or more digits, `-`, 32 lower-case hexadecimal digits,
/// `.metadata.json`.
pub(super) fn version_number(name: &str) -> Option<u64> {
    numbered(name.strip_suffix(VERSION)?)
}

/// The same of a manifest.
pub(super) fn manifest_number(name: &str) -> Option<u64> {
    numbered(name.strip_suffix(MANIFEST)?)
}

fn numbered(stem: &str) -> Option<u64> {
    let (number, tag) = stem.split_once('-')?;
    let hexadecimal = tag.len() == 32 && tag.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let digits = number.len() >= 5 && number.bytes().all(|byte| byte.is_ascii_digit());
    if hexadecimal && digits { number.parse().ok() } else { None }
}

/// The bytes of a file, `None` if there is no such file.
pub(super) fn read(path: &Path) -> Result<Option<Vec<u8>>, LakeError> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(LakeError::Io { action: "read", path: path.to_owned(), source }),
    }
}

/// Replaces a file as a whole, and makes its directory: after a crash it has the old bytes or the new.
pub(super) fn write(path: &Path, bytes: &[u8]) -> Result<(), LakeError> {
    if let Some(directory) = path.parent()
        && !directory.is_dir()
    {
        make_directory(directory)?;
    }
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".tmp");
    let temporary = PathBuf::from(temporary);
    let fill = || -> std::io::Result<()> {
        let mut file = File::create(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    fill().map_err(|source| LakeError::Io { action: "write", path: path.to_owned(), source })?;
    path.parent().map_or(Ok(()), sync_directory)
}

/// Deletes a file if it is there.
pub(super) fn delete(path: &Path) -> Result<(), LakeError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(LakeError::Io { action: "delete", path: path.to_owned(), source: error })
        }
        _ => Ok(()),
    }
}

/// The names in a directory, but not of what is no UTF-8.
pub(super) fn names(directory: &Path) -> Result<Vec<String>, LakeError> {
    let fail = |source| LakeError::Io { action: "list", path: directory.to_owned(), source };
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(fail(error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        names.extend(entry.map_err(fail)?.file_name().into_string());
    }
    Ok(names)
}

/// Makes a directory and those above it, and makes that last.
pub(super) fn make_directory(path: &Path) -> Result<(), LakeError> {
    let mut missing: Vec<&Path> = path.ancestors().take_while(|directory| !directory.exists()).collect();
    fs::create_dir_all(path).map_err(|source| LakeError::Io { action: "create", path: path.to_owned(), source })?;
    missing.reverse();
    missing.into_iter().filter_map(Path::parent).filter(|parent| parent.exists()).try_for_each(sync_directory)
}

/// Waits for the lock of a stream's documents. It is released when the file is closed.
pub(super) fn lock(versions: &Path) -> Result<File, LakeError> {
    if !versions.is_dir() {
        make_directory(versions)?;
    }
    let path = versions.join(".lock");
    let opened = OpenOptions::new().write(true).create(true).truncate(false).open(&path);
    opened.and_then(|file| file.lock().map(|()| file)).map_err(|source| LakeError::Io { action: "lock", path, source })
}

fn sync_directory(path: &Path) -> Result<(), LakeError> {
    File::open(path).and_then(|directory| directory.sync_all()).map_err(|source| LakeError::Io {
        action: "sync",
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_versions_have_a_number() {
        let tag = "064c4fa9037e4d19bba4e06189ccb04a";
        assert_eq!(version_number(&format!("00002-{tag}.metadata.json")), Some(2));
        assert_eq!(version_number(&format!("100000-{tag}.metadata.json")), Some(100_000));
        assert_eq!(manifest_number(&format!("00002-{tag}.manifest.parquet")), Some(2));
        for other in [
            format!("0002-{tag}.metadata.json"),
            format!("00002-{tag}.manifest.parquet"),
            format!("00002-{}.metadata.json", tag.to_uppercase()),
            format!("00002-{tag}0.metadata.json"),
            "version-hint.text".to_owned(),
        ] {
            assert_eq!(version_number(&other), None, "{other}");
        }
        let (version, manifest) = version_names(7);
        assert_eq!((version_number(&version), manifest_number(&manifest)), (Some(7), Some(7)));
        assert_eq!(version.split_once('.').map(|parts| parts.0), manifest.split_once('.').map(|parts| parts.0));
    }

    #[test]
    fn directories_are_made_as_they_are_needed() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("a/b/c.json");
        assert_eq!(read(&path).expect("nothing there"), None);
        write(&path, b"1").expect("written");
        write(&path, b"2").expect("written again");
        assert_eq!(read(&path).expect("there"), Some(b"2".to_vec()));
        assert_eq!(names(&dir.path().join("a/b")).expect("listed"), ["c.json"]);
        assert!(names(&dir.path().join("x")).expect("listed").is_empty());
        delete(&path).expect("deleted");
        delete(&path).expect("deleted already");
    }
}
