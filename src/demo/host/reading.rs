//! One reading of the kernel's counters, from /proc. What a kernel does not tell is absent.

use std::fs;

/// Time of one core since boot, in ticks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CoreTime {
    pub idle: u64,
    pub all: u64,
}

/// Time spent in run queues: of all tasks since boot, or of this process's threads where the kernel does not sum it up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunQueue {
    pub waited_ns: u64,
    pub turns: u64,
}

/// Traffic of interfaces, since boot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    pub rx_bytes: u64,
    pub rx_packets: u64,
    pub tx_bytes: u64,
    pub tx_packets: u64,
}

/// Everything at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reading {
    pub cores: Vec<CoreTime>,
    pub switches: u64,
    pub run_queue: Option<RunQueue>,
    /// All interfaces but the loopback, and the loopback.
    pub network: Traffic,
    pub loopback: Traffic,
    pub memory_used_bytes: u64,
    /// Microseconds in which some task waited for: processor, disk, memory.
    pub pressure_us: [Option<u64>; 3],
}

impl Reading {
    /// Reads everything now.
    pub fn take() -> Self {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let (cores, switches) = parse_stat(&text("/proc/stat"));
        let (network, loopback) = parse_net_dev(&text("/proc/net/dev"));
        Self {
            cores,
            switches,
            run_queue: parse_schedstat(&text("/proc/schedstat")).or_else(own_threads),
            network,
            loopback,
            memory_used_bytes: parse_meminfo(&text("/proc/meminfo")),
            pressure_us: ["cpu", "io", "memory"].map(|name| parse_pressure(&text(&format!("/proc/pressure/{name}")))),
        }
    }
}

fn numbers(fields: &str) -> Vec<u64> {
    fields.split_ascii_whitespace().map_while(|field| field.parse().ok()).collect()
}

/// The cores of /proc/stat and the context switches (proc_stat(5)).
pub fn parse_stat(text: &str) -> (Vec<CoreTime>, u64) {
    let mut cores = Vec::new();
    let mut switches = 0;
    for line in text.lines() {
        let Some((key, rest)) = line.split_once(' ') else { continue };
        if key == "ctxt" {
            switches = rest.trim().parse().unwrap_or(0);
        } else if key.len() > 3 && key.starts_with("cpu") {
            // user nice system idle iowait irq softirq steal; guest times are in the first two already.
            let times = numbers(rest);
            let idle = times.iter().skip(3).take(2).sum();
            cores.push(CoreTime { idle, all: times.iter().take(8).sum() });
        }
    }
    (cores, switches)
}

/// The run queues: of each core's nine numbers the last two are time waited, in nanoseconds, and turns taken.
pub fn parse_schedstat(text: &str) -> Option<RunQueue> {
    let mut sum: Option<RunQueue> = None;
    for line in text.lines().filter(|line| line.starts_with("cpu")) {
        let fields = numbers(line.split_once(' ')?.1);
        let (waited_ns, turns) = (*fields.get(7)?, *fields.get(8)?);
        let all = sum.get_or_insert_default();
        all.waited_ns += waited_ns;
        all.turns += turns;
    }
    sum
}

/// The run queues as this process's threads saw them: many kernels tell that, but not the sum over the cores.
fn own_threads() -> Option<RunQueue> {
    let mut sum: Option<RunQueue> = None;
    for thread in fs::read_dir("/proc/self/task").ok()?.flatten() {
        // A thread may have ended since it was listed.
        let text = fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
        if let [_, waited_ns, turns] = numbers(&text)[..] {
            let all = sum.get_or_insert_default();
            all.waited_ns += waited_ns;
            all.turns += turns;
        }
    }
    sum
}

/// Interfaces other than the loopback, and the loopback (proc_net_dev(5)).
pub fn parse_net_dev(text: &str) -> (Traffic, Traffic) {
    let (mut network, mut loopback) = (Traffic::default(), Traffic::default());
    for line in text.lines() {
        let Some((name, rest)) = line.split_once(':') else { continue };
        let fields = numbers(rest);
        if let [rx_bytes, rx_packets, _, _, _, _, _, _, tx_bytes, tx_packets, ..] = fields[..] {
            let all = if name.trim() == "lo" { &mut loopback } else { &mut network };
            all.rx_bytes += rx_bytes;
            all.rx_packets += rx_packets;
            all.tx_bytes += tx_bytes;
            all.tx_packets += tx_packets;
        }
    }
    (network, loopback)
}

/// Memory that is not available, in bytes.
pub fn parse_meminfo(text: &str) -> u64 {
    let kib = |key: &str| text.lines().find_map(|line| numbers(line.strip_prefix(key)?).first().copied()).unwrap_or(0);
    kib("MemTotal:").saturating_sub(kib("MemAvailable:")) * 1_024
}

/// The total of the line `some`, in microseconds.
pub fn parse_pressure(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("some ")?.rsplit_once("total=")?.1.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_texts_are_understood() {
        let stat = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 100 5 20 800 10 1 4 0 7 7\ncpu1 1 0 1 90 0 0 0 8 0 0\nintr 1 2\nctxt 4242\nbtime 1\n";
        let cores = vec![CoreTime { idle: 810, all: 940 }, CoreTime { idle: 90, all: 100 }];
        assert_eq!(parse_stat(stat), (cores, 4_242));
        let schedstat =
            "version 17\ntimestamp 1\ncpu0 0 0 0 0 0 0 5 700 10\ndomain0 1 2 3\ncpu1 0 0 0 0 0 0 6 300 30\n";
        assert_eq!(parse_schedstat(schedstat), Some(RunQueue { waited_ns: 1_000, turns: 40 }));
        let net = "Inter-|   Receive\n face |bytes\n    lo: 10 1 0 0 0 0 0 0 20 2 0 0 0 0 0 0\n  eth0:100 3 0 0 0 0 0 0 200 4 0 0 0 0 0 0\n\
                   eth1: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n";
        let (network, loopback) = parse_net_dev(net);
        assert_eq!(network, Traffic { rx_bytes: 101, rx_packets: 4, tx_bytes: 201, tx_packets: 5 });
        assert_eq!(loopback.tx_bytes, 20);
        assert_eq!(parse_meminfo("MemTotal:  1000 kB\nMemFree: 1 kB\nMemAvailable:  400 kB\n"), 600 * 1_024);
        let pressure =
            "some avg10=0.10 avg60=0.00 avg300=0.00 total=987\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=5\n";
        assert_eq!(parse_pressure(pressure), Some(987));
    }

    #[test]
    fn what_a_kernel_does_not_tell_is_absent_and_nonsense_is_no_panic() {
        for text in ["", "cpu0\n", "cpu0 x y\nlo:\nsome total=\nMemTotal: x\n", "cpu0 1 2 3\n"] {
            parse_stat(text);
            assert_eq!(parse_schedstat(text), None);
            assert_eq!(parse_net_dev(text), Default::default());
            assert_eq!(parse_meminfo(text), 0);
            assert_eq!(parse_pressure(text), None);
        }
    }

    #[test]
    fn this_machine_can_be_read() {
        let reading = Reading::take();
        assert!(!reading.cores.is_empty() && reading.memory_used_bytes > 0);
    }
}
