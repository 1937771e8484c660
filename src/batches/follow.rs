//! Reading on and on: to the head of the moment and no further, or for as long as somebody reads.

use std::sync::Arc;
use std::time::Instant;

use super::answers::Watch;
use super::error::ApiError;
use super::read::Wanted;
use super::service::{Service, Stream};
use super::shared::Shared;

/// Bytes of frames that are read at once.
const PIECE_BYTES: usize = 512 << 10;

/// A read in pieces.
pub struct Follower {
    service: Arc<Service>,
    stream: Arc<Stream>,
    wanted: Wanted,
    /// What was read before anybody asked.
    first: Option<Arc<Shared>>,
    /// Where it ends; it does not if absent.
    until: Option<i64>,
    watch: Option<Watch>,
}

impl Follower {
    /// A read up to the present head. The first piece is read already, so that what is wrong is known.
    ///
    /// # Errors
    /// As [`Service::read`].
    pub async fn to_head(service: Arc<Service>, stream: Arc<Stream>, wanted: Wanted) -> Result<Self, ApiError> {
        let until = Some(stream.end());
        let mut follower = Self { service, stream, wanted, first: None, until, watch: None };
        follower.first = Some(follower.read().await?);
        Ok(follower)
    }

    /// A read without end.
    ///
    /// # Errors
    /// As [`Service::read`], and 429 when too many follow already.
    pub async fn for_ever(service: Arc<Service>, stream: Arc<Stream>, wanted: Wanted) -> Result<Self, ApiError> {
        let watch = Some(service.watch(&stream)?);
        let mut follower = Self { service, stream, wanted, first: None, until: None, watch };
        follower.first = Some(follower.read().await?);
        Ok(follower)
    }

    /// The stream.
    #[must_use]
    pub fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }

    /// The boundary at which it ends.
    #[must_use]
    pub fn until(&self) -> Option<i64> {
        self.until.filter(|until| *until > self.stream.served.first_offset)
    }

    /// The next piece: without rows at `deadline`, or where the filter lets nothing through; `None` at the end.
    ///
    /// # Errors
    /// As [`Service::read`].
    pub async fn next(&mut self, deadline: Instant) -> Result<Option<Arc<Shared>>, ApiError> {
        if let Some(first) = self.first.take()
            && first.rows > 0
        {
            return Ok(Some(first));
        }
        loop {
            let found = match &self.watch {
                None if self.wanted.after.is_none_or(|after| self.until.is_some_and(|until| after >= until)) => {
                    return Ok(None);
                }
                None => {
                    self.service.still_served(&self.stream)?;
                    self.read().await?
                }
                Some(watch) => {
                    let next = self.service.read_next(&self.stream, &self.wanted, watch, PIECE_BYTES, deadline).await?;
                    self.wanted.after = next.next;
                    next
                }
            };
            if found.rows > 0 || (self.watch.is_some() && Instant::now() >= deadline) {
                return Ok(Some(found));
            }
        }
    }

    async fn read(&mut self) -> Result<Arc<Shared>, ApiError> {
        let found = match self.until {
            None => self.service.read_shared(&self.stream, &self.wanted, PIECE_BYTES, None).await?,
            until => Shared::new(self.service.read_until(&self.stream, &self.wanted, until, PIECE_BYTES).await?),
        };
        self.wanted.after = found.next;
        Ok(found)
    }
}
