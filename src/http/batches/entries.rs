//! Inserting entries and reading them page by page.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::StatusCode;
use axum::http::header::{ACCEPT, CONTENT_LENGTH};
use bytes::Bytes;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use tokio::sync::OwnedSemaphorePermit;

use super::answer::{Answer, too_large};
use super::call::Call;
use super::follow;
use super::lookout::Lookout;
use super::query::Query;
use super::streams::find;
use crate::auth::Action;
use crate::batches::limits::{DEFAULT_PAGE_ROWS, MAX_BODY_BYTES, MAX_PAGE_ROWS, MAX_WAIT};
use crate::batches::read::Wanted;
use crate::batches::shared::Shared;
use crate::batches::table::Table;
use crate::batches::{ApiError, Stream, render};
use crate::http::coding;
use crate::http::errors::{json, typed};

/// Answers of more bytes than this are written on a thread of their own.
const INLINE_ANSWER_BYTES: usize = 256 << 10;

/// Entries of an insert whose answer is written at once.
const INLINE_ENTRIES: u32 = 2_000;

/// Inserts entries.
pub async fn insert(call: Call, body: Body) -> Answer {
    let stream = find(&call, Action::DataPublish)?;
    let (_room, body) = collect_large(&call, body).await?;
    let (inserted, list) = call.service.insert(&stream, body).await?;
    let answer = if list && inserted.count > INLINE_ENTRIES {
        let stream = stream.clone();
        call.service.apart(move || Ok(render::inserted(&stream.tokens, &inserted, list))).await?
    } else {
        render::inserted(&stream.tokens, &inserted, list)
    };
    Ok(json(StatusCode::OK, answer))
}

/// A body of up to 8 MiB, read once there is room for it, and the room.
pub async fn collect_large(call: &Call, body: Body) -> Result<(OwnedSemaphorePermit, Bytes), ApiError> {
    refuse_coded(call)?;
    let announced = call.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let bytes: usize = announced.unwrap_or(MAX_BODY_BYTES);
    if bytes > MAX_BODY_BYTES {
        return Err(too_large(MAX_BODY_BYTES));
    }
    let room = call.service.room_for_body(bytes).await?;
    Ok((room, read_all(body, MAX_BODY_BYTES).await?))
}

/// The whole body of a call that needs no room of its own.
pub async fn collect(call: &Call, body: Body, max_bytes: usize) -> Result<Bytes, ApiError> {
    refuse_coded(call)?;
    read_all(body, max_bytes).await
}

/// Refuses a body that is compressed or otherwise coded, before any of it is read.
fn refuse_coded(call: &Call) -> Result<(), ApiError> {
    coding::of_body(&call.headers).map_or(Ok(()), |codings| Err(ApiError::coded(&codings)))
}

async fn read_all(body: Body, max_bytes: usize) -> Result<Bytes, ApiError> {
    match Limited::new(body, max_bytes).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.downcast_ref::<LengthLimitError>().is_some() => Err(too_large(max_bytes)),
        Err(error) => Err(ApiError::invalid(format!("the body ended early: {error}"))),
    }
}

/// Reads entries: a page, a stream of lines or record batches, or events for as long as the reader stays.
pub async fn read(call: Call) -> Answer {
    let stream = find(&call, Action::DataRead)?;
    let query = Query::read(call.query.as_deref(), &["after", "offset", "limit", "where", "wait"])?;
    let form = Form::of(call.headers.get_all(ACCEPT).iter().filter_map(|accept| accept.to_str().ok()));
    let mut wanted = Wanted {
        after: start(&stream, &query)?,
        limit: query.count("limit", DEFAULT_PAGE_ROWS, MAX_PAGE_ROWS)?,
        filter: query.get("where").map(|text| stream.filter(text)).transpose()?,
    };
    let wait = Duration::from_secs_f64(query.seconds("wait", MAX_WAIT.as_secs_f64())?);
    match form {
        Form::Page => page(&call, &stream, &wanted, wait).await,
        Form::Events => {
            // An empty one is that of a reader who had no event yet.
            if let Some(last) = call.headers.get("last-event-id").filter(|last| !last.is_empty()) {
                let last = last.to_str().map_err(|_| ApiError::cursor())?;
                wanted.after = Some(stream.position(last)?);
            }
            follow::events(&call, stream, wanted).await
        }
        Form::RecordBatches if query.get("limit").is_none() => follow::record_batches(&call, stream, wanted).await,
        Form::RecordBatches => {
            let found = waited(&call, &stream, &wanted, wait).await?;
            let cursor = found.next.map(|next| stream.tokens.cursor(next));
            let bytes = {
                let mut table = Table::new(&stream)?;
                let mut bytes = table.page(&found.frames)?;
                bytes.append(&mut table.finish()?);
                bytes
            };
            Ok(follow::with_cursor(follow::no_store(typed(StatusCode::OK, follow::RECORD_BATCHES, bytes)), cursor))
        }
        Form::Lines if query.get("limit").is_none() => follow::lines(&call, stream, wanted).await,
        Form::Lines => {
            let found = waited(&call, &stream, &wanted, wait).await?;
            let mut out = Vec::new();
            found.frames.iter().for_each(|frames| render::lines(&mut out, &stream.tokens, frames));
            let cursor = found.next.map(|next| stream.tokens.cursor(next));
            Ok(follow::with_cursor(follow::no_store(typed(StatusCode::OK, follow::LINES, out)), cursor))
        }
    }
}

/// Where a read starts: at the boundary that `after` names, or at the item with the number `offset`.
fn start(stream: &Stream, query: &Query) -> Result<Option<i64>, ApiError> {
    let Some(text) = query.get("offset") else { return after(stream, query.get("after")) };
    if query.get("after").is_some() {
        return Err(ApiError::invalid("give either after or offset"));
    }
    let number = text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()));
    let offset: i64 = number.ok_or_else(|| ApiError::invalid("offset has to be a whole number from 0"))?;
    let head = stream.end();
    if offset > head {
        return Err(ApiError::invalid(format!("offset {offset} is beyond the head of the stream, {head}")));
    }
    Ok(Some(offset).filter(|offset| *offset > 0))
}

/// The boundary of an `after` parameter: a cursor, `head` for the present end, or nothing for the origin.
fn after(stream: &Stream, text: Option<&str>) -> Result<Option<i64>, ApiError> {
    match text {
        None | Some("" | "null") => Ok(None),
        Some("head") => Ok(stream.head()),
        Some(cursor) => stream.position(cursor).map(Some),
    }
}

/// One read, which may wait for rows; for a reader who may still have them then.
async fn waited(call: &Call, stream: &Stream, wanted: &Wanted, wait: Duration) -> Result<Arc<Shared>, ApiError> {
    let mut lookout = Lookout::new(&call.caller);
    let found = call.service.read_or_wait(stream, wanted, Instant::now() + wait).await?;
    lookout.look(stream)?;
    Ok(found)
}

async fn page(call: &Call, stream: &Arc<Stream>, wanted: &Wanted, wait: Duration) -> Answer {
    let found = waited(call, stream, wanted, wait).await?;
    let write = |stream: &Stream, found: &Shared| {
        found.page(|found| render::page(&stream.tokens, &found.frames, found.next, found.head))
    };
    let text = if found.bytes() > INLINE_ANSWER_BYTES {
        let stream = stream.clone();
        call.service.apart(move || Ok(write(&stream, &found))).await?
    } else {
        write(stream, &found)
    };
    Ok(follow::no_store(json(StatusCode::OK, text)))
}

/// The form of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Page,
    Events,
    Lines,
    RecordBatches,
}

impl Form {
    /// The form that the reader prefers, by weight and then by its order; a page if none is known.
    fn of<'a>(accepts: impl Iterator<Item = &'a str>) -> Self {
        let mut best = (Self::Page, 0.0);
        for (form, weight) in accepts.flat_map(|accept| accept.split(',')).filter_map(Self::of_range) {
            if weight > best.1 {
                best = (form, weight);
            }
        }
        best.0
    }

    /// The form of one media range, and its weight: 1 unless it says less, and 0 if it is refused.
    fn of_range(range: &str) -> Option<(Self, f64)> {
        let mut parts = range.split(';').map(str::trim);
        let form = match parts.next()?.to_ascii_lowercase().as_str() {
            "text/event-stream" => Self::Events,
            "application/x-ndjson" | "application/ndjson" => Self::Lines,
            follow::RECORD_BATCHES => Self::RecordBatches,
            "application/json" | "application/*" | "*/*" => Self::Page,
            _ => return None,
        };
        let weight = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
        Some((form, weight.and_then(|weight| weight.parse().ok()).unwrap_or(1.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_with_the_most_weight_is_given() {
        for (accept, form) in [
            ("", Form::Page),
            ("*/*", Form::Page),
            ("text/event-stream", Form::Events),
            ("text/html, application/x-ndjson;q=0.9, application/json;q=0.8", Form::Lines),
            ("application/x-ndjson;q=0.1, application/json;q=0.9", Form::Page),
            ("*/*;q=0.1, text/event-stream; charset=utf-8; q=0.5", Form::Events),
            ("application/x-ndjson, application/json", Form::Lines),
            ("application/json, text/event-stream", Form::Page),
            ("Text/Event-Stream; charset=utf-8", Form::Events),
            ("application/x-ndjson;q=0, text/event-stream;q=0.1", Form::Events),
            ("application/x-ndjson; q=0.000, image/png", Form::Page),
        ] {
            assert_eq!(Form::of([accept].into_iter()), form, "{accept}");
        }
        assert_eq!(Form::of(["text/html", "application/x-ndjson"].into_iter()), Form::Lines);
    }
}
