//! Which request gets which answer.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use axum::http::{HeaderValue, Method, Request, Response, StatusCode, Version};
use axum::routing::{get, post};
use http_body_util::Limited;
use prometheus::core::Collector;
use prometheus::{IntCounterVec, Opts};
use tokio::sync::Semaphore;
use tower::ServiceExt;

use super::access::{self, ACCESS_PATH};
use super::caller::Caller;
use super::connection::ByControlAddress;
use super::errors::{
    HttpError, authentication_required, envelope, internal, json, method_not_allowed, not_found, text, typed,
    with_header,
};
use super::health::{Health, Readiness};
use super::lent::Lent;
use super::settings::HttpSettings;
use super::{audit, batches, console, control, metrics, openapi, page, stats, upgrade};
use crate::auth::{Action, Resource, TICKET_LIFETIME};
use crate::telemetry::Telemetry;

/// Where the statistics are when nobody says otherwise; switched off, this path still says so.
const STATS_PATH: &str = "/stats";

/// Where tickets are had.
const TICKETS_PATH: &str = "/v1/tickets";

/// Everything a request can be answered from.
pub struct App {
    pub settings: HttpSettings,
    pub telemetry: Arc<Telemetry>,
    pub health: Health,
    /// One permit a connection.
    pub permits: Arc<Semaphore>,
    /// What the console page shows of the last minutes.
    pub history: Arc<console::History>,
    answers: IntCounterVec,
    refused: prometheus::IntCounter,
    router: Router,
}

impl App {
    /// Nothing is ready yet.
    ///
    /// # Errors
    /// Never in practice; the names of the two counters are checked by their library.
    pub fn new(settings: HttpSettings, telemetry: Arc<Telemetry>) -> Result<Arc<Self>, HttpError> {
        let named = |error: prometheus::Error| HttpError::Start(std::io::Error::other(error));
        let answers = Opts::new("streamcast_http_answers_total", "Answers to requests, by route and status.");
        let answers = IntCounterVec::new(answers, &["route", "status"]).map_err(named)?;
        let help = "Connections refused at the limit on HTTP connections.";
        let refused = prometheus::IntCounter::new("streamcast_http_refused_total", help).map_err(named)?;
        let permits = Arc::new(Semaphore::new(settings.limits.max_http_connections));
        let health = Health::default();
        Ok(Arc::new_cyclic(|app| {
            let router = router(&settings).with_state(Shared(app.clone()));
            let history = Arc::default();
            Self { settings, telemetry, health, permits, history, answers, refused, router }
        }))
    }

    /// Counts a connection that found no permit.
    pub fn count_refused(&self) {
        self.refused.inc();
    }

    /// Answers one request; never fails.
    pub async fn respond(&self, request: Request<Lent>) -> Response<Body> {
        let route = self.route(&request);
        let response = self.answer(request).await;
        self.answers.with_label_values(&[route, response.status().as_str()]).inc();
        response
    }

    /// The label of a request, one of few.
    fn route<B>(&self, request: &Request<B>) -> &'static str {
        match request.uri().path() {
            _ if upgrade::asks_for_websocket(request) => "websocket",
            path if self.settings.stats_path.as_deref() == Some(path) => "stats",
            "/" | console::HISTORY_PATH => "console",
            "/metrics" => "metrics",
            TICKETS_PATH | ACCESS_PATH => "access",
            "/healthz" => "healthz",
            "/readyz" => "readyz",
            openapi::OPENAPI_PATH => "openapi",
            path if path.starts_with(control::PREFIX) => "control",
            path if is_batches(path) => "batches",
            _ => "other",
        }
    }

    async fn answer(&self, request: Request<Lent>) -> Response<Body> {
        if !names_host(&request) {
            return text(StatusCode::BAD_REQUEST, "a request names its host, once, in the field host\n");
        }
        if !is_plainly_framed(&request) {
            return text(
                StatusCode::NOT_IMPLEMENTED,
                "of transfer codings only chunked is known; send the body without another\n",
            );
        }
        // First of all who asks, before anything is looked up (wire.md section 11.4).
        let record = audit::Record::of(&request);
        let (caller, refused) = match Caller::of(&self.settings.gate, &request).await {
            Ok(caller) => (caller, None),
            Err(refused) => (Caller::nobody(), Some(refused)),
        };
        let response = match refused {
            Some(refused) if !self.is_open(&request) => refused,
            _ => self.serve(request, caller.clone()).await,
        };
        if let Some(record) = record {
            record.write(&caller, response.status());
        }
        response
    }

    /// Paths that answer everybody: they say no more than that a broker runs. The page has nothing in it but the way to
    /// sign in, and whoever shows no credentials is told that some are wanted.
    fn is_open<B>(&self, request: &Request<B>) -> bool {
        let shows_nothing = || !request.headers().contains_key(AUTHORIZATION) && request.uri().query().is_none();
        match request.uri().path() {
            "/healthz" | "/readyz" => true,
            _ if upgrade::asks_for_websocket(request) || !matches!(*request.method(), Method::GET | Method::HEAD) => {
                false
            }
            "/" => self.settings.console && request.uri().query().is_none(),
            ACCESS_PATH => shows_nothing(),
            _ => false,
        }
    }

    async fn serve(&self, mut request: Request<Lent>, caller: Caller) -> Response<Body> {
        if upgrade::asks_for_websocket(&request) {
            return upgrade::answer(request, &caller, &self.settings.on_upgrade);
        }
        if self.settings.control_apart && request.extensions().get::<ByControlAddress>().is_none() {
            let path = request.uri().path();
            if path.starts_with(control::PREFIX) || path == openapi::OPENAPI_PATH {
                return not_found();
            }
        }
        // Calls that take bodies have limits of their own, and look at them after other things.
        if request.uri().path().starts_with(control::PREFIX) || is_batches(request.uri().path()) {
            request.extensions_mut().insert(caller);
            return self.routed(request.map(Body::new)).await;
        }
        let max_body_bytes = self.settings.limits.max_body_bytes;
        let announced = request.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        if announced.is_some_and(|length: usize| length > max_body_bytes) {
            return envelope(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large");
        }
        match self.settings.stats_path.as_deref() {
            Some(path) if path == request.uri().path() => return self.stats(request.method(), &caller),
            None if request.uri().path() == STATS_PATH => return envelope(StatusCode::NOT_FOUND, "not_found"),
            _ => {}
        }
        request.extensions_mut().insert(caller);
        self.routed(request.map(|body| Body::new(Limited::new(body, max_body_bytes)))).await
    }

    async fn routed(&self, request: Request<Body>) -> Response<Body> {
        match self.router.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }

    fn stats(&self, method: &Method, caller: &Caller) -> Response<Body> {
        if method != Method::GET {
            return method_not_allowed("GET");
        }
        if let Err(refused) = caller.require(Action::StatsRead, Resource::Collection) {
            return refused;
        }
        let visible = |name: &str| caller.allows(Action::StatsRead, Resource::Stream(name));
        match stats::document(&self.telemetry, visible, SystemTime::now(), Instant::now()) {
            Ok(document) => json(StatusCode::OK, document),
            Err(error) => internal(&error),
        }
    }

    /// A ticket for whoever asks, good for one WebSocket (docs/security.md).
    fn ticket(&self, caller: &Caller) -> Response<Body> {
        if !self.settings.gate.has_policy() {
            return envelope(StatusCode::NOT_FOUND, "not_found");
        }
        if caller.principal().is_anonymous() {
            return authentication_required();
        }
        match self.settings.gate.ticket(caller.principal()) {
            Some(ticket) => {
                let expires_in_s = TICKET_LIFETIME.as_secs();
                let body = serde_json::json!({"ticket": ticket, "expires_in_s": expires_in_s});
                no_store(json(StatusCode::CREATED, body.to_string()))
            }
            None => envelope(StatusCode::TOO_MANY_REQUESTS, "too_many_tickets"),
        }
    }

    fn metrics(&self) -> Response<Body> {
        let mut own = self.answers.collect();
        own.extend(self.refused.collect());
        let connections = self.settings.limits.max_http_connections - self.permits.available_permits();
        let help = "HTTP connections open.";
        if let Ok(gauge) = prometheus::IntGauge::new("streamcast_http_connections", help) {
            gauge.set(i64::try_from(connections).unwrap_or(i64::MAX));
            own.extend(gauge.collect());
        }
        match metrics::render(&self.telemetry, self.health.readiness() == Readiness::Ready, own) {
            Ok(text) => typed(StatusCode::OK, metrics::MEDIA_TYPE, text),
            Err(error) => internal(&error),
        }
    }

    fn ready(&self) -> Response<Body> {
        let readiness = self.health.readiness();
        let status = match readiness {
            Readiness::Ready => StatusCode::OK,
            Readiness::Starting | Readiness::Draining => StatusCode::SERVICE_UNAVAILABLE,
        };
        json(status, format!(r#"{{"status":"{}"}}"#, readiness.word()))
    }
}

/// Whether a request names its host as its version asks for: HTTP/1.1 wants one, exactly (RFC 9112 section 3.2).
fn names_host<B>(request: &Request<B>) -> bool {
    request.version() != Version::HTTP_11 || request.headers().get_all(HOST).iter().count() == 1
}

/// Whether a body, if there is one, comes in no transfer coding but chunks, once (RFC 9112 section 6.1).
fn is_plainly_framed<B>(request: &Request<B>) -> bool {
    let mut codings = request.headers().get_all(TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => true,
        (Some(only), None) => only.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked"),
        (Some(_), Some(_)) => false,
    }
}

/// Whether a path belongs to the batch API.
fn is_batches(path: &str) -> bool {
    path.strip_prefix(batches::PREFIX).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The application as the router's handlers see it; gone only while the process ends.
#[derive(Clone)]
struct Shared(std::sync::Weak<App>);

impl Shared {
    fn answer(&self, make: impl FnOnce(&App) -> Response<Body>) -> Response<Body> {
        match self.0.upgrade() {
            Some(app) => make(&app),
            None => envelope(StatusCode::SERVICE_UNAVAILABLE, "broker_unavailable"),
        }
    }
}

fn router(settings: &HttpSettings) -> Router<Shared> {
    let mut router = Router::new()
        .route(
            "/metrics",
            get(|State(app): State<Shared>, caller: Caller| async move {
                match caller.require_all(Action::StatsRead) {
                    Ok(()) => app.answer(App::metrics),
                    Err(refused) => refused,
                }
            }),
        )
        .route(
            TICKETS_PATH,
            post(|State(app): State<Shared>, caller: Caller| async move { app.answer(|app| app.ticket(&caller)) }),
        )
        .route("/healthz", get(|| async { json(StatusCode::OK, r#"{"status":"ok"}"#) }))
        .route("/readyz", get(|State(app): State<Shared>| async move { app.answer(App::ready) }));
    let managed = settings.registry.is_managed();
    if settings.console {
        router = router.route("/", get(move || async move { page::console(managed) })).route(
            console::HISTORY_PATH,
            get(|State(app): State<Shared>, caller: Caller| async move {
                match caller.require_all(Action::StatsRead) {
                    Ok(()) => app.answer(|app| no_store(json(StatusCode::OK, app.history.document()))),
                    Err(refused) => refused,
                }
            }),
        );
    }
    let mut router = router
        .merge(access::router(settings.gate.clone()))
        .merge(openapi::router())
        .merge(control::router(settings.registry.clone()));
    if let Some(service) = &settings.batches {
        router = router.merge(batches::router(Arc::clone(service)));
    }
    router.fallback(|| async { not_found() }).method_not_allowed_fallback(|| async { method_not_allowed("GET, HEAD") })
}

pub(super) fn no_store(response: Response<Body>) -> Response<Body> {
    with_header(response, CACHE_CONTROL, HeaderValue::from_static("no-store"))
}
