//! What a publisher has to send and what it is owed: batches of lines in order, a bounded number of them unanswered.
//!
//! A pure state machine: frames come out of [`Window::take`], replies go into [`Window::reply`]. With numbered rows it
//! keeps to wire.md section 14.4: after a refusal everything that was in flight behind it comes back as a gap and is
//! sent again with the numbers it has then.

use std::collections::VecDeque;
use std::fmt::Write as _;

use super::error::ClientError;
use super::publisher::Reply;

/// One row of input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Where it stands in the input, from 1.
    pub number: u64,
    /// The row: one JSON object without line breaks.
    pub text: String,
}

/// A row that cannot be published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The row.
    pub line: Line,
    /// Why, in the broker's words.
    pub detail: String,
}

/// What a reply came to.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Rows are stored; `dup` of them were before.
    Stored {
        /// How many.
        rows: u64,
        /// How many of those the broker had already.
        dup: u64,
    },
    /// A row is refused for good.
    Refused(Refused),
    /// Nothing to report: the reply belongs to a frame that is sent again.
    Again,
    /// Storing failed at the broker; wait a while before [`Window::take`].
    Wait(String),
    /// The numbers do not fit: connect anew to learn the broker's mark.
    Reconnect(String),
}

/// The frames of one publisher.
#[derive(Debug)]
pub struct Window {
    /// Whether rows are numbered (exactly once).
    numbered: bool,
    /// Most frames unanswered.
    most_frames: usize,
    /// Batches not settled yet, the first `sent` of them sent.
    queue: VecDeque<Vec<Line>>,
    sent: usize,
    /// Rows in those.
    sent_rows: u64,
    /// Replies owed. Differs from `sent` only while replies to frames that will be sent again are awaited.
    owed: usize,
    /// Replies are discarded until none is owed.
    draining: bool,
    /// Number of the last row that is settled.
    settled: u64,
    /// Rows that may have been stored without the reply having arrived.
    unsure_rows: u64,
    /// Largest frame the broker is known to take, in bytes.
    most_bytes: usize,
}

/// Bytes of a frame around its rows: brackets, commas and a number.
const AROUND_BYTES: usize = 32;

impl Window {
    /// A window of at most `most_frames` unanswered frames.
    #[must_use]
    pub fn new(numbered: bool, most_frames: usize) -> Self {
        Self {
            numbered,
            most_frames: most_frames.max(1),
            queue: VecDeque::new(),
            sent: 0,
            sent_rows: 0,
            owed: 0,
            draining: false,
            settled: 0,
            unsure_rows: 0,
            most_bytes: usize::MAX,
        }
    }

    /// Sets the number of the last row that is stored, before anything is pushed.
    pub fn begin(&mut self, last_seq: u64) {
        assert!(self.queue.is_empty(), "numbering begins before rows are queued");
        self.settled = last_seq;
    }

    /// Whether another batch may be pushed.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.queue.len() < self.most_frames
    }

    /// Whether everything that was pushed is settled.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.queue.is_empty() && self.owed == 0
    }

    /// Replies owed by the broker.
    #[must_use]
    pub fn owed(&self) -> usize {
        self.owed
    }

    /// Rows that were sent and are not settled.
    #[must_use]
    pub fn unsettled_rows(&self) -> u64 {
        self.sent_rows
    }

    /// Adds a batch behind the others. A batch too large for the broker is divided; rows too large for it come back.
    pub fn push(&mut self, batch: Vec<Line>) -> Vec<Refused> {
        let mut refused = Vec::new();
        let mut pieces = Vec::new();
        divide(batch, self.most_bytes, &mut pieces, &mut refused);
        self.queue.extend(pieces);
        refused
    }

    /// The next frame to send, if the window allows one.
    pub fn take(&mut self) -> Option<String> {
        if self.draining || self.owed >= self.most_frames {
            return None;
        }
        let batch = self.queue.get(self.sent)?;
        let frame = frame(batch, self.numbered.then(|| self.settled + 1 + self.sent_rows));
        self.sent += 1;
        self.sent_rows += batch.len() as u64;
        self.owed += 1;
        Some(frame)
    }

    /// Takes the reply to the oldest unanswered frame.
    ///
    /// # Errors
    /// A reply that nothing was sent for, or that does not fit what was sent.
    pub fn reply(&mut self, reply: Reply) -> Result<Outcome, ClientError> {
        if self.owed == 0 {
            return Err(ClientError::Protocol("a reply although every frame is answered".to_owned()));
        }
        self.owed -= 1;
        if self.draining {
            return Ok(self.drain(&reply));
        }
        let rows = self.queue.front().map_or(0, Vec::len);
        match reply {
            Reply::Ok { offsets, dup } => {
                if offsets.len() != rows {
                    let found = offsets.len();
                    return Err(ClientError::Protocol(format!("{found} offsets in the reply to {rows} rows")));
                }
                self.drop_front();
                self.settled += rows as u64;
                Ok(Outcome::Stored { rows: rows as u64, dup })
            }
            Reply::Rejected(detail) => {
                let batch = self.drop_front();
                let outcome = match <[Line; 1]>::try_from(batch) {
                    Ok([line]) => Outcome::Refused(Refused { line, detail }),
                    Err(batch) => {
                        self.again(batch.into_iter().map(|line| vec![line]).collect());
                        Outcome::Again
                    }
                };
                self.start_draining();
                Ok(outcome)
            }
            Reply::CommitFailed(detail) => {
                let batch = self.drop_front();
                self.again(vec![batch]);
                self.start_draining();
                Ok(Outcome::Wait(detail))
            }
            Reply::Gap { expected, got } => {
                Ok(Outcome::Reconnect(format!("the broker expects row number {expected} and got {got}")))
            }
        }
    }

    /// The connection is gone: everything unanswered is sent again on the next one. Returns the rows of which nobody
    /// knows whether they were stored.
    pub fn disconnected(&mut self) -> u64 {
        // Frames behind a refused one were not stored. Attempts to connect that fail change nothing.
        let unsure = if self.draining { 0 } else { self.sent_rows };
        self.unsure_rows = self.unsure_rows.max(unsure);
        self.sent = 0;
        self.sent_rows = 0;
        self.owed = 0;
        self.draining = false;
        unsure
    }

    /// Takes the mark of a new connection: rows up to it are settled. Returns how many those are.
    ///
    /// # Errors
    /// [`ClientError::Mark`] when the mark cannot come from what this publisher sent.
    pub fn resume(&mut self, last_seq: u64) -> Result<u64, ClientError> {
        let Some(stored) = last_seq.checked_sub(self.settled) else {
            return Err(ClientError::Mark(format!(
                "the broker knows {last_seq} rows of this publisher and had acknowledged {}: it has lost rows",
                self.settled
            )));
        };
        if stored > self.unsure_rows {
            return Err(ClientError::Mark(format!(
                "the broker knows {last_seq} rows of this publisher and at most {} were sent: somebody else publishes \
                 under the same id",
                self.settled + self.unsure_rows
            )));
        }
        let mut left = stored;
        while left > 0
            && let Some(front) = self.queue.front_mut()
        {
            let taken = front.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            front.drain(..taken);
            left -= taken as u64;
            if front.is_empty() {
                self.queue.pop_front();
            }
        }
        self.settled = last_seq;
        self.unsure_rows = 0;
        Ok(stored)
    }

    /// The broker closed because a frame is too large; `limit` is the most it takes, if it said. Divides what is
    /// queued and returns the rows that are too large alone. Call after [`Window::disconnected`].
    pub fn shrink(&mut self, limit: Option<u64>) -> Vec<Refused> {
        let largest = self.queue.iter().map(|batch| size(batch)).max().unwrap_or(0);
        let unknown = largest.saturating_sub(1);
        // A limit that everything keeps to already explains nothing; the largest frame has to be the one.
        let limit = limit.and_then(|limit| usize::try_from(limit).ok()).filter(|limit| *limit < largest);
        self.most_bytes = self.most_bytes.min(limit.unwrap_or(unknown));
        let mut refused = Vec::new();
        let mut pieces = Vec::new();
        for batch in std::mem::take(&mut self.queue) {
            divide(batch, self.most_bytes, &mut pieces, &mut refused);
        }
        self.queue = pieces.into();
        refused
    }

    fn drop_front(&mut self) -> Vec<Line> {
        let batch = self.queue.pop_front().unwrap_or_default();
        self.sent -= 1;
        self.sent_rows -= batch.len() as u64;
        batch
    }

    /// Puts batches where they are sent next: numbered ones first of all, so that their numbers follow on; plain ones
    /// behind those that are on their way.
    fn again(&mut self, batches: Vec<Vec<Line>>) {
        let at = if self.numbered { 0 } else { self.sent };
        for (index, batch) in batches.into_iter().enumerate() {
            self.queue.insert(at + index, batch);
        }
    }

    /// Numbered frames behind a refused one come back as gaps; wait for all of them, then go on from the front.
    fn start_draining(&mut self) {
        if self.numbered {
            self.sent = 0;
            self.sent_rows = 0;
            self.draining = self.owed > 0;
        }
    }

    fn drain(&mut self, reply: &Reply) -> Outcome {
        self.draining = self.owed > 0;
        match reply {
            Reply::Ok { .. } => Outcome::Reconnect("the broker stored a row behind one it had refused".to_owned()),
            Reply::Rejected(_) | Reply::CommitFailed(_) | Reply::Gap { .. } => Outcome::Again,
        }
    }
}

/// Bytes a batch has as a frame, or a little more.
fn size(batch: &[Line]) -> usize {
    AROUND_BYTES + batch.iter().map(|line| line.text.len() + 1).sum::<usize>()
}

/// Halves a batch until every piece is within the limit.
fn divide(mut batch: Vec<Line>, most_bytes: usize, pieces: &mut Vec<Vec<Line>>, refused: &mut Vec<Refused>) {
    if size(&batch) <= most_bytes {
        pieces.push(batch);
    } else if batch.len() > 1 {
        let rest = batch.split_off(batch.len() / 2);
        divide(batch, most_bytes, pieces, refused);
        divide(rest, most_bytes, pieces, refused);
    } else if let Some(line) = batch.pop() {
        let detail = format!("a row of {} bytes is larger than a frame may be", line.text.len());
        refused.push(Refused { line, detail });
    }
}

/// A publish frame (wire.md section 4.1): the row or the array of rows, behind the first row's number if there is one.
fn frame(batch: &[Line], number: Option<u64>) -> String {
    let mut frame = String::with_capacity(size(batch));
    if let Some(number) = number {
        // Writing to a string cannot fail.
        let _ = write!(frame, "[{number},");
    }
    if let [line] = batch {
        frame.push_str(&line.text);
    } else {
        for (index, line) in batch.iter().enumerate() {
            frame.push(if index == 0 { '[' } else { ',' });
            frame.push_str(&line.text);
        }
        frame.push(']');
    }
    if number.is_some() {
        frame.push(']');
    }
    frame
}

#[cfg(test)]
#[path = "window_tests.rs"]
mod tests;
