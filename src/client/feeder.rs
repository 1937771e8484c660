//! Publishing an input to its end: batches into the window, replies out of it, and a new connection when one is lost.

use std::ops::ControlFlow;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::address::Address;
use super::backoff::Backoff;
use super::batch::{Batches, Next};
use super::close::{CloseKind, Closed};
use super::connection::Options;
use super::error::ClientError;
use super::follow::seed;
use super::greeting::Greeting;
use super::publisher::Publisher;
use super::window::{Outcome, Refused, Window};

/// What to publish to, and how.
#[derive(Debug, Clone)]
pub struct Feed {
    /// The stream.
    pub address: Address,
    /// Publisher id: rows are numbered and stored once (wire.md section 5).
    pub publisher: Option<String>,
    /// The input continues what was published before, instead of beginning with the publisher's first row.
    pub continued: bool,
    /// Most frames unanswered.
    pub window_frames: usize,
    /// How long to try for the first connection; zero tries once.
    pub wait: Duration,
    /// How long to try after a connection was lost, or while storing fails; `None` is for ever, zero never.
    pub retry: Option<Duration>,
    /// How connections behave.
    pub options: Options,
}

/// What happened on the way.
#[derive(Debug)]
pub enum FeedEvent<'e> {
    /// A connection stands.
    Connected(&'e Greeting),
    /// The broker has the first rows of the input already: they are skipped.
    Known(u64),
    /// Rows were stored; `dup` of them were before.
    Stored {
        /// How many.
        rows: u64,
        /// How many of those the broker had already.
        dup: u64,
    },
    /// A row is refused; nothing of it is stored. Break ends the run.
    Refused(&'e Refused),
    /// Storing failed at the broker, or the connection was lost; `unsure` rows may be stored twice now.
    Retrying {
        /// Why.
        error: &'e str,
        /// How long until the next attempt.
        pause: Duration,
        /// Rows that are sent again although they may have been stored.
        unsure: u64,
    },
}

/// Why a run ended before the end of its input.
#[derive(Debug, thiserror::Error)]
pub enum FeedError {
    /// The broker or the way to it.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The input broke.
    #[error("the input cannot be read: {0}")]
    Input(String),
    /// The caller ended it at a refused row.
    #[error("stopped at a refused row")]
    Stopped,
}

/// A run.
struct Feeder<'f, F> {
    feed: &'f Feed,
    batches: &'f mut Batches,
    window: Window,
    backoff: Backoff,
    begun: bool,
    /// No more input is taken.
    ended: bool,
    /// The caller stopped the run: what was read before is settled still.
    stopped: bool,
    report: F,
}

/// Publishes `batches` to their end and tells `report` what happens.
///
/// # Errors
/// When no further attempt can help. What was reported as stored is stored.
pub async fn feed<F>(feed: &Feed, batches: &mut Batches, report: F) -> Result<(), FeedError>
where
    F: FnMut(FeedEvent<'_>) -> ControlFlow<()>,
{
    let window = Window::new(feed.publisher.is_some(), feed.window_frames);
    let backoff = Backoff::new(Some(feed.wait), seed());
    let mut feeder = Feeder { feed, batches, window, backoff, begun: false, ended: false, stopped: false, report };
    loop {
        let error = match feeder.connect().await {
            Ok(mut publisher) => match feeder.run(&mut publisher).await {
                Ok(()) => {
                    publisher.close().await;
                    return Ok(());
                }
                Err(FeedError::Client(error)) => error,
                Err(FeedError::Stopped) => {
                    publisher.close().await;
                    return Err(FeedError::Stopped);
                }
                Err(error) => return Err(error),
            },
            Err(error) => error,
        };
        feeder.recover(error).await?;
    }
}

impl<F> Feeder<'_, F>
where
    F: FnMut(FeedEvent<'_>) -> ControlFlow<()>,
{
    async fn connect(&mut self) -> Result<Publisher, ClientError> {
        let Feed { address, options, publisher, .. } = self.feed;
        let publisher = Publisher::open(address, options, publisher.as_deref()).await?;
        let _ = (self.report)(FeedEvent::Connected(publisher.greeting()));
        match (publisher.mark(), self.begun) {
            (Some(mark), false) => {
                self.window.begin(mark.last_seq);
                if mark.last_seq > 0 && !self.feed.continued {
                    self.batches.skip(mark.last_seq);
                    let _ = (self.report)(FeedEvent::Known(mark.last_seq));
                }
            }
            (Some(mark), true) => match self.window.resume(mark.last_seq)? {
                0 => {}
                // They were stored and only the replies were lost.
                rows => {
                    let _ = (self.report)(FeedEvent::Stored { rows, dup: 0 });
                }
            },
            (None, _) => {}
        }
        if !self.begun {
            self.begun = true;
            self.backoff = Backoff::new(self.feed.retry, seed());
        } else if self.window.is_settled() {
            self.backoff.succeeded();
        }
        Ok(publisher)
    }

    /// Until everything is settled or the connection ends.
    async fn run(&mut self, publisher: &mut Publisher) -> Result<(), FeedError> {
        let mut held_until: Option<Instant> = None;
        loop {
            while held_until.is_none()
                && let Some(frame) = self.window.take()
            {
                publisher.send(frame);
            }
            if self.ended && self.window.is_settled() {
                return if self.stopped { Err(FeedError::Stopped) } else { Ok(()) };
            }
            let wants_input = !self.ended && self.window.has_room();
            tokio::select! {
                reply = publisher.reply() => {
                    let outcome = self.window.reply(reply?)?;
                    held_until = self.settle(outcome)?.or(held_until);
                }
                next = self.batches.next(), if wants_input => self.accept(next)?,
                () = sleep_until(held_until.unwrap_or_else(Instant::now)), if held_until.is_some() => held_until = None,
            }
        }
    }

    /// Takes what the input has next.
    fn accept(&mut self, next: Next) -> Result<(), FeedError> {
        match next {
            Next::Batch(lines) => {
                let refused = self.window.push(lines);
                self.refuse(&refused)
            }
            Next::Refused(refused) => {
                // Every row in the window was read before this line.
                if self.refuse(&[refused]).is_err() {
                    self.stopped = true;
                    self.ended = true;
                }
                Ok(())
            }
            Next::End => {
                self.ended = true;
                Ok(())
            }
            Next::Failed(error) => Err(FeedError::Input(error)),
        }
    }

    /// Takes what a reply came to; the time until which nothing may be sent, if there is one.
    fn settle(&mut self, outcome: Outcome) -> Result<Option<Instant>, FeedError> {
        match outcome {
            Outcome::Stored { rows, dup } => {
                self.backoff.succeeded();
                let _ = (self.report)(FeedEvent::Stored { rows, dup });
                Ok(None)
            }
            Outcome::Refused(refused) => self.refuse(&[refused]).map(|()| None),
            Outcome::Again => Ok(None),
            Outcome::Wait(detail) => {
                let error = format!("the broker could not store rows: {detail}");
                let now = Instant::now();
                let Some(pause) = self.backoff.failed(now.into_std()) else {
                    return Err(ClientError::Storing(detail).into());
                };
                let _ = (self.report)(FeedEvent::Retrying { error: &error, pause, unsure: 0 });
                Ok(Some(now + pause))
            }
            Outcome::Reconnect(why) => Err(ClientError::Lost(why).into()),
        }
    }

    fn refuse(&mut self, refused: &[Refused]) -> Result<(), FeedError> {
        for refused in refused {
            if (self.report)(FeedEvent::Refused(refused)).is_break() {
                return Err(FeedError::Stopped);
            }
        }
        Ok(())
    }

    /// After a lost connection: waits until it is time to try again, or gives up.
    async fn recover(&mut self, error: ClientError) -> Result<(), FeedError> {
        let unsure = self.window.disconnected();
        if let ClientError::Closed(Closed { kind: CloseKind::TooBig { limit, .. }, .. }) = &error {
            if self.window.is_settled() {
                return Err(error.into());
            }
            let refused = self.window.shrink(*limit);
            return self.refuse(&refused);
        }
        if !error.is_retryable() {
            return Err(error.into());
        }
        let now = Instant::now();
        let Some(pause) = self.backoff.failed(now.into_std()) else { return Err(error.into()) };
        let unsure = if self.feed.publisher.is_none() { unsure } else { 0 };
        let _ = (self.report)(FeedEvent::Retrying { error: &error.to_string(), pause, unsure });
        sleep_until(now + pause).await;
        Ok(())
    }
}
