//! The routes with a registry whose streams are in memory: every status, header field and body form of wire.md section
//! 11, and what is asked before what.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response};
use http_body_util::BodyExt as _;
use tower::ServiceExt as _;

use super::super::caller::Caller;
use super::router;
use crate::auth::{Action, Grants, Pattern};
use crate::registry::tests::fleet::{Fleet, declaration, settings};
use crate::registry::{Registry, StreamRuntime};

struct Api {
    _root: tempfile::TempDir,
    registry: Registry,
    router: Router,
}

/// An answer: status, header fields as text, body.
#[derive(Debug)]
struct Answer {
    status: u16,
    fields: Vec<(String, String)>,
    body: String,
}

impl Answer {
    fn field(&self, name: &str) -> &str {
        self.fields.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }

    fn code(&self) -> (u16, String) {
        let body: serde_json::Value = serde_json::from_str(&self.body).unwrap_or_default();
        (self.status, body["error"]["code"].as_str().unwrap_or_default().to_owned())
    }
}

fn api() -> Api {
    let root = tempfile::tempdir().expect("a directory");
    let mut settings = settings();
    settings.control_max_bytes = 1_000;
    let registry = Registry::open(root.path(), settings).expect("a registry");
    let runtime: Arc<dyn StreamRuntime> = Arc::new(Fleet::default());
    registry.recover(runtime, || {}).expect("a worker");
    Api { _root: root, router: router(registry.clone()), registry }
}

impl Api {
    async fn send(&self, caller: &Caller, request: axum::http::request::Builder, body: impl Into<Body>) -> Answer {
        let request: Request<Body> = request.extension(caller.clone()).body(body.into()).expect("a request");
        let Ok(response) = self.router.clone().oneshot(request).await;
        read(response).await
    }

    async fn get(&self, caller: &Caller, path: &str) -> Answer {
        self.send(caller, Request::get(path), Body::empty()).await
    }

    /// Waits until the operation of an accepted call has ended; how it ended.
    async fn finish(&self, answer: &Answer) -> String {
        for _ in 0..5_000 {
            let found = self.get(&admin(), answer.field("location")).await.body;
            let found: serde_json::Value = serde_json::from_str(&found).expect("an operation");
            if let Some(status @ ("succeeded" | "failed")) = found["status"].as_str() {
                return status.to_owned();
            }
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        panic!("the operation does not end")
    }
}

async fn read(response: Response<Body>) -> Answer {
    let status = response.status().as_u16();
    let fields = response.headers().iter();
    let fields = fields.map(|(name, value)| (name.to_string(), value.to_str().expect("text").to_owned())).collect();
    let body = response.into_body().collect().await.expect("a body").to_bytes();
    Answer { status, fields, body: String::from_utf8(body.to_vec()).expect("text") }
}

fn admin() -> Caller {
    Caller::of_test("admin", Grants::all())
}

fn change(method: &str, path: &str, key: &str) -> axum::http::request::Builder {
    Request::builder()
        .method(method)
        .uri(path)
        .header("idempotency-key", key)
        .header("content-type", "application/json")
}

const A: &str = "/control/v1/streams/a";

fn body() -> String {
    declaration("").to_text()
}

#[tokio::test]
async fn a_stream_goes_its_way() {
    let api = api();
    let admin = admin();
    let created = api.send(&admin, change("PUT", A, "1").header("if-none-match", "*"), body()).await;
    assert_eq!((created.status, created.field("etag")), (202, "\"1\""));
    let id = created.field("location").strip_prefix("/control/v1/operations/").expect("a location");
    assert_eq!(created.body, format!(r#"{{"status":202,"operation_id":"{id}","revision":1}}"#));
    assert_eq!(created.field("content-type"), "application/json");
    assert_eq!(api.finish(&created).await, "succeeded");
    let view = api.get(&admin, A).await;
    assert_eq!((view.status, view.field("etag")), (200, "\"1\""));
    let serving = r#"{"state":"serving"}"#;
    let path = format!("{A}/desired");
    let served = api.send(&admin, change("PUT", &path, "2").header("if-match", "\"1\""), serving).await;
    assert_eq!((served.status, api.finish(&served).await.as_str()), (202, "succeeded"));
    let again = api.send(&admin, change("PUT", &path, "3").header("if-match", "\"2\""), serving).await;
    assert_eq!((again.status, again.field("etag")), (200, "\"2\""));
    assert!(again.body.starts_with(r#"{"status":200,"#), "{}", again.body);
    assert_eq!(api.finish(&again).await, "succeeded");
    let repeated = api.send(&admin, change("PUT", &path, "2").header("if-match", "\"1\""), serving).await;
    assert_eq!((repeated.status, &repeated.body), (202, &served.body));
    let path = format!("{A}/migrations");
    let refused = api.send(&admin, change("POST", &path, "4").header("if-match", "\"2\""), "{}").await;
    assert_eq!(refused.code(), (422, "invalid_migration".to_owned()));
    let stats = api.get(&admin, "/control/v1/streams?limit=5").await;
    assert!(stats.body.starts_with(r#"{"revision":2,"streams":[{"name":"a","#), "{}", stats.body);
    assert!(stats.body.ends_with(r#"],"next_cursor":null}"#), "{}", stats.body);
}

#[tokio::test]
async fn what_a_call_lacks_is_told_in_order() {
    let api = api();
    let writer = |grants: &[(Action, &str)]| {
        let mut all = Grants::default();
        for (action, pattern) in grants {
            all.add(*action, Pattern::parse(pattern));
        }
        Caller::of_test("writer", all)
    };
    // Everything is wrong with it; one thing after the other is put right.
    let none = writer(&[]);
    let writer = writer(&[(Action::ControlMutate, "a"), (Action::ControlMigrate, "a")]);
    let bare = || Request::put(A).header("content-type", "text/plain").header("content-length", "5000");
    let big = "x".repeat(5_000);
    assert_eq!(api.send(&none, bare(), big.clone()).await.code(), (403, "forbidden".to_owned()));
    assert_eq!(api.send(&writer, bare(), big.clone()).await.code(), (428, "idempotency_key_required".to_owned()));
    let keyed = || bare().header("idempotency-key", "has space");
    assert_eq!(api.send(&writer, keyed(), big.clone()).await.code(), (400, "invalid_idempotency_key".to_owned()));
    let keyed = || bare().header("idempotency-key", "k");
    assert_eq!(api.send(&writer, keyed(), big.clone()).await.code(), (415, "json_required".to_owned()));
    let coded = || change("PUT", A, "k").header("content-encoding", "gzip").header("content-length", "5000");
    let refused = api.send(&writer, coded(), big.clone()).await;
    assert_eq!(refused.code(), (415, "identity_encoding_required".to_owned()));
    assert_eq!(refused.field("accept-encoding"), "identity");
    let typed = || change("PUT", A, "k").header("content-length", "5000");
    assert_eq!(api.send(&writer, typed(), big.clone()).await.code(), (413, "body_too_large".to_owned()));
    // As long, but nobody said so before.
    let typed = || change("PUT", A, "k");
    assert_eq!(api.send(&writer, typed(), big).await.code(), (413, "body_too_large".to_owned()));
    for bad in
        [&b"{"[..], b"", b"{} {}", br#"{"a":1,"a":2}"#, br#"{"a":NaN}"#, b"{\"a\":\"\xff\"}", br#"{"a":[-Infinity]}"#]
    {
        assert_eq!(api.send(&writer, typed(), bad.to_vec()).await.code(), (400, "invalid_json".to_owned()));
    }
    assert_eq!(api.send(&writer, typed(), "{}").await.code(), (428, "precondition_required".to_owned()));
    let conditional = || typed().header("if-none-match", "*");
    assert_eq!(api.send(&writer, conditional(), "{}").await.code(), (422, "invalid_declaration".to_owned()));
    assert_eq!(api.send(&writer, conditional(), body()).await.status, 202);
    let migrations = change("POST", "/control/v1/streams/b/migrations", "m").header("if-match", "\"1\"");
    assert_eq!(api.send(&writer, migrations, "{}").await.code(), (403, "forbidden".to_owned()));
    let media = Request::put("/control/v1/streams/a").header("idempotency-key", "k").header("if-none-match", "*");
    let media = media.header("content-type", "APPLICATION/JSON; charset=utf-8");
    assert_eq!(api.send(&writer, media, body()).await.status, 202, "the same call again");
}

#[tokio::test]
async fn reads_show_what_may_be_seen() {
    let api = api();
    let admin = admin();
    for name in ["other", "readable"] {
        let path = format!("/control/v1/streams/{name}");
        let created = api.send(&admin, change("PUT", &path, name).header("if-none-match", "*"), body()).await;
        assert_eq!(api.finish(&created).await, "succeeded");
    }
    let mut grants = Grants::default();
    grants.add(Action::ControlRead, Pattern::Collection);
    grants.add(Action::ControlRead, Pattern::parse("readable"));
    let reader = Caller::of_test("reader", grants);
    let listed = api.get(&reader, "/control/v1/streams").await.body;
    assert!(listed.contains("\"readable\"") && !listed.contains("\"other\""), "{listed}");
    for (path, code) in [
        ("/control/v1/streams/other", (403, "forbidden")),
        ("/control/v1/streams/nope", (403, "forbidden")),
        ("/control/v1/operations/zz", (404, "unknown_operation")),
        ("/control/v1/streams?limit=0", (400, "invalid_pagination")),
    ] {
        assert_eq!(api.get(&reader, path).await.code(), (code.0, code.1.to_owned()), "{path}");
    }
    assert_eq!(api.get(&admin, "/control/v1/streams/nope").await.code(), (404, "unknown_stream".to_owned()));
    assert_eq!(api.get(&admin, "/control/v1/streams/static1").await.code(), (404, "unknown_stream".to_owned()));
    // Of an operation on a stream that it may not see, somebody learns no more than of one that is not there.
    let created =
        api.send(&admin, change("PUT", "/control/v1/streams/x", "x").header("if-none-match", "*"), body()).await;
    assert_eq!(api.get(&reader, created.field("location")).await.code(), (403, "forbidden".to_owned()));
    assert_eq!(api.get(&Caller::nobody(), "/control/v1").await.code(), (403, "forbidden".to_owned()));
    let known = api.get(&admin, "/control/v1").await.body;
    assert!(known.starts_with(r#"{"version":1,"broker_id":"primary","boot_id":""#), "{known}");
    assert!(
        known.ends_with(r#""history_prefix_protected":["guarded"],"wire_versions":{"write":4,"read":[4,5]}}"#),
        "{known}"
    );
}

#[tokio::test]
async fn a_broker_that_ends_takes_no_calls() {
    let api = api();
    api.registry.refuse_calls();
    for path in ["/control/v1", "/control/v1/streams", A, "/control/v1/operations/x"] {
        let answer = api.get(&admin(), path).await;
        assert_eq!(
            (answer.code(), answer.field("retry-after")),
            ((503, "broker_unavailable".to_owned()), "1"),
            "{path}"
        );
    }
    // Who may not is told that first.
    assert_eq!(api.get(&Caller::nobody(), "/control/v1").await.status, 403);
    let put = change("PUT", A, "k").header("if-none-match", "*");
    assert_eq!(api.send(&admin(), put, body()).await.code(), (503, "broker_unavailable".to_owned()));
}

#[tokio::test]
async fn other_methods_are_told_what_is_allowed() {
    let api = api();
    for (method, path, allow) in [
        ("POST", "/control/v1", "GET, HEAD"),
        ("DELETE", A, "GET, HEAD, PUT"),
        ("PUT", "/control/v1/streams", "GET, HEAD"),
        ("GET", "/control/v1/streams/a/desired", "PUT"),
        ("PUT", "/control/v1/streams/a/migrations", "POST"),
        ("PATCH", "/control/v1/operations/x", "GET, HEAD"),
    ] {
        let answer = api.send(&admin(), Request::builder().method(method).uri(path), Body::empty()).await;
        assert_eq!((answer.status, answer.field("allow")), (405, allow), "{method} {path}");
        assert_eq!(answer.body, r#"{"detail":"Method Not Allowed"}"#);
    }
}

#[tokio::test]
async fn names_are_taken_as_they_are_decoded() {
    let api = api();
    for (path, code) in [
        ("bad%20name", "invalid_name"),
        ("a%2Fb", "invalid_name"),
        ("%FF", "invalid_name"),
        (".dot", "invalid_name"),
        ("%73tatic1", "static_stream"),
        ("guarded", "history_prefix_protected"),
    ] {
        let path = format!("/control/v1/streams/{path}");
        let answer = api.send(&admin(), change("PUT", &path, path.as_str()).header("if-none-match", "*"), body()).await;
        assert_eq!(answer.code().1, code, "{path}");
    }
}
