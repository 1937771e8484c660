//! Group commit: what shares a transaction, in which order things come out, and what survives.

use std::sync::atomic::Ordering::Relaxed;

use super::support::{Event, PATIENCE, Rig, UNHEARD, block_texts, ok, settings, spec};
use crate::journal::{Job, JournalSettings, Outcome, StreamSpec, open};
use crate::wire::publish::Seq;

/// Keeps the writer busy until the jobs behind it are queued: a big frame to commit first.
fn plug(rig: &Rig) {
    rig.append(1, 999, 0, &vec!["{}"; 20_000]);
}

#[test]
fn rows_get_adjacent_offsets_and_frames_carry_them() {
    let dir = tempfile::tempdir().expect("a directory");
    let rig = Rig::start(dir.path(), &[spec("a"), spec("b")]);
    rig.append(1, 7, 100, &[r#"{"x":1}"#]);
    let Event::Commit(commit) = rig.event() else { panic!("a commit comes first") };
    assert_eq!(commit.outcomes, [(7, 1, ok(1, 1))]);
    let (stream, block, rows, last_ts_us) = &commit.blocks[0];
    assert_eq!((*stream, *rows, *last_ts_us, block.end_offset), (1, 1, 100, Some(2)));
    assert_eq!(block_texts(block), [r#"[1,100,{"x":1}]"#]);
    rig.append(2, 8, 200, &[r#"{"y":1}"#, r#"{"y":2}"#]);
    assert_eq!(rig.outcomes(1), [(8, ok(1, 2))]);
    rig.append(1, 7, 300, &[r#"{"x":2}"#, r#"{"x":3}"#]);
    assert_eq!(rig.outcomes(1), [(7, ok(2, 2))]);
    assert_eq!(rig.counters[0].end_offset.load(Relaxed), 4);
    assert_eq!(rig.counters[0].rows_total.load(Relaxed), 3);
    assert_eq!(rig.counters[0].last_send_us.load(Relaxed), 300);
    assert_eq!(rig.counters[0].queued_rows.load(Relaxed), 0);
    assert_eq!(rig.telemetry.writer.queued_bytes.load(Relaxed), 0);
    assert_eq!(rig.telemetry.writer.commit_us.count(), 3);
    rig.stop();
}

#[test]
fn frames_that_nobody_wants_are_counted_and_not_made() {
    let dir = tempfile::tempdir().expect("a directory");
    let specs: Vec<_> = (1..=UNHEARD).map(|number| spec(&format!("s{number}"))).collect();
    let rig = Rig::start(dir.path(), &specs);
    let mut blocks = Vec::new();
    for stream in [1, UNHEARD] {
        rig.append(stream, 1, 100, &["{}", r#"{"x":1}"#]);
        let Event::Commit(commit) = rig.event() else { panic!("a commit comes") };
        assert_eq!(commit.outcomes, [(1, stream, ok(1, 2))]);
        let (_, block, rows, last_ts_us) = &commit.blocks[0];
        assert_eq!((*rows, *last_ts_us, block.end_offset), (2, 100, Some(3)));
        blocks.push((block.count(), block.frames.len()));
    }
    let counted = |stream: u32| rig.counters[stream as usize - 1].frame_bytes_total.load(Relaxed);
    assert_eq!(blocks, [(2, counted(1) as usize), (0, 0)]);
    assert_eq!(counted(1), counted(UNHEARD));
    rig.stop();
}

#[test]
fn frames_that_queued_together_share_a_transaction_over_all_streams() {
    let dir = tempfile::tempdir().expect("a directory");
    let rig = Rig::start(dir.path(), &[spec("a"), spec("b")]);
    plug(&rig);
    for index in 0..30 {
        rig.append(1 + index % 2, u64::from(index), 10 + i64::from(index), &["{}"]);
    }
    assert_eq!(rig.outcomes(1), [(999, ok(1, 20_000))]);
    let mut commits = 0;
    let mut tokens = Vec::new();
    while tokens.len() < 30 {
        let Event::Commit(commit) = rig.event() else { panic!("only commits") };
        commits += 1;
        tokens.extend(commit.outcomes.iter().map(|(token, _, _)| *token));
    }
    assert_eq!(tokens, (0..30).collect::<Vec<_>>());
    assert!(commits <= 2, "{commits} transactions for 30 frames that waited together");
    rig.stop();
    let mut journal = open(dir.path(), settings()).expect("opens again");
    let record = journal.declare(&spec("a")).expect("recorded");
    assert_eq!(record.end_offset, 20_016);
}

#[test]
fn a_transaction_takes_no_frame_once_it_has_its_rows() {
    let dir = tempfile::tempdir().expect("a directory");
    let few = JournalSettings { max_group_rows: 10, ..settings() };
    let rig = Rig::start_with(dir.path(), &[spec("a")], few);
    plug(&rig);
    for token in 0..9 {
        rig.append(1, token, 0, &["{}", "{}", "{}"]);
    }
    rig.outcomes(1);
    let mut sizes = Vec::new();
    while sizes.iter().sum::<usize>() < 9 {
        let Event::Commit(commit) = rig.event() else { panic!("only commits") };
        sizes.push(commit.outcomes.len());
    }
    assert!(sizes.iter().all(|frames| *frames <= 4), "four frames of three rows pass ten: {sizes:?}");
    rig.stop();
}

#[test]
fn a_stream_without_group_commit_has_a_transaction_a_frame() {
    let dir = tempfile::tempdir().expect("a directory");
    let rig = Rig::start(dir.path(), &[spec("a"), StreamSpec { group_commit: false, ..spec("b") }]);
    plug(&rig);
    for token in 0..40 {
        rig.append(2, token, 0, &["{}", "{}"]);
    }
    rig.outcomes(1);
    for token in 0..40 {
        let Event::Commit(commit) = rig.event() else { panic!("only commits") };
        assert_eq!(commit.outcomes, [(token, 2, ok(1 + 2 * token as i64, 2))]);
        assert_eq!(commit.blocks.len(), 1);
    }
    rig.stop();
}

#[test]
fn stamps_never_go_back_within_a_stream() {
    let dir = tempfile::tempdir().expect("a directory");
    let rig = Rig::start(dir.path(), &[spec("a")]);
    plug(&rig);
    for (token, ts_us) in [(1, 500), (2, 400), (3, 600)] {
        rig.append(1, token, ts_us, &["{}"]);
    }
    rig.outcomes(4);
    rig.stop();
    let rig = Rig::start(dir.path(), &[spec("a")]);
    rig.append(1, 4, 100, &["{}"]);
    let Event::Commit(commit) = rig.event() else { panic!("a commit") };
    assert_eq!(block_texts(&commit.blocks[0].1), ["[20004,600,{}]"]);
    let (frames, _) = rig.replay(1, 20_001, 20_005, 1 << 20);
    assert_eq!(
        super::support::texts(&frames),
        ["[20001,500,{}]", "[20002,500,{}]", "[20003,600,{}]", "[20004,600,{}]"]
    );
    rig.stop();
}

#[test]
fn a_note_comes_after_what_was_sent_before_it_and_before_what_was_sent_after_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let rig = Rig::start(dir.path(), &[spec("a"), StreamSpec { group_commit: false, ..spec("b") }]);
    plug(&rig);
    for index in 0..20_u64 {
        rig.append(1 + (index % 2) as u32, index, 0, &["{}"]);
        rig.send(Job::Note(index, 0, 0));
    }
    rig.outcomes(1);
    for index in 0..20 {
        let Event::Commit(commit) = rig.event() else { panic!("the frame comes before its note") };
        assert_eq!(commit.outcomes[0].0, index);
        assert!(matches!(rig.event(), Event::Note(note, 0, 0) if note == index));
    }
    rig.stop();
}

#[test]
fn stopping_commits_and_answers_what_is_queued() {
    let dir = tempfile::tempdir().expect("a directory");
    let rig = Rig::start(dir.path(), &[spec("a")]);
    plug(&rig);
    for token in 0..500 {
        rig.append(1, token, 0, &["{}"]);
    }
    let events = rig.events.clone();
    rig.stop();
    let answered: usize =
        events.try_iter().map(|event| if let Event::Commit(commit) = event { commit.outcomes.len() } else { 0 }).sum();
    assert_eq!(answered, 501);
    assert!(!dir.path().join("journal.db-wal").exists(), "a clean stop leaves no write-ahead log");
    let journal = open(dir.path(), settings()).expect("opens again");
    assert_eq!(journal.streams()[0].end_offset, 20_501);
}

#[test]
fn an_exactly_once_publisher_is_judged_in_queue_order() {
    let dir = tempfile::tempdir().expect("a directory");
    let rig = Rig::start(dir.path(), &[spec("a")]);
    rig.claim("p", 5);
    assert_eq!(rig.claimed(), (0, None));
    plug(&rig);
    rig.append_as("p", 5, 1, &["{}"]);
    rig.append_as("p", 5, 2, &["{}", "{}"]);
    rig.append_as("p", 5, 1, &["{}"]);
    rig.append_as("p", 5, 2, &["{}", "{}", "{}"]);
    rig.append_as("p", 5, 6, &["{}"]);
    let base = 20_000;
    let expected = [
        (999, ok(1, 20_000)),
        (5, ok(base + 1, 1)),
        (5, ok(base + 2, 2)),
        (5, Outcome::Ok { prior: vec![Some(base + 1)], first: 0, count: 0 }),
        (5, Outcome::Ok { prior: vec![Some(base + 2), Some(base + 3)], first: base + 4, count: 1 }),
        (5, Outcome::Gap { expected: 5, got: Seq::Small(6) }),
    ];
    assert_eq!(rig.outcomes(6), expected);
    rig.stop();
    let rig = Rig::start(dir.path(), &[spec("a")]);
    rig.claim("p", 6);
    assert_eq!(rig.claimed(), (4, Some(base + 4)));
    rig.append_as("p", 6, 3, &["{}", "{}", "{}"]);
    let resumed = Outcome::Ok { prior: vec![None, Some(base + 4)], first: base + 5, count: 1 };
    assert_eq!(rig.outcomes(1), [(6, resumed)]);
    rig.stop();
}

#[test]
fn the_newest_claim_wins_and_sees_what_the_older_one_queued() {
    let dir = tempfile::tempdir().expect("a directory");
    let rig = Rig::start(dir.path(), &[spec("a")]);
    rig.claim("p", 1);
    rig.claimed();
    plug(&rig);
    rig.append_as("p", 1, 1, &["{}", "{}"]);
    rig.claim("p", 2);
    rig.append_as("p", 1, 3, &["{}"]);
    rig.send(Job::Release { stream: 1, publisher: "p".into(), token: 1 });
    rig.append_as("p", 2, 3, &["{}"]);
    let mut seen = Vec::new();
    for _ in 0..16 {
        match rig.events.recv_timeout(PATIENCE).expect("an answer") {
            Event::Commit(commit) => {
                seen.extend(commit.outcomes.into_iter().map(|(token, _, outcome)| format!("{token} {outcome:?}")))
            }
            Event::Superseded { token } => seen.push(format!("superseded {token}")),
            Event::Claimed { token, last_seq, .. } => {
                seen.push(format!("claimed {token} at least {}", last_seq.min(2)))
            }
            other => panic!("{other:?}"),
        }
        if seen.len() == 6 {
            break;
        }
    }
    let at = |wanted: &str| {
        seen.iter().position(|line| line.starts_with(wanted)).unwrap_or_else(|| panic!("{wanted} in {seen:?}"))
    };
    assert!(at("1 Ok") < at("superseded 1") && at("superseded 1") < at("claimed 2 at least 2"), "{seen:?}");
    assert!(seen.contains(&"1 Lost".to_owned()), "{seen:?}");
    assert!(at("2 Ok") > at("1 Lost"), "{seen:?}");
    assert_eq!(rig.counters[0].queued_rows.load(Relaxed), 0);
    rig.stop();
}
