//! Gathering input into batches: full, or as large as what came within a short wait.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use super::input::Input;
use super::window::{Line, Refused};

/// Sizes of a batch.
#[derive(Debug, Clone, Copy)]
pub struct BatchLimits {
    /// Most rows.
    pub rows: usize,
    /// Most bytes of rows; a larger row goes alone.
    pub bytes: usize,
    /// How long the first row of a batch waits for others.
    pub linger: Duration,
}

/// What the input has next.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// Rows, at least one.
    Batch(Vec<Line>),
    /// A line that cannot be a row.
    Refused(Refused),
    /// The end.
    End,
    /// The input broke.
    Failed(String),
}

/// The input as batches.
pub struct Batches {
    input: mpsc::Receiver<Vec<Input>>,
    limits: BatchLimits,
    /// Received and not looked at yet.
    waiting: VecDeque<Input>,
    batch: Vec<Line>,
    bytes: usize,
    deadline: Option<Instant>,
    ended: bool,
    /// Lines to leave out.
    left_out: HashSet<u64>,
    /// Rows still to be skipped.
    skip: u64,
}

impl Batches {
    /// Batches of `input` without the lines `left_out`.
    #[must_use]
    pub fn new(input: mpsc::Receiver<Vec<Input>>, limits: BatchLimits, left_out: HashSet<u64>) -> Self {
        let limits = BatchLimits { rows: limits.rows.max(1), ..limits };
        Self {
            input,
            limits,
            waiting: VecDeque::new(),
            batch: Vec::new(),
            bytes: 0,
            deadline: None,
            ended: false,
            left_out,
            skip: 0,
        }
    }

    /// Leaves out the first `rows` rows that come from now on.
    pub fn skip(&mut self, rows: u64) {
        self.skip = rows;
    }

    /// Rows that were to be skipped and have not come.
    #[must_use]
    pub fn not_skipped(&self) -> u64 {
        self.skip
    }

    /// What comes next. Cancel-safe.
    pub async fn next(&mut self) -> Next {
        loop {
            if let Some(next) = self.look() {
                return next;
            }
            let chunk = match self.deadline {
                None => self.input.recv().await,
                Some(deadline) => match timeout_at(deadline, self.input.recv()).await {
                    Ok(chunk) => chunk,
                    Err(_) => return self.full(),
                },
            };
            match chunk {
                Some(chunk) => self.waiting.extend(chunk),
                None => self.ended = true,
            }
        }
    }

    /// Goes through what was received, up to the end of a batch.
    fn look(&mut self) -> Option<Next> {
        while let Some(input) = self.waiting.pop_front() {
            match input {
                Input::Row(line) if self.left_out.contains(&line.number) => {}
                Input::Row(_) if self.skip > 0 => self.skip -= 1,
                Input::Row(line) => {
                    let fits = self.bytes + line.text.len() <= self.limits.bytes;
                    if !self.batch.is_empty() && !fits {
                        self.waiting.push_front(Input::Row(line));
                        return Some(self.full());
                    }
                    self.bytes += line.text.len();
                    self.batch.push(line);
                    if self.batch.len() >= self.limits.rows {
                        return Some(self.full());
                    }
                    self.deadline = self.deadline.or_else(|| Some(Instant::now() + self.limits.linger));
                }
                Input::Refused(refused) if self.left_out.contains(&refused.line.number) => {}
                // Rows before a refused line are settled before it, so that reports come in order.
                other if !self.batch.is_empty() => {
                    self.waiting.push_front(other);
                    return Some(self.full());
                }
                Input::Refused(refused) => return Some(Next::Refused(refused)),
                Input::Failed(error) => return Some(Next::Failed(error)),
            }
        }
        match (self.ended, self.batch.is_empty()) {
            (true, true) => Some(Next::End),
            (true, false) => Some(self.full()),
            (false, _) => None,
        }
    }

    fn full(&mut self) -> Next {
        self.bytes = 0;
        self.deadline = None;
        Next::Batch(std::mem::take(&mut self.batch))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(number: u64) -> Input {
        Input::Row(Line { number, text: "{}".to_owned() })
    }

    fn refused(number: u64) -> Input {
        Input::Refused(Refused { line: Line { number, text: String::new() }, detail: "bad".to_owned() })
    }

    async fn all(mut batches: Batches) -> Vec<String> {
        let mut seen = Vec::new();
        loop {
            seen.push(match batches.next().await {
                Next::Batch(lines) => lines.iter().map(|line| line.number.to_string()).collect::<Vec<_>>().join(" "),
                Next::Refused(refused) => format!("!{}", refused.line.number),
                Next::Failed(error) => error,
                Next::End => return seen,
            });
        }
    }

    fn limits(rows: usize, bytes: usize) -> BatchLimits {
        BatchLimits { rows, bytes, linger: Duration::from_millis(5) }
    }

    #[tokio::test]
    async fn batches_are_bounded_in_rows_and_bytes() {
        for (rows, bytes, expected) in [
            (2, 1_000, vec!["1 2", "3 4", "5"]),
            (100, 5, vec!["1 2", "3 4", "5"]),
            (100, 1, vec!["1", "2", "3", "4", "5"]),
        ] {
            let (sender, receiver) = mpsc::channel(4);
            sender.send((1..=3).map(row).collect()).await.expect("room");
            sender.send((4..=5).map(row).collect()).await.expect("room");
            drop(sender);
            assert_eq!(all(Batches::new(receiver, limits(rows, bytes), HashSet::new())).await, expected);
        }
    }

    #[tokio::test]
    async fn skipped_lines_and_refusals_keep_their_places() {
        let (sender, receiver) = mpsc::channel(4);
        let chunk =
            vec![row(1), row(2), refused(3), row(4), refused(5), row(6), row(7), Input::Failed("gone".to_owned())];
        sender.send(chunk).await.expect("room");
        drop(sender);
        let mut batches = Batches::new(receiver, limits(10, 1_000), HashSet::from([2, 3]));
        batches.skip(2);
        assert_eq!(all(batches).await, ["!5", "6 7", "gone"]);
    }

    #[tokio::test]
    async fn a_part_of_a_batch_goes_after_the_wait() {
        let (sender, receiver) = mpsc::channel(4);
        let mut batches = Batches::new(receiver, limits(10, 1_000), HashSet::new());
        sender.send(vec![row(1)]).await.expect("room");
        assert!(matches!(batches.next().await, Next::Batch(lines) if lines.len() == 1));
        drop(sender);
        assert_eq!(batches.next().await, Next::End);
    }
}
