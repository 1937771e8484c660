//! Cases about rows that leave the journal: loaded in bulk, moved into files and tables, opened again.

use serde::{Deserialize, Serialize};

/// How rows move into files and tables, in the server's own keys and units (`[stream.lake]` of streamcast-uring).
pub type LakeOptions = serde_json::Map<String, serde_json::Value>;

/// Loading a file into a stopped stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ingest {
    pub name: String,
    /// Rows of the file, made once and used for every peer.
    pub rows: u64,
    pub format: SourceFormat,
    /// How often the file is loaded, each time into a new root.
    #[serde(default = "three")]
    pub rounds: u32,
}

/// Format of a file that is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SourceFormat {
    Parquet,
    Arrow,
}

impl SourceFormat {
    /// Its name, which is the ending of its files, too.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Parquet => "parquet",
            Self::Arrow => "arrow",
        }
    }
}

/// Rows at a fixed rate for a long time, watched from outside: what lies on the disk, and how far the table is behind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Steady {
    pub name: String,
    /// Publish frames a second.
    pub rate: f64,
    /// Rows a frame.
    #[serde(default = "hundred_rows")]
    pub batch: u32,
    /// Seconds of publishing; scaled like all times.
    pub measure_s: f64,
    /// Seconds between two looks.
    #[serde(default = "one_second")]
    pub look_every_s: f64,
    pub lake: Option<LakeOptions>,
}

/// Rows at a fixed rate that move into files and tables, and the same rows that do not: windows of both kinds in turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Moving {
    pub name: String,
    /// Subscribers of each of the two streams.
    pub subscribers: usize,
    /// Publish frames a second, to one stream at a time.
    pub rate: f64,
    /// Rows a frame.
    #[serde(default = "hundred_rows")]
    pub batch: u32,
    /// Every so many frames the latency is taken.
    #[serde(default = "super::work::every")]
    pub sample_every: u64,
    /// Pairs of windows, one of each kind.
    pub pairs: u32,
    /// Seconds of publishing before each window, until moving is in full swing.
    pub lead_s: f64,
    /// Seconds of a window: so many that each has all kinds of work.
    pub window_s: f64,
    /// Seconds to wait after a window for what is still on its way.
    #[serde(default = "super::work::drain")]
    pub drain_s: f64,
    /// Seconds that the server must have had nothing to do before the next window; not scaled, as its own times are not.
    pub rest_s: f64,
    /// How the rows of the one stream move.
    pub lake: LakeOptions,
}

/// A table of very many files: starting on it, replaying it, restoring it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Open {
    pub name: String,
    pub rows: u64,
    /// Fewest files that the table must have for the case to count.
    pub files: u64,
    /// How often the server is started and the rows are read.
    #[serde(default = "three")]
    pub rounds: u32,
    /// How the rows become that many files.
    pub lake: LakeOptions,
}

fn three() -> u32 {
    3
}

fn hundred_rows() -> u32 {
    100
}

fn one_second() -> f64 {
    1.0
}
