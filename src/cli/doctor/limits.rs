//! Limits of the process.

use super::report::Finding;

/// Descriptors that make room for many subscribers.
const PLENTY_OF_FILES: u64 = 65_536;
/// Locked memory below which rings may not fit on kernels that count them.
const ENOUGH_LOCKED_BYTES: u64 = 8 << 20;

pub fn check() -> Vec<Finding> {
    vec![files(limit(libc::RLIMIT_NOFILE).1), locked(limit(libc::RLIMIT_MEMLOCK).0)]
}

/// The broker raises its own limit to the hard one.
fn files(hard: u64) -> Finding {
    const FIX: &str = "LimitNOFILE=1048576 in the systemd unit, or ulimit -Hn 1048576 in the shell that starts it";
    let found = format!("up to {} descriptors, one a connection", shown(hard));
    match hard {
        0..1_024 => Finding::fail("nofile", found, FIX),
        1_024..PLENTY_OF_FILES => Finding::warn("nofile", found, FIX),
        _ => Finding::ok("nofile", found),
    }
}

fn locked(soft: u64) -> Finding {
    let found = format!("{} bytes of locked memory", shown(soft));
    if soft < ENOUGH_LOCKED_BYTES {
        return Finding::warn("memlock", found, "LimitMEMLOCK=64M in the systemd unit, or ulimit -l 65536");
    }
    Finding::ok("memlock", found)
}

fn shown(limit: u64) -> String {
    if limit == libc::RLIM_INFINITY { "unlimited".to_owned() } else { limit.to_string() }
}

/// Soft and hard limit; nothing when the system does not tell.
fn limit(resource: libc::__rlimit_resource_t) -> (u64, u64) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call only writes the struct it is given.
    let told = unsafe { libc::getrlimit(resource, &mut limit) };
    if told == 0 { (limit.rlim_cur, limit.rlim_max) } else { (0, 0) }
}

#[cfg(test)]
mod tests {
    use super::super::report::Level;
    use super::*;

    #[test]
    fn limits_are_judged() {
        for (hard, level) in
            [(256, Level::Fail), (4_096, Level::Warn), (1 << 20, Level::Ok), (libc::RLIM_INFINITY, Level::Ok)]
        {
            assert_eq!(files(hard).level, level, "{hard}");
        }
        assert_eq!(locked(64 << 10).level, Level::Warn);
        assert_eq!(locked(libc::RLIM_INFINITY).level, Level::Ok);
        let (soft, hard) = limit(libc::RLIMIT_NOFILE);
        assert!(soft > 0 && soft <= hard);
    }
}
