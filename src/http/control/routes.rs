//! The routes of `/control/v1`. Each asks in the order of wire.md section 11.4: who may, whether the broker is open,
//! what was sent; then the registry.

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{ETAG, IF_MATCH, IF_NONE_MATCH, LOCATION};
use axum::http::{HeaderValue, Request, Response, StatusCode, Uri};
use axum::routing::{get, post, put};

use super::super::caller::Caller;
use super::super::coding::only_plain;
use super::super::errors::{envelope, json, method_not_allowed, with_header};
use super::request::{field, idempotency_key, json_body, name_in, page_request};
use crate::auth::{Action, Resource};
use crate::registry::{Call, Change, Fault, Kind, Receipt, Registry, etag};

/// Where the control API begins.
pub const PREFIX: &str = "/control/v1";

/// The routes, for a router with any state.
pub fn router<S: Clone + Send + Sync + 'static>(registry: Registry) -> Router<S> {
    Router::new()
        .route("/control/v1", get(capabilities).fallback(only_get))
        .route("/control/v1/streams", get(list).fallback(only_get))
        .route("/control/v1/streams/{name}", get(view).put(define).fallback(get_or_put))
        .route("/control/v1/streams/{name}/desired", put(desire).fallback(only_put))
        .route("/control/v1/streams/{name}/migrations", post(migrate).fallback(only_post))
        .route("/control/v1/operations/{id}", get(operation).fallback(only_get))
        .with_state(registry)
}

async fn only_get() -> Response<Body> {
    method_not_allowed("GET, HEAD")
}

async fn get_or_put() -> Response<Body> {
    method_not_allowed("GET, HEAD, PUT")
}

async fn only_put() -> Response<Body> {
    method_not_allowed("PUT")
}

async fn only_post() -> Response<Body> {
    method_not_allowed("POST")
}

#[utoipa::path(
    get,
    path = "/control/v1",
    tag = "control",
    summary = "What this broker is and can do",
    responses(
        (status = 200, description = "Names, bounds, storage profiles", body = super::openapi::Capabilities),
        super::openapi::Asked,
    )
)]
pub(super) async fn capabilities(State(registry): State<Registry>, caller: Caller) -> Response<Body> {
    answer(async {
        require(&caller, Action::ControlRead, Resource::Collection)?;
        registry.check_open()?;
        Ok(json(StatusCode::OK, registry.capabilities().to_text()))
    })
    .await
}

#[utoipa::path(
    get,
    path = "/control/v1/streams",
    tag = "control",
    summary = "The declared streams, by name, page by page",
    params(
        ("limit" = Option<u16>, Query, description = "Streams of a page, 100 if not given", minimum = 1, maximum = 1000),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before"),
    ),
    responses(
        (status = 200, description = "A page", body = super::openapi::StreamPage),
        super::openapi::Listed,
    )
)]
pub(super) async fn list(State(registry): State<Registry>, caller: Caller, uri: Uri) -> Response<Body> {
    answer(async {
        require(&caller, Action::ControlRead, Resource::Collection)?;
        registry.check_open()?;
        let page = page_request(uri.query())?;
        let visible = |name: &str| caller.allows(Action::ControlRead, Resource::Stream(name));
        let listed = registry.list(page.limit, page.cursor.as_ref(), visible)?;
        Ok(json(StatusCode::OK, listed.to_text()))
    })
    .await
}

#[utoipa::path(
    get,
    path = "/control/v1/streams/{name}",
    tag = "control",
    summary = "A declared stream: what it shall be and what it is",
    params(("name" = String, Path, description = "The stream")),
    responses(
        (status = 200, description = "The stream", body = super::openapi::StreamView,
            headers(("ETag" = String, description = "The revision in quotes"))),
        super::openapi::Viewed,
    )
)]
pub(super) async fn view(State(registry): State<Registry>, caller: Caller, uri: Uri) -> Response<Body> {
    answer(async {
        let name = name_in(uri.path());
        require(&caller, Action::ControlRead, Resource::Stream(&name))?;
        registry.check_open()?;
        let (view, revision) = registry.view(&name)?;
        Ok(tagged(json(StatusCode::OK, view.to_text()), revision))
    })
    .await
}

#[utoipa::path(
    get,
    path = "/control/v1/operations/{id}",
    tag = "control",
    summary = "An accepted change and how far it is",
    params(("id" = String, Path, description = "The operation, as the answer to the change names it")),
    responses(
        (status = 200, description = "The operation", body = super::openapi::OperationView),
        super::openapi::Followed,
    )
)]
pub(super) async fn operation(State(registry): State<Registry>, caller: Caller, uri: Uri) -> Response<Body> {
    answer(async {
        require(&caller, Action::ControlRead, Resource::Collection)?;
        registry.check_open()?;
        let id = name_in(uri.path());
        let (name, operation) = off_thread(move || registry.operation(&id)).await?;
        require(&caller, Action::ControlRead, Resource::Stream(&name))?;
        Ok(json(StatusCode::OK, operation.to_text()))
    })
    .await
}

#[utoipa::path(
    put,
    path = "/control/v1/streams/{name}",
    tag = "control",
    summary = "Declare a stream, or change a stopped one's declaration",
    params(
        ("name" = String, Path, description = "Letters, digits, `_`, `.`, `-`; 128 at most, not beginning with a sign"),
        super::openapi::IdempotencyKey,
        super::openapi::Preconditions,
    ),
    request_body = super::openapi::Declaration,
    responses(super::openapi::Accepted, super::openapi::Defined)
)]
pub(super) async fn define(State(registry): State<Registry>, caller: Caller, request: Request<Body>) -> Response<Body> {
    mutate(registry, &caller, request, Kind::Definition).await
}

#[utoipa::path(
    put,
    path = "/control/v1/streams/{name}/desired",
    tag = "control",
    summary = "Serve, stop or retire a stream",
    params(
        ("name" = String, Path, description = "The stream"),
        super::openapi::IdempotencyKey,
        super::openapi::Preconditions,
    ),
    request_body = super::openapi::DesiredState,
    responses(super::openapi::Accepted, super::openapi::Desired)
)]
pub(super) async fn desire(State(registry): State<Registry>, caller: Caller, request: Request<Body>) -> Response<Body> {
    mutate(registry, &caller, request, Kind::Desired).await
}

#[utoipa::path(
    post,
    path = "/control/v1/streams/{name}/migrations",
    tag = "control",
    summary = "Begin a new log for a stopped stream, with another schema or order",
    params(
        ("name" = String, Path, description = "The stream"),
        super::openapi::IdempotencyKey,
        super::openapi::Preconditions,
    ),
    request_body = super::openapi::Migration,
    responses(super::openapi::AcceptedMigration, super::openapi::Migrated)
)]
pub(super) async fn migrate(
    State(registry): State<Registry>,
    caller: Caller,
    request: Request<Body>,
) -> Response<Body> {
    mutate(registry, &caller, request, Kind::Migration).await
}

async fn mutate(registry: Registry, caller: &Caller, request: Request<Body>, kind: Kind) -> Response<Body> {
    answer(async {
        let name = name_in(request.uri().path());
        let action = if kind == Kind::Migration { Action::ControlMigrate } else { Action::ControlMutate };
        require(caller, action, Resource::Stream(&name))?;
        registry.check_open()?;
        let key = idempotency_key(request.headers())?;
        let if_match = field(request.headers(), IF_MATCH);
        let if_none_match = field(request.headers(), IF_NONE_MATCH);
        let method = request.method().clone();
        let body = json_body(request, registry.settings().control_max_bytes).await?;
        let principal = caller.name().to_owned();
        // A thread of its own: it waits for the disk, and it ends its work even when the caller goes away.
        let receipt = off_thread(move || {
            let change = Change {
                name: &name,
                kind,
                body: &body,
                if_match: if_match.as_deref(),
                if_none_match: if_none_match.as_deref(),
            };
            registry.mutate(Call { principal: &principal, key: &key, method: method.as_str(), change })
        })
        .await?;
        Ok(accepted(&receipt))
    })
    .await
}

fn accepted(receipt: &Receipt) -> Response<Body> {
    let status = if receipt.no_op { StatusCode::OK } else { StatusCode::ACCEPTED };
    let (id, revision) = (&receipt.operation_id, receipt.revision);
    let body = format!(r#"{{"status":{},"operation_id":"{id}","revision":{revision}}}"#, status.as_u16());
    let response = tagged(json(status, body), revision);
    match HeaderValue::from_str(&format!("{PREFIX}/operations/{id}")) {
        Ok(location) => with_header(response, LOCATION, location),
        Err(_) => response,
    }
}

fn tagged(response: Response<Body>, revision: u64) -> Response<Body> {
    match HeaderValue::from_str(&etag(revision)) {
        Ok(tag) => with_header(response, ETAG, tag),
        Err(_) => response,
    }
}

fn require(caller: &Caller, action: Action, resource: Resource<'_>) -> Result<(), Fault> {
    if caller.allows(action, resource) { Ok(()) } else { Err(Fault::Forbidden) }
}

/// Work that may wait, away from the thread that serves everybody.
async fn off_thread<T: Send + 'static>(work: impl FnOnce() -> Result<T, Fault> + Send + 'static) -> Result<T, Fault> {
    match tokio::task::spawn_blocking(work).await {
        Ok(outcome) => outcome,
        Err(error) => {
            tracing::error!(%error, "a control call ended by a panic");
            Err(Fault::InternalError)
        }
    }
}

async fn answer(work: impl Future<Output = Result<Response<Body>, Fault>>) -> Response<Body> {
    work.await.unwrap_or_else(refusal)
}

/// The envelope of a refusal.
fn refusal(fault: Fault) -> Response<Body> {
    let status = StatusCode::from_u16(fault.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let response = envelope(status, fault.code());
    if fault == Fault::IdentityEncodingRequired { only_plain(response) } else { response }
}
