//! What a server uses, read from /proc: CPU time and memory of its process tree, and how busy its cores were.

use std::fs;

/// CPU time so far, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// User and system time of the server's processes and those they started. The kernel accounts it exactly and
    /// shows it in steps of 10 ms. Work for sockets that is done in the context of the server is in it.
    pub process_ns: u64,
    /// Time in which the server's cores were not idle, whoever used them: also kernel threads for disk and network.
    pub cores_ns: u64,
}

impl Usage {
    /// Usage of the process `root` and its descendants, and of `cores`.
    #[must_use]
    pub fn of_tree(root: u32, cores: &[usize]) -> Self {
        let process_ns = tree(root).into_iter().filter_map(process_cpu_ns).sum();
        Self { process_ns, cores_ns: core_busy_ns(cores) }
    }

    /// What was used since `before`.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            process_ns: self.process_ns.saturating_sub(before.process_ns),
            cores_ns: self.cores_ns.saturating_sub(before.cores_ns),
        }
    }
}

/// Memory of a process tree, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Memory {
    /// Resident: what the processes have in memory, shared pages counted in each.
    pub resident_bytes: u64,
    /// Proportional: shared pages divided by those that share them.
    pub proportional_bytes: u64,
    /// The most that was resident since each process began.
    pub peak_bytes: u64,
}

impl Memory {
    /// Bytes as mebibytes.
    #[must_use]
    pub fn mib(bytes: u64) -> f64 {
        bytes as f64 / f64::from(1 << 20)
    }

    /// Memory of the process `root` and its descendants.
    #[must_use]
    pub fn of_tree(root: u32) -> Self {
        let mut sum = Self::default();
        for pid in tree(root) {
            let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
            sum.resident_bytes += kilobytes(&text, "Rss:");
            sum.proportional_bytes += kilobytes(&text, "Pss:");
            let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            sum.peak_bytes += kilobytes(&text, "VmHWM:");
        }
        sum
    }
}

/// Time in which `cores` were not idle since boot, in nanoseconds.
fn core_busy_ns(cores: &[usize]) -> u64 {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    busy_of(&text, cores)
}

fn busy_of(stat: &str, cores: &[usize]) -> u64 {
    let mut ticks = 0;
    for line in stat.lines() {
        let mut words = line.split_ascii_whitespace();
        let number = words.next().and_then(|word| word.strip_prefix("cpu")).and_then(|core| core.parse().ok());
        if number.is_some_and(|core: usize| cores.contains(&core)) {
            let columns: Vec<u64> = words.map(|word| word.parse().unwrap_or(0)).collect();
            // user nice system idle iowait irq softirq: all but idle and iowait.
            ticks += [0, 1, 2, 5, 6].iter().filter_map(|&at| columns.get(at)).sum::<u64>();
        }
    }
    ticks * tick_ns()
}

fn tick_ns() -> u64 {
    // SAFETY: sysconf only reads.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    1_000_000_000 / u64::try_from(per_second).ok().filter(|&ticks| ticks > 0).unwrap_or(100)
}

/// User and system time of a process and of its children that have ended.
fn process_cpu_ns(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(ticks_of(&text)? * tick_ns())
}

fn ticks_of(stat: &str) -> Option<u64> {
    // The command may hold spaces and parentheses, so columns are counted from the last one.
    let columns: Vec<&str> = stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace().collect();
    columns.get(11..15)?.iter().map(|word| word.parse::<u64>().ok()).sum()
}

/// A process and its descendants.
pub(super) fn tree(root: u32) -> Vec<u32> {
    let mut found = vec![root];
    let mut at = 0;
    while let Some(&pid) = found.get(at) {
        at += 1;
        for task in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            found.extend(children.split_ascii_whitespace().filter_map(|word| word.parse::<u32>().ok()));
        }
    }
    found
}

fn kilobytes(text: &str, key: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(key));
    line.and_then(|rest| rest.split_ascii_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_found_behind_any_command_name() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 1 0 0 0 10 20 3 4 20 0 1 0 5 6 7";
        assert_eq!(ticks_of(stat), Some(37));
        assert_eq!(ticks_of("7 (x) S 1"), None);
    }

    #[test]
    fn only_the_cores_asked_for_count() {
        let stat = "cpu  9 9 9 9 9 9 9 9\ncpu0 1 2 3 100 100 4 5 0\ncpu1 10 0 0 1 1 0 0 0\n";
        assert_eq!(busy_of(stat, &[0]), 15 * tick_ns());
        assert_eq!(busy_of(stat, &[0, 1]), 25 * tick_ns());
    }

    #[test]
    fn this_process_uses_time_and_memory() {
        let mut value = 1u64;
        while Usage::of_tree(std::process::id(), &[0]).process_ns == 0 {
            value = std::hint::black_box(value.wrapping_mul(3));
        }
        let memory = Memory::of_tree(std::process::id());
        assert!(memory.resident_bytes >= memory.proportional_bytes && memory.proportional_bytes > 100_000);
    }
}
