//! Every refusal of wire.md section 11.4, checks 8 to 15, and that the earlier check comes first.

use super::super::judge::{Known, judge};
use super::super::record::State;
use super::super::{Call, Change, Fault, Kind, Receipt, Registry};
use super::fleet::{Fleet, declaration, json, open, settings, work};
use crate::schema::json::Json;

pub struct Rig {
    pub root: tempfile::TempDir,
    pub fleet: Fleet,
    pub registry: Registry,
    pub keys: std::cell::Cell<u32>,
}

impl Rig {
    pub fn new() -> Self {
        let root = tempfile::tempdir().expect("a directory");
        let fleet = Fleet::default();
        let registry = open(root.path(), &fleet);
        Self { root, fleet, registry, keys: 0.into() }
    }

    pub fn again(&mut self) {
        self.registry = open(self.root.path(), &self.fleet);
    }

    pub fn work(&self) {
        work(&self.registry, &self.fleet);
    }

    pub fn send(
        &self,
        kind: Kind,
        name: &str,
        body: &Json,
        tags: (Option<&str>, Option<&str>),
    ) -> Result<Receipt, Fault> {
        self.keys.set(self.keys.get() + 1);
        self.send_as("p", &format!("key-{}", self.keys.get()), kind, name, body, tags)
    }

    pub fn send_as(
        &self,
        principal: &str,
        key: &str,
        kind: Kind,
        name: &str,
        body: &Json,
        (if_match, if_none_match): (Option<&str>, Option<&str>),
    ) -> Result<Receipt, Fault> {
        let method = if kind == Kind::Migration { "POST" } else { "PUT" };
        let change = Change { name, kind, body, if_match, if_none_match };
        self.registry.mutate(Call { principal, key, method, change })
    }

    pub fn create(&self, name: &str, more: &str) -> Result<Receipt, Fault> {
        self.send(Kind::Definition, name, &declaration(more), (None, Some("*")))
    }

    pub fn change(&self, name: &str, more: &str, revision: u64) -> Result<Receipt, Fault> {
        self.send(Kind::Definition, name, &declaration(more), (Some(&format!("\"{revision}\"")), None))
    }

    pub fn desire(&self, name: &str, state: &str, revision: u64) -> Result<Receipt, Fault> {
        let body = json(&format!(r#"{{"state":"{state}"}}"#));
        self.send(Kind::Desired, name, &body, (Some(&format!("\"{revision}\"")), None))
    }

    pub fn migrate(&self, name: &str, body: &str, revision: u64) -> Result<Receipt, Fault> {
        self.send(Kind::Migration, name, &json(body), (Some(&format!("\"{revision}\"")), None))
    }

    pub fn view(&self, name: &str) -> String {
        self.registry.view(name).map_or_else(|fault| fault.code().to_owned(), |(view, _)| view.to_text())
    }

    /// Does everything, and says what has become of a stream: what it shall be and what it is.
    pub fn settled(&self, name: &str) -> (String, String) {
        self.work();
        let view: serde_json::Value = serde_json::from_str(&self.view(name)).expect("a view");
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        (text(&view["desired"]), text(&view["observed"]["state"]))
    }
}

fn status(outcome: &Result<Receipt, Fault>) -> u16 {
    match outcome {
        Ok(receipt) if receipt.no_op => 200,
        Ok(_) => 202,
        Err(fault) => fault.status(),
    }
}

#[test]
fn names_are_managed_ones_and_not_those_of_the_configuration() {
    let rig = Rig::new();
    assert_eq!(rig.create("static1", ""), Err(Fault::StaticStream));
    let long = "n".repeat(129);
    for name in ["bad name", ".dot", "", "é", "-x", "a/b", long.as_str(), "registry.db", "journal.db-wal"] {
        assert_eq!(rig.create(name, ""), Err(Fault::InvalidName), "{name}");
    }
    assert_eq!(status(&rig.create(&"n".repeat(128), "")), 202);
    let none = Registry::none(settings());
    let body = declaration("");
    let change = |name| Change { name, kind: Kind::Definition, body: &body, if_match: None, if_none_match: Some("*") };
    let call = |name| Call { principal: "p", key: "k", method: "PUT", change: change(name) };
    assert_eq!(none.mutate(call("a")), Err(Fault::ManagementDisabled));
    assert_eq!(none.mutate(call("static1")), Err(Fault::StaticStream));
}

#[test]
fn preconditions_come_before_the_body() {
    let rig = Rig::new();
    let bad = json("[1]");
    let send = |tags| rig.send(Kind::Definition, "a", &bad, tags);
    assert_eq!(send((None, None)), Err(Fault::PreconditionRequired));
    assert_eq!(send((Some("\"1\""), None)), Err(Fault::PreconditionRequired));
    assert_eq!(send((None, Some("\"*\""))), Err(Fault::PreconditionFailed));
    assert_eq!(send((Some("\"1\""), Some("*"))), Err(Fault::PreconditionFailed));
    assert_eq!(send((None, Some("*"))), Err(Fault::InvalidDeclaration));
    for kind in [Kind::Desired, Kind::Migration] {
        assert_eq!(rig.send(kind, "a", &bad, (None, None)), Err(Fault::UnknownStream));
    }
    rig.create("a", "").expect("created");
    assert_eq!(send((None, Some("*"))), Err(Fault::PreconditionRequired));
    for tag in ["\"2\"", "1", "*", "W/\"1\"", "\"1\", \"2\"", ""] {
        assert_eq!(send((Some(tag), None)), Err(Fault::PreconditionFailed), "{tag}");
    }
    assert_eq!(send((Some("\"1\""), Some("*"))), Err(Fault::PreconditionFailed));
    // Still pending: that comes before the body, too.
    assert_eq!(send((Some("\"1\""), None)), Err(Fault::TransitionPending));
    rig.work();
    assert_eq!(send((Some("\"1\""), None)), Err(Fault::InvalidDeclaration));
}

#[test]
fn a_declaration_changes_while_its_stream_is_stopped_and_columns_do_not() {
    let rig = Rig::new();
    rig.create("a", "").expect("created");
    rig.work();
    assert_eq!(status(&rig.change("a", r#","exactly_once":true,"limits":{"max_backlog":5}"#, 1)), 202);
    rig.work();
    assert_eq!(status(&rig.change("a", r#","exactly_once":true,"limits":{"max_backlog":5}"#, 2)), 200);
    assert_eq!(rig.change("a", r#","sort_by":["id"]"#, 2), Err(Fault::MigrationRequired));
    let other = r#"{"schema":{"type":"object","properties":{"id":{"type":"number"}},"required":["id"]},"storage_profile":"local"}"#;
    let sent = rig.send(Kind::Definition, "a", &json(other), (Some("\"2\""), None));
    assert_eq!(sent, Err(Fault::MigrationRequired));
    // Another profile is fine before anything was stored.
    let moved = json(&declaration("").to_text().replace("local", "other"));
    let send = |revision: &str| rig.send(Kind::Definition, "a", &moved, (Some(revision), None));
    assert_eq!(status(&send("\"2\"")), 202);
    rig.work();
    assert!(rig.view("a").contains(r#""profile_revision":"7""#));
    rig.desire("a", "serving", 3).expect("accepted");
    assert_eq!(rig.settled("a"), ("serving".to_owned(), "serving".to_owned()));
    assert_eq!(status(&send("\"4\"")), 200, "the same again is fine while it is served");
    assert_eq!(rig.change("a", "", 4), Err(Fault::MustBeStopped));
    rig.desire("a", "stopped", 4).expect("accepted");
    rig.work();
    assert_eq!(rig.change("a", "", 5), Err(Fault::ImmutableStorage));
}

#[test]
fn wishes_are_one_word_and_retirement_is_for_ever() {
    let rig = Rig::new();
    rig.create("a", "").expect("created");
    rig.work();
    for bad in ["{}", r#"{"state":"running"}"#, r#"{"state":"serving","x":1}"#, "[]", r#"{"state":null}"#, r#"{"x":1}"#]
    {
        let sent = rig.send(Kind::Desired, "a", &json(bad), (Some("\"1\""), None));
        assert_eq!(sent, Err(Fault::InvalidDesired), "{bad}");
    }
    assert_eq!(rig.desire("a", "retired", 1), Err(Fault::UnboundStream));
    assert_eq!(status(&rig.desire("a", "stopped", 1)), 200);
    rig.desire("a", "serving", 1).expect("accepted");
    assert_eq!(rig.settled("a"), ("serving".to_owned(), "serving".to_owned()));
    rig.desire("a", "retired", 2).expect("accepted");
    assert_eq!(rig.settled("a"), ("retired".to_owned(), "retired".to_owned()));
    assert!(rig.view("a").contains(r#""read_admission":true,"write_admission":false"#));
    for word in ["serving", "stopped"] {
        assert_eq!(rig.desire("a", word, 3), Err(Fault::RetiredStream));
    }
    assert_eq!(status(&rig.desire("a", "retired", 3)), 200);
}

const NEW_SCHEMA: &str =
    r#"{"type":"object","properties":{"id":{"type":"integer"},"x":{"type":["string","null"]}},"required":["id"]}"#;

#[test]
fn a_migration_names_its_stream_and_finds_it_stopped() {
    let rig = Rig::new();
    let body = |id: &str, schema: &str| format!(r#"{{"stream_id":"{id}","schema":{schema},"sort_by":["id"]}}"#);
    rig.create("a", "").expect("created");
    rig.work();
    assert_eq!(rig.migrate("a", &body("id-1", NEW_SCHEMA), 1), Err(Fault::IdentityMismatch), "never served");
    rig.desire("a", "serving", 1).expect("accepted");
    rig.work();
    assert_eq!(rig.migrate("a", &body("id-1", NEW_SCHEMA), 2), Err(Fault::MustBeStopped));
    rig.desire("a", "stopped", 2).expect("accepted");
    rig.work();
    for bad in
        ["{}", "[]", r#"{"stream_id":"id-1","schema":{},"sort_by":[],"x":1}"#, r#"{"stream_id":"id-1","schema":{}}"#]
    {
        assert_eq!(rig.migrate("a", bad, 3), Err(Fault::InvalidMigration), "{bad}");
    }
    assert_eq!(rig.migrate("a", &body("id-2", NEW_SCHEMA), 3), Err(Fault::IdentityMismatch));
    let unsorted = body("id-1", NEW_SCHEMA).replace(r#"["id"]"#, r#"["zz"]"#);
    assert_eq!(rig.migrate("a", &unsorted, 3), Err(Fault::InvalidDeclaration));
    assert_eq!(rig.migrate("a", &body("id-1", r#"{"type":"object"}"#), 3), Err(Fault::InvalidDeclaration));
    let before = rig.fleet.state().stored["a"].clone();
    assert_eq!(status(&rig.migrate("a", &body("id-1", NEW_SCHEMA), 3)), 202);
    assert_eq!(rig.settled("a"), ("stopped".to_owned(), "stopped".to_owned()));
    let after = rig.fleet.state().stored["a"].clone();
    assert_eq!((after.stream_id, after.logs, after.schema.as_str()), (before.stream_id, 2, NEW_SCHEMA));
    assert!(rig.view("a").contains(&format!(r#""definition":{{"schema":{NEW_SCHEMA},"sort_by":["id"]"#)));
    // Never a no-op.
    assert_eq!(status(&rig.migrate("a", &body("id-1", NEW_SCHEMA), 4)), 202);
}

#[test]
fn a_guarded_history_is_neither_begun_nor_migrated_nor_ended() {
    let rig = Rig::new();
    assert_eq!(rig.create("guarded", ""), Err(Fault::HistoryPrefixProtected));
    let open_existing = json(&declaration("").to_text().replace("create_if_absent", "open_existing"));
    let sent = rig.send(Kind::Definition, "guarded", &open_existing, (None, Some("*")));
    assert_eq!(status(&sent), 202);
    rig.work();
    assert_eq!(rig.change("guarded", "", 1), Err(Fault::HistoryPrefixProtected));
    assert_eq!(rig.desire("guarded", "retired", 1), Err(Fault::HistoryPrefixProtected));
    assert_eq!(rig.migrate("guarded", "{}", 1), Err(Fault::HistoryPrefixProtected));
    rig.desire("guarded", "serving", 1).expect("accepted");
    assert_eq!(rig.settled("guarded"), ("serving".to_owned(), "error".to_owned()), "it is not there");
}

#[test]
fn what_failed_is_only_done_again() {
    let mut rig = Rig::new();
    rig.create("a", "").expect("created");
    rig.work();
    rig.fleet.state().failing.push("a".to_owned());
    let first = rig.desire("a", "serving", 1).expect("accepted");
    assert_eq!(rig.settled("a"), ("serving".to_owned(), "error".to_owned()));
    let operation = rig.registry.operation(&first.operation_id).expect("an operation").1.to_text();
    assert!(operation.ends_with(r#""status":"failed","error":"transition_failed"}"#), "{operation}");
    assert!(rig.view("a").contains(&format!(r#""pending":"{}""#, first.operation_id)));
    assert!(rig.view("a").ends_with(r#""children_ready":true,"error":"transition_failed"}}"#));
    assert_eq!(rig.desire("a", "stopped", 2), Err(Fault::TransitionPending));
    assert_eq!(rig.change("a", "", 2), Err(Fault::TransitionPending));
    let second = rig.desire("a", "serving", 2).expect("accepted");
    assert_ne!(first.operation_id, second.operation_id);
    assert_eq!(rig.desire("a", "serving", 3), Err(Fault::TransitionPending), "not before it has failed");
    rig.fleet.state().failing.clear();
    assert_eq!(rig.settled("a"), ("serving".to_owned(), "serving".to_owned()));
    // A failed operation is tried once more by the next start.
    rig.fleet.state().failing.push("a".to_owned());
    rig.desire("a", "stopped", 3).expect("accepted");
    assert_eq!(rig.settled("a").1, "error");
    rig.fleet.state().failing.clear();
    rig.again();
    assert_eq!(rig.settled("a"), ("stopped".to_owned(), "stopped".to_owned()));
}

#[test]
fn only_so_many_operations_wait() {
    let rig = Rig::new();
    for name in ["a", "b", "c"] {
        rig.create(name, "").expect("created");
    }
    assert_eq!(rig.create("d", ""), Err(Fault::OperationQueueFull));
    rig.work();
    assert_eq!(status(&rig.create("d", "")), 202);
}

#[test]
fn a_host_that_changes_a_profile_is_noticed() {
    let mut rig = Rig::new();
    rig.create("a", "").expect("created");
    rig.work();
    let mut changed = settings();
    changed.rules.profiles.insert("local".to_owned(), super::super::Profile::new("2"));
    rig.registry = Registry::open(rig.root.path(), changed).expect("a registry");
    assert_eq!(rig.registry.view("a").map(drop), Err(Fault::ProfileRevisionChanged));
    assert_eq!(rig.registry.list(10, None, |_| true).map(drop), Err(Fault::ProfileRevisionChanged));
}

#[test]
fn a_broker_that_stops_between_two_checks_says_so() {
    let rig = Rig::new();
    let body = declaration("");
    let judged = |closing| {
        let change =
            Change { name: "a", kind: Kind::Definition, body: &body, if_match: None, if_none_match: Some("*") };
        let known = Known {
            rules: &rig.registry.0.settings.rules,
            guarded: false,
            record: None,
            pending: None,
            state: State::Unknown,
            others_pending: 0,
            max_pending: 1,
            closing,
        };
        judge(change, known, "id".to_owned()).map(drop)
    };
    assert_eq!((judged(true), judged(false)), (Err(Fault::BrokerStopping), Ok(())));
}
