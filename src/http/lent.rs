//! Request bodies that come back when a handler is done, so that what it left unread does not spoil the connection.
//!
//! An answer that is made before its request's body was read leaves the body in the way of the next request. The
//! rest is read away if it is short; otherwise the answer says that the connection ends with it.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Bytes;
use axum::http::HeaderMap;
use axum::http::header::EXPECT;
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::sync::oneshot;

/// The most that is read away of a body that nobody wants, in bytes.
const MAX_READ_AWAY_BYTES: usize = 256 << 10;

/// A request body lent to a handler.
pub struct Lent {
    /// `None` once it has ended.
    body: Option<Incoming>,
    /// A peer that waits to be asked for its body is asked by the first reading.
    unasked: bool,
    back: Option<oneshot::Sender<Left>>,
}

/// Where a lent body comes back to.
pub struct Lender(oneshot::Receiver<Left>);

struct Left {
    body: Incoming,
    unasked: bool,
}

/// Lends the body of a request with these header fields.
pub fn lend(headers: &HeaderMap, body: Incoming) -> (Lent, Lender) {
    let (back, left) = oneshot::channel();
    let body = (!body.is_end_stream()).then_some(body);
    (Lent { body, unasked: headers.contains_key(EXPECT), back: Some(back) }, Lender(left))
}

impl Lender {
    /// Reads away what the handler left, for so long, and says whether the next request can follow on the connection.
    pub async fn read_away(mut self, timeout: Duration) -> bool {
        let Ok(Left { mut body, unasked }) = self.0.try_recv() else { return true };
        if unasked || body.size_hint().lower() > MAX_READ_AWAY_BYTES as u64 {
            return false;
        }
        let reading = async {
            let mut read = 0;
            while let Some(frame) = body.frame().await {
                let Ok(frame) = frame else { return false };
                read += frame.data_ref().map_or(0, Bytes::len);
                if read > MAX_READ_AWAY_BYTES {
                    return false;
                }
            }
            true
        };
        tokio::time::timeout(timeout, reading).await.unwrap_or(false)
    }
}

impl Body for Lent {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        self.unasked = false;
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let polled = Pin::new(body).poll_frame(cx);
        if matches!(polled, Poll::Ready(None | Some(Err(_)))) {
            self.body = None;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let (Some(body), Some(back)) = (self.body.take().filter(|body| !body.is_end_stream()), self.back.take()) {
            // Nobody waits any more if the connection is gone.
            let _ = back.send(Left { body, unasked: self.unasked });
        }
    }
}
