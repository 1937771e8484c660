//! The row between two readings.

use serde_json::{Value, json};

use super::reading::{CoreTime, Reading, RunQueue};

/// The row of stream `host` for the time between two readings `elapsed_s` apart.
pub fn row(event_us: i64, elapsed_s: f64, before: &Reading, after: &Reading) -> Value {
    let elapsed_s = elapsed_s.max(1e-3);
    let per_s = |before: u64, after: u64| rounded(after.saturating_sub(before) as f64 / elapsed_s, 1);
    let (run_queue_us, waiting_tasks) = waits(elapsed_s, before.run_queue, after.run_queue);
    let per_core: Vec<f64> = after
        .cores
        .iter()
        .enumerate()
        .map(|(core, now)| rounded(busy(before.cores.get(core).copied().unwrap_or_default(), *now), 4))
        .collect();
    let pressure = |index: usize| {
        let (then, now) = (before.pressure_us[index]?, after.pressure_us[index]?);
        Some(rounded((now.saturating_sub(then) as f64 / 1e6 / elapsed_s).min(1.0), 4))
    };
    let loopback = per_s(before.loopback.tx_bytes, after.loopback.tx_bytes);
    json!({
        "event_ts": event_us,
        "busy": rounded(per_core.iter().sum::<f64>() / per_core.len().max(1) as f64, 4),
        "busy_per_core": per_core,
        "run_queue_us": run_queue_us,
        "waiting_tasks": waiting_tasks,
        "switches_per_s": per_s(before.switches, after.switches),
        "rx_bytes_per_s": per_s(before.network.rx_bytes, after.network.rx_bytes),
        "tx_bytes_per_s": per_s(before.network.tx_bytes, after.network.tx_bytes),
        "rx_packets_per_s": per_s(before.network.rx_packets, after.network.rx_packets),
        "tx_packets_per_s": per_s(before.network.tx_packets, after.network.tx_packets),
        "loopback_bytes_per_s": loopback,
        "memory_used_bytes": after.memory_used_bytes,
        "pressure_cpu": pressure(0),
        "pressure_io": pressure(1),
        "pressure_memory": pressure(2),
    })
}

/// The share of its time that a core was not idle.
fn busy(before: CoreTime, after: CoreTime) -> f64 {
    let all = after.all.saturating_sub(before.all);
    // The kernel's idle time can go back by a tick.
    let idle = after.idle.saturating_sub(before.idle).min(all);
    if all == 0 { 0.0 } else { (all - idle) as f64 / all as f64 }
}

/// How long a task waited for its turn on average, in microseconds, and how many waited at a time.
fn waits(elapsed_s: f64, before: Option<RunQueue>, after: Option<RunQueue>) -> (Option<f64>, Option<f64>) {
    let (Some(before), Some(after)) = (before, after) else { return (None, None) };
    let waited_ns = after.waited_ns.saturating_sub(before.waited_ns) as f64;
    let turns = after.turns.saturating_sub(before.turns);
    let each_us = (turns > 0).then(|| rounded(waited_ns / 1e3 / turns as f64, 2));
    (each_us, Some(rounded(waited_ns / 1e9 / elapsed_s, 4)))
}

fn rounded(value: f64, decimals: i32) -> f64 {
    let scale = 10f64.powi(decimals);
    (value * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use super::super::reading::Traffic;
    use super::*;

    #[test]
    fn counters_become_rates_and_shares() {
        let before = Reading {
            cores: vec![CoreTime { idle: 0, all: 0 }, CoreTime { idle: 50, all: 100 }],
            run_queue: Some(RunQueue { waited_ns: 0, turns: 0 }),
            pressure_us: [Some(0), None, Some(10)],
            ..Reading::default()
        };
        let after = Reading {
            cores: vec![CoreTime { idle: 25, all: 100 }, CoreTime { idle: 49, all: 200 }],
            switches: 1_000,
            run_queue: Some(RunQueue { waited_ns: 1_000_000_000, turns: 4_000 }),
            network: Traffic { rx_bytes: 500, rx_packets: 5, tx_bytes: 50, tx_packets: 1 },
            loopback: Traffic { tx_bytes: 1_000_000, ..Traffic::default() },
            memory_used_bytes: 77,
            pressure_us: [Some(250_000), Some(1), Some(10)],
        };
        assert_eq!(
            row(9, 0.5, &before, &after),
            json!({
                "event_ts": 9,
                "busy": 0.875,
                "busy_per_core": [0.75, 1.0],
                "run_queue_us": 250.0,
                "waiting_tasks": 2.0,
                "switches_per_s": 2_000.0,
                "rx_bytes_per_s": 1_000.0,
                "tx_bytes_per_s": 100.0,
                "rx_packets_per_s": 10.0,
                "tx_packets_per_s": 2.0,
                "loopback_bytes_per_s": 2_000_000.0,
                "memory_used_bytes": 77,
                "pressure_cpu": 0.5,
                "pressure_io": null,
                "pressure_memory": 0.0,
            })
        );
    }

    #[test]
    fn a_machine_without_these_counters_has_nulls() {
        let nothing = row(1, 0.0, &Reading::default(), &Reading::default());
        assert_eq!((&nothing["run_queue_us"], &nothing["busy"]), (&Value::Null, &json!(0.0)));
        assert_eq!(nothing["pressure_cpu"], Value::Null);
    }
}
