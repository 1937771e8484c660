//! The window against a small model of a broker.

use proptest::prelude::*;
use serde_json::Value;

use super::*;

fn lines(numbers: impl IntoIterator<Item = u64>) -> Vec<Line> {
    numbers.into_iter().map(|number| Line { number, text: format!("{{\"n\":{number}}}") }).collect()
}

fn ok(rows: u64) -> Reply {
    Reply::Ok { offsets: vec![None; rows as usize], dup: 0 }
}

fn gap() -> Reply {
    Reply::Gap { expected: 1, got: 2 }
}

#[test]
fn a_refused_batch_is_narrowed_to_the_row() {
    let mut window = Window::new(true, 4);
    window.begin(5);
    for batch in [lines(1..=2), lines(3..=3)] {
        assert!(window.push(batch).is_empty());
    }
    assert_eq!(window.take().as_deref(), Some("[6,[{\"n\":1},{\"n\":2}]]"));
    assert_eq!(window.take().as_deref(), Some("[8,{\"n\":3}]"));
    assert_eq!(window.reply(Reply::Rejected("bad".into())).ok(), Some(Outcome::Again));
    assert_eq!(window.take(), None, "a gap is owed");
    assert_eq!(window.reply(gap()).ok(), Some(Outcome::Again));
    assert_eq!(window.take().as_deref(), Some("[6,{\"n\":1}]"));
    assert_eq!(window.take().as_deref(), Some("[7,{\"n\":2}]"));
    assert_eq!(window.take().as_deref(), Some("[8,{\"n\":3}]"));
    assert_eq!(window.reply(ok(1)).ok(), Some(Outcome::Stored { rows: 1, dup: 0 }));
    let refused = Refused { line: lines(2..=2).remove(0), detail: "worse".into() };
    assert_eq!(window.reply(Reply::Rejected("worse".into())).ok(), Some(Outcome::Refused(refused)));
    assert_eq!(window.reply(gap()).ok(), Some(Outcome::Again));
    assert_eq!(window.take().as_deref(), Some("[7,{\"n\":3}]"));
    assert_eq!(window.reply(ok(1)).ok(), Some(Outcome::Stored { rows: 1, dup: 0 }));
    assert!(window.is_settled());
}

#[test]
fn plain_frames_go_on_behind_a_refusal() {
    let mut window = Window::new(false, 2);
    window.push(lines(1..=2));
    window.push(lines(3..=4));
    assert_eq!(window.take().as_deref(), Some("[{\"n\":1},{\"n\":2}]"));
    assert_eq!(window.take().as_deref(), Some("[{\"n\":3},{\"n\":4}]"));
    assert_eq!(window.take(), None);
    assert_eq!(window.reply(Reply::Rejected("bad".into())).ok(), Some(Outcome::Again));
    assert_eq!(window.take().as_deref(), Some("{\"n\":1}"));
    assert_eq!(window.reply(ok(2)).ok(), Some(Outcome::Stored { rows: 2, dup: 0 }));
    assert_eq!(window.take().as_deref(), Some("{\"n\":2}"));
}

#[test]
fn what_does_not_fit_is_an_error() {
    let mut window = Window::new(false, 2);
    assert!(window.reply(ok(1)).is_err());
    window.push(lines(1..=2));
    window.take();
    assert!(window.reply(ok(3)).is_err());
}

#[test]
fn a_mark_must_come_from_what_was_sent() {
    let mut window = Window::new(true, 4);
    window.begin(10);
    window.push(lines(1..=3));
    window.push(lines(4..=5));
    window.take();
    assert_eq!(window.disconnected(), 3);
    assert_eq!(window.disconnected(), 0, "an attempt to connect failed");
    assert!(matches!(window.resume(9), Err(ClientError::Mark(_))));
    assert!(matches!(window.resume(14), Err(ClientError::Mark(_))));
    assert_eq!(window.resume(12).ok(), Some(2));
    assert_eq!(window.take().as_deref(), Some("[13,{\"n\":3}]"));
    assert_eq!(window.take().as_deref(), Some("[14,[{\"n\":4},{\"n\":5}]]"));
}

#[test]
fn frames_shrink_to_what_the_broker_takes() {
    let mut window = Window::new(false, 8);
    let mut batch = lines(1..=20);
    batch[7].text = format!("{{\"n\":\"{}\"}}", "x".repeat(300));
    window.push(batch);
    window.take();
    window.disconnected();
    let refused = window.shrink(Some(120));
    assert_eq!(refused.iter().map(|refused| refused.line.number).collect::<Vec<_>>(), [8]);
    assert!(window.push(lines(21..=60)).is_empty());
    let mut seen = 0;
    while let Some(frame) = window.take() {
        assert!(frame.len() <= 120);
        let rows = frame.matches("\"n\"").count() as u64;
        seen += rows;
        window.reply(ok(rows)).expect("fits");
    }
    assert_eq!(seen, 59);
    // A limit nobody told, or that explains nothing, still makes progress.
    window.push(lines(1..=2));
    assert!(window.shrink(None).is_empty());
    assert_eq!(window.shrink(Some(1 << 40)).len(), 2);
}

/// A broker for one publisher: judges frames as wire.md sections 4 and 5.3 say. Rows whose `n` is in `bad` are refused.
struct Model {
    bad: Vec<u64>,
    numbered: bool,
    last_seq: u64,
    stored: Vec<u64>,
}

impl Model {
    fn judge(&mut self, frame: &str, fail: bool) -> Reply {
        let value: Value = serde_json::from_str(frame).expect("a frame");
        let (seq, rows) = match value {
            Value::Array(mut pair) if self.numbered => {
                let rows = pair.pop().expect("rows");
                (pair[0].as_u64().expect("a number"), rows)
            }
            rows => (0, rows),
        };
        let rows = match rows {
            Value::Array(rows) => rows,
            row => vec![row],
        };
        let rows: Vec<u64> = rows.iter().map(|row| row["n"].as_u64().expect("n")).collect();
        if rows.iter().any(|n| self.bad.contains(n)) {
            return Reply::Rejected("bad".into());
        }
        if fail {
            return Reply::CommitFailed("full".into());
        }
        let mut dup = 0;
        if self.numbered {
            if seq > self.last_seq + 1 {
                return Reply::Gap { expected: self.last_seq + 1, got: seq };
            }
            dup = (self.last_seq + 1 - seq).min(rows.len() as u64);
            self.last_seq = self.last_seq.max(seq + rows.len() as u64 - 1);
        }
        self.stored.extend(&rows[dup as usize..]);
        Reply::Ok { offsets: vec![None; rows.len()], dup }
    }
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Push(u64),
    Take,
    Judge { fail: bool },
    Reply,
    Cut,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (1..6u64).prop_map(Step::Push),
        6 => Just(Step::Take),
        6 => proptest::bool::weighted(0.1).prop_map(|fail| Step::Judge { fail }),
        6 => Just(Step::Reply),
        1 => Just(Step::Cut),
    ];
    proptest::collection::vec(step, 0..200)
}

struct Run {
    window: Window,
    model: Model,
    /// Frames on their way there, replies on their way back.
    there: VecDeque<String>,
    back: VecDeque<Reply>,
    pushed: u64,
    refused: Vec<u64>,
    /// Whether a row can have been stored twice or out of order.
    unsure: bool,
}

impl Run {
    fn step(&mut self, step: Step) {
        match step {
            Step::Push(rows) => {
                if self.window.has_room() {
                    self.window.push(lines(self.pushed + 1..=self.pushed + rows));
                    self.pushed += rows;
                }
            }
            Step::Take => self.there.extend(self.window.take()),
            Step::Judge { fail } => {
                if let Some(frame) = self.there.pop_front() {
                    self.unsure |= fail;
                    let reply = self.model.judge(&frame, fail);
                    self.back.push_back(reply);
                }
            }
            Step::Reply => {
                let Some(reply) = self.back.pop_front() else { return };
                match self.window.reply(reply).expect("a reply that fits") {
                    Outcome::Refused(refused) => self.refused.push(refused.line.number),
                    Outcome::Reconnect(why) => panic!("{why}"),
                    Outcome::Stored { .. } | Outcome::Again | Outcome::Wait(_) => {}
                }
            }
            Step::Cut => {
                self.unsure |= self.window.disconnected() > 0;
                self.there.clear();
                self.back.clear();
                if self.model.numbered {
                    self.window.resume(self.model.last_seq).expect("an own mark");
                }
            }
        }
    }
}

fn run(numbered: bool, bad: Vec<u64>, steps: &[Step]) -> Run {
    let model = Model { bad, numbered, last_seq: 0, stored: Vec::new() };
    let window = Window::new(numbered, 4);
    let mut run = Run {
        window,
        model,
        there: VecDeque::new(),
        back: VecDeque::new(),
        pushed: 0,
        refused: Vec::new(),
        unsure: false,
    };
    for step in steps {
        run.step(*step);
    }
    for _ in 0..10_000 {
        if run.window.is_settled() {
            break;
        }
        for step in [Step::Take, Step::Judge { fail: false }, Step::Reply] {
            run.step(step);
        }
    }
    assert!(run.window.is_settled(), "the window never settles");
    run
}

proptest! {
    #[test]
    fn numbered_rows_are_stored_once_and_in_order(bad in proptest::collection::vec(1..60u64, 0..6), steps in steps()) {
        let run = run(true, bad.clone(), &steps);
        let expected: Vec<u64> = (1..=run.pushed).filter(|n| !bad.contains(n)).collect();
        prop_assert_eq!(&run.model.stored, &expected);
        let refused: Vec<u64> = (1..=run.pushed).filter(|n| bad.contains(n)).collect();
        prop_assert_eq!(&run.refused, &refused);
    }

    #[test]
    fn plain_rows_are_all_stored(bad in proptest::collection::vec(1..60u64, 0..6), steps in steps()) {
        let run = run(false, bad.clone(), &steps);
        let expected: Vec<u64> = (1..=run.pushed).filter(|n| !bad.contains(n)).collect();
        let mut stored = run.model.stored.clone();
        stored.sort_unstable();
        if !run.unsure {
            prop_assert_eq!(&stored, &expected);
        }
        stored.dedup();
        prop_assert_eq!(&stored, &expected);
    }
}
