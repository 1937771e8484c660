//! Where the bytes of a Parquet file come from: a local file, memory, or ranges of an object.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Buf as _, Bytes};
use parquet::errors::{ParquetError, Result};
use parquet::file::reader::{ChunkReader, Length};

use super::error::ColumnsError;

/// Reads ranges of an object, such as one in S3. Called from the thread that reads the rows; it may block.
pub trait ReadRange: Send + Sync {
    /// Bytes `start..start + length`, all of them.
    ///
    /// # Errors
    /// When the store refuses, or the object is shorter.
    fn read_range(&self, start: u64, length: usize) -> io::Result<Bytes>;
}

/// The bytes of one Parquet file.
#[derive(Clone)]
pub struct Source(Arc<Inner>);

struct Inner {
    /// For messages.
    name: String,
    length: u64,
    bytes: Held,
    /// A part that was fetched in one go, as its pages are about to be read.
    fetched: Mutex<Option<(u64, Bytes)>>,
}

enum Held {
    File(File),
    Memory(Bytes),
    Ranges(Box<dyn ReadRange>),
}

/// How much of a local file is read at a time when it is not known how much is wanted.
const READ_AHEAD_BYTES: usize = 8 << 10;

impl Source {
    /// A local file.
    ///
    /// # Errors
    /// [`ColumnsError::Io`] when it cannot be opened.
    pub fn file(path: &Path) -> std::result::Result<Self, ColumnsError> {
        let file = File::open(path).map_err(ColumnsError::io("open", path))?;
        let length = file.metadata().map_err(ColumnsError::io("look at", path))?.len();
        Ok(Self::new(path.display().to_string(), length, Held::File(file)))
    }

    /// An open file.
    pub(super) fn open_file(file: File) -> io::Result<Self> {
        let length = file.metadata()?.len();
        Ok(Self::new("the file".to_owned(), length, Held::File(file)))
    }

    /// A whole file in memory; `name` is for messages.
    #[must_use]
    pub fn memory(name: &str, bytes: Bytes) -> Self {
        Self::new(name.to_owned(), bytes.len() as u64, Held::Memory(bytes))
    }

    /// An object of `length` bytes that is read in ranges; `name` is for messages.
    #[must_use]
    pub fn ranges(name: &str, length: u64, ranges: Box<dyn ReadRange>) -> Self {
        Self::new(name.to_owned(), length, Held::Ranges(ranges))
    }

    fn new(name: String, length: u64, bytes: Held) -> Self {
        Self(Arc::new(Inner { name, length, bytes, fetched: Mutex::new(None) }))
    }

    /// Its name in messages.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Its length in bytes.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.0.length
    }

    /// Fetches a range in one request if requests are dear, and keeps it until the next one is fetched.
    pub(super) fn fetch(&self, start: u64, length: u64) -> Result<()> {
        if !matches!(self.0.bytes, Held::Ranges(_)) || start.saturating_add(length) > self.0.length {
            return Ok(());
        }
        if self.left_of_fetched(start) >= length {
            return Ok(());
        }
        // Dropped first, so that there is one at most.
        *self.lock() = None;
        let bytes = self.read(start, usize::try_from(length)?)?;
        *self.lock() = Some((start, bytes));
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<(u64, Bytes)>> {
        self.0.fetched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fetched(&self, start: u64, length: usize) -> Option<Bytes> {
        let fetched = self.lock();
        let (first, bytes) = fetched.as_ref()?;
        let from = usize::try_from(start.checked_sub(*first)?).ok()?;
        let to = from.checked_add(length).filter(|to| *to <= bytes.len())?;
        Some(bytes.slice(from..to))
    }

    /// How much of the fetched part is from `start` on.
    fn left_of_fetched(&self, start: u64) -> u64 {
        let fetched = self.lock();
        let end = fetched
            .as_ref()
            .filter(|(first, _)| *first <= start)
            .map_or(0, |(first, bytes)| first + bytes.len() as u64);
        end.saturating_sub(start)
    }

    fn read(&self, start: u64, length: usize) -> Result<Bytes> {
        if start.checked_add(length as u64).is_none_or(|end| end > self.0.length) {
            return Err(ParquetError::EOF(format!("it ends before byte {start} and {length} more")));
        }
        match &self.0.bytes {
            Held::Memory(bytes) => Ok(bytes.slice(start as usize..start as usize + length)),
            Held::File(file) => {
                let mut buffer = vec![0; length];
                file.read_exact_at(&mut buffer, start)?;
                Ok(buffer.into())
            }
            Held::Ranges(ranges) => match self.fetched(start, length) {
                Some(bytes) => Ok(bytes),
                None => {
                    let bytes = ranges.read_range(start, length)?;
                    if bytes.len() != length {
                        let why = format!("{} instead of {length} bytes came from byte {start} on", bytes.len());
                        return Err(ParquetError::EOF(why));
                    }
                    Ok(bytes)
                }
            },
        }
    }
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Source").field(&self.0.name).finish()
    }
}

impl Length for Source {
    fn len(&self) -> u64 {
        self.0.length
    }
}

impl ChunkReader for Source {
    type T = Reader;

    fn get_read(&self, start: u64) -> Result<Reader> {
        Ok(Reader { source: self.clone(), next: start, buffer: Bytes::new() })
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        self.read(start, length)
    }
}

/// Reads a source from some byte on.
#[derive(Debug)]
pub struct Reader {
    source: Source,
    next: u64,
    buffer: Bytes,
}

impl Read for Reader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if !self.buffer.has_remaining() {
            let left = match self.source.left_of_fetched(self.next) {
                0 => self.source.length().saturating_sub(self.next),
                left => left,
            };
            let length = left.min(READ_AHEAD_BYTES.max(out.len()) as u64) as usize;
            self.buffer = self.source.read(self.next, length).map_err(io::Error::other)?;
            self.next += length as u64;
        }
        let count = self.buffer.remaining().min(out.len());
        self.buffer.copy_to_slice(&mut out[..count]);
        Ok(count)
    }
}
