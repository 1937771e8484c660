//! A table of very many files: starting on it, replaying it, restoring it on an empty root.

use super::bench::{Bench, CellError, OPEN_S, note_end, note_problems};
use super::replay::{PATIENCE_S, from_the_start, store};
use crate::clock;
use crate::load::{Group, Load, Order};
use crate::results::{Outcome, median};
use crate::scenario::{Open, STREAM};
use crate::server::{Memory, Server, TableState, Task, TaskRoot};

/// Makes the files, then starts, replays and restores.
pub(super) fn measure(bench: &Bench<'_>, case: &Open, peer: &str) -> Result<Outcome, CellError> {
    let lake = Some(&case.lake);
    let server = bench.start_moving(peer, false, lake)?;
    if !server.wire().replays() {
        return Err(CellError::Failed(format!("{peer} has no replay that this client speaks")));
    }
    let mut load = bench.load(&server)?;
    bench.open_publishers(&mut load, STREAM, 1)?;
    store(&mut load, case.rows)?;
    drop(load);
    let mut server = bench.start_flushed(server, lake)?;

    let mut outcome = Outcome::new(&case.name, peer);
    outcome.version.clone_from(&server.peer.version);
    let files = server.peer.table.as_deref().and_then(TableState::read).map_or(0, |table| table.files);
    outcome.set("files", files as f64);
    if files < case.files {
        outcome.problems.push(format!("the table has {files} files instead of {}", case.files));
    }
    let (mut greetings, mut firsts, mut rates, mut resident) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for round in 0..case.rounds {
        if round > 0 {
            server = bench.start_same(server, lake)?;
        }
        greetings.push(server.greeting_ms);
        resident.push(Memory::mib(server.memory().resident_bytes));
        let mut load = bench.load(&server)?;
        let (first_ms, rows_per_s) = replay(&mut load, case.rows)?;
        firsts.push(first_ms);
        rates.push(rows_per_s);
        note_problems(&load, &mut outcome.problems);
    }
    outcome.set("memory_grown_mib", growth(bench, &server, case)?);
    outcome.set("greeting_ms", median(greetings).unwrap_or(f64::NAN));
    outcome.set("first_row_ms", median(firsts).unwrap_or(f64::NAN));
    outcome.set("rows_per_s", median(rates).unwrap_or(f64::NAN));
    outcome.set("memory_mib", median(resident).unwrap_or(f64::NAN));
    restore(bench, case, &server, peer, &mut outcome)?;
    note_end(server, &mut outcome);
    Ok(outcome)
}

/// Reads everything once: milliseconds to the first row, and rows a second.
fn replay(load: &mut Load, rows: u64) -> Result<(f64, f64), CellError> {
    load.groups.push(Group::new(1_000_003, Order::Dense));
    let group = load.groups.len() - 1;
    let begin = clock::now_ns();
    let until = begin + clock::seconds_ns(PATIENCE_S);
    load.open([from_the_start(group)], OPEN_S)?;
    load.run_until(until, |load| load.groups[group].messages > 0 || load.drops().0 > 0)?;
    let first_ns = clock::now_ns();
    load.run_until(until, |load| load.groups[group].messages >= rows || load.drops().0 > 0)?;
    let read = load.groups[group].messages;
    if read != rows {
        let mut why = vec![format!("{read} of {rows} rows were read")];
        note_problems(load, &mut why);
        return Err(CellError::Failed(why.join("; ")));
    }
    let seconds = (load.groups[group].last_message_ns - begin) as f64 / 1e9;
    load.close_group(group);
    Ok(((first_ns - begin) as f64 / 1e6, rows as f64 / seconds))
}

/// How much further replays on a server that has had one leave in its memory.
fn growth(bench: &Bench<'_>, server: &Server, case: &Open) -> Result<f64, CellError> {
    let mut load = bench.load(server)?;
    let before = Memory::mib(server.memory().resident_bytes);
    for _ in 0..case.rounds {
        replay(&mut load, case.rows)?;
    }
    Ok(Memory::mib(server.memory().resident_bytes) - before)
}

fn restore(
    bench: &Bench<'_>,
    case: &Open,
    server: &Server,
    peer: &str,
    outcome: &mut Outcome,
) -> Result<(), CellError> {
    let data =
        server.root().join("data").canonicalize().map_err(|error| CellError::Io("cannot find the data", error))?;
    let (mut times, mut peak) = (Vec::new(), 0);
    for _ in 0..case.rounds {
        let root = TaskRoot::empty(bench.root(&format!("{peer}-restored")), &bench.streams(Some(&case.lake)))?;
        let (scripts, cores) = (&bench.options.scripts, &bench.options.run.server_cores);
        let task = Task { scripts, name: peer, root: root.path(), cores, patience_s: PATIENCE_S };
        let used = task.run("restore", &[("from", &data)])?;
        times.push(used.seconds * 1e3);
        peak = peak.max(used.peak_bytes);
    }
    outcome.set("restore_ms", median(times).unwrap_or(f64::NAN));
    outcome.set("restore_peak_mib", Memory::mib(peak));
    Ok(())
}
