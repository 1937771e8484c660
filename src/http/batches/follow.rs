//! Answers that are written while they are read: events for as long as the reader stays, and lines up to the head.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, HeaderName, HeaderValue};
use axum::http::{Response, StatusCode};
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};

use super::answer::Answer;
use super::call::Call;
use super::lookout::Lookout;
use crate::batches::follow::Follower;
use crate::batches::limits::MAX_PAGE_ROWS;
use crate::batches::read::Wanted;
use crate::batches::table::Table;
use crate::batches::{Stream, render};
use crate::http::errors::{typed, with_header};

/// Lines of JSON.
pub const LINES: &str = "application/x-ndjson";

/// Says where to go on after an answer whose rows do not say it themselves.
const CURSOR_FIELD: HeaderName = HeaderName::from_static("streamcast-cursor");

/// An Arrow IPC stream.
pub const RECORD_BATCHES: &str = "application/vnd.apache.arrow.stream";

const EVENTS: &str = "text/event-stream";

/// How long there may be silence on an event stream.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Follows the stream with server-sent events whose ids are cursors.
pub async fn events(call: &Call, stream: Arc<Stream>, wanted: Wanted) -> Answer {
    let wanted = Wanted { limit: MAX_PAGE_ROWS, ..wanted };
    let follower = Follower::for_ever(Arc::clone(&call.service), stream, wanted).await?;
    // Said at once, so that whoever connects knows that it is.
    let hello = stream::once(async { Ok(Bytes::from_static(b": follows\n\n")) });
    let reader = Some((follower, Lookout::new(&call.caller)));
    let rows = stream::unfold(reader, |reader| async move {
        let (mut follower, mut lookout) = reader?;
        let next = follower.next(Instant::now() + KEEP_ALIVE).await;
        match next.and_then(|found| lookout.look(follower.stream()).map(|()| found)) {
            Ok(None) => None,
            Ok(Some(found)) if found.rows == 0 => {
                Some((Ok(Bytes::from_static(b": still here\n\n")), Some((follower, lookout))))
            }
            Ok(Some(found)) => {
                let tokens = &follower.stream().tokens;
                let events = found.events(|found| {
                    let mut out = Vec::new();
                    found.frames.iter().for_each(|frames| render::events(&mut out, tokens, frames));
                    out
                });
                Some((Ok(events), Some((follower, lookout))))
            }
            Err(error) => Some((Ok(Bytes::from(format!("event: error\ndata: {}\n\n", error.body()))), None)),
        }
    });
    let body = Body::from_stream(hello.chain(rows).map(|piece: Result<Bytes, Infallible>| piece));
    Ok(no_store(typed(StatusCode::OK, EVENTS, body)))
}

/// Everything up to the present head, one entry a line.
pub async fn lines(call: &Call, stream: Arc<Stream>, wanted: Wanted) -> Answer {
    let wanted = Wanted { limit: MAX_PAGE_ROWS, ..wanted };
    let follower = Follower::to_head(Arc::clone(&call.service), stream, wanted).await?;
    let head = follower.until().map(|head| follower.stream().tokens.cursor(head));
    let pieces = stream::unfold(Some(follower), |follower| async move {
        let mut follower = follower?;
        match follower.next(Instant::now()).await {
            Ok(None) => None,
            Ok(Some(found)) => {
                let mut out = Vec::new();
                let tokens = &follower.stream().tokens;
                found.frames.iter().for_each(|frames| render::lines(&mut out, tokens, frames));
                Some((Ok(Bytes::from(out)), Some(follower)))
            }
            // The answer ends without its end, which the reader sees.
            Err(error) => Some((Err(std::io::Error::other(error)), None)),
        }
    });
    Ok(with_cursor(no_store(typed(StatusCode::OK, LINES, Body::from_stream(pieces))), head))
}

/// Everything up to the present head as an Arrow IPC stream.
pub async fn record_batches(call: &Call, stream: Arc<Stream>, wanted: Wanted) -> Answer {
    let wanted = Wanted { limit: MAX_PAGE_ROWS, ..wanted };
    let mut table = Table::new(&stream)?;
    // The schema is sent even if no row follows.
    let schema = Bytes::from(table.page(&[])?);
    let follower = Follower::to_head(Arc::clone(&call.service), stream, wanted).await?;
    let head = follower.until().map(|head| follower.stream().tokens.cursor(head));
    let batches = stream::unfold(Some((follower, table)), |state| async move {
        let (mut follower, mut table) = state?;
        let piece = match follower.next(Instant::now()).await {
            Ok(None) => return Some((table.finish().map(Bytes::from).map_err(std::io::Error::other), None)),
            Ok(Some(found)) => table.page(&found.frames),
            Err(error) => Err(error),
        };
        match piece {
            Ok(bytes) => Some((Ok(Bytes::from(bytes)), Some((follower, table)))),
            // The answer ends without its end, which the reader sees.
            Err(error) => Some((Err(std::io::Error::other(error)), None)),
        }
    });
    let body = Body::from_stream(stream::once(async { Ok(schema) }).chain(batches));
    Ok(with_cursor(no_store(typed(StatusCode::OK, RECORD_BATCHES, body)), head))
}

/// The response with the cursor after its rows.
pub fn with_cursor(response: Response<Body>, cursor: Option<String>) -> Response<Body> {
    match cursor.and_then(|cursor| HeaderValue::from_str(&cursor).ok()) {
        Some(cursor) => with_header(response, CURSOR_FIELD, cursor),
        None => response,
    }
}

/// The response for nobody's cache.
pub fn no_store(response: Response<Body>) -> Response<Body> {
    with_header(response, CACHE_CONTROL, HeaderValue::from_static("no-store"))
}
