//! Whether the writer's core is kept awake on this host.

use std::path::Path;

use streamcast_shards::quota::{CpuQuota, cpu_quota};

use crate::config::Config;

/// As the configuration chooses, but never where processor time has a quota: what a thread spends on keeping a core awake
/// would be missing for the work. `root` is `/`, or a made-up tree.
pub(super) fn keeps_awake(config: &Config, root: &Path) -> bool {
    if !config.keep_awake {
        return false;
    }
    let Some(CpuQuota { cores, file }) = cpu_quota(root) else { return true };
    tracing::info!(cores, file = %file.display(), "processor time has a quota: the writer's core is not kept awake");
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_is_kept_awake_unless_somebody_pays_for_it() {
        let root = tempfile::tempdir().expect("a directory");
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
            std::fs::write(path, text).expect("a file");
        };
        let chosen = |keep_awake| Config { keep_awake, ..Config::default() };
        write("proc/self/cgroup", "0::/broker\n");
        write("proc/self/mountinfo", "29 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
        write("sys/fs/cgroup/broker/cpu.max", "max 100000\n");
        assert!(keeps_awake(&chosen(true), root.path()));
        assert!(!keeps_awake(&chosen(false), root.path()));
        write("sys/fs/cgroup/cpu.max", "400000 100000\n");
        assert!(!keeps_awake(&chosen(true), root.path()), "a group above it has a quota");
    }
}
