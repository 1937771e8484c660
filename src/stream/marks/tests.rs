//! Marks by example, and against a model that remembers everything and looks it up slowly.

use std::collections::HashMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::stream::offsets::{EndOffset, FIRST_OFFSET};

/// One stream as the writer drives it: a log, the table of marks, and the marks in memory.
struct Rig {
    end: EndOffset,
    marks: Marks,
    table: HashMap<Arc<str>, Mark>,
    model: HashMap<Arc<str>, Model>,
    capacity: usize,
}

/// Everything that was ever appended for one publisher.
#[derive(Default, Clone)]
struct Model {
    /// `(first seq, rows, first offset)` of each appended range, those of the open transaction at the end.
    ranges: Vec<(u64, u32, i64)>,
    settled: usize,
    /// Ranges before this one were forgotten by a restart.
    forgotten: usize,
}

impl Model {
    fn mark(&self) -> Mark {
        self.ranges.last().map_or(Mark::default(), |(first, rows, offset)| Mark {
            last_seq: first + u64::from(*rows) - 1,
            last_offset: Some(offset + i64::from(*rows) - 1),
        })
    }

    /// The offset of row `seq`, and whether it has to be remembered.
    fn offset(&self, seq: u64) -> (Option<i64>, bool) {
        let recent = self.forgotten.max(self.ranges.len().saturating_sub(REMEMBERED_RANGES));
        let place = self.ranges.iter().position(|(first, rows, _)| (*first..first + u64::from(*rows)).contains(&seq));
        let Some(place) = place else { return (None, false) };
        let (first, _, offset) = self.ranges[place];
        (Some(offset + (seq - first) as i64), place >= recent || seq == self.mark().last_seq)
    }
}

impl Rig {
    fn new(capacity: usize) -> Self {
        let marks = Marks::with_capacity(capacity);
        Self { end: EndOffset::new(FIRST_OFFSET), marks, table: HashMap::new(), model: HashMap::new(), capacity }
    }

    /// Judges and appends a frame inside the open transaction, and checks the verdict against the model.
    fn frame(&mut self, publisher: &Arc<str>, first_seq: u64, rows: u32) -> Verdict {
        if self.marks.settled(publisher).is_none() {
            self.marks.admit(Arc::clone(publisher), self.table.get(publisher).copied().unwrap_or_default());
        }
        let verdict = self.marks.judge(publisher, &Seq::Small(first_seq), rows).expect("it was admitted");
        let exact = self.model.len() <= self.capacity;
        let model = self.model.entry(Arc::clone(publisher)).or_default();
        let expected = model.mark().last_seq + 1;
        match &verdict {
            Verdict::Gap { expected: found } => {
                assert!(first_seq > expected);
                assert_eq!(*found, expected);
            }
            Verdict::Take { prior } => {
                assert!(first_seq <= expected);
                assert_eq!(prior.len() as u64, u64::from(rows).min(expected - first_seq));
                for (seq, found) in (first_seq..).zip(prior) {
                    let (offset, remembered) = model.offset(seq);
                    let must = if exact { remembered } else { seq == model.mark().last_seq };
                    if must || found.is_some() {
                        assert_eq!(*found, offset, "seq {seq}");
                    }
                    assert!(!exact || remembered || found.is_none(), "seq {seq} is remembered for too long");
                }
                let new = rows - prior.len() as u32;
                if new > 0 {
                    let offset = self.end.assign(new).expect("room");
                    self.marks.advance(publisher, new, offset);
                    model.ranges.push((expected, new, offset.get()));
                }
            }
        }
        verdict
    }

    fn commit(&mut self) {
        for (publisher, mark) in self.marks.moving() {
            self.table.insert(publisher.into(), mark);
        }
        let proof = CommitProof::after_commit();
        self.end.settle(&proof);
        self.marks.settle(&proof);
        for (publisher, model) in &mut self.model {
            model.settled = model.ranges.len();
            assert_eq!(self.table.get(publisher).copied().unwrap_or_default(), model.mark());
        }
        assert!(self.marks.entries.len() <= self.capacity);
        assert_eq!(self.marks.entries.len(), self.marks.by_use.len());
    }

    fn fail(&mut self) {
        self.end.abandon();
        self.marks.abandon();
        for model in self.model.values_mut() {
            model.ranges.truncate(model.settled);
        }
        assert!(self.marks.entries.len() <= self.capacity);
    }

    fn restart(&mut self) {
        self.fail();
        self.marks = Marks::with_capacity(self.capacity);
        for model in self.model.values_mut() {
            model.forgotten = model.ranges.len();
        }
    }
}

fn take(prior: &[Option<i64>]) -> Verdict {
    Verdict::Take { prior: prior.to_vec() }
}

#[test]
fn the_vectors_of_the_wire_document() {
    let mut rig = Rig::new(10);
    let p: Arc<str> = "en r/1".into();
    let mut check = |first_seq, rows, expected| {
        assert_eq!(rig.frame(&p, first_seq, rows), expected);
        rig.commit();
    };
    check(1, 1, take(&[]));
    check(2, 2, take(&[]));
    check(1, 1, take(&[Some(1)]));
    check(2, 3, take(&[Some(2), Some(3)]));
    check(6, 1, Verdict::Gap { expected: 5 });
    check(4, 1, take(&[Some(4)]));
    check(5, 1, take(&[]));
    check(1, 5, take(&[Some(1), Some(2), Some(3), Some(4), Some(5)]));
    rig.restart();
    let mut check = |first_seq, rows, expected| {
        assert_eq!(rig.frame(&p, first_seq, rows), expected);
        rig.commit();
    };
    check(3, 1, take(&[None]));
    check(5, 1, take(&[Some(5)]));
    check(4, 3, take(&[None, Some(5)]));
}

#[test]
fn frames_of_one_transaction_are_judged_on_top_of_each_other_and_fail_together() {
    let mut rig = Rig::new(10);
    let p: Arc<str> = "p".into();
    assert_eq!(rig.frame(&p, 1, 2), take(&[]));
    assert_eq!(rig.frame(&p, 1, 3), take(&[Some(1), Some(2)]));
    assert_eq!(rig.frame(&p, 5, 1), Verdict::Gap { expected: 4 });
    rig.fail();
    assert_eq!(rig.frame(&p, 4, 1), Verdict::Gap { expected: 1 });
    assert_eq!(rig.frame(&p, 1, 1), take(&[]));
    rig.commit();
    assert_eq!(rig.frame(&p, 1, 2), take(&[Some(1)]));
}

#[test]
fn sixty_four_ranges_are_remembered_and_the_mark_always() {
    let mut rig = Rig::new(10);
    let p: Arc<str> = "p".into();
    for seq in 1..=65 {
        rig.frame(&p, seq, 1);
        rig.commit();
    }
    assert_eq!(rig.frame(&p, 1, 2), take(&[None, Some(2)]));
    rig.frame(&p, 66, 1);
    assert_eq!(rig.frame(&p, 2, 2), take(&[None, Some(3)]), "a range of the open transaction counts as well");
}

#[test]
fn a_number_beyond_sixty_four_bits_is_a_gap() {
    let mut marks = Marks::default();
    marks.admit("p".into(), Mark { last_seq: 4, last_offset: Some(9) });
    let huge = Seq::Huge("18446744073709551616".to_owned());
    assert_eq!(marks.judge("p", &huge, 1), Some(Verdict::Gap { expected: 5 }));
    assert_eq!(marks.judge("p", &Seq::Small(u64::MAX), 1), Some(Verdict::Gap { expected: 5 }));
    assert_eq!(marks.judge("p", &Seq::Small(0), 1), Some(Verdict::Gap { expected: 5 }));
    assert_eq!(marks.judge("q", &Seq::Small(1), 1), None);
}

#[test]
fn the_longest_unused_publisher_is_forgotten_first_and_none_that_moves() {
    let mut rig = Rig::new(2);
    let names: Vec<Arc<str>> = ["a", "b", "c", "d"].map(Arc::from).into();
    rig.frame(&names[0], 1, 1);
    rig.frame(&names[1], 1, 1);
    rig.frame(&names[2], 1, 1);
    assert_eq!(rig.marks.entries.len(), 3, "all of them move");
    rig.commit();
    assert!(rig.marks.settled("a").is_none());
    rig.frame(&names[1], 1, 1);
    rig.frame(&names[3], 1, 1);
    rig.commit();
    assert!(rig.marks.settled("c").is_none() && rig.marks.settled("b").is_some());
}

#[derive(Debug, Clone)]
enum Step {
    /// A frame of a publisher that starts so far from its next number.
    Frame {
        publisher: usize,
        distance: i64,
        rows: u32,
    },
    Commit,
    Fail,
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0..5_usize, -90..3_i64, 1..6_u32).prop_map(|(publisher, distance, rows)| Step::Frame { publisher, distance, rows }),
        12 => (0..5_usize, 1..6_u32).prop_map(|(publisher, rows)| Step::Frame { publisher, distance: 0, rows }),
        6 => Just(Step::Commit),
        2 => Just(Step::Fail),
        1 => Just(Step::Restart),
    ]
}

proptest! {
    #[test]
    fn marks_are_those_of_a_model_that_remembers_everything(
        capacity in 1..8_usize,
        steps in prop::collection::vec(step(), 1..400),
    ) {
        let mut rig = Rig::new(capacity);
        let names: Vec<Arc<str>> = (0..5).map(|index| format!("p{index}").into()).collect();
        for step in steps {
            match step {
                Step::Frame { publisher, distance, rows } => {
                    let name = &names[publisher];
                    let next = rig.model.get(name).map_or(1, |model| model.mark().last_seq + 1);
                    rig.frame(name, next.saturating_add_signed(distance).max(1), rows);
                }
                Step::Commit => rig.commit(),
                Step::Fail => rig.fail(),
                Step::Restart => rig.restart(),
            }
        }
    }
}
