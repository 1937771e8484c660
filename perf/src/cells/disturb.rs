//! A fan-out that is quiet, then disturbed: one subscriber stops reading, another connection replays the log.

use super::bench::{Bench, CellError, OPEN_S, note_end, open_subscribers};
use super::replay::{from_the_start, store};
use crate::clock;
use crate::load::{Group, Load, Order, Pace, Plan, Purpose};
use crate::record::Recorder;
use crate::results::{Outcome, median};
use crate::scenario::{Disturb, STREAM};
use crate::schedule::Schedule;
use crate::wire::Ask;

/// Groups of the load: those whose latency counts, the one that stalls, the one that replays.
const LIVE: usize = 0;
const STALLED: usize = 1;
const REPLAYING: usize = 2;

/// Seconds between windows, in which the last one's late messages come in.
const GAP_S: f64 = 0.5;

/// Seconds in which a replay must be through.
const PATIENCE_S: f64 = 120.0;

/// Alternates quiet and disturbed windows under one unbroken schedule.
pub(super) fn measure(bench: &Bench<'_>, case: &Disturb, peer: &str) -> Result<Outcome, CellError> {
    let server = bench.start(peer, true)?;
    let mut load = bench.load(&server)?;
    bench.open_publishers(&mut load, 1)?;
    if case.replay {
        if !server.wire().replays() {
            return Err(CellError::Failed(format!("{peer} has no replay that this client speaks")));
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

    let (mut quiet, mut disturbed) = (Recorder::default(), Recorder::default());
    let mut replays = Vec::new();
    for _ in 0..case.pairs {
        window(bench, case, &mut load, &mut quiet)?;
        let begin = clock::now_ns();
        let wanted = load.groups[REPLAYING].messages + case.stored_rows;
        disturb(case, &mut load)?;
        window(bench, case, &mut load, &mut disturbed)?;
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
    outcome.set_distribution("quiet_", quiet.distribution("quiet"));
    outcome.set_distribution("disturbed_", disturbed.distribution("disturbed"));
    for figure in ["p50", "p99", "p999"] {
        let at = |name: &str| outcome.figures.get(&format!("{name}_{figure}_ms")).copied().unwrap_or(f64::NAN);
        outcome.set(&format!("{figure}_ratio"), at("disturbed") / at("quiet"));
    }
    outcome.set("memory_mib", server.memory().resident_bytes as f64 / f64::from(1 << 20));
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

/// One window from now on, added to `sum`.
fn window(bench: &Bench<'_>, case: &Disturb, load: &mut Load, sum: &mut Recorder) -> Result<(), CellError> {
    let start = clock::now_ns();
    let end = start + clock::seconds_ns(bench.seconds(case.window_s));
    load.open_window(start..end);
    load.run_until(end + clock::seconds_ns(GAP_S), |_| false)?;
    sum.merge(&load.groups[LIVE].latency);
    Ok(())
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
