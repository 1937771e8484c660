//! Reading back: the same bytes, whatever the pages.

use std::sync::Arc;

use super::support::{Event, Rig, settings, spec, texts};
use crate::journal::reader::Page;
use crate::journal::{JournalSettings, open};
use crate::stream::replay::{NotReplayable, Requested, Resolution, ResolveRequest};

/// Publishes some hundred rows in frames of many sizes and returns the bytes that went out live.
fn publish(rig: &Rig) -> Vec<u8> {
    let mut live = Vec::new();
    for index in 0..60_usize {
        let frame: Vec<String> = (0..=index % 7)
            .map(|row| format!(r#"{{"i":{index},"r":{row},"t":"{}"}}"#, "x".repeat(index * 9 % 300)))
            .collect();
        rig.append(1, index as u64, 1_000 + index as i64, &frame);
    }
    let mut answered = 0;
    while answered < 60 {
        if let Event::Commit(commit) = rig.event() {
            answered += commit.outcomes.len();
            live.extend(commit.blocks.iter().flat_map(|(_, block, _, _)| block.frames.clone()));
        }
    }
    live
}

#[test]
fn a_replay_is_the_live_bytes_for_every_page_size() {
    let dir = tempfile::tempdir().expect("a directory");
    let small = JournalSettings { max_batch_bytes: 700, ..settings() };
    let rig = Rig::start_with(dir.path(), &[spec("a")], small);
    let live = publish(&rig);
    let end = texts(&live).len() as i64 + 1;
    for max_bytes in [1, 100, 333, 4096, 1 << 20] {
        let (replayed, pages) = rig.replay(1, 1, end, max_bytes);
        assert!(replayed == live, "pages of {max_bytes} bytes give other bytes");
        assert!(max_bytes > 1 || pages as i64 == end - 1, "one frame a page");
    }
    for from in [2, 17, end - 1, end] {
        let (tail, _) = rig.replay(1, from, end, 500);
        assert_eq!(texts(&tail), texts(&live)[from as usize - 1..]);
    }
    let (middle, _) = rig.replay(1, 5, 9, 500);
    assert_eq!(texts(&middle), texts(&live)[4..8]);
    rig.stop();
}

#[test]
fn a_filter_sees_the_row_and_an_empty_page_still_moves_on() {
    let dir = tempfile::tempdir().expect("a directory");
    let rig = Rig::start(dir.path(), &[spec("a")]);
    let live = publish(&rig);
    let end = texts(&live).len() as i64 + 1;
    let only = Arc::new(|row: &[u8]| row.starts_with(br#"{"i":33,"#));
    let Page::Rows { frames, rows, next, done } = rig.page(1, 1, end, 1 << 20, Some(only)) else { panic!("no rows") };
    assert_eq!((rows, next, done), (6, end, true));
    assert!(texts(&frames).iter().all(|text| text.contains(r#"{"i":33,"#)));
    rig.append(1, 1, 0, &vec!["{}"; 60_000]);
    rig.outcomes(1);
    let nothing = Arc::new(|_: &[u8]| false);
    let first = rig.page(1, 1, end + 60_000, 1 << 20, Some(nothing.clone()));
    let Page::Rows { next, done: false, rows: 0, .. } = first else { panic!("the scan takes turns: {first:?}") };
    let rest = rig.page(1, next, end + 60_000, 1 << 20, Some(nothing));
    assert!(matches!(rest, Page::Rows { done: true, rows: 0, .. }));
    rig.stop();
}

#[test]
fn an_offset_is_resolved_against_the_log() {
    let dir = tempfile::tempdir().expect("a directory");
    let rig = Rig::start(dir.path(), &[spec("a")]);
    let ask =
        |offset, frontier, max_replay| rig.resolve(1, ResolveRequest { offset, frontier, floor: None, max_replay });
    assert_eq!(ask(Requested::Earliest, 1, Some(3)), Resolution::Serve { start: 1 });
    rig.append(1, 1, 0, &["{}", "{}"]);
    rig.append(1, 1, 0, &["{}", "{}"]);
    rig.outcomes(2);
    let too_old = NotReplayable::TooOld { offset: 1, behind: 4, max_replay: 3 };
    assert_eq!(ask(Requested::Earliest, 5, Some(3)), Resolution::Refuse(too_old));
    assert_eq!(ask(Requested::At(2), 5, Some(3)), Resolution::Serve { start: 2 });
    assert_eq!(ask(Requested::At(5), 5, Some(0)), Resolution::Serve { start: 5 });
    let ahead = NotReplayable::Ahead { offset: "6".to_owned(), end_offset: 5 };
    assert_eq!(ask(Requested::At(6), 5, None), Resolution::Refuse(ahead));
    assert!(matches!(
        rig.resolve(9, ResolveRequest { offset: Requested::At(1), frontier: 5, floor: None, max_replay: None }),
        Resolution::Failed(_)
    ));
    rig.stop();
}

#[test]
fn skipped_offsets_are_a_hole_that_replays_pass() {
    const END: i64 = 1_048_582;
    let dir = tempfile::tempdir().expect("a directory");
    let rig = Rig::start(dir.path(), &[spec("a")]);
    rig.append(1, 1, 1, &["{}"; 5]);
    rig.outcomes(1);
    rig.stop();
    let mut journal = open(dir.path(), settings()).expect("opens");
    assert_eq!(journal.skip_offsets(1, 1 << 20).expect("room"), END);
    drop(journal);
    let rig = Rig::start(dir.path(), &[spec("a")]);
    let ask = |offset, frontier| {
        rig.resolve(1, ResolveRequest { offset: Requested::At(offset), frontier, floor: None, max_replay: Some(100) })
    };
    assert_eq!(ask(1, END), Resolution::Serve { start: 1 });
    assert_eq!(ask(1000, END), Resolution::Serve { start: 1000 });
    let (frames, _) = rig.replay(1, 1, END, 1 << 20);
    assert_eq!(texts(&frames).len(), 5);
    rig.append(1, 1, 2, &["{}"]);
    assert_eq!(rig.outcomes(1), [(1, super::support::ok(END, 1))]);
    let evicted = |offset| Resolution::Refuse(NotReplayable::Evicted { offset, earliest: END });
    assert_eq!((ask(6, END + 1), ask(1000, END + 1)), (evicted(6), evicted(1000)));
    let (frames, _) = rig.replay(1, 5, END + 1, 1 << 20);
    assert_eq!(texts(&frames), ["[5,1,{}]".to_owned(), format!("[{END},2,{{}}]")]);
    rig.stop();
}

#[test]
fn rows_that_left_the_log_in_the_middle_of_a_replay_end_it_and_are_not_passed_over() {
    let dir = tempfile::tempdir().expect("a directory");
    let rig = Rig::start(dir.path(), &[spec("a")]);
    for token in 0..5 {
        rig.append(1, token, 0, &["{}", "{}"]);
        rig.outcomes(1);
    }
    let file = rusqlite::Connection::open(dir.path().join(crate::journal::JOURNAL_FILE)).expect("opens");
    file.execute("DELETE FROM batches_1 WHERE first_offset IN (5, 9)", []).expect("deleted");
    drop(file);
    let gone = |from| matches!(rig.page(1, from, 11, 1 << 20, None), Page::Failed(why) if why.contains("from offset"));
    assert!(gone(5) && gone(6) && gone(9) && gone(10));
    // What is there is given up to the hole, and not beyond.
    for (from, hole) in [(1, 5), (7, 9)] {
        let page = rig.page(1, from, 11, 1 << 20, None);
        assert!(matches!(page, Page::Rows { next, done: false, .. } if next == hole), "{page:?}");
    }
    assert_eq!(texts(&rig.replay(1, 7, 9, 1 << 20).0).len(), 2);
    rig.stop();
}
