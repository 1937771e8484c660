//! The database: what it refuses, and what it forgets.

use super::super::store::{KEPT_OPERATIONS, ReceiptKey, Store};
use super::super::{Kind, Registry, RegistryError, Status};
use super::fleet::{Fleet, open, settings};
use super::judged::Rig;

#[test]
fn a_registry_belongs_to_its_broker_and_to_this_program() {
    let root = tempfile::tempdir().expect("a directory");
    drop(open(root.path(), &Fleet::default()));
    let mut renamed = settings();
    renamed.broker_id = "secondary".to_owned();
    let error = Registry::open(root.path(), renamed).err().expect("refused").to_string();
    assert!(error.contains("\"primary\"") && error.contains("\"secondary\""), "{error}");
    let path = root.path().join(super::super::REGISTRY_FILE);
    for (what, contents) in [("it is no database", "x".repeat(5_000)), ("another program", String::new())] {
        std::fs::remove_file(&path).expect("removed");
        std::fs::write(&path, contents).expect("written");
        if what == "another program" {
            let other = rusqlite::Connection::open(&path).expect("opened");
            other.execute_batch("CREATE TABLE t (x); PRAGMA application_id = 7").expect("made");
        }
        let error = Registry::open(root.path(), settings()).err().expect("refused").to_string();
        assert!(error.contains(what), "{error}");
    }
}

#[test]
fn a_stream_is_in_one_place_only() {
    let rig = Rig::new();
    rig.create("a", "").expect("created");
    let mut taken = settings();
    taken.static_names.insert("a".to_owned());
    assert!(matches!(Registry::open(rig.root.path(), taken), Err(RegistryError::Twice { name }) if name == "a"));
}

#[test]
fn a_damaged_row_is_named() {
    for (damage, named) in [
        ("UPDATE streams SET definition = '{'", "\"a\""),
        ("UPDATE streams SET desired = 'x'", "\"a\""),
        ("UPDATE operations SET target = ''", "the operation"),
        ("DELETE FROM operations", "not there"),
    ] {
        let rig = Rig::new();
        rig.create("a", "").expect("created");
        let path = rig.root.path().join(super::super::REGISTRY_FILE);
        rusqlite::Connection::open(path).and_then(|other| other.execute_batch(damage)).expect("damaged");
        let error = Registry::open(rig.root.path(), settings()).err().expect("refused").to_string();
        assert!(error.contains(named) && error.contains("damaged"), "{error}");
    }
}

#[test]
fn old_receipts_are_forgotten_and_pending_operations_are_not() {
    let rig = Rig::new();
    rig.create("a", "").expect("created");
    rig.create("b", "").expect("created");
    let (record, mut operation) = {
        let book = rig.registry.0.book();
        let record = book.records["a"].clone();
        let operation = book.pending_of(&record).expect("pending").clone();
        (record, operation)
    };
    let first = operation.id.clone();
    let (mut store, _) = Store::open(rig.root.path(), "primary").expect("a store");
    let key = |key| ReceiptKey { principal: "p", key, digest: [0; 32] };
    let mut last = record.clone();
    last.pending = None;
    operation.status = Status::Succeeded;
    // Everything before this one is as far back as is kept.
    rusqlite::Connection::open(rig.root.path().join(super::super::REGISTRY_FILE))
        .and_then(|other| other.execute("UPDATE sqlite_sequence SET seq = ?1", [KEPT_OPERATIONS + 1]))
        .expect("moved");
    operation.id = "new".to_owned();
    store.accept(&last, &operation, key("another"), true).expect("kept");
    assert!(store.operation(&first).expect("read").is_none(), "no longer pending, and old");
    assert_eq!(store.receipt("p", "key-1").expect("read"), None);
    let waiting = rig.registry.0.book().records["b"].pending.clone().expect("pending");
    assert_eq!(store.operation(&waiting).expect("read").map(|kept| kept.kind), Some(Kind::Definition));
}
