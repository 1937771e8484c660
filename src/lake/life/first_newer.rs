//! The first row that came after a moment.

use std::io;

use bytes::Bytes;

use super::error::LifeError;
use super::estate::Grounds;
use super::finish::{layout, location};
use crate::lake::DataFile;
use crate::lake::columns::{Layout, ReadRange, Source, first_offset_after};
use crate::lake::documents::{Document, LiveLog, local_path};
use crate::lake::store::Store;
use crate::lake::table::Table;

/// The lowest offset in `files`, which are a log's in order, whose stamp is above `cutoff_us`; `None` if there is none.
/// One file is read at most: files follow each other in offsets, so the first that has such a row has the lowest.
pub(super) async fn first_newer(
    store: &Store,
    layout: &Layout,
    files: &[DataFile],
    cutoff_us: i64,
) -> Result<Option<i64>, LifeError> {
    let Some(file) = files.iter().find(|file| file.ts_us.1 > cutoff_us) else { return Ok(None) };
    if file.ts_us.0 > cutoff_us {
        return Ok(Some(file.start));
    }
    let source = open(store, file)?;
    let (layout, uri) = (layout.clone(), file.uri.clone());
    let found = tokio::task::spawn_blocking(move || first_offset_after(source, &layout, cutoff_us)).await;
    match found {
        Ok(found) => Ok(found?),
        Err(error) => Err(LifeError::Moving { stream: uri, why: error.to_string() }),
    }
}

/// The same of the log that is written; where it ends if nothing in it is newer.
pub(super) async fn first_newer_in_live(
    grounds: Grounds<'_>,
    document: &Document,
    cutoff_us: i64,
) -> Result<i64, LifeError> {
    let (stream, live): (&str, &LiveLog) = (&document.stream, &document.live_log);
    let layout = layout(stream, live)?;
    if let Some(mut table) = Table::open(grounds.store, &location(live)).await? {
        let files = table.files().await?;
        if let Some(first) = first_newer(grounds.store, &layout, &files, cutoff_us).await? {
            return Ok(first.max(live.start_offset));
        }
    }
    // Rows that are not published yet are there to be published: the floor stays at or below them.
    let known = grounds.catalog.find(stream, &live.name);
    let published_end = known.map_or(live.start_offset, |known| known.published_end);
    Ok(published_end.max(live.start_offset))
}

/// Opens a file for threads that may wait.
pub(super) fn open(store: &Store, file: &DataFile) -> Result<Source, LifeError> {
    if let Some(path) = local_path(&file.uri) {
        return Ok(Source::file(&path)?);
    }
    let ranges = Ranges { store: store.clone(), uri: file.uri.clone(), runtime: tokio::runtime::Handle::current() };
    Ok(Source::ranges(&file.uri, file.size_bytes, Box::new(ranges)))
}

/// Ranges of an object, read from a thread that may wait.
struct Ranges {
    store: Store,
    uri: String,
    runtime: tokio::runtime::Handle,
}

impl ReadRange for Ranges {
    fn read_range(&self, start: u64, length: usize) -> io::Result<Bytes> {
        let range = start..start + length as u64;
        self.runtime.block_on(self.store.get_range(&self.uri, range)).map_err(io::Error::other)
    }
}
