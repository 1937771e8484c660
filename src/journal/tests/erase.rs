//! Erasures: nobody gets the rows, everybody else's offsets stay, and their bytes go.

use proptest::prelude::*;
use rusqlite::Connection;

use super::support::{Event, PATIENCE, Rig, spec, texts};
use crate::journal::{Erased, Errand, JOURNAL_FILE, Job, Keyed, Marker, Office, Operation};
use crate::stream::replay::{NotReplayable, Requested, Resolution, ResolveRequest};

fn errand<T: Send + 'static>(rig: &Rig, work: impl FnOnce(&mut Office<'_>) -> T + Send + 'static) -> T {
    let (answer, answered) = crossbeam_channel::bounded(1);
    rig.send(Job::Errand(Errand::new(move |office| answer.send(work(office)).unwrap_or_default())));
    answered.recv_timeout(PATIENCE).expect("the writer answers")
}

fn erase(rig: &Rig, offsets: &[i64], key: Option<(&str, u8)>) -> Marker {
    let keyed =
        key.map(|(key, body)| Keyed { operation: Operation::Erase, key: key.to_owned(), body_hash: [body; 32] });
    let offsets = offsets.to_vec();
    match errand(rig, move |office| office.erase(1, &offsets, keyed.as_ref(), 5)).expect("recorded") {
        Erased::Marked(marker) => marker,
        other => panic!("{other:?}"),
    }
}

fn purge(rig: &Rig) {
    let mut from = Some(i64::MIN);
    while let Some(at) = from {
        from = errand(rig, move |office| office.purge_step(1, at)).expect("purged");
    }
}

fn row(offset: i64) -> String {
    format!("[{offset},7,{{\"x\":{offset}}}]")
}

/// Publishes frames of these sizes whose rows say their offsets.
fn publish(rig: &Rig, next: &mut i64, sizes: &[usize]) {
    for size in sizes {
        let frame: Vec<String> = (*next..*next + *size as i64).map(|offset| format!("{{\"x\":{offset}}}")).collect();
        *next += *size as i64;
        rig.append(1, 1, 7, &frame);
        rig.outcomes(1);
    }
}

#[test]
fn an_erasure_takes_an_offset_and_tells_where_the_stream_ends() {
    let dir = tempfile::tempdir().expect("a directory");
    let rig = Rig::start(dir.path(), &[spec("a")]);
    publish(&rig, &mut 1, &[3, 3]);
    let marker = erase(&rig, &[2, 3, 5], Some(("k", 1)));
    assert_eq!((marker.offset, marker.records, marker.ts_us, marker.duplicate), (7, 3, 7, false));
    let Event::Commit(commit) = rig.event() else { panic!("the end is told") };
    assert_eq!((commit.blocks[0].1.count(), commit.blocks[0].1.end_offset), (0, Some(8)));
    publish(&rig, &mut 8, &[1]);
    assert_eq!(texts(&rig.replay(1, 1, 9, 1 << 20).0), [row(1), row(4), row(6), row(8)]);
    assert_eq!(erase(&rig, &[2, 3, 5], Some(("k", 1))), Marker { duplicate: true, ..marker });
    let reused = errand(&rig, |office| {
        let keyed = Keyed { operation: Operation::Erase, key: "k".to_owned(), body_hash: [2; 32] };
        office.erase(1, &[1], Some(&keyed), 60)
    });
    assert_eq!(reused.expect("asked"), Erased::KeyReused);
    assert_eq!(erase(&rig, &[3, 4, 4], None).records, 1, "only what is there, once");
    rig.stop();
}

#[test]
fn whoever_was_to_go_on_at_an_erased_row_goes_on_behind_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let rig = Rig::start(dir.path(), &[spec("a")]);
    publish(&rig, &mut 1, &[5]);
    erase(&rig, &[1, 3], None);
    for step in 0..2 {
        let ask = |offset, max_replay| rig.resolve(1, ResolveRequest { offset, frontier: 7, floor: None, max_replay });
        for offset in [3, 6, 7] {
            assert_eq!(ask(Requested::At(offset), None), Resolution::Serve { start: offset }, "{offset} at {step}");
            assert_eq!(ask(Requested::After(offset), None), Resolution::Serve { start: offset }, "{offset} at {step}");
        }
        assert_eq!(ask(Requested::At(3), Some(2)), Resolution::Serve { start: 3 }, "two rows are left behind it");
        assert!(matches!(ask(Requested::At(2), Some(2)), Resolution::Refuse(NotReplayable::TooOld { .. })));
        assert_eq!(texts(&rig.replay(1, 3, 7, 1 << 20).0), [row(4), row(5)]);
        if step == 0 {
            purge(&rig);
        }
    }
    rig.stop();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn whatever_is_erased_the_rest_is_as_it_was(
        sizes in prop::collection::vec(1_usize..40, 1..8),
        erasures in prop::collection::vec((prop::collection::vec(1_i64..200, 1..30), any::<bool>()), 1..5),
    ) {
        let dir = tempfile::tempdir().expect("a directory");
        let mut rig = Rig::start(dir.path(), &[spec("a")]);
        let mut next = 1;
        publish(&rig, &mut next, &sizes);
        let mut left: Vec<i64> = (1..next).collect();
        for (mut offsets, restart) in erasures {
            offsets.sort_unstable();
            let before = left.len();
            left.retain(|offset| !offsets.contains(offset));
            let marker = erase(&rig, &offsets, None);
            prop_assert_eq!((marker.offset, marker.records as usize), (next, before - left.len()));
            next += 1;
            if restart {
                // What was not purged before the end is purged after it.
                rig.stop();
                rig = Rig::start(dir.path(), &[spec("a")]);
            }
            let want: Vec<String> = left.iter().map(|offset| row(*offset)).collect();
            prop_assert_eq!(texts(&rig.replay(1, 1, next, 512).0), want.clone());
            purge(&rig);
            prop_assert_eq!(texts(&rig.replay(1, 1, next, 512).0), want);
            publish(&rig, &mut next, &[2]);
            left.extend([next - 2, next - 1]);
        }
        rig.stop();
        let file = Connection::open(dir.path().join(JOURNAL_FILE)).expect("opens");
        let mut statement = file.prepare("SELECT first_offset, count, body FROM batches_1 ORDER BY first_offset").expect("prepared");
        let batches = statement
            .query_map([], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, String>(2)?)))
            .expect("read");
        let mut stored = Vec::new();
        for batch in batches {
            let (first, count, body) = batch.expect("a batch");
            prop_assert_eq!(body.lines().count() as i64, count);
            for (offset, line) in (first..).zip(body.lines()) {
                prop_assert_eq!(line, format!("{{\"x\":{offset}}}"));
                stored.push(offset);
            }
        }
        prop_assert_eq!(stored, left);
    }
}
