//! The files of a stream's metadata: their places, and writing them so that a crash leaves old or new.

use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use super::error::LakeError;

/// Versions that are kept.
const KEPT_VERSIONS: usize = 10;

/// Where the files of one stream are.
pub(super) struct Places {
    /// The stream's directory.
    pub home: PathBuf,
    /// The directory of versions and hint.
    pub versions: PathBuf,
    /// The file that names the current version.
    pub hint: PathBuf,
    /// The copy of the current version.
    pub plain: PathBuf,
    /// Held while documents are written.
    pub lock: PathBuf,
}

impl Places {
    pub(super) fn new(root: &Path, name: &str) -> Self {
        let home = root.join(name);
        let versions = home.join(format!("{name}.metadata"));
        Self {
            hint: versions.join("version-hint.text"),
            plain: home.join(format!("{name}.metadata.json")),
            lock: versions.join(".lock"),
            versions,
            home,
        }
    }
}

/// The text of a file, `None` if there is no such file.
pub(super) fn read(path: &Path) -> Result<Option<String>, LakeError> {
    match fs::read(path) {
        Ok(bytes) => match String::from_utf8(bytes) {
            Ok(text) => Ok(Some(text)),
            Err(_) => Err(LakeError::Damaged { path: path.to_owned(), what: "it is not UTF-8".to_owned() }),
        },
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(LakeError::Io { action: "read", path: path.to_owned(), source }),
    }
}

/// Makes a directory and those above it, and makes that last.
pub(super) fn make_directory(path: &Path) -> Result<(), LakeError> {
    fs::create_dir_all(path).map_err(|source| LakeError::Io { action: "create", path: path.to_owned(), source })?;
    path.parent().map_or(Ok(()), sync_directory)
}

/// Replaces a file as a whole: after a crash it has the old text or the new.
pub(super) fn write(path: &Path, text: &str) -> Result<(), LakeError> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".tmp");
    let temporary = PathBuf::from(temporary);
    let fill = || -> std::io::Result<()> {
        let mut file = File::create(&temporary)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    fill().map_err(|source| LakeError::Io { action: "write", path: path.to_owned(), source })?;
    path.parent().map_or(Ok(()), sync_directory)
}

fn sync_directory(path: &Path) -> Result<(), LakeError> {
    File::open(path).and_then(|directory| directory.sync_all()).map_err(|source| LakeError::Io {
        action: "sync",
        path: path.to_owned(),
        source,
    })
}

/// The number in the name of a version: five or more digits, `-`, 32 lower-case hexadecimal digits,
/// `.metadata.json`.
pub(super) fn version_number(name: &str) -> Option<u64> {
    let (number, tag) = name.strip_suffix(".metadata.json")?.split_once('-')?;
    let hexadecimal = tag.len() == 32 && tag.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let digits = number.len() >= 5 && number.bytes().all(|byte| byte.is_ascii_digit());
    if hexadecimal && digits { number.parse().ok() } else { None }
}

/// Deletes all but the newest versions, and never `current`.
pub(super) fn prune(versions: &Path, current: &str) -> Result<(), LakeError> {
    let fail = |action, path: &Path| {
        let path = path.to_owned();
        move |source| LakeError::Io { action, path, source }
    };
    let mut found = Vec::new();
    for entry in fs::read_dir(versions).map_err(fail("list", versions))? {
        let name = entry.map_err(fail("list", versions))?.file_name();
        if let Some(name) = name.to_str()
            && let Some(number) = version_number(name)
            && name != current
        {
            found.push((number, name.to_owned()));
        }
    }
    found.sort();
    let surplus = (found.len() + 1).saturating_sub(KEPT_VERSIONS);
    for (_, name) in found.into_iter().take(surplus) {
        let path = versions.join(name);
        fs::remove_file(&path).map_err(fail("delete", &path))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_versions_have_a_number() {
        let tag = "064c4fa9037e4d19bba4e06189ccb04a";
        assert_eq!(version_number(&format!("00002-{tag}.metadata.json")), Some(2));
        assert_eq!(version_number(&format!("100000-{tag}.metadata.json")), Some(100_000));
        for other in [
            format!("0002-{tag}.metadata.json"),
            format!("00002-{tag}.manifest.parquet"),
            format!("00002-{}.metadata.json", tag.to_uppercase()),
            format!("00002-{tag}0.metadata.json"),
            "version-hint.text".to_owned(),
        ] {
            assert_eq!(version_number(&other), None, "{other}");
        }
    }

    #[test]
    fn pruning_goes_by_number_and_spares_the_current_version() {
        let dir = tempfile::tempdir().expect("a directory");
        let name = |number: u32| format!("{number:05}-{number:032x}.metadata.json");
        for number in 99_990..100_005 {
            fs::write(dir.path().join(name(number)), "").expect("written");
        }
        fs::write(dir.path().join("version-hint.text"), "").expect("written");
        prune(dir.path(), &name(99_990)).expect("pruned");
        let mut left: Vec<_> = fs::read_dir(dir.path())
            .expect("listed")
            .filter_map(|entry| version_number(entry.expect("an entry").file_name().to_str()?))
            .collect();
        left.sort_unstable();
        assert_eq!(left, [99_990].into_iter().chain(99_996..100_005).collect::<Vec<_>>());
        assert!(dir.path().join("version-hint.text").exists());
    }
}
