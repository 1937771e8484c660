//! A fan-out whose rows move into files and tables, beside the same one whose rows stay where they are.
//!
//! One server has two streams with subscribers of their own; rows go to one of them at a time. Both are in one journal and
//! share everything, so that neighbouring windows differ in nothing but the moving. Before each window the server comes to
//! rest, so that no window has the work of the one before.

use std::cell::RefCell;

use super::bench::{Bench, CellError, STILL, note_end, note_problems, open_subscribers};
use super::fanout::{self, Timing};
use super::pairs::Pairs;
use crate::clock;
use crate::load::Load;
use crate::record::Recorder;
use crate::results::{Outcome, median};
use crate::scenario::{Moving, STREAM};
use crate::server::{Memory, Metrics, MetricsError, Server, TableState, Usage};

/// Seconds between two looks at a server that is to come to rest.
const LOOK_S: f64 = 0.25;

/// Share of a core that a server at rest may use between two looks. The kernel counts in steps of 10 ms: up to two.
const REST_SHARE: f64 = 0.09;

/// Seconds in which a server must have come to rest.
const PATIENCE_S: f64 = 30.0;

/// The kinds of window: the name in figures, the stream that gets the rows, and the group of its subscribers.
const KINDS: [(&str, &str, usize); 2] = [("still", STILL, 0), ("moved", STREAM, 1)];
const MOVED: usize = 1;

/// Alternates windows of both kinds, and which of them is first in a pair.
pub(super) fn measure(bench: &Bench<'_>, case: &Moving, peer: &str) -> Result<Outcome, CellError> {
    let server = bench.start_moving(peer, true, Some(&case.lake))?;
    if server.peer.table.is_none() {
        return Err(CellError::Unable(format!("{peer} does not say where its table is")));
    }
    let mut load = bench.load(&server)?;
    for (_, stream, group) in KINDS {
        bench.open_publishers(&mut load, stream, 1)?;
        let opened = open_subscribers(&mut load, stream, case.subscribers, case.sample_every)?;
        debug_assert_eq!(opened, group);
    }
    let lead_s = bench.seconds(case.lead_s);
    let warm = Timing { measure_s: lead_s, ..timing(bench, case, 0) };
    let mut outcome = Outcome::new(&case.name, peer);
    outcome.version.clone_from(&server.peer.version);
    let mut rests = Vec::new();
    for (kind, (_, _, group)) in KINDS.into_iter().enumerate() {
        window(case, &server, &mut load, kind, &Timing { group, ..warm })?;
        rest(case, &server, &mut load)?;
    }
    let mut pairs = Pairs::default();
    let mut sums = [Sum::default(), Sum::default()];
    for pair in 0..case.pairs {
        let mut latencies = [Recorder::default(), Recorder::default()];
        for kind in if pair % 2 == 0 { [0, 1] } else { [1, 0] } {
            let timing = timing(bench, case, KINDS[kind].2);
            let seen = window(case, &server, &mut load, kind, &timing)?;
            sums[kind].add(&seen);
            latencies[kind] = seen.latency;
            if broken(&load) {
                break;
            }
            rests.push(rest(case, &server, &mut load)?);
        }
        if broken(&load) {
            break;
        }
        let [still, moved] = latencies;
        pairs.push(still, moved);
    }

    pairs.report(KINDS.map(|(name, ..)| name), &mut outcome);
    for ((name, ..), sum) in KINDS.iter().zip(&sums) {
        outcome.set(&format!("{name}_cpu_us_per_row"), sum.cpu_ns as f64 / 1e3 / sum.rows as f64);
        outcome.set(&format!("{name}_generator_busy_pct"), sum.generator_busy / f64::from(sum.windows) * 100.0);
        if sum.missing > 0 {
            outcome.problems.push(format!("{} frames of {name} windows did not arrive", sum.missing));
        }
    }
    sums[MOVED].tell_moved(&mut outcome);
    if sums[0].moved.commits > 0 || sums[0].moved.sealed_rows > 0 {
        outcome.problems.push("rows moved in windows in which nothing should".into());
    }
    if rests.contains(&None) {
        outcome.problems.push(format!("the server did not come to rest within {PATIENCE_S} s of a window"));
    }
    outcome.set("rest_s", median(rests.into_iter().flatten().collect()).unwrap_or(f64::NAN));
    let memory = server.memory();
    outcome.set("memory_mib", Memory::mib(memory.resident_bytes));
    outcome.set("peak_mib", Memory::mib(memory.peak_bytes));
    outcome.set("journal_mib", Memory::mib(server.disk().journal_bytes));
    note_problems(&load, &mut outcome.problems);
    note_end(server, &mut outcome);
    Ok(outcome)
}

fn broken(load: &Load) -> bool {
    load.drops().0 > 0 || load.publishing.choked
}

fn timing(bench: &Bench<'_>, case: &Moving, group: usize) -> Timing {
    let (warm_s, measure_s) = (bench.seconds(case.lead_s), bench.seconds(case.window_s));
    Timing { rate: case.rate, batch: case.batch, group, warm_s, measure_s, drain_s: case.drain_s }
}

/// What one window showed.
struct Seen {
    latency: Recorder,
    usage: Usage,
    generator_busy: f64,
    rows: u64,
    missing: u64,
    moved: Moved,
}

/// Publishes to one of the streams, for the lead and the window, until everything has arrived.
fn window(case: &Moving, server: &Server, load: &mut Load, kind: usize, timing: &Timing) -> Result<Seen, CellError> {
    let (_, stream, group) = KINDS[kind];
    load.publishing.publish_to(Some(stream));
    let subscribers = case.subscribers as u64;
    // Looked at in both kinds of window, so that looking makes no difference between them.
    let marks = RefCell::new(Vec::new());
    let usage = || {
        marks.borrow_mut().push(Mark::look(server));
        server.usage()
    };
    let measured = fanout::run(load, timing, usage, |rows| rows * subscribers)?;
    let mut marks = marks.into_inner().into_iter();
    let (Some(before), Some(after)) = (marks.next(), marks.next()) else {
        return Err(CellError::Failed("a window without two looks at the server".into()));
    };
    Ok(Seen {
        latency: load.groups[group].latency.clone(),
        usage: measured.observed.usage,
        generator_busy: measured.observed.generator_busy,
        rows: measured.in_window / subscribers,
        missing: measured.missing,
        moved: after?.since(&before?),
    })
}

/// Waits until everything is published and has left the journal, and the server has had nothing to do for a while.
/// Returns how long that took, or `None` when it took too long.
fn rest(case: &Moving, server: &Server, load: &mut Load) -> Result<Option<f64>, CellError> {
    let began = clock::now_ns();
    let until = began + clock::seconds_ns(PATIENCE_S);
    let (mut since, mut usage, mut mark) = (began, server.usage(), Mark::look(server)?);
    loop {
        let look = clock::now_ns();
        load.run_until(look + clock::seconds_ns(LOOK_S), |_| false)?;
        let (now, used, found) = (clock::now_ns(), server.usage(), Mark::look(server)?);
        let share = used.since(usage).process_ns as f64 / (now - look) as f64;
        if share > REST_SHARE || found != mark || !found.is_settled() {
            since = now;
        }
        (usage, mark) = (used, found);
        if now - since >= clock::seconds_ns(case.rest_s) {
            return Ok(Some((now - began) as f64 / 1e9));
        }
        if now > until {
            return Ok(None);
        }
    }
}

/// How far the moved stream's rows are, as the server and its table tell.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Mark {
    end: u64,
    published_end: u64,
    evicted_end: u64,
    sealed_rows: u64,
    /// Gathered before a commit or merged after it.
    merged_files: u64,
    table: TableState,
}

impl Mark {
    fn look(server: &Server) -> Result<Self, MetricsError> {
        let metrics = Metrics::read(server.address)?;
        let of = |name| metrics.of_stream(name, STREAM);
        Ok(Self {
            end: of("streamcast_stream_end_offset")?,
            published_end: of("streamcast_stream_published_end_offset")?,
            evicted_end: of("streamcast_stream_evicted_end_offset")?,
            sealed_rows: of("streamcast_stream_sealed_rows_total")?,
            merged_files: of("streamcast_stream_merged_files_total")?,
            table: server.peer.table.as_deref().and_then(TableState::read).unwrap_or_default(),
        })
    }

    fn is_settled(&self) -> bool {
        self.published_end == self.end && self.evicted_end == self.end
    }

    fn since(&self, before: &Self) -> Moved {
        let replaces = self.table.replaced.iter().filter(|number| **number > before.table.commits).count() as u64;
        Moved {
            sealed_rows: self.sealed_rows.saturating_sub(before.sealed_rows),
            merged_files: self.merged_files.saturating_sub(before.merged_files),
            commits: self.table.commits.saturating_sub(before.table.commits),
            replaces,
        }
    }
}

/// What was moved in a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Moved {
    sealed_rows: u64,
    merged_files: u64,
    /// Snapshots of the table, and those among them that took a merged file for its parts.
    commits: u64,
    replaces: u64,
}

/// All windows of a kind.
#[derive(Debug, Default)]
struct Sum {
    windows: u32,
    /// Windows in which something was sealed and something published.
    busy_windows: u32,
    cpu_ns: u64,
    generator_busy: f64,
    rows: u64,
    missing: u64,
    moved: Moved,
}

impl Sum {
    fn add(&mut self, seen: &Seen) {
        self.windows += 1;
        self.busy_windows += u32::from(seen.moved.sealed_rows > 0 && seen.moved.commits > seen.moved.replaces);
        self.cpu_ns += seen.usage.process_ns;
        self.generator_busy += seen.generator_busy;
        self.rows += seen.rows;
        self.missing += seen.missing;
        let (sum, moved) = (&mut self.moved, seen.moved);
        sum.sealed_rows += moved.sealed_rows;
        sum.merged_files += moved.merged_files;
        sum.commits += moved.commits;
        sum.replaces += moved.replaces;
    }

    /// Writes what was moved, and doubts windows in which too little was.
    fn tell_moved(&self, outcome: &mut Outcome) {
        let moved = self.moved;
        outcome.set("sealed_pct", moved.sealed_rows as f64 / self.rows as f64 * 100.0);
        outcome.set("published_snapshots", moved.commits.saturating_sub(moved.replaces) as f64);
        outcome.set("merge_snapshots", moved.replaces as f64);
        outcome.set("merged_files", moved.merged_files as f64);
        let idle = self.windows - self.busy_windows;
        if idle > 0 {
            outcome.problems.push(format!("in {idle} of {} windows nothing was sealed and published", self.windows));
        }
        if moved.replaces == 0 {
            outcome.problems.push("nothing was merged in any window".into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(moved: Moved) -> Seen {
        let usage = Usage { process_ns: 5_000, cores_ns: 0 };
        Seen { latency: Recorder::default(), usage, generator_busy: 0.5, rows: 100, missing: 0, moved }
    }

    #[test]
    fn windows_in_which_nothing_moved_are_doubted() {
        let busy = Moved { sealed_rows: 90, merged_files: 6, commits: 3, replaces: 1 };
        let mut sum = Sum::default();
        sum.add(&seen(busy));
        sum.add(&seen(busy));
        let mut outcome = Outcome::new("c", "p");
        sum.tell_moved(&mut outcome);
        assert_eq!(outcome.problems, Vec::<String>::new());
        let figure = |name: &str| outcome.figures[name] as u64;
        assert_eq!((figure("sealed_pct"), figure("published_snapshots"), figure("merge_snapshots")), (90, 4, 2));

        // A merge alone publishes no row, and without one the case is not what it says.
        for (moved, told) in [
            (Moved { commits: 1, ..busy }, "in 1 of 3 windows nothing was sealed and published"),
            (Moved { sealed_rows: 0, ..busy }, "in 1 of 3 windows nothing was sealed and published"),
        ] {
            let mut sum = Sum::default();
            [busy, busy, moved].iter().for_each(|moved| sum.add(&seen(*moved)));
            let mut outcome = Outcome::new("c", "p");
            sum.tell_moved(&mut outcome);
            assert_eq!(outcome.problems, [told]);
        }
        let mut sum = Sum::default();
        sum.add(&seen(Moved { replaces: 0, ..busy }));
        let mut outcome = Outcome::new("c", "p");
        sum.tell_moved(&mut outcome);
        assert_eq!(outcome.problems, ["nothing was merged in any window"]);
    }

    #[test]
    fn what_moved_is_what_came_after_the_first_look() {
        let before = Mark { sealed_rows: 10, merged_files: 2, ..Mark::default() };
        let before = Mark { table: TableState { commits: 5, replaced: vec![3], ..TableState::default() }, ..before };
        let table = TableState { commits: 9, replaced: vec![3, 6, 8], ..TableState::default() };
        let after = Mark { end: 40, published_end: 40, evicted_end: 30, sealed_rows: 30, merged_files: 8, table };
        let moved = after.since(&before);
        assert_eq!(moved, Moved { sealed_rows: 20, merged_files: 6, commits: 4, replaces: 2 });
        assert!(!after.is_settled(), "the journal still has rows");
        assert!(Mark { evicted_end: 40, ..after }.is_settled());
    }
}
