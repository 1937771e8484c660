//! Which request of the batch API goes where.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use axum::http::header::HeaderMap;
use axum::http::{Request, Response};
use axum::routing::{get, post};

use super::answer::respond;
use super::openapi::{
    BatchView, DeletedStream, EntryPage, ErasureList, ErasureView, NewBatch, NewErasure, NewStream, Refusals,
    StreamChange, StreamList, StreamView,
};
use super::{entries, erasures, streams};
use crate::batches::Service;
use crate::http::caller::Caller;
use crate::http::errors::method_not_allowed;

/// Where the batch API is.
pub const PREFIX: &str = "/v1/streams";

/// A request as the handlers of the batch API see it.
pub struct Call {
    pub service: Arc<Service>,
    pub caller: Caller,
    pub headers: HeaderMap,
    pub query: Option<String>,
}

/// The routes of the batch API.
pub fn router<S: Clone + Send + Sync + 'static>(service: Arc<Service>) -> Router<S> {
    Router::new()
        .route(PREFIX, get(list).post(create).fallback(|| async { method_not_allowed("GET, POST") }))
        .route(
            "/v1/streams/{stream}",
            get(one).patch(change).delete(delete).fallback(|| async { method_not_allowed("GET, PATCH, DELETE") }),
        )
        .route(
            "/v1/streams/{stream}/erasures",
            get(erasures).post(erase).fallback(|| async { method_not_allowed("GET, POST") }),
        )
        .route(
            "/v1/streams/{stream}/entries",
            post(insert).get(read).fallback(|| async { method_not_allowed("GET, POST") }),
        )
        .with_state(service)
}

#[utoipa::path(get, path = "/v1/streams", operation_id = "list_streams", tag = "batches",
    params(("limit" = Option<u32>, Query, description = "1 to 1,000"), ("after" = Option<String>, Query, description = "a name")),
    responses((status = 200, description = "Streams by name", body = StreamList), Refusals))]
pub async fn list(State(service): State<Arc<Service>>, caller: Caller, RawQuery(query): RawQuery) -> Response<Body> {
    respond(streams::list(&Call { service, caller, headers: HeaderMap::new(), query }))
}

#[utoipa::path(post, path = "/v1/streams", operation_id = "create_stream", tag = "batches",
    request_body = NewStream,
    responses((status = 201, description = "The stream", body = StreamView), Refusals))]
pub async fn create(State(service): State<Arc<Service>>, caller: Caller, request: Request<Body>) -> Response<Body> {
    let (head, body) = request.into_parts();
    let call = Call { service, caller, headers: head.headers, query: None };
    respond(streams::create(&call, body).await)
}

#[utoipa::path(patch, path = "/v1/streams/{stream}", operation_id = "change_stream", tag = "batches",
    params(("stream" = String, Path, description = "A name or an id")), request_body = StreamChange,
    responses((status = 200, description = "The stream", body = StreamView), Refusals))]
pub async fn change(
    State(service): State<Arc<Service>>,
    caller: Caller,
    Path(stream): Path<String>,
    request: Request<Body>,
) -> Response<Body> {
    let (head, body) = request.into_parts();
    let call = Call { service, caller, headers: head.headers, query: None };
    respond(streams::change(&call, &stream, body).await)
}

#[utoipa::path(delete, path = "/v1/streams/{stream}", operation_id = "delete_stream", tag = "batches",
    params(("stream" = String, Path, description = "A name or an id")),
    responses((status = 202, description = "It is being deleted", body = DeletedStream), Refusals))]
pub async fn delete(
    State(service): State<Arc<Service>>,
    caller: Caller,
    Path(stream): Path<String>,
    headers: HeaderMap,
) -> Response<Body> {
    respond(streams::delete(&Call { service, caller, headers, query: None }, &stream).await)
}

#[utoipa::path(get, path = "/v1/streams/{stream}/erasures", operation_id = "list_erasures", tag = "batches",
    params(("stream" = String, Path, description = "A name or an id"), ("limit" = Option<u32>, Query, description = "1 to 1,000")),
    responses((status = 200, description = "The latest erasures", body = ErasureList), Refusals))]
pub async fn erasures(
    State(service): State<Arc<Service>>,
    caller: Caller,
    Path(stream): Path<String>,
    RawQuery(query): RawQuery,
) -> Response<Body> {
    respond(erasures::list(&Call { service, caller, headers: HeaderMap::new(), query }, &stream).await)
}

#[utoipa::path(post, path = "/v1/streams/{stream}/erasures", operation_id = "erase", tag = "batches",
    params(("stream" = String, Path, description = "A name or an id")), request_body = NewErasure,
    responses((status = 200, description = "The marker", body = ErasureView), Refusals))]
pub async fn erase(
    State(service): State<Arc<Service>>,
    caller: Caller,
    Path(stream): Path<String>,
    request: Request<Body>,
) -> Response<Body> {
    let (head, body) = request.into_parts();
    let call = Call { service, caller, headers: head.headers, query: None };
    respond(erasures::erase(&call, &stream, body).await)
}

#[utoipa::path(get, path = "/v1/streams/{stream}", operation_id = "get_stream", tag = "batches",
    params(("stream" = String, Path, description = "A name or an id")),
    responses((status = 200, description = "The stream", body = StreamView), Refusals))]
pub async fn one(State(service): State<Arc<Service>>, caller: Caller, Path(stream): Path<String>) -> Response<Body> {
    respond(streams::one(&Call { service, caller, headers: HeaderMap::new(), query: None }, &stream))
}

#[utoipa::path(post, path = "/v1/streams/{stream}/entries", operation_id = "insert_entries", tag = "batches",
    params(("stream" = String, Path, description = "A name or an id")), request_body = NewBatch,
    responses((status = 200, description = "The batch", body = BatchView), Refusals))]
pub async fn insert(
    State(service): State<Arc<Service>>,
    caller: Caller,
    Path(stream): Path<String>,
    request: Request<Body>,
) -> Response<Body> {
    let (head, body) = request.into_parts();
    let call = Call { service, caller, headers: head.headers, query: None };
    respond(entries::insert(&call, &stream, body).await)
}

#[utoipa::path(get, path = "/v1/streams/{stream}/entries", operation_id = "read_entries", tag = "batches",
    params(("stream" = String, Path, description = "A name or an id"),
        ("after" = Option<String>, Query, description = "A cursor, or head"),
        ("limit" = Option<u32>, Query, description = "1 to 10,000"),
        ("where" = Option<String>, Query, description = "A filter as JSON"),
        ("wait" = Option<f64>, Query, description = "Seconds, 0 to 30")),
    responses((status = 200, description = "A page, or the form that was asked for", content(
        (EntryPage = "application/json"), (String = "text/event-stream"), (String = "application/x-ndjson"),
        (Vec<u8> = "application/vnd.apache.arrow.stream"))), Refusals))]
pub async fn read(
    State(service): State<Arc<Service>>,
    caller: Caller,
    Path(stream): Path<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response<Body> {
    respond(entries::read(&Call { service, caller, headers, query }, &stream).await)
}
