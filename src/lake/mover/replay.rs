//! Rows that have left the journal, read back from files for replays.
//!
//! A replay asks for a page at a time, and a page is a small part of a file. So the place where a page ended is kept
//! open for the next one, which usually begins there.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;

use super::shared::Shared;
use super::source::source_of;
use super::stream::Moved;
use crate::journal::Archive;
use crate::lake::catalog::{LogView, SealedFile};
use crate::lake::columns::{ColumnsError, FileRows};

/// Places that are kept open, at most.
const MAX_CURSORS: usize = 64;

/// How often a page starts over because its file was deleted between looking for it and opening it.
const MAX_ATTEMPTS: usize = 3;

/// How long a place is kept open that nobody goes on from.
const MAX_IDLE: Duration = Duration::from_secs(30);

/// The files of all streams of a lake.
pub(super) struct LakeArchive {
    shared: Arc<Shared>,
    /// For reading objects from threads that may wait.
    handle: Option<Handle>,
}

/// An open file at the row where a page ended.
struct Cursor {
    stream: u32,
    next: i64,
    /// The offset after the file's last row.
    end: i64,
    rows: FileRows,
}

/// Places that are kept open between pages. They hold files on disk that were deleted meanwhile, so they are few and are
/// not kept for long.
#[derive(Default)]
pub(super) struct Cursors(Mutex<VecDeque<(Instant, Cursor)>>);

impl Cursors {
    fn take(&self, stream: u32, next: i64) -> Option<Cursor> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = kept.iter().position(|(_, cursor)| cursor.stream == stream && cursor.next == next)?;
        kept.remove(place).map(|(_, cursor)| cursor)
    }

    fn keep(&self, cursor: Cursor) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push_back((Instant::now(), cursor));
        if kept.len() > MAX_CURSORS {
            kept.pop_front();
        }
    }

    /// Closes those of a stream.
    pub(super) fn close(&self, stream: u32) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|(_, cursor)| cursor.stream != stream);
    }

    /// Closes those that nobody went on from for a while.
    pub(super) fn close_idle(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|(since, _)| since.elapsed() < MAX_IDLE);
    }
}

impl LakeArchive {
    pub(super) fn new(shared: Arc<Shared>, handle: Option<Handle>) -> Self {
        Self { shared, handle }
    }

    fn view(&self, stream: u32) -> Option<(Arc<Moved>, Arc<LogView>)> {
        let stream = self.shared.stream(stream)?;
        let view = self.shared.catalog.log(stream.log)?;
        Some((stream, view))
    }

    /// The place at which reading goes on from `from`: one that was kept, or a newly opened file. `None` where no file
    /// reaches that far.
    fn cursor(&self, stream: u32, from: i64) -> Result<Option<Cursor>, String> {
        if let Some(kept) = self.shared.cursors.take(stream, from) {
            return Ok(Some(kept));
        }
        let mut failure = String::new();
        for _ in 0..MAX_ATTEMPTS {
            let Some((moved, view)) = self.view(stream) else { return Ok(None) };
            let readable = readable(&moved);
            let Some((_, file)) = view.file_at_or_above(from, readable) else { return Ok(None) };
            match self.open(&moved, file, from) {
                Ok(rows) => return Ok(Some(Cursor { stream, next: from, end: file.end, rows })),
                // It may have been merged or evicted meanwhile: then the catalog names another.
                Err(error) => failure = error.to_string(),
            }
        }
        Err(failure)
    }

    fn open(&self, moved: &Moved, file: &SealedFile, from: i64) -> Result<FileRows, ColumnsError> {
        let source = source_of(&self.shared.store, self.handle.as_ref(), file)?;
        FileRows::open(source, &moved.layout, from, i64::MAX)
    }
}

/// Whether a replay of the stream reads a file.
pub(super) fn readable(stream: &Moved) -> impl Fn(&SealedFile) -> bool + use<> {
    let published = stream.replay_published.load(Relaxed);
    move |file| file.local || published
}

impl Archive for LakeArchive {
    fn stretch_at_or_above(&self, stream: u32, offset: i64) -> Result<Option<(i64, i64)>, String> {
        let Some((moved, view)) = self.view(stream) else { return Ok(None) };
        Ok(view.file_at_or_above(offset, readable(&moved)).map(|(_, file)| (file.start, file.end)))
    }

    fn rows(
        &self,
        stream: u32,
        from: i64,
        until: i64,
        take: &mut dyn FnMut(i64, i64, &[u8]) -> bool,
    ) -> Result<(), String> {
        let mut from = from;
        while from < until {
            let Some(mut cursor) = self.cursor(stream, from)? else { return Ok(()) };
            while let Some(row) = cursor.rows.peek().map_err(|error| error.to_string())? {
                let offset = row.offset;
                if offset >= until {
                    return Ok(());
                }
                if !take(offset, row.ts_us, row.line) {
                    self.shared.cursors.keep(cursor);
                    return Ok(());
                }
                cursor.rows.advance();
                cursor.next = offset + 1;
            }
            from = from.max(cursor.end);
        }
        Ok(())
    }
}
