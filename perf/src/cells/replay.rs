//! Reading a stored log: rows a second from the first request to the last row.

use super::bench::{Bench, CellError, OPEN_S, note_end, note_problems};
use crate::clock;
use crate::load::{Group, Load, Order, Pace, Plan, Purpose};
use crate::results::{Outcome, median};
use crate::scenario::{Replay, STREAM};
use crate::server::Memory;
use crate::wire::Ask;

/// Seconds in which a log must be stored, and in which a round of replays must be through.
pub(super) const PATIENCE_S: f64 = 120.0;

/// Stores the rows, then reads them again and again.
pub(super) fn measure(bench: &Bench<'_>, case: &Replay, peer: &str) -> Result<Outcome, CellError> {
    let mut server = bench.start(peer, false)?;
    if !server.wire().replays() {
        return Err(CellError::Unable(format!("{peer} has no replay that this client speaks")));
    }
    let mut load = bench.load(&server)?;
    bench.open_publishers(&mut load, STREAM, 1)?;
    store(&mut load, case.rows)?;
    if case.sealed {
        server = bench.start_flushed(server, None)?;
        load = bench.load(&server)?;
    }

    let wanted = case.rows * case.subscribers as u64;
    let (mut rates, mut costs, mut firsts) = (Vec::new(), Vec::new(), Vec::new());
    load.groups.push(Group::new(1_000_003, Order::Dense));
    for _ in 0..case.rounds {
        let begin = clock::now_ns();
        let (before, usage) = (load.groups[0].messages, server.usage());
        load.open(std::iter::repeat_n(from_the_start(0), case.subscribers), OPEN_S)?;
        firsts.push((clock::now_ns() - begin) as f64 / 1e6);
        let all = |load: &Load| load.groups[0].messages - before >= wanted || load.drops().0 > 0;
        load.run_until(begin + clock::seconds_ns(PATIENCE_S), all)?;
        let read = load.groups[0].messages - before;
        if read != wanted {
            let mut why = vec![format!("{read} of {wanted} rows were read")];
            note_problems(&load, &mut why);
            return Err(CellError::Failed(why.join("; ")));
        }
        let seconds = (load.groups[0].last_message_ns - begin) as f64 / 1e9;
        rates.push(wanted as f64 / seconds);
        costs.push(server.usage().since(usage).process_ns as f64 / wanted as f64);
        load.close_group(0);
    }
    let mut outcome = Outcome::new(&case.name, peer);
    outcome.version.clone_from(&server.peer.version);
    outcome.set("best_rows_per_s", rates.iter().copied().fold(0.0, f64::max));
    outcome.set("rows_per_s", median(rates).unwrap_or(f64::NAN));
    outcome.set("cpu_ns_per_row", costs.iter().sum::<f64>() / costs.len() as f64);
    outcome.set("greeting_ms", median(firsts).unwrap_or(f64::NAN));
    outcome.set("peak_mib", Memory::mib(server.memory().peak_bytes));
    note_problems(&load, &mut outcome.problems);
    note_end(server, &mut outcome);
    Ok(outcome)
}

/// A subscriber of `group` that starts at the earliest row.
pub(super) fn from_the_start(group: usize) -> Plan {
    Plan {
        ask: Ask::Subscribe { stream: STREAM.to_owned(), offset: Some(0), filter: None },
        purpose: Purpose::Subscribe(group),
    }
}

/// Publishes `rows` rows in batches and waits until all are acknowledged.
pub(super) fn store(load: &mut Load, rows: u64) -> Result<(), CellError> {
    load.publishing.batch = 100;
    load.publishing.row_limit = load.publishing.next_index + rows;
    let wanted = load.publishing.acked_rows + rows;
    load.set_pace(Pace::Window(8))?;
    let until = clock::now_ns() + clock::seconds_ns(PATIENCE_S);
    let done = load.run_until(until, |load| load.publishing.acked_rows >= wanted || load.drops().0 > 0)?;
    load.set_pace(Pace::Stopped)?;
    load.publishing.row_limit = u64::MAX;
    load.publishing.batch = 1;
    if done && load.publishing.acked_rows >= wanted && load.publishing.refused == 0 {
        return Ok(());
    }
    let mut why = vec![format!("{} of {wanted} rows were stored", load.publishing.acked_rows)];
    note_problems(load, &mut why);
    Err(CellError::Failed(why.join("; ")))
}
