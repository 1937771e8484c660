//! Random calls against a model that knows only what the contract says.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::{Config, FileFailurePersistence};

use super::super::{Kind, Receipt};
use super::fleet::{declaration, json};
use super::judged::Rig;

/// What is done to one of three streams.
#[derive(Debug, Clone)]
enum Step {
    /// Declares it, with `max_replay` and the tag as given.
    Declare { name: usize, max_replay: u8, tag: Tag },
    /// Wishes it a state.
    Desire { name: usize, state: &'static str, tag: Tag },
    /// Moves it to a schema.
    Migrate { name: usize, schema: u8, right_id: bool, tag: Tag },
    /// Sends the last accepted call again under its key.
    Again,
    /// Does what waits.
    Work,
    /// Makes the stream's calls fail from now on, or no longer.
    Fail { name: usize, fails: bool },
    /// Ends the process and starts it again.
    Restart,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Tag {
    None,
    Star,
    Right,
    Wrong,
}

const NAMES: [&str; 3] = ["a", "b", "c"];

fn tag() -> impl Strategy<Value = Tag> {
    prop_oneof![1 => Just(Tag::None), 3 => Just(Tag::Star), 8 => Just(Tag::Right), 1 => Just(Tag::Wrong)]
}

fn step() -> impl Strategy<Value = Step> {
    let name = 0..NAMES.len();
    let state = prop_oneof![5 => Just("serving"), 4 => Just("stopped"), 1 => Just("retired"), 1 => Just("running")];
    prop_oneof![
        5 => (name.clone(), 0..3u8, tag()).prop_map(|(name, max_replay, tag)| Step::Declare { name, max_replay, tag }),
        9 => (name.clone(), state, tag()).prop_map(|(name, state, tag)| Step::Desire { name, state, tag }),
        4 => (name.clone(), 0..3u8, prop::bool::weighted(0.9), tag())
            .prop_map(|(name, schema, right_id, tag)| Step::Migrate { name, schema, right_id, tag }),
        2 => Just(Step::Again),
        8 => Just(Step::Work),
        1 => (name, any::<bool>()).prop_map(|(name, fails)| Step::Fail { name, fails }),
        1 => Just(Step::Restart),
    ]
}

/// A stream as the model has it.
#[derive(Debug, Clone, Default)]
struct Stream {
    revision: u64,
    max_replay: u8,
    schema: u8,
    desired: &'static str,
    /// What it is; changes when work is done.
    observed: &'static str,
    bound: bool,
    /// The call that waits or failed: kind, body, whether it failed.
    pending: Option<(Kind, String, bool)>,
    fails: bool,
}

fn schema(number: u8) -> String {
    format!(
        r#"{{"type":"object","properties":{{"id":{{"type":"integer"}},"c{number}":{{"type":["null","string"]}}}},"required":["id"]}}"#
    )
}

struct Model {
    streams: BTreeMap<&'static str, Stream>,
    collection: u64,
    failing: [bool; 3],
}

impl Model {
    /// The status of a call, and what it changes if that is 202.
    fn judge(&mut self, name: &'static str, kind: Kind, body: &str, tag: Tag, change: Change) -> u16 {
        let others = self.streams.iter().filter(|(other, stream)| **other != name && stream.pending.is_some()).count();
        let Some(stream) = self.streams.get(name) else {
            return match (kind, tag) {
                (Kind::Desired | Kind::Migration, _) => 404,
                (_, Tag::None | Tag::Right | Tag::Wrong) => 428,
                _ if others >= 3 => 429,
                _ => {
                    let Change::Declare(max_replay) = change else { return 500 };
                    let stream = Stream {
                        revision: 1,
                        max_replay,
                        desired: "stopped",
                        observed: "unknown",
                        pending: Some((kind, body.to_owned(), false)),
                        ..Stream::default()
                    };
                    self.streams.insert(name, stream);
                    self.collection += 1;
                    202
                }
            };
        };
        match tag {
            Tag::None | Tag::Star => return 428,
            Tag::Wrong => return 412,
            Tag::Right => {}
        }
        if let Some((pending_kind, pending_body, failed)) = &stream.pending
            && (!failed || *pending_kind != kind || pending_body != body)
        {
            return 409;
        }
        let mut next = stream.clone();
        match change {
            Change::Declare(max_replay) => {
                // A stream keeps its schema; the declaration always has the first one.
                if max_replay != stream.max_replay || stream.schema != 0 {
                    if stream.observed != "stopped" {
                        return 409;
                    }
                    if stream.schema != 0 {
                        return 409;
                    }
                }
                next.max_replay = max_replay;
            }
            Change::Desire(state) => {
                if state == "running" {
                    return 422;
                }
                if (stream.desired == "retired" && state != "retired") || (state == "retired" && !stream.bound) {
                    return 409;
                }
                next.desired = state;
            }
            Change::Migrate { right_id, .. } => {
                if !right_id || !stream.bound {
                    return 409;
                }
                if !matches!(stream.observed, "stopped" | "error") || stream.desired != "stopped" {
                    return 409;
                }
            }
        }
        if others >= 3 {
            return 429;
        }
        let same = next.desired == stream.desired && next.max_replay == stream.max_replay;
        if kind != Kind::Migration && same && stream.observed == stream.desired {
            return 200;
        }
        next.revision += 1;
        next.pending = Some((kind, body.to_owned(), false));
        self.streams.insert(name, next);
        self.collection += 1;
        202
    }

    /// Does what waits; failed calls wait for their repetition unless the broker starts.
    fn work(&mut self, booting: bool) {
        for (place, name) in NAMES.into_iter().enumerate() {
            let Some(stream) = self.streams.get_mut(name) else { continue };
            stream.fails = self.failing[place];
            let due = match &stream.pending {
                Some((_, _, failed)) => !failed || booting,
                None => false,
            };
            if due {
                let Some((kind, body, _)) = stream.pending.take() else { continue };
                // Every operation begins by taking the stream offline, which fails for a failing one.
                if stream.fails {
                    stream.observed = "error";
                    stream.pending = Some((kind, body, true));
                    continue;
                }
                if kind == Kind::Migration {
                    stream.schema = (0..3).find(|number| body.contains(&schema(*number))).unwrap_or(0);
                }
                stream.observed = stream.desired;
                stream.bound |= stream.desired != "stopped";
            } else if booting {
                stream.observed = if stream.fails { "error" } else { stream.desired };
            }
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Change {
    Declare(u8),
    Desire(&'static str),
    Migrate { right_id: bool },
}

/// A call that was accepted.
struct Sent {
    key: String,
    kind: Kind,
    name: &'static str,
    body: String,
    if_match: Option<String>,
    if_none_match: Option<&'static str>,
    receipt: Receipt,
}

fn run(steps: &[Step]) {
    let mut rig = Rig::new();
    let mut model = Model { streams: BTreeMap::new(), collection: 0, failing: [false; 3] };
    let mut ids: BTreeMap<&str, String> = BTreeMap::new();
    let mut last: Option<Sent> = None;
    for (number, step) in steps.iter().enumerate() {
        let (name, kind, body, tag, change) = match step {
            Step::Declare { name, max_replay, tag } => {
                let text = declaration(&format!(r#","max_replay":{max_replay}"#)).to_text();
                let plain = r#"{"type":"object","properties":{"id":{"type":"integer"}},"required":["id"]}"#;
                let text = text.replace(plain, &schema(0));
                (NAMES[*name], Kind::Definition, text, *tag, Change::Declare(*max_replay))
            }
            Step::Desire { name, state, tag } => {
                (NAMES[*name], Kind::Desired, format!(r#"{{"state":"{state}"}}"#), *tag, Change::Desire(state))
            }
            Step::Migrate { name, schema: number, right_id, tag } => {
                let id = ids.get(NAMES[*name]).filter(|_| *right_id).cloned().unwrap_or_else(|| "x".to_owned());
                let text = format!(r#"{{"stream_id":"{id}","schema":{},"sort_by":[]}}"#, schema(*number));
                (NAMES[*name], Kind::Migration, text, *tag, Change::Migrate { right_id: *right_id })
            }
            Step::Again => {
                if let Some(sent) = &last {
                    let tags = (sent.if_match.as_deref(), sent.if_none_match);
                    let again = rig.send_as("p", &sent.key, sent.kind, sent.name, &json(&sent.body), tags);
                    assert_eq!(again.as_ref(), Ok(&sent.receipt), "step {number}");
                }
                continue;
            }
            Step::Work => {
                rig.work();
                model.work(false);
                check(&rig, &model, &mut ids, number);
                continue;
            }
            Step::Fail { name, fails } => {
                model.failing[*name] = *fails;
                let mut state = rig.fleet.state();
                state.failing.retain(|failing| failing != NAMES[*name]);
                if *fails {
                    state.failing.push(NAMES[*name].to_owned());
                }
                continue;
            }
            Step::Restart => {
                rig.again();
                model.work(true);
                check(&rig, &model, &mut ids, number);
                continue;
            }
        };
        let revision = model.streams.get(name).map_or(0, |stream| stream.revision);
        let (if_match, none) = match tag {
            Tag::None => (None, None),
            Tag::Star => (None, Some("*")),
            Tag::Right => (Some(format!("\"{revision}\"")), None),
            Tag::Wrong => (Some(format!("\"{}\"", revision + 1)), None),
        };
        let expected = model.judge(name, kind, &body, tag, change);
        let key = format!("step-{number}");
        let sent = rig.send_as("p", &key, kind, name, &json(&body), (if_match.as_deref(), none));
        let status = match &sent {
            Ok(receipt) if receipt.no_op => 200,
            Ok(_) => 202,
            Err(fault) => fault.status(),
        };
        assert_eq!(status, expected, "step {number}: {step:?} answered {sent:?}; {:?}", model.streams.get(name));
        if let Ok(receipt) = sent {
            let revision = model.streams[name].revision;
            assert_eq!(receipt.revision, revision, "step {number}");
            last = Some(Sent { key, kind, name, body, if_match, if_none_match: none, receipt });
        }
    }
}

fn check(rig: &Rig, model: &Model, ids: &mut BTreeMap<&'static str, String>, number: usize) {
    assert_eq!(rig.registry.names().len(), model.streams.len());
    let listed = rig.registry.list(10, None, |_| true).expect("a list").to_text();
    assert!(listed.starts_with(&format!(r#"{{"revision":{},"#, model.collection)), "step {number}: {listed}");
    for (name, stream) in &model.streams {
        let view: serde_json::Value = serde_json::from_str(&rig.view(name)).expect("a view");
        let found = (&view["desired"], &view["observed"]["state"], &view["revision"], view["pending"].is_null());
        let expected = (
            &serde_json::json!(stream.desired),
            &serde_json::json!(stream.observed),
            &serde_json::json!(stream.revision),
            stream.pending.is_none(),
        );
        assert_eq!(found, expected, "step {number}, {name}");
        assert_eq!(view["definition"]["max_replay"], stream.max_replay, "step {number}, {name}");
        let running = rig.fleet.state().running.contains_key(*name);
        assert_eq!(running, matches!(stream.observed, "serving" | "retired"), "step {number}, {name}");
        assert_eq!(view["stream_id"].is_string(), stream.bound, "step {number}, {name}");
        if let Some(id) = view["stream_id"].as_str() {
            // Once bound, for ever the same.
            assert_eq!(ids.entry(name).or_insert_with(|| id.to_owned()), id, "step {number}, {name}");
        }
    }
}

proptest! {
    #![proptest_config(Config {
        cases: 48,
        failure_persistence: Some(Box::new(FileFailurePersistence::Off)),
        ..Config::default()
    })]

    #[test]
    fn random_calls_do_what_the_contract_says(steps in prop::collection::vec(step(), 1..60)) {
        run(&steps);
    }
}
