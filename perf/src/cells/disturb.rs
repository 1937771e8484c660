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
use crate::strangers::Strangers;
use crate::wire::Ask;

/// Groups of the load: those whose latency counts, the one that stalls, the one that replays.
const LIVE: usize = 0;
const STALLED: usize = 1;
const REPLAYING: usize = 2;

/// The kinds of window, as figures name them.
const KINDS: [&str; 2] = ["quiet", "disturbed"];

/// Seconds between windows, in which the last one's late messages come in.
const GAP_S: f64 = 0.5;

/// Seconds before a window: clients over HTTP connect, and server and generator get over what was before.
const SETTLE_S: f64 = 0.5;

/// Between two looks at who else was on the cores.
const LOOK_NS: u64 = 50_000_000;

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

    let (mut pairs, mut clear) = (Pairs::default(), Pairs::default());
    let mut windows = Windows::new(bench, case, &server, &mut load);
    let mut replays = Replays { rows: case.stored_rows, ..Replays::default() };
    let mut http = Http::default();
    for _ in 0..case.pairs {
        let before = windows.measure(&mut load, None)?;
        if case.stall {
            stall(&mut load)?;
        }
        http.start(bench, case, &server, &mut load)?;
        let meanwhile = windows.measure(&mut load, case.replay.then_some(&mut replays))?;
        pairs.push(before.latency, meanwhile.latency);
        if let (Some(before), Some(meanwhile)) = (before.clear, meanwhile.clear) {
            clear.push(before, meanwhile);
        }
        http.stop(&mut load);
        replays.end(&mut load)?;
        load.close_stalled();
    }
    load.publishing.pace = Pace::Stopped;

    let mut outcome = Outcome::new(&case.name, peer);
    outcome.version.clone_from(&server.peer.version);
    let sums = pairs.report(KINDS, &mut outcome);
    clear.report_clear(&sums, KINDS, &mut outcome);
    outcome.set("memory_mib", Memory::mib(server.memory().resident_bytes));
    http.report(&mut outcome);
    outcome.set("replay_s", median(replays.seconds).unwrap_or(f64::NAN));
    let wanted = case.rate * bench.seconds(case.window_s) * f64::from(case.pairs) * case.subscribers as f64;
    for (name, recorder) in KINDS.iter().zip(&sums) {
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

/// What the live subscribers saw in one window.
struct Seen {
    latency: Recorder,
    /// That of the rows that no stranger had to do with, if that is known.
    clear: Option<Recorder>,
}

/// Windows of both kinds, and who else was on the cores meanwhile.
struct Windows {
    length_ns: u64,
    /// Where the kernel tells of strangers, and the processes that are none.
    watch: Option<(Strangers, Vec<u32>)>,
}

impl Windows {
    fn new(bench: &Bench<'_>, case: &Disturb, server: &Server, load: &mut Load) -> Self {
        let length_s = bench.seconds(case.window_s);
        let run = &bench.options.run;
        let cores = run.server_cores.iter().chain(&run.generator_cores).copied();
        // A generator that sleeps is not held up by who has the core meanwhile.
        let watch = Strangers::watch(cores).ok().filter(|_| run.spin);
        if watch.is_some() {
            let expected = case.rate * length_s * case.subscribers as f64 * 1.1;
            load.groups[LIVE].latency.keep_events(expected as usize);
        }
        let mut ours = server.processes();
        ours.push(std::process::id());
        Self { length_ns: clock::seconds_ns(length_s), watch: watch.map(|strangers| (strangers, ours)) }
    }

    /// Latencies of the live subscribers in one window, beside `replays` if there are any.
    fn measure(&mut self, load: &mut Load, mut replays: Option<&mut Replays>) -> Result<Seen, CellError> {
        // Nobody is served while a window is gone through, and what was disturbed before the next one counts for neither.
        load.run_until(clock::now_ns() + clock::seconds_ns(SETTLE_S), |_| false)?;
        let start = clock::now_ns();
        let end = start + self.length_ns;
        load.open_window(start..end);
        if let Some((strangers, ours)) = &mut self.watch {
            strangers.look(ours);
            strangers.forget(start.saturating_sub(clock::seconds_ns(GAP_S)));
        }
        let (mut at, until) = (start, end + clock::seconds_ns(GAP_S));
        while at < until {
            at = (at + LOOK_NS).min(until);
            match &mut replays {
                Some(replays) => replays.until(at, at < end, load)?,
                None => drop(load.run_until(at, |_| false)?),
            }
            if let Some((strangers, ours)) = &mut self.watch {
                strangers.look(ours);
            }
        }
        let seen = &load.groups[LIVE].latency;
        let clear = self.watch.as_ref().map(|(strangers, _)| seen.outside(&strangers.spans()));
        Ok(Seen { latency: seen.without_events(), clear })
    }
}

/// Replays of all stored rows, one after the other.
#[derive(Default)]
struct Replays {
    /// The stored rows.
    rows: u64,
    /// The seconds that each took.
    seconds: Vec<f64>,
    /// When the one that is under way began, and messages of its group at its end.
    under_way: Option<(u64, u64)>,
}

impl Replays {
    /// Lets replays go on until `until_ns`; when there is none, or one ends before, the next begins if `more` are wanted.
    fn until(&mut self, until_ns: u64, more: bool, load: &mut Load) -> Result<(), CellError> {
        loop {
            if self.under_way.is_none() {
                if !more {
                    load.run_until(until_ns, |_| false)?;
                    return Ok(());
                }
                self.under_way = Some((clock::now_ns(), load.groups[REPLAYING].messages + self.rows));
                load.start_opening(from_the_start(REPLAYING));
            }
            if !self.goes_on(until_ns, load)? {
                return Ok(());
            }
        }
    }

    /// Lets the replay that is under way come to its end.
    fn end(&mut self, load: &mut Load) -> Result<(), CellError> {
        let Some((_, wanted)) = self.under_way else { return Ok(()) };
        if self.goes_on(clock::now_ns() + clock::seconds_ns(PATIENCE_S), load)? {
            return Ok(());
        }
        let left = wanted - load.groups[REPLAYING].messages;
        Err(CellError::Failed(format!("a replay had {left} rows left {PATIENCE_S} s after a window")))
    }

    /// Whether the replay that is under way ends before `until_ns`.
    fn goes_on(&mut self, until_ns: u64, load: &mut Load) -> Result<bool, CellError> {
        let Some((begun_ns, wanted)) = self.under_way else { return Ok(false) };
        if !load.run_until(until_ns, |load| load.groups[REPLAYING].messages >= wanted)? {
            return Ok(false);
        }
        self.seconds.push(load.groups[REPLAYING].last_message_ns.saturating_sub(begun_ns) as f64 / 1e9);
        self.under_way = None;
        load.close_group(REPLAYING);
        Ok(true)
    }
}

/// Lets one subscriber stop reading.
fn stall(load: &mut Load) -> Result<(), CellError> {
    let ask = Ask::Subscribe { stream: STREAM.to_owned(), offset: None, filter: None };
    load.open([Plan { ask, purpose: Purpose::Subscribe(STALLED) }], OPEN_S)?;
    load.stall_one(STALLED)?;
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
