//! Rows to standard output, on a thread of its own: written, flushed, and only then noted in the cursor file.

use std::io::{self, Write};
use std::thread::JoinHandle;

use tokio::sync::mpsc;

use crate::client::{Cursor, CursorError, Position};

/// Batches that may wait for the output.
const WAITING_BATCHES: usize = 4;

/// Lines and the position behind them.
#[derive(Debug, Default)]
pub struct Lines {
    /// Whole lines.
    pub bytes: Vec<u8>,
    /// Last row among them, when the stream has offsets.
    pub position: Option<Position>,
}

/// Why output ended early.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// Nobody reads any more.
    #[error("nobody reads the output")]
    Closed,
    /// Writing failed.
    #[error("the output cannot be written: {0}")]
    Write(io::Error),
    /// The cursor file failed.
    #[error(transparent)]
    Cursor(#[from] CursorError),
}

/// The output's thread.
pub struct Output {
    sender: mpsc::Sender<Lines>,
    thread: JoinHandle<Result<(), OutputError>>,
}

impl Output {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(cursor: Option<Cursor>) -> io::Result<Self> {
        let (sender, mut receiver) = mpsc::channel::<Lines>(WAITING_BATCHES);
        let thread = std::thread::Builder::new().name("output".to_owned()).spawn(move || {
            while let Some(lines) = receiver.blocking_recv() {
                write(&lines, cursor.as_ref())?;
            }
            Ok(())
        })?;
        Ok(Self { sender, thread })
    }

    /// Waits until there is room for another batch. False when the output has ended.
    pub async fn ready(&self) -> bool {
        self.sender.reserve().await.is_ok()
    }

    /// Hands lines over; waits when many are waiting. False when the output has ended.
    pub async fn send(&self, lines: Lines) -> bool {
        self.sender.send(lines).await.is_ok()
    }

    /// Waits until everything is written, and tells how it went.
    ///
    /// # Errors
    /// What ended the output early.
    pub fn finish(self) -> Result<(), OutputError> {
        drop(self.sender);
        // A panic of the thread has told its story on standard error already.
        self.thread.join().unwrap_or(Err(OutputError::Closed))
    }
}

fn write(lines: &Lines, cursor: Option<&Cursor>) -> Result<(), OutputError> {
    let mut out = io::stdout().lock();
    let written = out.write_all(&lines.bytes).and_then(|()| out.flush());
    written.map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => OutputError::Closed,
        _ => OutputError::Write(error),
    })?;
    if let (Some(cursor), Some(position)) = (cursor, &lines.position) {
        cursor.save(position)?;
    }
    Ok(())
}
