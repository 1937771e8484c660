//! The process may end between any two steps of an operation. After the next start the operation is done, or failed
//! for a reason, and the stream is what its declaration says.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::judged::Rig;

const NEW_SCHEMA: &str = r#"{"type":"object","properties":{"id":{"type":"number"}},"required":["id"]}"#;

/// Sends a change of a stream with the given revision.
type Send = Box<dyn Fn(&Rig, u64)>;

/// A sequence of changes, with what the stream is after each.
fn changes() -> Vec<(Send, &'static str)> {
    let desire = |state: &'static str| -> Send {
        Box::new(move |rig, revision| drop(rig.desire("a", state, revision).expect("accepted")))
    };
    vec![
        (Box::new(|rig, _| drop(rig.create("a", "").expect("accepted"))), "stopped"),
        (desire("serving"), "serving"),
        (desire("stopped"), "stopped"),
        (Box::new(|rig, revision| drop(rig.change("a", r#","max_replay":5"#, revision).expect("accepted"))), "stopped"),
        (
            Box::new(|rig, revision| {
                let id = rig.fleet.state().stored["a"].stream_id.clone();
                let body = format!(r#"{{"stream_id":"{id}","schema":{NEW_SCHEMA},"sort_by":[]}}"#);
                rig.migrate("a", &body, revision).expect("accepted");
            }),
            "stopped",
        ),
        (desire("serving"), "serving"),
        (desire("retired"), "retired"),
    ]
}

#[test]
fn an_operation_ends_well_wherever_the_process_ends() {
    for ends_after in [false, true] {
        for calls in 0..4 {
            let mut rig = Rig::new();
            for (revision, (change, state)) in changes().into_iter().enumerate() {
                change(&rig, revision as u64);
                rig.fleet.state().dies = Some((calls, ends_after));
                let died = catch_unwind(AssertUnwindSafe(|| rig.work())).is_err();
                if died {
                    rig.again();
                } else {
                    rig.fleet.state().dies = None;
                }
                let (_, observed) = rig.settled("a");
                assert_eq!(observed, state, "change {revision}, {calls} calls, after {ends_after}");
                let view = rig.view("a");
                assert!(view.contains(&format!(r#""revision":{},"#, revision + 1)), "{view}");
                assert!(view.contains(r#""pending":null"#), "{view}");
            }
            let state = rig.fleet.state();
            let stored = &state.stored["a"];
            assert_eq!((stored.logs, stored.retired, state.stored.len()), (2, true, 1));
        }
    }
}

#[test]
fn what_cannot_be_brought_back_says_so_and_does_not_stop_the_others() {
    let mut rig = Rig::new();
    for name in ["a", "b"] {
        rig.create(name, "").expect("accepted");
        rig.work();
        rig.desire(name, "serving", 1).expect("accepted");
        rig.work();
    }
    rig.fleet.state().stored.remove("a");
    rig.again();
    assert_eq!(rig.settled("a"), ("serving".to_owned(), "error".to_owned()));
    assert!(rig.view("a").ends_with(r#""error":"recovery_failed"}}"#), "{}", rig.view("a"));
    assert_eq!(rig.settled("b"), ("serving".to_owned(), "serving".to_owned()));
    assert!(!rig.fleet.state().stored.contains_key("a"), "what was bound is never made anew");
    assert!(rig.fleet.state().held.is_empty());
}

#[test]
fn the_background_work_is_noted_as_it_was_when_a_stream_was_looked_at() {
    let mut rig = Rig::new();
    rig.create("a", "").expect("accepted");
    rig.work();
    assert!(rig.view("a").contains(r#""children_ready":true"#));
    rig.again();
    assert!(rig.view("a").contains(r#""children_ready":false"#), "looked at before anything was served");
}
