//! Compressed buffers of Arrow IPC. A batch is read in pieces, and the pieces of a buffer follow each other, so it is
//! unpacked from front to back as they are asked for, and never as a whole.

use std::fs::File;
use std::io::{BufReader, Read};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::buffer::{Buffer, MutableBuffer};
use arrow::ipc::CompressionType;

/// Packed bytes that are read at a time.
const READ_BYTES: usize = 32 << 10;

/// Unpacked bytes that are made at a time.
const STEP_BYTES: usize = 64 << 10;

/// The largest part of a buffer that is made at once.
const MAX_PART_BYTES: u64 = 1 << 30;

/// How far back a part may begin before the end of the one before: an offset, or a byte of bits, which both need.
const BACK_BYTES: usize = 8;

/// The window that a writer may have used, as a power of two: 8 MiB, what zstd's own levels do not go beyond.
const MAX_WINDOW_LOG: u32 = 23;

/// How many bytes a packed one becomes at most. LZ4 lengthens a match by 255 for a byte; zstd makes a block of 128 KiB of four.
const MOST_LZ4: u64 = 255;
const MOST_ZSTD: u64 = 32_768;

/// A section of a file, read from front to back without moving the file's own place.
struct Section {
    file: Arc<File>,
    bytes_read: Arc<AtomicU64>,
    next: u64,
    end: u64,
}

impl Read for Section {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let wanted = usize::try_from(self.end - self.next).unwrap_or(usize::MAX).min(out.len());
        let count = self.file.read_at(&mut out[..wanted], self.next)?;
        self.next += count as u64;
        self.bytes_read.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

/// A buffer that is being unpacked.
pub(super) struct Packed {
    reader: Box<dyn Read + Send>,
    /// How long it is unpacked.
    length: u64,
    /// How many bytes were unpacked, and the last of them.
    at: u64,
    last: Vec<u8>,
}

impl Packed {
    /// The packed bytes `start..end` of a file, which become `length` bytes.
    pub fn new(
        codec: CompressionType,
        (file, bytes_read): (&Arc<File>, &Arc<AtomicU64>),
        (start, end): (u64, u64),
        length: u64,
    ) -> Result<Self, String> {
        let most = if codec == CompressionType::LZ4_FRAME { MOST_LZ4 } else { MOST_ZSTD };
        // The length decides how many rows are read at once: one that cannot be true would make it a row at a time.
        if length > (end - start).saturating_mul(most) {
            return Err("it has a compressed buffer that cannot be as long as it says".to_owned());
        }
        let section = Section { file: Arc::clone(file), bytes_read: Arc::clone(bytes_read), next: start, end };
        let section = BufReader::with_capacity(READ_BYTES, section);
        let reader: Box<dyn Read + Send> = match codec {
            CompressionType::LZ4_FRAME => Box::new(lz4_flex::frame::FrameDecoder::new(section)),
            CompressionType::ZSTD => {
                let mut decoder =
                    zstd::stream::read::Decoder::with_buffer(section).map_err(|error| error.to_string())?;
                decoder.window_log_max(MAX_WINDOW_LOG).map_err(|error| error.to_string())?;
                Box::new(decoder)
            }
            other => return Err(format!("its batches are compressed in an unknown way ({})", other.0)),
        };
        Ok(Self { reader, length, at: 0, last: Vec::new() })
    }

    /// How long the buffer is unpacked.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// The bytes `start..start + length`, which may begin a little before the end of the part before, or behind it.
    pub fn part(&mut self, start: u64, length: u64) -> Result<Buffer, String> {
        if length > MAX_PART_BYTES {
            return Err("it has a buffer of which too much is needed at once".to_owned());
        }
        let mut part = MutableBuffer::new((length as usize).min(STEP_BYTES));
        if start < self.at {
            let back = usize::try_from(self.at - start).unwrap_or(usize::MAX);
            let from = self.last.len().checked_sub(back).ok_or("it has offsets that fall")?;
            part.extend_from_slice(&self.last[from..self.last.len().min(from + length as usize)]);
        }
        self.unpack(start.saturating_sub(self.at), |_| {})?;
        let missing = length - part.len() as u64;
        self.unpack(missing, |bytes| part.extend_from_slice(bytes))?;
        Ok(part.into())
    }

    /// Unpacks the next `count` bytes.
    fn unpack(&mut self, mut count: u64, mut take: impl FnMut(&[u8])) -> Result<(), String> {
        let mut step = [0; STEP_BYTES];
        while count > 0 {
            let wanted = count.min(STEP_BYTES as u64) as usize;
            let bytes = &mut step[..wanted];
            self.reader.read_exact(bytes).map_err(|error| format!("it cannot be decompressed: {error}"))?;
            take(bytes);
            count -= wanted as u64;
            self.at += wanted as u64;
            let kept = wanted.min(BACK_BYTES);
            self.last.extend_from_slice(&bytes[wanted - kept..]);
            self.last.drain(..self.last.len().saturating_sub(BACK_BYTES));
        }
        Ok(())
    }
}
