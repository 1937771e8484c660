//! Between rows of the catalog's tables and values.

use std::path::{Path, PathBuf};

use rusqlite::Row;

use super::view::{SealedFile, Tier};
use crate::lake::data_file::DataFile;

/// The columns of [`read_file`], in order.
pub(super) const FILE_COLUMNS: &str = "start_offset, end_offset, row_count, size_bytes, min_ts_us, max_ts_us, uri, \
                                       path, local, published, tier, created_us";

pub(super) fn read_file(root: &Path, row: &Row<'_>) -> rusqlite::Result<SealedFile> {
    Ok(SealedFile {
        start: row.get(0)?,
        end: row.get(1)?,
        rows: row.get::<_, i64>(2)?.max(0) as u64,
        size_bytes: row.get::<_, i64>(3)?.max(0) as u64,
        ts_us: (row.get(4)?, row.get(5)?),
        uri: row.get(6)?,
        path: row.get::<_, Option<String>>(7)?.map(|path| absolute(root, &path)),
        local: row.get(8)?,
        published: row.get(9)?,
        tier: Tier::parse(row.get_ref(10)?.as_str()?),
        created_us: row.get(11)?,
    })
}

/// A path as it is recorded: relative below the root, so that a root can be moved, else absolute. Only UTF-8.
pub(super) fn relative<'a>(root: &Path, path: &'a Path) -> Option<&'a str> {
    path.strip_prefix(root).unwrap_or(path).to_str()
}

pub(super) fn absolute(root: &Path, path: &str) -> PathBuf {
    root.join(path)
}

/// What a manifest needs of a file beyond the columns of the table; it is forgotten once a manifest has it.
pub(super) fn description(file: &DataFile) -> String {
    // A value of plain numbers and strings always has a text.
    serde_json::to_string(file).unwrap_or_default()
}

pub(super) fn parse_description(text: &str) -> Option<DataFile> {
    serde_json::from_str(text).ok()
}
