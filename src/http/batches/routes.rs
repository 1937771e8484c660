//! Which request of the batch API goes where.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use axum::http::header::HeaderMap;
use axum::http::{Request, Response};
use axum::routing::{get, post};

use super::answer::respond;
use super::{entries, streams};
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
        .route(PREFIX, get(list).fallback(|| async { method_not_allowed("GET") }))
        .route("/v1/streams/{stream}", get(one).fallback(|| async { method_not_allowed("GET") }))
        .route(
            "/v1/streams/{stream}/entries",
            post(insert).get(read).fallback(|| async { method_not_allowed("GET, POST") }),
        )
        .with_state(service)
}

async fn list(State(service): State<Arc<Service>>, caller: Caller, RawQuery(query): RawQuery) -> Response<Body> {
    respond(streams::list(&Call { service, caller, headers: HeaderMap::new(), query }))
}

async fn one(State(service): State<Arc<Service>>, caller: Caller, Path(stream): Path<String>) -> Response<Body> {
    respond(streams::one(&Call { service, caller, headers: HeaderMap::new(), query: None }, &stream))
}

async fn insert(
    State(service): State<Arc<Service>>,
    caller: Caller,
    Path(stream): Path<String>,
    request: Request<Body>,
) -> Response<Body> {
    let (head, body) = request.into_parts();
    let call = Call { service, caller, headers: head.headers, query: None };
    respond(entries::insert(&call, &stream, body).await)
}

async fn read(
    State(service): State<Arc<Service>>,
    caller: Caller,
    Path(stream): Path<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response<Body> {
    respond(entries::read(&Call { service, caller, headers, query }, &stream).await)
}
