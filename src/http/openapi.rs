//! The description of the HTTP API for machines, `/openapi.json`: made from the routes themselves.

use std::collections::{BTreeMap, BTreeSet};

use axum::Router;
use axum::body::Body;
use axum::http::{Response, StatusCode};
use axum::routing::get;
use utoipa::OpenApi;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::{
    ContentBuilder, InfoBuilder, OpenApi as Document, Ref, RefOr, Response as ApiResponse, ResponseBuilder,
    SecurityRequirement,
};

use super::access::AccessApi;
use super::batches::BatchesApi;
use super::control::ControlApi;
use super::errors::{internal, json};

/// Where the description is.
pub const OPENAPI_PATH: &str = "/openapi.json";

/// The route. Who comes here has shown who it is, where a policy asks for that.
pub fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Router::new().route(OPENAPI_PATH, get(document))
}

async fn document() -> Response<Body> {
    match describe().to_json() {
        Ok(text) => json(StatusCode::OK, text),
        Err(error) => internal(&error),
    }
}

/// Everything that is served under a version.
fn describe() -> Document {
    let mut document = ControlApi::openapi();
    document.merge(BatchesApi::openapi());
    document.merge(AccessApi::openapi());
    document.info = InfoBuilder::new()
        .title("streamcast-uring")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some("Durable streams of rows: control, and batches of rows for peers that speak no WebSocket."))
        .build();
    let components = document.components.get_or_insert_default();
    components.add_security_scheme("basic", SecurityScheme::Http(Http::new(HttpAuthScheme::Basic)));
    components.add_security_scheme("bearer", SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer)));
    let either = ["basic", "bearer"].map(|scheme| SecurityRequirement::new(scheme, Vec::<String>::new()));
    document.security = Some(either.into());
    document
}

/// What any request may be answered before it is looked at (docs/security.md).
pub const AT_THE_GATE: &[(u16, &str)] =
    &[(401, "authentication_required"), (403, "forbidden"), (429, "too_many_failures"), (503, "broker_unavailable")];

/// One answer a status, whose description is the list of its codes and whose body is the schema `envelope`.
pub fn refusals(envelope: &str, codes: &[(u16, &str)]) -> BTreeMap<String, RefOr<ApiResponse>> {
    let mut by_status: BTreeMap<u16, BTreeSet<&str>> = BTreeMap::new();
    for (status, code) in codes {
        by_status.entry(*status).or_default().insert(code);
    }
    let described = by_status.into_iter().map(|(status, codes)| {
        let codes: Vec<String> = codes.into_iter().map(|code| format!("`{code}`")).collect();
        let content = ContentBuilder::new().schema(Some(Ref::from_schema_name(envelope))).build();
        let response = ResponseBuilder::new().description(codes.join(", ")).content("application/json", content);
        (status.to_string(), response.build().into())
    });
    described.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_control_route_is_described_with_its_refusals() {
        let document = describe();
        let paths: Vec<&str> = document.paths.paths.keys().map(String::as_str).collect();
        for path in [
            "/control/v1",
            "/control/v1/operations/{id}",
            "/control/v1/streams",
            "/control/v1/streams/{name}",
            "/control/v1/streams/{name}/desired",
            "/control/v1/streams/{name}/migrations",
        ] {
            assert!(paths.contains(&path), "{path}");
        }
        for path in
            ["/v1/streams", "/v1/streams/{stream}", "/v1/streams/{stream}/entries", "/v1/streams/{stream}/erasures"]
        {
            assert!(paths.contains(&path), "{path}");
        }
        let put = document.paths.paths["/control/v1/streams/{name}"].put.as_ref().expect("a put");
        let statuses: Vec<&str> = put.responses.responses.keys().map(String::as_str).collect();
        let expected =
            ["200", "202", "400", "401", "403", "409", "412", "413", "415", "422", "428", "429", "500", "503"];
        assert_eq!(statuses, expected);
    }

    #[test]
    fn every_refusal_of_the_registry_is_described_somewhere() {
        let text = describe().to_json().expect("a document");
        for fault in crate::registry::Fault::ALL {
            assert!(text.contains(&format!("`{}`", fault.code())), "{fault}");
        }
    }

    #[test]
    fn no_name_stands_for_a_shape_of_each_api() {
        let names = |document: Document| -> BTreeSet<String> {
            document.components.map(|parts| parts.schemas.into_keys().collect()).unwrap_or_default()
        };
        let (control, batches) = (names(ControlApi::openapi()), names(BatchesApi::openapi()));
        assert!(!control.is_empty() && !batches.is_empty());
        assert_eq!(control.intersection(&batches).collect::<Vec<_>>(), Vec::<&String>::new());
    }

    #[test]
    fn a_status_lists_its_codes_once() {
        let described = refusals("E", &[(409, "b"), (400, "c"), (409, "a"), (409, "b")]);
        let RefOr::T(conflict) = &described["409"] else { panic!("a reference") };
        assert_eq!((described.len(), conflict.description.as_str()), (2, "`a`, `b`"));
    }
}
