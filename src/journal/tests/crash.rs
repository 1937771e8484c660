//! Kill -9 in the middle of everything, again and again: what was shown or acknowledged is in the log, once.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::fault::power;
use super::support::{Event, Rig, block_texts, settings, spec, texts};
use crate::journal::{JournalSettings, Outcome, StreamSpec};

const ROOT: &str = "JOURNAL_CRASH_ROOT";
const ROUNDS: u64 = 12;

/// Small steps, so that checkpoints and restarts of the log are among the things that are killed.
fn eager() -> JournalSettings {
    JournalSettings { wal_step_bytes: 1 << 16, wal_checkpoint_bytes: 1 << 18, max_batch_bytes: 4096, ..settings() }
}

fn specs() -> [StreamSpec; 2] {
    [spec("once"), StreamSpec { group_commit: false, ..spec("plain") }]
}

/// A small generator of numbers that need not be good, only different from run to run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// The process that is killed: publishes for ever and prints what became visible (`V stream frame`) and what
/// was acknowledged (`A stream first count`). Does nothing unless the test below started it.
#[test]
fn child() {
    let Some(root) = std::env::var_os(ROOT) else { return };
    let mut numbers = Numbers(u64::from(std::process::id()) << 20 | 1);
    let rig = Rig::start_with(Path::new(&root), &specs(), eager());
    rig.claim("p", 1);
    let (last_seq, _) = rig.claimed();
    let mut next_seq = last_seq + 1;
    let mut in_flight = 0;
    let mut out = std::io::stdout();
    loop {
        while in_flight < 20 {
            let count = 1 + numbers.below(30);
            let fill = "x".repeat(numbers.below(400) as usize);
            if numbers.below(3) > 0 {
                let frame: Vec<_> =
                    (next_seq..next_seq + count).map(|seq| format!(r#"{{"seq":{seq},"t":"{fill}"}}"#)).collect();
                rig.append_as("p", 1, next_seq, &frame);
                next_seq += count;
            } else {
                let frame: Vec<_> = (0..count).map(|row| format!(r#"{{"row":{row},"t":"{fill}"}}"#)).collect();
                rig.append(2, 2, 1, &frame);
            }
            in_flight += 1;
        }
        let Event::Commit(commit) = rig.event() else { continue };
        let mut lines = String::new();
        for (stream, block, _, _) in &commit.blocks {
            lines.extend(block_texts(block).iter().map(|text| format!("V {stream} {text}\n")));
        }
        for (_, stream, outcome) in &commit.outcomes {
            in_flight -= 1;
            let Outcome::Ok { first, count, .. } = outcome else { panic!("{outcome:?}") };
            lines.push_str(&format!("A {stream} {first} {count}\n"));
        }
        out.write_all(lines.as_bytes()).and_then(|()| out.flush()).expect("the parent listens");
    }
}

fn start(root: &Path) -> Child {
    Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "journal::tests::crash::child", "--nocapture"])
        .env(ROOT, root)
        .stdout(Stdio::piped())
        .spawn()
        .expect("the test starts itself")
}

/// What was seen of a stream so far: frames by offset, and the end of what was acknowledged.
#[derive(Default)]
struct Seen {
    frames: BTreeMap<i64, String>,
    acknowledged_end: i64,
}

/// Follows the child for a while, kills it, and takes in what it had still said.
fn follow(child: &mut Child, seen: &mut [Seen; 2], mut lines_left: u64) {
    let mut output = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    // The last line may be cut off.
    while output.read_line(&mut line).expect("UTF-8") > 0 && line.ends_with('\n') {
        let mut words = line.trim_end().splitn(3, ' ');
        let (kind, stream, rest) = (words.next(), words.next(), words.next().unwrap_or_default());
        let stream = stream.and_then(|stream| stream.parse::<usize>().ok()).unwrap_or_default();
        match kind {
            Some("V") => {
                let offset = rest[1..].split(',').next().expect("an offset").parse().expect("a number");
                let before = seen[stream - 1].frames.insert(offset, rest.to_owned());
                assert!(before.is_none(), "offset {offset} was given twice");
            }
            Some("A") => {
                let (first, count) = rest.split_once(' ').expect("two numbers");
                let end = first.parse::<i64>().expect("a number") + count.parse::<i64>().expect("a number");
                seen[stream - 1].acknowledged_end = seen[stream - 1].acknowledged_end.max(end);
            }
            _ => {} // what the test harness says
        }
        line.clear();
        lines_left = lines_left.saturating_sub(1);
        if lines_left == 0 {
            child.kill().expect("it was still running");
        }
    }
    child.wait().expect("it is dead");
}

#[test]
fn what_was_shown_or_acknowledged_survives_kill_9_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut numbers = Numbers(u64::from(std::process::id()) << 16 | 1);
    let mut seen = [Seen::default(), Seen::default()];
    for round in 0..ROUNDS {
        let mut child = start(dir.path());
        follow(&mut child, &mut seen, 1 + numbers.below(3000));
        let rig = Rig::start_with(dir.path(), &specs(), eager());
        for (index, seen) in seen.iter_mut().enumerate() {
            let end = rig.counters[index].end_offset.load(std::sync::atomic::Ordering::Relaxed);
            let stored = texts(&rig.replay(index as u32 + 1, 1, end, 1 << 16).0);
            assert_eq!(stored.len() as i64, end - 1, "round {round}: offsets are dense");
            assert!(seen.acknowledged_end <= end, "round {round}: acknowledged rows are missing");
            for (offset, text) in &seen.frames {
                assert_eq!(stored.get(*offset as usize - 1), Some(text), "round {round}");
            }
            // What nobody had seen yet was delivered to nobody and counts as seen from now on.
            seen.frames = stored.into_iter().enumerate().map(|(index, text)| (index as i64 + 1, text)).collect();
        }
        for (offset, text) in &seen[0].frames {
            assert!(
                text.contains(&format!(r#"{{"seq":{offset},"#)),
                "round {round}: every row of the publisher once: {text}"
            );
        }
        rig.claim("p", 9);
        let last = seen[0].frames.len() as i64;
        assert_eq!(
            rig.claimed(),
            (last as u64, (last > 0).then_some(last)),
            "round {round}: the mark is that of the rows"
        );
        rig.stop();
    }
    assert!(seen.iter().all(|seen| seen.frames.len() > 500), "the rounds got somewhere");
}

#[test]
fn what_was_acknowledged_survives_a_power_cut() {
    let dir = tempfile::tempdir().expect("a directory");
    let disk = power::follow(dir.path());
    let small = JournalSettings { wal_reserve_bytes: 1 << 17, ..eager() };
    let rig = Rig::start_with(dir.path(), &specs(), small.clone());
    let mut numbers = Numbers(u64::from(std::process::id()) << 18 | 1);
    let mut row = 0;
    let mut ends = [1, 1];
    for cut in 0..60 {
        for _ in 0..1 + numbers.below(6) {
            let stream = 1 + numbers.below(2) as u32;
            let fill = "x".repeat(numbers.below(3000) as usize);
            let frame: Vec<_> =
                (0..1 + numbers.below(5)).map(|index| format!(r#"{{"n":{},"t":"{fill}"}}"#, row + index)).collect();
            row += frame.len() as u64;
            rig.append(stream, 1, 1, &frame);
            ends[stream as usize - 1] += frame.len() as i64;
            rig.outcomes(1);
        }
        let copy = tempfile::tempdir().expect("a directory");
        let keep = numbers.below(3);
        disk.cut(copy.path(), || numbers.below(2) < keep);
        let after = Rig::start_with(copy.path(), &specs(), small.clone());
        for (index, end) in ends.into_iter().enumerate() {
            let found = after.counters[index].end_offset.load(std::sync::atomic::Ordering::Relaxed);
            assert_eq!(found, end, "cut {cut}: rows of stream {}", index + 1);
            let stream = index as u32 + 1;
            assert!(after.replay(stream, 1, end, 1 << 20).0 == rig.replay(stream, 1, end, 1 << 20).0, "cut {cut}");
        }
        after.stop();
    }
    assert!(rig.telemetry.writer.checkpoints_total.load(std::sync::atomic::Ordering::Relaxed) > 3);
    rig.stop();
}
