//! A fan-out that is quiet, then disturbed: one subscriber stops reading, another connection replays the log, others read
//! over HTTP and change streams.

use super::bench::{Bench, CellError, OPEN_S, note_end, open_subscribers};
use super::pairs::Pairs;
use super::replay::{from_the_start, store};
use crate::clock;
use crate::load::{Beside, Counts, Group, Load, Order, Pace, Plan, Purpose, Script};
use crate::record::Recorder;
use crate::results::{Outcome, median};
use crate::scenario::{Disturb, STREAM};
use crate::schedule::Schedule;
use crate::server::{Memory, Server};
use crate::wire::Ask;

/// Groups of the load: those whose latency counts, the one that stalls, the one that replays.
const LIVE: usize = 0;
const STALLED: usize = 1;
const REPLAYING: usize = 2;

/// Seconds between windows, in which the last one's late messages come in.
const GAP_S: f64 = 0.5;

/// Seconds that clients over HTTP have to connect.
const SETTLE_S: f64 = 0.5;

/// Seconds in which a replay must be through.
const PATIENCE_S: f64 = 120.0;

/// Alternates quiet and disturbed windows under one unbroken schedule.
pub(super) fn measure(bench: &Bench<'_>, case: &Disturb, peer: &str) -> Result<Outcome, CellError> {
    let server = bench.start(peer, true)?;
    let mut load = bench.load(&server)?;
    bench.open_publishers(&mut load, STREAM, 1)?;
    if case.replay {
        if !server.wire().replays() {
            return Err(CellError::Unable(format!("{peer} has no replay that this client speaks")));
        }
        store(&mut load, case.stored_rows)?;
    }
    open_subscribers(&mut load, STREAM, case.subscribers, 1)?;
    load.groups.push(Group::new(1_000_003, Order::Dense));
    load.groups.push(Group::new(1_000_003, Order::Dense));
    let begin = clock::now_ns() + 20_000_000;
    let schedule = Schedule::new(begin, case.rate).ok_or_else(|| CellError::Failed("no rate".into()))?;
    load.set_pace(Pace::Rate(schedule))?;
    load.run_until(begin + clock::seconds_ns(1.0), |_| false)?;

    let mut pairs = Pairs::default();
    let mut replays = Vec::new();
    let mut http = Http::default();
    for _ in 0..case.pairs {
        let before = window(bench, case, &mut load)?;
        let begin = clock::now_ns();
        let wanted = load.groups[REPLAYING].messages + case.stored_rows;
        disturb(case, &mut load)?;
        http.start(bench, case, &server, &mut load)?;
        let meanwhile = window(bench, case, &mut load)?;
        pairs.push(before, meanwhile);
        http.stop(&mut load);
        if case.replay {
            let through = |load: &Load| load.groups[REPLAYING].messages >= wanted;
            if !load.run_until(begin + clock::seconds_ns(PATIENCE_S), through)? {
                let left = wanted - load.groups[REPLAYING].messages;
                return Err(CellError::Failed(format!("the replay has {left} rows left after {PATIENCE_S} s")));
            }
            let took = load.groups[REPLAYING].last_message_ns.min(clock::now_ns()) - begin;
            replays.push(took as f64 / 1e9);
        }
        load.close_group(REPLAYING);
        load.close_stalled();
    }
    load.publishing.pace = Pace::Stopped;

    let mut outcome = Outcome::new(&case.name, peer);
    outcome.version.clone_from(&server.peer.version);
    let [quiet, disturbed] = pairs.report(["quiet", "disturbed"], &mut outcome);
    outcome.set("memory_mib", Memory::mib(server.memory().resident_bytes));
    http.report(&mut outcome);
    outcome.set("replay_s", median(replays).unwrap_or(f64::NAN));
    let wanted = case.rate * bench.seconds(case.window_s) * f64::from(case.pairs) * case.subscribers as f64;
    for (name, recorder) in [("quiet", &quiet), ("disturbed", &disturbed)] {
        let late = 1.0 - recorder.count() as f64 / wanted;
        if late > 0.01 {
            outcome.problems.push(format!("{:.0} % of the {name} messages were over {GAP_S} s late", late * 100.0));
        }
    }
    let live = &load.groups[LIVE];
    if live.dropped > 0 {
        let why = live.first_drop.clone().unwrap_or_default();
        outcome.problems.push(format!("{} live subscribers were dropped; the first: {why}", live.dropped));
    }
    outcome.problems.extend(live.first_fault.clone());
    note_end(server, &mut outcome);
    Ok(outcome)
}

/// Latencies of the live subscribers in one window from now on.
fn window(bench: &Bench<'_>, case: &Disturb, load: &mut Load) -> Result<Recorder, CellError> {
    let start = clock::now_ns();
    let end = start + clock::seconds_ns(bench.seconds(case.window_s));
    load.open_window(start..end);
    load.run_until(end + clock::seconds_ns(GAP_S), |_| false)?;
    Ok(load.groups[LIVE].latency.clone())
}

/// Lets one subscriber stall and starts one replay, without waiting for either.
fn disturb(case: &Disturb, load: &mut Load) -> Result<(), CellError> {
    if case.stall {
        let ask = Ask::Subscribe { stream: STREAM.to_owned(), offset: None, filter: None };
        load.open([Plan { ask, purpose: Purpose::Subscribe(STALLED) }], OPEN_S)?;
        load.stall_one(STALLED)?;
    }
    if case.replay {
        load.start_opening(from_the_start(REPLAYING));
    }
    Ok(())
}

/// What the clients over HTTP did in all disturbed windows.
#[derive(Default)]
struct Http {
    windows: usize,
    began_ns: u64,
    seconds: f64,
    counts: Counts,
    failed: usize,
    first_fault: Option<String>,
}

impl Http {
    fn start(&mut self, bench: &Bench<'_>, case: &Disturb, server: &Server, load: &mut Load) -> Result<(), CellError> {
        if case.http_readers + case.storms == 0 {
            return Ok(());
        }
        let host = || server.address.to_string();
        let reader = |number: usize| match number % 2 {
            0 => Script::Events { host: host(), stream: STREAM.to_owned() },
            _ => Script::Pages { host: host(), stream: STREAM.to_owned(), after: "head".to_owned() },
        };
        // Names must differ from those of the windows before.
        let first = self.windows * case.storms;
        self.windows += 1;
        let storm = |number: usize| Script::storm(host(), first + number, bench.writer.schema());
        let scripts = (0..case.http_readers).map(reader).chain((0..case.storms).map(storm));
        let beside = Beside::start(server.address, scripts);
        load.set_beside(Some(beside.map_err(|error| CellError::Io("cannot connect over http", error))?));
        self.began_ns = clock::now_ns();
        // What counts is life beside them, not their coming.
        load.run_until(self.began_ns + clock::seconds_ns(SETTLE_S), |_| false)?;
        Ok(())
    }

    fn stop(&mut self, load: &mut Load) {
        let Some(beside) = load.set_beside(None) else { return };
        self.seconds += (clock::now_ns() - self.began_ns) as f64 / 1e9;
        let (sum, found) = (&mut self.counts, beside.counts);
        sum.pages += found.pages;
        sum.events += found.events;
        sum.changes += found.changes;
        sum.rounds += found.rounds;
        sum.received_bytes += found.received_bytes;
        self.failed += beside.failed();
        if self.first_fault.is_none() {
            self.first_fault.clone_from(&beside.first_fault);
        }
    }

    fn report(&self, outcome: &mut Outcome) {
        if self.windows == 0 {
            return;
        }
        for (figure, count) in [
            ("http_pages_per_s", self.counts.pages),
            ("http_events_per_s", self.counts.events),
            ("http_changes_per_s", self.counts.changes),
            ("http_rounds_per_s", self.counts.rounds),
        ] {
            outcome.set(figure, count as f64 / self.seconds);
        }
        outcome.set("http_mb_per_s", self.counts.received_bytes as f64 / 1e6 / self.seconds);
        if let Some(first) = &self.first_fault {
            outcome.problems.push(format!("{} http clients failed; the first: {first}", self.failed));
        }
    }
}
