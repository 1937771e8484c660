//! Who may do what, as far as it can be told: the caller itself, `/v1/access`, and the policy for those who look after
//! it, `/control/v1/principals` and `/control/v1/keys` (docs/security.md). Nothing here lets anybody in.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::http::{Response, StatusCode};
use axum::routing::get;
use serde::Serialize;
use utoipa::{OpenApi, ToSchema};

use super::caller::Caller;
use super::control::{Asked, Overseen};
use super::errors::{envelope, internal, json, method_not_allowed};
use crate::auth::{Action, Gate, GrantsView, IssuerView, KeyView, PrincipalView, grants_view};

/// Where callers learn who they are.
pub const ACCESS_PATH: &str = "/v1/access";

/// Principals or keys of a page that does not say how many, and the most there are.
const DEFAULT_LISTED: usize = 100;
const MAX_LISTED: usize = 1_000;

/// The description of these calls.
#[derive(OpenApi)]
#[openapi(paths(own, principals, keys))]
pub struct AccessApi;

/// Who asks.
#[derive(Serialize, ToSchema)]
struct OwnAccess<'a> {
    /// Whether callers have to show who they are.
    policy: bool,
    /// The caller's name; null for one that has shown nothing and may do nothing without.
    principal: Option<&'a str>,
    /// Whether it has shown nothing, and may do what everybody may.
    anonymous: bool,
    /// When what it showed ends to be valid, in seconds since 1970.
    expires: Option<u64>,
    /// For each action the names of streams, as a policy has them.
    #[schema(value_type = BTreeMap<String, Vec<String>>)]
    grants: GrantsView,
}

/// A page of principals.
#[derive(Serialize, ToSchema)]
struct Principals {
    policy: bool,
    /// What callers may do who show nothing.
    #[schema(value_type = Option<BTreeMap<String, Vec<String>>>)]
    anonymous: Option<GrantsView>,
    /// Whose tokens are accepted.
    #[schema(value_type = Vec<IssuerShape>)]
    issuers: Vec<IssuerView>,
    #[schema(value_type = Vec<PrincipalShape>)]
    principals: Vec<PrincipalView>,
    /// The name to go on after; null on the last page.
    next: Option<String>,
}

/// A page of keys.
#[derive(Serialize, ToSchema)]
struct Keys {
    #[schema(value_type = Vec<KeyShape>)]
    keys: Vec<KeyView>,
    /// The id to go on after; null on the last page.
    next: Option<String>,
}

/// An issuer.
#[derive(ToSchema)]
#[expect(dead_code, reason = "only its shape is of use")]
struct IssuerShape {
    issuer: String,
    grants: BTreeMap<String, Vec<String>>,
}

/// A principal.
#[derive(ToSchema)]
#[expect(dead_code, reason = "only its shape is of use")]
struct PrincipalShape {
    name: String,
    passwords: u64,
    keys: u64,
    grants: BTreeMap<String, Vec<String>>,
}

/// A key, without the key.
#[derive(ToSchema)]
#[expect(dead_code, reason = "only its shape is of use")]
struct KeyShape {
    id: String,
    name: String,
    created: u64,
    expires: Option<u64>,
    expired: bool,
    own_grants: bool,
    grants: BTreeMap<String, Vec<String>>,
}

/// The routes, for a router with any state.
pub fn router<S: Clone + Send + Sync + 'static>(gate: Gate) -> Router<S> {
    Router::new()
        .route(ACCESS_PATH, get(own).fallback(only_get))
        .route("/control/v1/principals", get(principals).fallback(only_get))
        .route("/control/v1/keys", get(keys).fallback(only_get))
        .with_state(gate)
}

async fn only_get() -> Response<Body> {
    method_not_allowed("GET, HEAD")
}

#[utoipa::path(get, path = "/v1/access", operation_id = "own_access", tag = "control",
    summary = "Who the caller is, and what it may do",
    security((), ("basic" = []), ("bearer" = [])),
    responses((status = 200, description = "The caller", body = OwnAccess), Asked))]
async fn own(State(gate): State<Gate>, caller: Caller) -> Response<Body> {
    let principal = caller.principal();
    let expires = principal.expires().and_then(|at: SystemTime| at.duration_since(UNIX_EPOCH).ok());
    written(&OwnAccess {
        policy: gate.has_policy(),
        principal: Some(caller.name()).filter(|name| !name.is_empty()),
        anonymous: principal.is_anonymous(),
        expires: expires.map(|since| since.as_secs()),
        grants: grants_view(principal.grants()),
    })
}

#[utoipa::path(get, path = "/control/v1/principals", operation_id = "list_principals", tag = "control",
    summary = "The principals of the policy, without what lets them in",
    params(("limit" = Option<u16>, Query, description = "1 to 1,000, 100 if not given", minimum = 1, maximum = 1000),
        ("after" = Option<String>, Query, description = "The name to go on after")),
    responses((status = 200, description = "A page, by name", body = Principals), Overseen))]
async fn principals(State(gate): State<Gate>, caller: Caller, RawQuery(query): RawQuery) -> Response<Body> {
    let page = match asked(&caller, query.as_deref()) {
        Ok(page) => page,
        Err(refused) => return refused,
    };
    let overview = gate.overview().unwrap_or_default();
    let (principals, next) = page.of(overview.principals, |principal| &principal.name);
    let policy = gate.has_policy();
    written(&Principals { policy, anonymous: overview.anonymous, issuers: overview.issuers, principals, next })
}

#[utoipa::path(get, path = "/control/v1/keys", operation_id = "list_keys", tag = "control",
    summary = "The keys, without the keys themselves",
    params(("limit" = Option<u16>, Query, description = "1 to 1,000, 100 if not given", minimum = 1, maximum = 1000),
        ("after" = Option<String>, Query, description = "The id to go on after")),
    responses((status = 200, description = "A page, by id", body = Keys), Overseen))]
async fn keys(State(gate): State<Gate>, caller: Caller, RawQuery(query): RawQuery) -> Response<Body> {
    let page = match asked(&caller, query.as_deref()) {
        Ok(page) => page,
        Err(refused) => return refused,
    };
    let (keys, next) = page.of(gate.overview().unwrap_or_default().keys, |key| &key.id);
    written(&Keys { keys, next })
}

/// Which page is asked for.
struct Page {
    limit: usize,
    after: Option<String>,
}

impl Page {
    /// The page of a sorted list, and the name to go on after.
    fn of<T>(&self, items: Vec<T>, name: impl Fn(&T) -> &String) -> (Vec<T>, Option<String>) {
        let after = |item: &T| self.after.as_ref().is_none_or(|after| name(item) > after);
        let mut rest = items.into_iter().filter(after);
        let page: Vec<T> = rest.by_ref().take(self.limit).collect();
        let next = rest.next().and_then(|_| page.last()).map(|last| name(last).clone());
        (page, next)
    }
}

/// Refuses callers who may not see everything of the control API, and queries that make no sense.
#[expect(clippy::result_large_err, reason = "the error is the answer, made where the request ends")]
fn asked(caller: &Caller, query: Option<&str>) -> Result<Page, Response<Body>> {
    caller.require_all(Action::ControlRead)?;
    let refuse = || envelope(StatusCode::BAD_REQUEST, "invalid_pagination");
    let mut page = Page { limit: DEFAULT_LISTED, after: None };
    for (key, value) in super::control::pairs(query.unwrap_or_default()) {
        match key.as_str() {
            "limit" => {
                let limit = value.parse().ok().filter(|limit| (1..=MAX_LISTED).contains(limit));
                page.limit = limit.ok_or_else(refuse)?;
            }
            "after" => page.after = Some(value),
            _ => return Err(refuse()),
        }
    }
    Ok(page)
}

fn written(document: &impl Serialize) -> Response<Body> {
    match serde_json::to_string(document) {
        Ok(text) => super::routes::no_store(json(StatusCode::OK, text)),
        Err(error) => internal(&error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::Grants;

    #[test]
    fn pages_go_on_where_the_last_one_ended() {
        let names = || ["a", "b", "c"].map(str::to_owned).to_vec();
        let page =
            |limit, after: Option<&str>| Page { limit, after: after.map(str::to_owned) }.of(names(), |name| name);
        assert_eq!(page(2, None), (vec!["a".to_owned(), "b".to_owned()], Some("b".to_owned())));
        assert_eq!(page(2, Some("b")), (vec!["c".to_owned()], None));
        assert_eq!(page(3, None), (names(), None));
        assert_eq!(page(1, Some("z")), (Vec::new(), None));
    }

    #[test]
    fn only_who_may_see_all_of_the_control_api_sees_principals() {
        let all = Caller::of_test("ops", Grants::of(&[Action::ControlRead]));
        assert!(asked(&all, Some("limit=3&after=x%20y")).is_ok_and(|page| page.after.as_deref() == Some("x y")));
        for bad in ["limit=0", "limit=1001", "limit=x", "cursor=a"] {
            assert_eq!(asked(&all, Some(bad)).err().map(|refused| refused.status()), Some(StatusCode::BAD_REQUEST));
        }
        let mut grants = Grants::default();
        grants.add(Action::ControlRead, crate::auth::Pattern::Collection);
        let some = Caller::of_test("desk", grants);
        assert_eq!(asked(&some, None).err().map(|refused| refused.status()), Some(StatusCode::FORBIDDEN));
    }
}
