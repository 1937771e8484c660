//! Sealing: the oldest rows of the journal become a file.
//!
//! The file is written and synced under a temporary name; its path is noted in the catalog; it gets its name; the
//! catalog records it and drops the note, in one transaction. From then on its rows are sealed and may leave the
//! journal. A crash before leaves a file that the next start deletes.

use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;

use streamcast_shards::manner::{Manner, in_manner};

use super::error::MoverError;
use super::shared::{Shared, blocking};
use super::stream::Moved;
use crate::lake::catalog::{NewFile, Tier};
use crate::lake::columns::{FileName, Sealer};
use crate::lake::steps::step;

/// Bytes of rows that are read from the journal in one transaction.
const READ_BYTES: usize = 1 << 20;

/// Bytes of frames, over all streams, that may be unsealed before rows that come have to wait for those that go.
const PATIENT_BYTES: i64 = 1 << 30;

/// Bytes that a row's frame has beyond the row, about.
const FRAME_OVERHEAD_BYTES: i64 = 34;

/// What a seal did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sealed {
    pub rows: u64,
    /// Whether it ended because the file was full, so that there may be more rows.
    pub full: bool,
}

/// Bytes of frames that are not sealed yet, about.
pub(super) fn unsealed_bytes(stream: &Moved) -> i64 {
    stream.counters.frame_bytes_total.load(Relaxed) as i64 - stream.sealed_frame_bytes.load(Relaxed)
}

/// Finds out how much is unsealed, when the stream comes into the lake.
pub(super) fn measure(shared: &Shared, stream: &Moved) -> Result<(), MoverError> {
    let sealed_end = stream.view(&shared.catalog)?.sealed_end;
    let bytes = shared.read(|reader| Ok(reader.bytes_from(stream.id, sealed_end)?))?;
    let counted = stream.counters.frame_bytes_total.load(Relaxed) as i64;
    stream.sealed_frame_bytes.store(counted - i64::try_from(bytes).unwrap_or(i64::MAX), Relaxed);
    Ok(())
}

/// Seals the rows below `until` that are in the journal now, in files of the usual size. `awaited` says whether somebody
/// waits for it.
pub(super) async fn seal_all(
    shared: &Arc<Shared>,
    stream: &Arc<Moved>,
    until: i64,
    awaited: bool,
) -> Result<u64, MoverError> {
    let mut rows = 0;
    while let Some(sealed) = seal_one(shared, stream, until, awaited).await? {
        rows += sealed.rows;
        if !sealed.full {
            break;
        }
    }
    Ok(rows)
}

/// Seals one file of rows below `until`; `None` if there are none.
pub(super) async fn seal_one(
    shared: &Arc<Shared>,
    stream: &Arc<Moved>,
    until: i64,
    awaited: bool,
) -> Result<Option<Sealed>, MoverError> {
    // panics: never, the semaphore is not closed
    let _permit = shared.seals.acquire().await.expect("the semaphore is open");
    let (shared, stream) = (Arc::clone(shared), Arc::clone(stream));
    blocking(move || in_manner(manner(&shared, awaited), || seal(&shared, &stream, until))).await
}

/// Whoever publishes comes first, until too much is unsealed of what is to be sealed.
pub(super) fn manner(shared: &Shared, awaited: bool) -> Manner {
    let maintained = shared.all().into_iter().filter(|stream| stream.settings.maintain);
    let unsealed_bytes: i64 = maintained.map(|stream| unsealed_bytes(&stream)).sum();
    match awaited {
        _ if unsealed_bytes >= PATIENT_BYTES => Manner::Hurried,
        true => Manner::Brisk,
        false => Manner::Patient,
    }
}

fn seal(shared: &Shared, stream: &Moved, until: i64) -> Result<Option<Sealed>, MoverError> {
    // Rows that are counted by now are in the journal by now.
    let counted_bytes = stream.counters.frame_bytes_total.load(Relaxed) as i64;
    let _sealing = stream.sealing.lock().unwrap_or_else(PoisonError::into_inner);
    let view = stream.view(&shared.catalog)?;
    let mut first = None;
    shared.read(|reader| {
        Ok(reader.rows(stream.id, view.sealed_end, until, |offset, _, _| {
            first = Some(offset);
            false
        })?)
    })?;
    if first.is_none() {
        return Ok(None);
    }
    let directory = stream.directory(Tier::Sealed);
    let mut sealer = Sealer::create(&stream.layout, &directory, &stream.options)?;
    let read = fill(shared, stream, &mut sealer, (view.sealed_end, until))?;
    if sealer.rows() == 0 {
        return Ok(None);
    }
    let unnamed = sealer.finish()?;
    let (start, end) = (unnamed.file().start, unnamed.file().end);
    let name = FileName::Extent.new_name(start, end);
    let path = directory.join(&name);
    shared.catalog.intend(stream.log, Tier::Sealed, &path, (start, end))?;
    step("seal: the file is noted");
    let mut file = unnamed.place(&name)?;
    step("seal: the file has its name");
    file.uri = stream.uri(Tier::Sealed, &path);
    let rows = file.rows;
    let new = NewFile { file, path: Some(path), tier: Tier::Sealed, local: true, published: false };
    let view = shared.catalog.append(stream.log, &[new])?;
    step("seal: the file is recorded");
    if read.full {
        stream.sealed_frame_bytes.fetch_add(read.bytes as i64 + rows as i64 * FRAME_OVERHEAD_BYTES, Relaxed);
    } else {
        stream.sealed_frame_bytes.store(counted_bytes, Relaxed);
    }
    stream.counters.lake.sealed_rows_total.fetch_add(rows, Relaxed);
    stream.counters.lake.saw(&view_numbers(&view));
    shared.evict_journal(stream, view.sealed_end);
    Ok(Some(Sealed { rows, full: read.full }))
}

/// What was read from the journal.
struct Read {
    bytes: usize,
    full: bool,
}

/// Rows that were read in one transaction, which is over when they are sealed.
#[derive(Default)]
struct Lines {
    bytes: Vec<u8>,
    /// Of each row, where it ends and its stamp.
    rows: Vec<(usize, i64)>,
}

impl Lines {
    fn clear(&mut self) {
        self.bytes.clear();
        self.rows.clear();
    }

    /// Takes a row; returns how many bytes there are now.
    fn push(&mut self, ts_us: i64, line: &[u8]) -> usize {
        self.bytes.extend_from_slice(line);
        self.rows.push((self.bytes.len(), ts_us));
        self.bytes.len()
    }

    fn count(&self) -> usize {
        self.rows.len()
    }

    /// The stamps and rows, in order.
    fn iter(&self) -> impl Iterator<Item = (i64, &[u8])> {
        let mut start = 0;
        self.rows.iter().map(move |&(end, ts_us)| (ts_us, &self.bytes[std::mem::replace(&mut start, end)..end]))
    }
}

/// Reads rows of `range` into `sealer` until it is full, in short transactions. Every offset of the range has to be
/// there, unless it was left out on purpose.
fn fill(shared: &Shared, stream: &Moved, sealer: &mut Sealer, range: (i64, i64)) -> Result<Read, MoverError> {
    let (mut next, until) = range;
    let (max_bytes, max_rows) =
        (stream.settings.target_seal_bytes, stream.settings.target_seal_rows.unwrap_or(u64::MAX));
    let mut total_bytes = 0;
    let mut lines = Lines::default();
    shared.read(|reader| {
        loop {
            let mut hole = None;
            lines.clear();
            // Nothing else is done meanwhile: as long as somebody reads, the log cannot start over.
            reader.rows(stream.id, next, until, |offset, ts_us, line| {
                if offset != next + lines.count() as i64 {
                    hole = Some(offset);
                    return false;
                }
                lines.push(ts_us, line) < READ_BYTES
            })?;
            for (ts_us, line) in lines.iter() {
                if sealer.bytes() >= max_bytes || sealer.rows() >= max_rows {
                    break;
                }
                sealer.push(next, ts_us, line)?;
                next += 1;
                total_bytes += line.len();
            }
            if sealer.bytes() >= max_bytes || sealer.rows() >= max_rows {
                return Ok(Read { bytes: total_bytes, full: true });
            }
            if let Some(offset) = hole {
                if reader.skipped_between(stream.id, next, offset)? != offset.abs_diff(next) {
                    return Err(MoverError::RowsMissing { stream: stream.name.clone(), from: next, to: offset });
                }
                next = offset;
            } else if lines.count() == 0 {
                return Ok(Read { bytes: total_bytes, full: false });
            }
        }
    })
}

/// What is counted of a view.
pub(super) fn view_numbers(view: &crate::lake::catalog::LogView) -> crate::telemetry::LakeNumbers {
    let unpublished = view.files.iter().find(|file| !file.published);
    crate::telemetry::LakeNumbers {
        sealed_end: view.sealed_end,
        published_end: view.published_end,
        files: view.files.len() as u64,
        bytes: view.bytes(),
        unpublished_since_us: unpublished.map(|file| file.ts_us.0),
    }
}
