//! A log's files at one moment.

use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The number of a log in the catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LogId(pub i64);

/// Where a file came from; names its directory below `data/`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tier {
    /// Rows of the journal.
    Sealed,
    /// Other files.
    Compacted,
    /// A bulk load.
    Ingested,
}

impl Tier {
    /// The directory's name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sealed => "sealed",
            Self::Compacted => "compacted",
            Self::Ingested => "ingested",
        }
    }

    /// The inverse of [`Tier::as_str`]; anything unknown counts as a bulk load.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        match text {
            "sealed" => Self::Sealed,
            "compacted" => Self::Compacted,
            _ => Self::Ingested,
        }
    }
}

/// One file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedFile {
    /// The offset of its first row.
    pub start: i64,
    /// The offset after its last row.
    pub end: i64,
    /// How many rows it has.
    pub rows: u64,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// The lowest and the highest stamp in it, in microseconds.
    pub ts_us: (i64, i64),
    /// Where the table has it, or will have it.
    pub uri: String,
    /// Where it is on this machine, as an absolute path; `None` if only the table's store has it.
    pub path: Option<PathBuf>,
    /// Whether a replay reads it as part of the local tier (docs/storage.md).
    pub local: bool,
    /// Whether the table has it.
    pub published: bool,
    /// Where it came from.
    pub tier: Tier,
    /// When it was recorded, in microseconds.
    pub created_us: i64,
}

impl SealedFile {
    /// Whether the file that is read here and the one that the table names are the same.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.path.as_deref().is_some_and(|path| is_uri_of(&self.uri, path))
    }
}

/// Whether `uri` names the local file `path`.
pub(super) fn is_uri_of(uri: &str, path: &Path) -> bool {
    uri.strip_prefix("file://").is_some_and(|raw| Path::new(raw) == path)
}

/// A log and its files, as they were after some change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogView {
    /// Its number.
    pub id: LogId,
    /// The stream.
    pub stream: String,
    /// Its name.
    pub name: String,
    /// Where its table is: the published prefix and the name.
    pub location: String,
    /// The first offset it may hold.
    pub start_offset: i64,
    /// Everything before this offset is in files, or was before it was deleted for its age.
    pub sealed_end: i64,
    /// Everything before this offset is in the table, or was.
    pub published_end: i64,
    /// The files, by offset. They do not overlap.
    pub files: Vec<Arc<SealedFile>>,
}

impl LogView {
    /// The first file that reaches `offset` or begins above it, among those for which `readable` holds.
    pub fn file_at_or_above(
        &self,
        offset: i64,
        readable: impl Fn(&SealedFile) -> bool,
    ) -> Option<(usize, &Arc<SealedFile>)> {
        let first = self.files.partition_point(|file| file.end <= offset);
        self.files.iter().enumerate().skip(first).find(|(_, file)| readable(file))
    }

    /// Rows in all files.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.files.iter().map(|file| file.rows).sum()
    }

    /// Bytes of all files.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.size_bytes).sum()
    }
}
