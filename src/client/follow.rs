//! A subscription that outlives its connections: it comes back where it left off, without a gap or a duplicate.

use std::time::{Duration, Instant};

use super::address::Address;
use super::backoff::Backoff;
use super::connection::Options;
use super::error::ClientError;
use super::greeting::Greeting;
use super::row::Row;
use super::subscription::Subscription;

/// What to follow.
#[derive(Debug, Clone)]
pub struct Follow {
    /// The stream.
    pub address: Address,
    /// First offset wanted; 0 is the earliest row, `None` is what comes from now on.
    pub offset: Option<u64>,
    /// JSON text of a `where`.
    pub filter: Option<String>,
    /// `stream_id` the offset belongs to, when it is known from before.
    pub stream_id: Option<String>,
    /// How long to try for the first connection; zero tries once.
    pub wait: Duration,
    /// How long to try after a connection was lost; `None` is for ever, zero never.
    pub retry: Option<Duration>,
    /// How connections behave.
    pub options: Options,
}

/// What happened on a followed stream.
#[derive(Debug)]
pub enum Event {
    /// A connection stands.
    Connected(Box<Greeting>),
    /// A row came.
    Row(Row),
    /// The connection was lost, or could not be made; another attempt follows after the pause.
    Retrying {
        /// Why.
        error: ClientError,
        /// How long until the next attempt.
        pause: Duration,
    },
}

/// A followed stream.
pub struct Follower {
    follow: Follow,
    subscription: Option<Subscription>,
    /// Whether there ever was a connection.
    started: bool,
    /// First offset that has not been handed out yet.
    next: Option<u64>,
    backoff: Backoff,
    pause_until: Option<tokio::time::Instant>,
}

impl Follower {
    /// Nothing is connected before the first [`Follower::next`].
    #[must_use]
    pub fn new(follow: Follow) -> Self {
        let backoff = Backoff::new(Some(follow.wait), seed());
        let next = follow.offset;
        Self { follow, subscription: None, started: false, next, backoff, pause_until: None }
    }

    /// The next event. Cancel-safe.
    ///
    /// # Errors
    /// What no further attempt can mend, or the last error when the time for attempts is over.
    pub async fn next(&mut self) -> Result<Event, ClientError> {
        loop {
            let Some(subscription) = &mut self.subscription else { return self.connect().await };
            match subscription.next().await {
                Ok(row) => {
                    if let Some(offset) = row.offset {
                        if self.next.is_some_and(|next| offset < next) {
                            continue;
                        }
                        self.next = Some(offset + 1);
                    }
                    return Ok(Event::Row(row));
                }
                Err(error) => {
                    self.subscription = None;
                    return self.failed(error);
                }
            }
        }
    }

    /// The first offset that has not been handed out, once it is known.
    #[must_use]
    pub fn position(&self) -> Option<u64> {
        self.next
    }

    /// `stream_id` of the stream, once it is known.
    #[must_use]
    pub fn stream_id(&self) -> Option<&str> {
        self.follow.stream_id.as_deref()
    }

    /// Ends the connection in order.
    pub async fn close(self) {
        if let Some(subscription) = self.subscription {
            subscription.close().await;
        }
    }

    async fn connect(&mut self) -> Result<Event, ClientError> {
        if let Some(until) = self.pause_until {
            tokio::time::sleep_until(until).await;
            self.pause_until = None;
        }
        let Follow { address, options, filter, .. } = &self.follow;
        let opened = Subscription::open(address, options, self.next, filter.as_deref()).await;
        match opened.and_then(|subscription| self.check(subscription)) {
            Ok(greeting) => Ok(Event::Connected(Box::new(greeting))),
            Err(error) => self.failed(error),
        }
    }

    /// Takes a new connection, unless it leads to other rows than the ones before.
    fn check(&mut self, subscription: Subscription) -> Result<Greeting, ClientError> {
        let greeting = subscription.greeting().clone();
        match (&self.follow.stream_id, &greeting.stream_id) {
            (Some(known), Some(found)) if known != found => {
                return Err(ClientError::AnotherStream { known: known.clone(), found: found.clone() });
            }
            (None, Some(found)) => self.follow.stream_id = Some(found.clone()),
            _ => {}
        }
        let asked = self.next.filter(|next| *next != 0);
        if let (Some(asked), Some((start, _))) = (asked, greeting.replay)
            && start > asked
        {
            return Err(ClientError::Protocol(format!(
                "offset {asked} was asked for and the replay begins at {start}"
            )));
        }
        if self.next.is_none() {
            self.next = greeting.end_offset;
        } else if self.next == Some(0) {
            self.next = greeting.replay.map(|(start, _)| start);
        }
        if !self.started {
            self.started = true;
            self.backoff = Backoff::new(self.follow.retry, seed());
        }
        self.backoff.succeeded();
        self.subscription = Some(subscription);
        Ok(greeting)
    }

    fn failed(&mut self, error: ClientError) -> Result<Event, ClientError> {
        if !error.is_retryable() {
            return Err(error);
        }
        let now = Instant::now();
        let Some(pause) = self.backoff.failed(now) else { return Err(error) };
        self.pause_until = Some((now + pause).into());
        Ok(Event::Retrying { error, pause })
    }
}

/// Something that differs between processes, to spread their attempts.
pub(super) fn seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    now.as_nanos() as u64 ^ (u64::from(std::process::id()) << 32)
}
