//! Inserts with receipts: one commit for each key, through transactions, restarts and failures.

use rusqlite::Connection;

use super::support::{Event, Rig, ok, rows, settings, spec};
use crate::journal::{Append, Insert, JOURNAL_FILE, Job, Keyed, Operation, Outcome, open};

fn insert(rig: &Rig, token: u64, key: Option<(&str, u8)>, count: usize, validator_version: u64) {
    let keyed =
        key.map(|(key, body)| Keyed { operation: Operation::Insert, key: key.to_owned(), body_hash: [body; 32] });
    rig.send(Job::Append(Append {
        stream: 1,
        token,
        claim: None,
        first_seq: None,
        rows: rows(&vec!["{}"; count]),
        ts_us: 0,
        insert: Some(Box::new(Insert { keyed, validator_version })),
    }));
}

/// First offset, rows and whether it was done before.
fn done(outcome: &Outcome) -> (i64, u32, bool) {
    match outcome {
        Outcome::Inserted { first, count, duplicate, .. } => (*first, *count, *duplicate),
        other => panic!("{other:?}"),
    }
}

#[test]
fn retries_in_one_transaction_and_in_later_ones_get_the_first_answer() {
    let dir = tempfile::tempdir().expect("a directory");
    let rig = Rig::start(dir.path(), &[spec("a")]);
    // Keeps the writer busy until the others are queued.
    rig.append(1, 999, 0, &vec!["{}"; 20_000]);
    insert(&rig, 1, Some(("k", 1)), 3, 0);
    insert(&rig, 2, Some(("k", 1)), 3, 0);
    insert(&rig, 3, Some(("k", 2)), 3, 0);
    insert(&rig, 4, None, 2, 0);
    insert(&rig, 5, None, 2, 7);
    let outcomes = rig.outcomes(6);
    assert_eq!(outcomes[0], (999, ok(1, 20_000)));
    assert_eq!(done(&outcomes[1].1), (20_001, 3, false));
    assert_eq!(done(&outcomes[2].1), (20_001, 3, true));
    assert_eq!(outcomes[3].1, Outcome::KeyReused);
    assert_eq!(done(&outcomes[4].1), (20_004, 2, false));
    assert_eq!(outcomes[5].1, Outcome::Stale);
    insert(&rig, 6, Some(("k", 1)), 3, 0);
    let Event::Commit(commit) = rig.event() else { panic!("an answer") };
    assert!(commit.blocks.is_empty(), "a retry writes nothing");
    assert_eq!(commit.outcomes[0].2, { outcomes[2].1.clone() });
    rig.stop();
    let rig = Rig::start(dir.path(), &[spec("a")]);
    insert(&rig, 7, Some(("k", 1)), 3, 0);
    insert(&rig, 8, Some(("k", 9)), 3, 0);
    let after = rig.outcomes(2);
    assert_eq!((&after[0].1, &after[1].1), (&outcomes[2].1, &Outcome::KeyReused));
    rig.stop();
}

#[test]
fn a_receipt_that_is_out_of_date_is_none() {
    let dir = tempfile::tempdir().expect("a directory");
    let rig = Rig::start(dir.path(), &[spec("a")]);
    for key in ["x", "y", "z"] {
        insert(&rig, 1, Some((key, 1)), 1, 0);
        rig.outcomes(1);
    }
    rig.stop();
    let file = Connection::open(dir.path().join(JOURNAL_FILE)).expect("opens");
    file.execute("UPDATE receipts SET kept_until_us = 1 WHERE key <> 'z'", []).expect("aged");
    drop(file);
    let rig = Rig::start(dir.path(), &[spec("a")]);
    insert(&rig, 1, Some(("x", 2)), 1, 0);
    assert_eq!(done(&rig.outcomes(1)[0].1), (4, 1, false));
    rig.stop();
    let file = Connection::open(dir.path().join(JOURNAL_FILE)).expect("opens");
    let mut statement = file.prepare("SELECT key, first_offset FROM receipts ORDER BY key").expect("prepared");
    let left: Vec<(String, i64)> = statement
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
        .expect("read")
        .map(|row| row.expect("a row"))
        .collect();
    assert_eq!(left, [("x".to_owned(), 4), ("z".to_owned(), 3)], "the old one of y was forgotten on the way");
}

#[test]
fn stamps_of_inserts_are_those_of_their_commits_and_never_fall() {
    let dir = tempfile::tempdir().expect("a directory");
    let rig = Rig::start(dir.path(), &[spec("a")]);
    let late = i64::MAX / 2;
    insert(&rig, 1, None, 1, 0);
    rig.append(1, 2, late, &["{}"]);
    rig.outcomes(2);
    insert(&rig, 3, None, 1, 0);
    let Outcome::Inserted { ts_us, .. } = rig.outcomes(1)[0].1 else { panic!("inserted") };
    assert_eq!(ts_us, late, "the clock is behind the last stamp");
    rig.stop();
    let record = open(dir.path(), settings()).expect("opens").streams().remove(0);
    assert_eq!(record.end_offset, 4);
}
