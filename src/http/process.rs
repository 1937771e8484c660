//! What the kernel knows of this process, from /proc.

use std::fs;
use std::time::Instant;

/// A reading of the process's own use of the machine. A figure the kernel would not tell is absent.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ProcessReading {
    /// Resident memory, in bytes.
    pub resident_bytes: Option<u64>,
    /// Address space, in bytes.
    pub virtual_bytes: Option<u64>,
    /// User and system time of all threads, in seconds.
    pub cpu_s: Option<f64>,
    /// Threads.
    pub threads: Option<u64>,
    /// When the process began, in seconds since 1970.
    pub started_s: Option<f64>,
    /// Open descriptors.
    pub open_fds: Option<u64>,
    /// The soft limit on descriptors; absent if there is none.
    pub max_fds: Option<u64>,
}

/// The readings of one `ProcessReading` apart from the descriptors, which take a directory listing.
pub fn read() -> ProcessReading {
    let (ticks_per_s, page_bytes) = units();
    let mut reading = fs::read_to_string("/proc/self/stat")
        .ok()
        .and_then(|stat| parse_stat(&stat, ticks_per_s, page_bytes))
        .unwrap_or_default();
    if let (Some(after_boot_s), Some(boot_s)) = (reading.started_s, boot_time_s()) {
        reading.started_s = Some(boot_s + after_boot_s);
    }
    reading.open_fds = fs::read_dir("/proc/self/fd").ok().map(|entries| entries.count().saturating_sub(1) as u64);
    reading.max_fds = max_fds();
    reading
}

/// The fields of proc_pid_stat(5); `started_s` counts from boot.
fn parse_stat(stat: &str, ticks_per_s: f64, page_bytes: u64) -> Option<ProcessReading> {
    // The second field is the command in parentheses and may hold anything, so count from the last of them.
    let fields: Vec<&str> = stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace().collect();
    let number = |field: usize| fields.get(field - 3).and_then(|text| text.parse::<u64>().ok());
    Some(ProcessReading {
        resident_bytes: number(24).map(|pages| pages * page_bytes),
        virtual_bytes: number(23),
        cpu_s: Some((number(14)? + number(15)?) as f64 / ticks_per_s),
        threads: number(20),
        started_s: number(22).map(|ticks| ticks as f64 / ticks_per_s),
        open_fds: None,
        max_fds: None,
    })
}

fn units() -> (f64, u64) {
    // SAFETY: sysconf only reads.
    let (ticks, page) = unsafe { (libc::sysconf(libc::_SC_CLK_TCK), libc::sysconf(libc::_SC_PAGESIZE)) };
    (if ticks > 0 { ticks as f64 } else { 100.0 }, u64::try_from(page).unwrap_or(4_096))
}

fn boot_time_s() -> Option<f64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    stat.lines().find_map(|line| line.strip_prefix("btime ")).and_then(|text| text.trim().parse().ok())
}

fn max_fds() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a live rlimit.
    let done = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } == 0;
    (done && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

/// The share of one processor that the process used between two readings.
pub fn cpu_cores(before: (Instant, Option<f64>), after: (Instant, Option<f64>)) -> Option<f64> {
    let elapsed_s = after.0.saturating_duration_since(before.0).as_secs_f64();
    let used_s = after.1? - before.1?;
    (elapsed_s > 0.0).then(|| (used_s / elapsed_s).max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_with_spaces_and_parentheses_does_not_shift_the_fields() {
        let stat =
            "77 (a ) b) S 1 77 77 0 -1 4194560 1 0 0 0 150 50 0 0 20 0 9 0 12345 1000000 25 18446744073709551615 1";
        let reading = parse_stat(stat, 100.0, 4_096).expect("parsed");
        assert_eq!(reading.cpu_s, Some(2.0));
        assert_eq!(reading.threads, Some(9));
        assert_eq!(reading.started_s, Some(123.45));
        assert_eq!((reading.virtual_bytes, reading.resident_bytes), (Some(1_000_000), Some(25 * 4_096)));
        assert_eq!(parse_stat("nonsense", 100.0, 4_096), None);
    }

    #[test]
    fn this_process_can_be_read() {
        let reading = read();
        assert!(reading.resident_bytes.is_some_and(|bytes| bytes > 100_000));
        assert!(reading.open_fds.is_some_and(|count| count >= 3));
        let started = reading.started_s.expect("a start");
        let now = crate::http::stats::unix_s(std::time::SystemTime::now());
        assert!((now - started) < 86_400.0 && started <= now + 2.0);
    }
}
