//! Declaring streams, and opening journals that are not what they should be.

use rusqlite::Connection;

use super::support::{Rig, settings, spec};
use crate::journal::{JOURNAL_FILE, JournalError, StreamRecord, StreamSpec, open};

#[test]
fn a_stream_keeps_its_number_and_identity() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut journal = open(dir.path(), settings()).expect("opens");
    let first = journal.declare(&spec("a")).expect("created");
    let second = journal.declare(&spec("b")).expect("created");
    assert_eq!((first.id, second.id, first.first_offset, first.end_offset), (1, 2, 1, 1));
    assert_ne!(first.stream_id, second.stream_id);
    assert_eq!(uuid::Uuid::parse_str(&first.stream_id).expect("a UUID").get_version_num(), 4);
    drop(journal);
    let mut journal = open(dir.path(), settings()).expect("opens again");
    assert_eq!(journal.streams(), [first.clone(), second]);
    assert_eq!(journal.declare(&StreamSpec { group_commit: false, ..spec("a") }).expect("opened"), first);
}

#[test]
fn a_declaration_that_differs_from_the_record_is_refused_by_name() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut journal = open(dir.path(), settings()).expect("opens");
    journal.declare(&spec("a")).expect("created");
    let others = [
        ("schema", StreamSpec { schema_canonical: "{}".to_owned(), ..spec("a") }),
        ("sort_by", StreamSpec { sort_by: vec!["x".to_owned()], ..spec("a") }),
        ("exactly_once", StreamSpec { exactly_once: false, ..spec("a") }),
    ];
    for (what, other) in others {
        let error = journal.declare(&other).expect_err("it differs");
        assert!(matches!(&error, JournalError::Differs { what: found, .. } if *found == what), "{error}");
        assert!(error.to_string().contains(&format!("stream \"a\" is declared with {what} ")), "{error}");
    }
    assert!(matches!(journal.declare(&spec("a/b")), Err(JournalError::Name(_))));
    assert!(matches!(journal.declare(&spec("")), Err(JournalError::Name(_))));
    assert_eq!(journal.streams().len(), 1);
}

#[test]
fn numbering_rows_is_chosen_for_good() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut journal = open(dir.path(), settings()).expect("opens");
    let record = journal.declare(&spec("a")).expect("created");
    journal.choose_exactly_once(record.id, false).expect("chosen");
    assert!(matches!(journal.choose_exactly_once(9, false), Err(JournalError::Unknown { stream: 9 })));
    drop(journal);
    let mut journal = open(dir.path(), settings()).expect("opens again");
    let plain = StreamRecord { exactly_once: false, ..record };
    assert_eq!(journal.record("a"), Some(&plain));
    assert_eq!(journal.declare(&StreamSpec { exactly_once: false, ..spec("a") }).expect("opened"), plain);
    assert_eq!(journal.record("b"), None);
}

#[test]
fn only_one_process_serves_a_root() {
    let dir = tempfile::tempdir().expect("a directory");
    let rig = Rig::start(dir.path(), &[spec("a")]);
    assert!(matches!(open(dir.path(), settings()), Err(JournalError::InUse { .. })));
    rig.stop();
    open(dir.path(), settings()).expect("free again");
}

/// Opens a journal with 3 + 2 rows that `damage` was done to.
fn reopen_after(damage: &str) -> Result<(), JournalError> {
    let dir = tempfile::tempdir().expect("a directory");
    let rig = Rig::start(dir.path(), &[spec("a")]);
    rig.claim("p", 1);
    rig.append(1, 1, 10, &["{}", "{}", "{}"]);
    rig.outcomes(1);
    rig.append_as("p", 1, 1, &["{}", "{}"]);
    rig.outcomes(1);
    rig.stop();
    Connection::open(dir.path().join(JOURNAL_FILE)).and_then(|file| file.execute_batch(damage)).expect("damaged");
    open(dir.path(), settings()).map(|_| ())
}

#[test]
fn an_end_that_contradicts_itself_is_refused_with_the_stream_and_the_place() {
    reopen_after("").expect("nothing is wrong with it");
    let cases = [
        ("UPDATE batches_1 SET body = '{}' || char(10) WHERE first_offset = 4", "offset 4 holds 1 rows and says 2"),
        ("UPDATE batches_1 SET body = '{}' || char(10) || '{}' WHERE first_offset = 4", "offset 4 holds 0 rows"),
        ("UPDATE batches_1 SET stamps = '1 +1' WHERE first_offset = 4", "stamps of the batch at offset 4"),
        ("UPDATE batches_1 SET count = 5 WHERE first_offset = 1", "batches around offset 4 overlap"),
        ("DELETE FROM batches_1 WHERE first_offset = 4", "mark is at offset 5, the log ends before 4"),
        ("UPDATE streams SET end_offset = 5", "does not fit the recorded end 5"),
    ];
    for (damage, complaint) in cases {
        let error = reopen_after(damage).expect_err(damage).to_string();
        assert!(error.contains("stream \"a\": ") && error.contains(complaint), "{damage}: {error}");
    }
}

#[test]
fn files_of_another_kind_or_a_newer_version_are_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join(JOURNAL_FILE);
    Connection::open(&path).and_then(|file| file.execute_batch("CREATE TABLE x (y)")).expect("written");
    assert!(matches!(open(dir.path(), settings()), Err(JournalError::Foreign { .. })));
    std::fs::remove_file(&path).expect("removed");
    drop(open(dir.path(), settings()).expect("opens"));
    Connection::open(&path).and_then(|file| file.pragma_update(None, "user_version", 99)).expect("written");
    let error = open(dir.path(), settings()).expect_err("newer").to_string();
    assert!(error.contains("format 99") && error.contains("up to "), "{error}");
    std::fs::write(&path, "not a database, but longer than a header of one hundred bytes".repeat(9)).expect("written");
    assert!(matches!(open(dir.path(), settings()), Err(JournalError::Sql { .. })));
}
