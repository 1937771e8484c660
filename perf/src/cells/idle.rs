//! What a server costs before it does anything: start, memory, connections.

use super::bench::{Bench, CellError, QUIET, note_end, note_problems, open_subscribers};
use super::fanout::{self, Timing};
use crate::clock;
use crate::load::Load;
use crate::results::{Outcome, median};
use crate::scenario::{Idle, STREAM};
use crate::server::Memory;
use crate::wire::Ask;

/// Seconds given to a server to come to rest before its memory is read.
const SETTLE_S: f64 = 1.0;

/// Starts, waits, connects, in this order.
pub(super) fn measure(bench: &Bench<'_>, case: &Idle, peer: &str) -> Result<Outcome, CellError> {
    let mut outcome = Outcome::new(&case.name, peer);
    let mut greetings = Vec::new();
    for _ in 1..case.starts {
        greetings.push(bench.start(peer, true)?.greeting_ms);
    }
    let server = bench.start(peer, true)?;
    greetings.push(server.greeting_ms);
    outcome.version.clone_from(&server.peer.version);
    outcome.set("greeting_ms", median(greetings).unwrap_or(f64::NAN));

    let mut load = bench.load(&server)?;
    settle(&mut load)?;
    let mib = |memory: Memory| Memory::mib(memory.resident_bytes);
    let before = server.memory();
    outcome.set("memory_mib", mib(before));

    open_subscribers(&mut load, QUIET, case.idle, 1)?;
    settle(&mut load)?;
    let after = server.memory();
    let grown = after.resident_bytes.saturating_sub(before.resident_bytes);
    outcome.set("memory_idle_mib", mib(after));
    outcome.set("idle_subscriber_kib", grown as f64 / 1024.0 / case.idle as f64);

    if case.active > 0 {
        let mut active = bench.load(&server)?;
        open_subscribers(&mut active, STREAM, case.active, 1)?;
        bench.open_publishers(&mut active, STREAM, 1)?;
        let timing =
            Timing { rate: case.rate, batch: 1, group: 0, warm_s: 0.5, measure_s: bench.seconds(5.0), drain_s: 5.0 };
        let subscribers = case.active as u64;
        let measured = fanout::run(&mut active, &timing, || server.usage(), |rows| rows * subscribers)?;
        measured.report(&active, &mut outcome);
        outcome.set("memory_active_mib", mib(server.memory()));
        note_problems(&active, &mut outcome.problems);
    }
    note_problems(&load, &mut outcome.problems);
    drop(load);

    let mut load = bench.load(&server)?;
    load.set_parallel(case.parallel);
    let ask = Ask::Subscribe { stream: STREAM.to_owned(), offset: None, filter: None };
    let (seconds, usage) = (bench.seconds(case.connect_s), server.usage());
    let begin = clock::now_ns();
    let knocks = load.knock(&ask, seconds)?;
    let took = (clock::now_ns() - begin) as f64 / 1e9;
    outcome.set("connects_per_s", knocks as f64 / seconds);
    outcome.set("cpu_us_per_connect", server.usage().since(usage).process_ns as f64 / 1e3 / knocks as f64);
    outcome.set("connect_generator_busy_pct", (1.0 - load.idle_ns as f64 / 1e9 / took) * 100.0);
    settle(&mut load)?;
    outcome.set("memory_after_connects_mib", mib(server.memory()));
    note_end(server, &mut outcome);
    Ok(outcome)
}

fn settle(load: &mut Load) -> Result<(), CellError> {
    load.run_until(clock::now_ns() + clock::seconds_ns(SETTLE_S), |_| false)?;
    Ok(())
}
