//! Which request of the batch API goes where.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::routing::{get, post};

use super::answer::Answer;
use super::call::Call;
use super::openapi::{
    BatchView, DeletedStream, EntryPage, ErasureList, ErasureView, NewBatch, NewErasure, NewStream, StreamChange,
    StreamList, StreamView,
};
use super::{entries, erasures, refusals, streams};
use crate::batches::Service;
use crate::http::errors::method_not_allowed;

/// Where the batch API is.
pub const PREFIX: &str = "/v1/streams";

/// The routes of the batch API.
pub fn router<S: Clone + Send + Sync + 'static>(service: Arc<Service>) -> Router<S> {
    Router::new()
        .route(PREFIX, get(list).post(create).fallback(|| async { method_not_allowed("GET, HEAD, POST") }))
        .route(
            "/v1/streams/{stream}",
            get(one).patch(change).delete(delete).fallback(|| async { method_not_allowed("GET, HEAD, PATCH, DELETE") }),
        )
        .route(
            "/v1/streams/{stream}/erasures",
            get(erasures).post(erase).fallback(|| async { method_not_allowed("GET, HEAD, POST") }),
        )
        .route(
            "/v1/streams/{stream}/entries",
            post(insert).get(read).fallback(|| async { method_not_allowed("GET, HEAD, POST") }),
        )
        .merge(super::retention::router())
        .with_state(service)
}

#[utoipa::path(get, path = "/v1/streams", operation_id = "list_streams", tag = "batches",
    params(("limit" = Option<u32>, Query, description = "1 to 1,000", minimum = 1, maximum = 1_000),
        ("after" = Option<String>, Query, description = "a name")),
    responses((status = 200, description = "Streams by name", body = StreamList), refusals::List))]
pub async fn list(call: Call) -> Answer {
    streams::list(call)
}

#[utoipa::path(post, path = "/v1/streams", operation_id = "create_stream", tag = "batches",
    request_body = NewStream,
    responses((status = 201, description = "The stream", body = StreamView), refusals::Create))]
pub async fn create(call: Call, body: Body) -> Answer {
    streams::create(call, body).await
}

#[utoipa::path(get, path = "/v1/streams/{stream}", operation_id = "get_stream", tag = "batches",
    params(("stream" = String, Path, description = "A name or an id")),
    responses((status = 200, description = "The stream", body = StreamView), refusals::One))]
pub async fn one(call: Call) -> Answer {
    streams::one(call)
}

#[utoipa::path(patch, path = "/v1/streams/{stream}", operation_id = "change_stream", tag = "batches",
    params(("stream" = String, Path, description = "A name or an id")), request_body = StreamChange,
    responses((status = 200, description = "The stream", body = StreamView), refusals::Change))]
pub async fn change(call: Call, body: Body) -> Answer {
    streams::change(call, body).await
}

#[utoipa::path(delete, path = "/v1/streams/{stream}", operation_id = "delete_stream", tag = "batches",
    params(("stream" = String, Path, description = "A name or an id")),
    responses((status = 202, description = "It is being deleted", body = DeletedStream), refusals::Delete))]
pub async fn delete(call: Call) -> Answer {
    streams::delete(call).await
}

#[utoipa::path(get, path = "/v1/streams/{stream}/erasures", operation_id = "list_erasures", tag = "batches",
    params(("stream" = String, Path, description = "A name or an id"),
        ("limit" = Option<u32>, Query, description = "1 to 1,000", minimum = 1, maximum = 1_000)),
    responses((status = 200, description = "The latest erasures", body = ErasureList), refusals::Erasures))]
pub async fn erasures(call: Call) -> Answer {
    erasures::list(call).await
}

#[utoipa::path(post, path = "/v1/streams/{stream}/erasures", operation_id = "erase", tag = "batches",
    params(("stream" = String, Path, description = "A name or an id")), request_body = NewErasure,
    responses((status = 200, description = "The marker", body = ErasureView), refusals::Erase))]
pub async fn erase(call: Call, body: Body) -> Answer {
    erasures::erase(call, body).await
}

#[utoipa::path(post, path = "/v1/streams/{stream}/entries", operation_id = "insert_entries", tag = "batches",
    params(("stream" = String, Path, description = "A name or an id")), request_body = NewBatch,
    responses((status = 200, description = "The batch", body = BatchView), refusals::Insert))]
pub async fn insert(call: Call, body: Body) -> Answer {
    entries::insert(call, body).await
}

#[utoipa::path(get, path = "/v1/streams/{stream}/entries", operation_id = "read_entries", tag = "batches",
    params(("stream" = String, Path, description = "A name or an id"),
        ("after" = Option<String>, Query, description = "A cursor, or head"),
        ("offset" = Option<i64>, Query, description = "The offset to begin at, instead of a cursor", minimum = 0),
        ("limit" = Option<u32>, Query, description = "1 to 10,000", minimum = 1, maximum = 10_000),
        ("where" = Option<String>, Query, description = "A filter as JSON"),
        ("wait" = Option<f64>, Query, description = "Seconds, 0 to 30", minimum = 0, maximum = 30)),
    responses((status = 200, description = "A page, or the form that was asked for", content(
        (EntryPage = "application/json"), (String = "text/event-stream"), (String = "application/x-ndjson"),
        (Vec<u8> = "application/vnd.apache.arrow.stream"))), refusals::Read))]
pub async fn read(call: Call) -> Answer {
    entries::read(call).await
}
