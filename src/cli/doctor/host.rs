//! Reading what the kernel tells in /proc and /sys.

use std::path::{Path, PathBuf};

/// The machine, seen from a root directory: `/`, or a made-up tree in tests.
pub struct Host {
    root: PathBuf,
}

impl Host {
    /// The machine below `root`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Where its file system begins.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// A file's text without the white space around it; `None` when there is no such file.
    pub fn read(&self, path: &str) -> Option<String> {
        std::fs::read_to_string(self.root.join(path)).ok().map(|text| text.trim().to_owned())
    }

    /// A kernel setting by its dotted name.
    pub fn sysctl(&self, name: &str) -> Option<String> {
        self.read(&format!("proc/sys/{}", name.replace('.', "/")))
    }

    /// A list of cores in a file, such as `0-3,6`.
    pub fn cores(&self, path: &str) -> Option<Vec<usize>> {
        let text = self.read(path)?;
        streamcast_shards::cores::parse_list(&text, &[]).ok()
    }
}

/// A tree of files for tests.
#[cfg(test)]
pub fn made_up(files: &[(&str, &str)]) -> (tempfile::TempDir, Host) {
    let directory = tempfile::tempdir().expect("a directory");
    for (path, text) in files {
        let path = directory.path().join(path);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
        std::fs::write(path, text).expect("a file");
    }
    let host = Host::new(directory.path());
    (directory, host)
}
