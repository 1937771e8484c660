//! The kernel: its version, io_uring, clocks and memory.

use streamcast_shards::probe::probe_io_uring;

use super::host::Host;
use super::report::Finding;
use crate::tls::KernelTls;

/// Oldest kernel whose io_uring has all that the shards use.
const OLDEST_KERNEL: (u32, u32) = (5, 19);

pub fn check(host: &Host) -> Vec<Finding> {
    let probed = probe_io_uring().map_err(|error| error.to_string());
    vec![version(host), io_uring(host, probed), kernel_tls(), clock_source(host), clock_sync(), huge_pages(host)]
}

fn version(host: &Host) -> Finding {
    let found = host.sysctl("kernel.osrelease").unwrap_or_default();
    let mut numbers = found.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().unwrap_or(0));
    let version: (u32, u32) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version >= OLDEST_KERNEL {
        return Finding::ok("kernel", format!("Linux {found}"));
    }
    let (major, minor) = OLDEST_KERNEL;
    Finding::fail("kernel", format!("Linux {found}"), format!("boot Linux {major}.{minor} or newer"))
}

fn io_uring(host: &Host, probed: Result<(), String>) -> Finding {
    let disabled = host.sysctl("kernel.io_uring_disabled");
    match (probed, disabled.as_deref()) {
        (Ok(()), Some("1")) => Finding::warn(
            "io_uring",
            "available to this user only, kernel.io_uring_disabled is 1",
            "run the broker as this user too, or: sysctl -w kernel.io_uring_disabled=0",
        ),
        (Ok(()), _) => Finding::ok("io_uring", "available"),
        (Err(_), Some("2")) => Finding::fail(
            "io_uring",
            "switched off, kernel.io_uring_disabled is 2",
            "sysctl -w kernel.io_uring_disabled=0, and in /etc/sysctl.d to keep it",
        ),
        (Err(error), _) => {
            let (found, fix) = error.split_once("; ").unwrap_or((&error, "use a kernel with io_uring"));
            Finding::fail("io_uring", found, fix)
        }
    }
}

/// Nothing is wrong without it: shards encrypt then.
fn kernel_tls() -> Finding {
    match KernelTls::probe() {
        Ok(kernel) => Finding::ok("kernel tls", format!("{kernel}; used with `tls.kernel = \"auto\"`")),
        Err(error) => Finding::ok("kernel tls", format!("not used, shards encrypt: {error}")),
    }
}

fn clock_source(host: &Host) -> Finding {
    const FILE: &str = "sys/devices/system/clocksource/clocksource0/current_clocksource";
    let found = host.read(FILE).unwrap_or_else(|| "unknown".to_owned());
    // These make every reading of the clock a system call, and a slow one.
    if matches!(found.as_str(), "hpet" | "acpi_pm" | "jiffies" | "xen") {
        let fix = format!("boot with clocksource=tsc tsc=reliable, or: echo tsc > /{FILE}");
        return Finding::warn("clock source", found, fix);
    }
    Finding::ok("clock source", found)
}

fn clock_sync() -> Finding {
    // SAFETY: all zeroes is a valid timex, which asks for the state and changes nothing.
    let state = unsafe { libc::adjtimex(&mut std::mem::zeroed()) };
    judge_clock(state)
}

fn judge_clock(state: i32) -> Finding {
    match state {
        libc::TIME_ERROR => Finding::warn(
            "clock sync",
            "the clock is not synchronised; rows are stamped by it",
            "run chrony or systemd-timesyncd",
        ),
        state if state < 0 => Finding::ok("clock sync", "unknown, this process may not ask"),
        _ => Finding::ok("clock sync", "synchronised"),
    }
}

fn huge_pages(host: &Host) -> Finding {
    let found = host.read("sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    let chosen = found.split(['[', ']']).nth(1).unwrap_or("not built in").to_owned();
    if chosen == "always" {
        let fix = "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled";
        return Finding::warn("huge pages", "always: small buffers take 2 MiB of memory each", fix);
    }
    Finding::ok("huge pages", chosen)
}

#[cfg(test)]
mod tests {
    use super::super::host::made_up;
    use super::super::report::Level;
    use super::*;

    #[test]
    fn kernels_are_old_or_new_enough() {
        for (release, level) in [
            ("6.18.4-generic\n", Level::Ok),
            ("5.19.0", Level::Ok),
            ("10.0", Level::Ok),
            ("5.15.0-91", Level::Fail),
            ("4.9", Level::Fail),
            ("", Level::Fail),
        ] {
            let (_kept, host) = made_up(&[("proc/sys/kernel/osrelease", release)]);
            assert_eq!(version(&host).level, level, "{release}");
        }
    }

    #[test]
    fn io_uring_says_who_forbids_it() {
        let forbidden = || Err("io_uring is forbidden; allow it".to_owned());
        for (setting, probed, level, found) in [
            ("0", Ok(()), Level::Ok, "available"),
            ("1", Ok(()), Level::Warn, "available to this user only"),
            ("2", forbidden(), Level::Fail, "switched off"),
            ("0", forbidden(), Level::Fail, "io_uring is forbidden"),
        ] {
            let (_kept, host) = made_up(&[("proc/sys/kernel/io_uring_disabled", setting)]);
            let finding = io_uring(&host, probed);
            assert_eq!(finding.level, level);
            assert!(finding.found.starts_with(found), "{finding:?}");
        }
    }

    #[test]
    fn clocks_and_pages() {
        let clock = "sys/devices/system/clocksource/clocksource0/current_clocksource";
        let pages = "sys/kernel/mm/transparent_hugepage/enabled";
        for (source, huge, levels) in [
            ("tsc\n", "always [madvise] never\n", (Level::Ok, Level::Ok)),
            ("hpet", "[always] madvise never", (Level::Warn, Level::Warn)),
            ("kvm-clock", "", (Level::Ok, Level::Ok)),
        ] {
            let (_kept, host) = made_up(&[(clock, source), (pages, huge)]);
            assert_eq!((clock_source(&host).level, huge_pages(&host).level), levels, "{source}");
        }
        assert_eq!(judge_clock(libc::TIME_ERROR).level, Level::Warn);
        assert_eq!(judge_clock(libc::TIME_OK).level, Level::Ok);
    }
}
