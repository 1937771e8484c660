//! Reads a source on a thread of its own, a little ahead of whoever writes.

use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::JoinHandle;

use super::error::IngestError;
use super::source::{Chunk, Source};

/// Chunks that wait to be taken, at most.
const CHUNKS_AHEAD: usize = 2;

/// An iterator over the chunks of a source that are read meanwhile.
#[derive(Debug)]
pub struct ReadAhead {
    chunks: Option<Receiver<Result<Chunk, IngestError>>>,
    thread: Option<JoinHandle<()>>,
}

impl ReadAhead {
    /// Starts reading.
    ///
    /// # Errors
    /// When there is no thread to be had.
    pub fn start(source: Source) -> std::io::Result<Self> {
        let (sender, receiver) = sync_channel(CHUNKS_AHEAD);
        let read = move || {
            for chunk in source {
                if sender.send(chunk).is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("ingest-read".to_owned()).spawn(read)?;
        Ok(Self { chunks: Some(receiver), thread: Some(thread) })
    }
}

impl Iterator for ReadAhead {
    type Item = Result<Chunk, IngestError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.chunks.as_ref()?.recv().ok()
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        // The thread ends when there is nobody to take its chunks.
        self.chunks = None;
        if let Some(thread) = self.thread.take() {
            // A source turns its panics into errors.
            let _ = thread.join();
        }
    }
}
