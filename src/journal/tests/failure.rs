//! A disk that is full or fails: what is answered, and what is in the log afterwards.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::Ordering::Relaxed;

use super::fault::{Call, arm};
use super::support::{Event, PATIENCE, Rig, ok, settings, spec, texts};
use crate::journal::{JOURNAL_FILE, JournalSettings, Outcome, open};

const ALWAYS: usize = usize::MAX;

fn failed(outcomes: &[(u64, Outcome)]) -> bool {
    outcomes.iter().all(|(_, outcome)| matches!(outcome, Outcome::CommitFailed(_)))
}

/// The rows that a start would find if the process were gone now. (The files are copied by another process:
/// closing them in this one would drop SQLite's locks.)
fn after_crash(root: &Path) -> i64 {
    let copy = tempfile::tempdir().expect("a directory");
    for name in ["journal.db", "journal.db-wal"] {
        let copied = Command::new("cp").arg(root.join(name)).arg(copy.path()).status().expect("cp runs");
        assert!(copied.success());
    }
    let journal = open(copy.path(), settings()).expect("it recovers");
    journal.streams()[0].end_offset - 1
}

#[test]
fn a_full_disk_fails_frames_and_moves_nothing_until_there_is_room_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let rig = Rig::start(dir.path(), &[spec("a")]);
    rig.claim("p", 1);
    rig.claimed();
    rig.append_as("p", 1, 1, &[r#"{"n":1}"#]);
    assert_eq!(rig.outcomes(1), [(1, ok(1, 1))]);
    let full = arm(Call::Write, &dir.path().join("journal.db-wal"), libc::ENOSPC, ALWAYS);
    rig.append_as("p", 1, 2, &[r#"{"n":2}"#]);
    assert!(failed(&rig.outcomes(1)));
    rig.append_as("p", 1, 3, &[r#"{"n":3}"#]);
    rig.append(1, 2, 0, &["{}"]);
    let behind = rig.outcomes(2);
    assert!(
        matches!(&behind[0].1, Outcome::Gap { expected: 2, .. } | Outcome::CommitFailed(_)) && failed(&behind[1..]),
        "{behind:?}"
    );
    assert!(rig.telemetry.writer.failed_commits_total.load(Relaxed) >= 2);
    assert_eq!(rig.counters[0].end_offset.load(Relaxed), 2);
    assert_eq!(rig.counters[0].queued_rows.load(Relaxed), 0);
    drop(full);
    rig.append_as("p", 1, 2, &[r#"{"n":2}"#]);
    assert_eq!(rig.outcomes(1), [(1, ok(2, 1))]);
    let (frames, _) = rig.replay(1, 1, 3, 1 << 20);
    assert_eq!(texts(&frames), [r#"[1,1,{"n":1}]"#, r#"[2,1,{"n":2}]"#]);
    rig.stop();
}

#[test]
fn a_commit_whose_sync_failed_is_void_before_it_is_answered() {
    let dir = tempfile::tempdir().expect("a directory");
    let rig = Rig::start(dir.path(), &[spec("a")]);
    rig.append(1, 1, 0, &["{}", "{}"]);
    rig.outcomes(1);
    let _fault = arm(Call::Sync, &dir.path().join("journal.db-wal"), libc::EIO, 1);
    rig.append(1, 2, 0, &["{}", "{}", "{}"]);
    assert!(failed(&rig.outcomes(1)));
    assert_eq!(after_crash(dir.path()), 2, "rows that were answered commit_failed come back after a crash");
    rig.append(1, 3, 0, &["{}"]);
    assert_eq!(rig.outcomes(1), [(3, ok(3, 1))]);
    assert_eq!(after_crash(dir.path()), 3);
    rig.stop();
}

#[test]
fn nothing_is_committed_while_a_failed_commit_cannot_be_made_void() {
    let dir = tempfile::tempdir().expect("a directory");
    let rig = Rig::start(dir.path(), &[spec("a")]);
    rig.append(1, 1, 0, &["{}"]);
    rig.outcomes(1);
    let fault = arm(Call::Sync, &dir.path().join("journal.db-wal"), libc::EIO, ALWAYS);
    for token in 2..6 {
        rig.append(1, token, 0, &["{}", "{}"]);
        let answers = rig.outcomes(1);
        let [(_, Outcome::CommitFailed(detail))] = &answers[..] else { panic!("{answers:?}") };
        assert_eq!(detail.contains("an earlier commit failed and is not yet undone"), token > 2, "{detail}");
    }
    assert_eq!(rig.replay(1, 1, 2, 1 << 20).1, 1, "what is committed is still served");
    drop(fault);
    rig.append(1, 6, 0, &["{}"]);
    assert_eq!(rig.outcomes(1), [(6, ok(2, 1))]);
    assert_eq!(after_crash(dir.path()), 2);
    rig.stop();
}

#[test]
fn a_failed_sync_of_the_file_keeps_the_log_for_the_next_start() {
    let dir = tempfile::tempdir().expect("a directory");
    let eager = JournalSettings { wal_step_bytes: 1 << 16, wal_checkpoint_bytes: 1 << 18, ..settings() };
    let rig = Rig::start_with(dir.path(), &[spec("a")], eager);
    let fault = arm(Call::Sync, &dir.path().join(JOURNAL_FILE), libc::EIO, 1);
    let row = format!(r#"{{"t":"{}"}}"#, "x".repeat(1000));
    for token in 0..600 {
        rig.append(1, token, 0, &[&row, &row, &row]);
        assert_eq!(rig.outcomes(1), [(token, ok(1 + 3 * token as i64, 3))]);
    }
    assert!(rig.telemetry.writer.wal_bytes.load(Relaxed) > 600 * 3000, "the log did not start over");
    drop(fault);
    rig.stop();
    assert!(dir.path().join("journal.db-wal").metadata().expect("the log is kept").len() > 600 * 3000);
    let journal = open(dir.path(), settings()).expect("opens again");
    assert_eq!(journal.streams()[0].end_offset, 1801);
}

#[test]
fn a_claim_whose_mark_cannot_be_read_says_so() {
    let dir = tempfile::tempdir().expect("a directory");
    let rig = Rig::start(dir.path(), &[spec("a")]);
    let other = rusqlite::Connection::open(dir.path().join(JOURNAL_FILE)).expect("opens");
    other.execute_batch("ALTER TABLE marks RENAME TO gone").expect("renamed");
    rig.claim("p", 1);
    assert!(matches!(rig.events.recv_timeout(PATIENCE), Ok(Event::ClaimFailed)));
    other.execute_batch("ALTER TABLE gone RENAME TO marks").expect("renamed");
    rig.claim("p", 2);
    assert!(matches!(rig.event(), Event::Superseded { token: 1 }));
    assert_eq!(rig.claimed(), (0, None));
    drop(other);
    rig.stop();
}

#[test]
fn a_journal_that_another_program_locks_fails_frames_and_recovers() {
    let dir = tempfile::tempdir().expect("a directory");
    let hasty = JournalSettings { busy_timeout_ms: 10, ..settings() };
    let rig = Rig::start_with(dir.path(), &[spec("a")], hasty);
    let other = rusqlite::Connection::open(dir.path().join(JOURNAL_FILE)).expect("opens");
    other.execute_batch("BEGIN IMMEDIATE").expect("locked");
    rig.append(1, 1, 0, &["{}"]);
    assert!(failed(&rig.outcomes(1)));
    other.execute_batch("ROLLBACK").expect("unlocked");
    rig.append(1, 2, 0, &["{}"]);
    assert_eq!(rig.outcomes(1), [(2, ok(1, 1))]);
    drop(other);
    rig.stop();
}

#[test]
fn a_journal_opens_on_a_disk_without_room() {
    let dir = tempfile::tempdir().expect("a directory");
    let rig = Rig::start(dir.path(), &[spec("a")]);
    rig.append(1, 1, 0, &["{}"]);
    rig.outcomes(1);
    rig.stop();
    std::fs::write(dir.path().join("journal.db-wal"), "").expect("written");
    let full = arm(Call::Write, &dir.path().join("journal.db-wal"), libc::ENOSPC, ALWAYS);
    let rig = Rig::start(dir.path(), &[spec("a")]);
    assert_eq!(texts(&rig.replay(1, 1, 2, 1 << 20).0), ["[1,0,{}]"]);
    rig.append(1, 2, 0, &["{}"]);
    assert!(failed(&rig.outcomes(1)));
    drop(full);
    rig.append(1, 3, 0, &["{}"]);
    assert_eq!(rig.outcomes(1), [(3, ok(2, 1))]);
    rig.stop();
}
