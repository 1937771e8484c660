//! Receipts, listings, and the way a call takes when the broker starts and ends.

use std::sync::Arc;
use std::time::Duration;

use super::super::{Cursor, Fault, Kind, StreamRuntime};
use super::fleet::{declaration, json};
use super::judged::Rig;

#[test]
fn the_same_call_is_answered_again_whatever_has_happened_since() {
    let mut rig = Rig::new();
    let body = declaration("");
    let send =
        |rig: &Rig, principal: &str, body: &_, tags| rig.send_as(principal, "key", Kind::Definition, "a", body, tags);
    let first = send(&rig, "p", &body, (None, Some("*"))).expect("accepted");
    rig.work();
    rig.change("a", r#","max_replay":9"#, 1).expect("accepted");
    rig.work();
    assert_eq!(send(&rig, "p", &body, (None, Some("*"))), Ok(first.clone()));
    rig.again();
    assert_eq!(send(&rig, "p", &body, (None, Some("*"))), Ok(first));
    // Another body, another order of its keys, other preconditions, another principal.
    let mismatch = Err(Fault::IdempotencyMismatch);
    assert_eq!(send(&rig, "p", &declaration(r#","max_replay":7"#), (None, Some("*"))), mismatch);
    let turned = json(&body.to_text().replace(
        r#""storage_profile":"local","initialization":"create_if_absent""#,
        r#""initialization":"create_if_absent","storage_profile":"local""#,
    ));
    assert_eq!(send(&rig, "p", &turned, (None, Some("*"))), mismatch);
    assert_eq!(send(&rig, "p", &body, (Some("\"1\""), None)), mismatch);
    assert_eq!(send(&rig, "q", &body, (Some("\"9\""), None)), Err(Fault::PreconditionFailed));
    assert_eq!(rig.send_as("p", "key", Kind::Desired, "a", &body, (None, Some("*"))), mismatch);
    // A refusal leaves no receipt.
    assert!(send(&rig, "q", &declaration(r#","max_replay":9"#), (Some("\"2\""), None)).is_ok());
}

#[test]
fn a_listing_goes_on_where_it_was_and_ends_when_something_changes() {
    let rig = Rig::new();
    for name in ["b", "a", "C", "a-1", "z"] {
        rig.create(name, "").expect("created");
        rig.work();
    }
    let mut pages = Vec::new();
    let mut cursor = None;
    loop {
        let page = rig.registry.list(2, cursor.as_ref(), |name| name != "b").expect("a page").to_text();
        let page: serde_json::Value = serde_json::from_str(&page).expect("json");
        let names = page["streams"].as_array().expect("streams").iter();
        pages
            .push(names.map(|view| view["name"].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>().join(" "));
        assert_eq!(page["revision"], 5);
        match page["next_cursor"].as_str() {
            Some(next) => cursor = Some(Cursor::parse(next).expect("a cursor")),
            None => break,
        }
    }
    assert_eq!(pages, ["C a", "a-1 z"]);
    rig.create("later", "").expect("created");
    assert_eq!(rig.registry.list(2, cursor.as_ref(), |_| true).map(drop), Err(Fault::CollectionChanged));
}

#[test]
fn a_view_shows_everything_in_order() {
    let rig = Rig::new();
    let body = json(
        r#"{"schema":{"type":"object","title":1.0,"required":["id"],"properties":{"id":{"type":"integer","description":"d"},"v":{"type":["null","number"]}}},"storage_profile":"other","sort_by":["v","id"],"max_replay":null,"limits":{"max_backlog":7,"max_message_bytes":1000}}"#,
    );
    let receipt = rig.send(Kind::Definition, "a", &body, (None, Some("*"))).expect("accepted");
    let view = rig.view("a");
    let (before, observed) = view.split_once(r#","observed":"#).expect("an observed part");
    assert_eq!(
        before,
        format!(
            r#"{{"name":"a","definition":{{"schema":{{"type":"object","title":1.0,"required":["id"],"properties":{{"id":{{"type":"integer","description":"d"}},"v":{{"type":["null","number"]}}}}}},"sort_by":["v","id"],"storage_profile":"other","initialization":"open_existing","exactly_once":false,"replay_published":false,"group_commit":true,"max_replay":null,"limits":{{"max_backlog":7,"max_inbound":65536,"max_in_flight":64,"max_message_bytes":1000}}}},"desired":"stopped","revision":1,"stream_id":null,"pending":"{}","profile_revision":"7","profile":{{"revision":"7","replicate":false,"maintenance":true,"replay_scope":"retained_current_log"}}"#,
            receipt.operation_id
        )
    );
    let observed: serde_json::Value = serde_json::from_str(observed.strip_suffix('}').expect("the end")).expect("json");
    let keys: Vec<&str> = observed.as_object().expect("an object").keys().map(String::as_str).collect();
    assert_eq!(
        keys,
        ["state", "boot_id", "generation", "revision", "at", "read_admission", "write_admission", "children_ready"]
    );
    assert_eq!((observed["state"].as_str(), observed["generation"].is_null()), (Some("unknown"), true));
}

#[test]
fn no_more_calls_are_judged_at_once_than_operations_may_wait() {
    let rig = Rig::new();
    let (calls, limit) = (&rig.registry.0.calls, rig.registry.0.settings.max_pending);
    let others: Vec<_> = (0..limit).map_while(|_| super::super::owner::Entered::new(calls, limit)).collect();
    assert_eq!((others.len(), rig.create("a", "")), (limit, Err(Fault::ControlBusy)));
    drop(others);
    rig.create("a", "").expect("created");
}

#[test]
fn calls_begin_after_the_recovery_and_end_with_the_broker() {
    let root = tempfile::tempdir().expect("a directory");
    let registry = super::super::Registry::open(root.path(), super::fleet::settings()).expect("a registry");
    assert_eq!(registry.check_open(), Err(Fault::BrokerUnavailable));
    let fleet = super::fleet::Fleet::default();
    let runtime: Arc<dyn StreamRuntime> = Arc::new(fleet.clone());
    registry.recover(runtime, || {}).expect("a worker");
    assert_eq!(registry.check_open(), Ok(()));
    let rig = Rig { registry, ..Rig::new() };
    rig.create("a", "").expect("created");
    // The worker is a real one here.
    let until = std::time::Instant::now() + Duration::from_secs(60);
    while !rig.view("a").contains(r#""pending":null"#) {
        assert!(std::time::Instant::now() < until, "{}", rig.view("a"));
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(rig.registry.close(Duration::from_secs(60)));
    assert_eq!(rig.registry.check_open(), Err(Fault::BrokerUnavailable));
    assert_eq!(rig.create("b", ""), Err(Fault::ControlEnded));
}

#[test]
fn a_stream_is_held_while_it_changes_and_settled_after() {
    let rig = Rig::new();
    rig.create("a", "").expect("created");
    rig.work();
    assert!(rig.fleet.state().held.is_empty());
    rig.desire("a", "serving", 1).expect("accepted");
    rig.work();
    assert!(rig.fleet.state().held.is_empty());
    assert_eq!(rig.fleet.state().asked, ["stop a", "stop a", "start a"]);
}
