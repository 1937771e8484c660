//! How much processor time the process may have: the quota of its control group, or of one above it.

use std::path::{Path, PathBuf};

/// A bound on processor time.
#[derive(Debug, Clone, PartialEq)]
pub struct CpuQuota {
    /// The time that a second has for the process, in cores.
    pub cores: f64,
    /// The file that says so.
    pub file: PathBuf,
}

/// The smallest quota that holds for this process; `None` where nothing bounds it. `root` is `/`, or a made-up tree.
#[must_use]
pub fn cpu_quota(root: &Path) -> Option<CpuQuota> {
    let read = |path: &str| std::fs::read_to_string(root.join(path)).ok();
    let (groups, mounts) = (read("proc/self/cgroup")?, read("proc/self/mountinfo")?);
    let found = mounts.lines().filter_map(Mount::parse).filter_map(|mount| {
        let group = groups.lines().find_map(|line| mount.group(line))?;
        mount.smallest(root, group)
    });
    found.min_by(|a, b| a.cores.total_cmp(&b.cores))
}

/// A hierarchy of control groups that bounds processor time.
struct Mount<'a> {
    /// The group that is seen at the mount point.
    top: &'a str,
    /// Where it is, below the root.
    point: &'a str,
    /// Version 2, which is one hierarchy for everything.
    unified: bool,
}

impl<'a> Mount<'a> {
    /// Reads a line of `/proc/self/mountinfo`.
    fn parse(line: &'a str) -> Option<Self> {
        let (mount, kind) = line.split_once(" - ")?;
        let (mut mount, mut kind) = (mount.split(' ').skip(3), kind.split(' '));
        let (top, point) = (mount.next()?, mount.next()?.trim_start_matches('/'));
        let unified = match kind.next()? {
            "cgroup2" => true,
            "cgroup" => false,
            _ => return None,
        };
        let options = kind.nth(1).unwrap_or_default();
        (unified || options.split(',').any(|option| option == "cpu")).then_some(Self { top, point, unified })
    }

    /// The group of the process, if this line of `/proc/self/cgroup` is about this hierarchy.
    fn group<'b>(&self, line: &'b str) -> Option<&'b str> {
        let (number, rest) = line.split_once(':')?;
        let (controllers, group) = rest.split_once(':')?;
        let ours = match self.unified {
            true => number == "0" && controllers.is_empty(),
            false => controllers.split(',').any(|controller| controller == "cpu"),
        };
        ours.then_some(group)
    }

    /// The smallest quota from the process's group up to the top of what is mounted.
    fn smallest(&self, root: &Path, group: &str) -> Option<CpuQuota> {
        // In a container the path may be the host's and the mount the container's own: then only the top is seen.
        let below = Path::new(group).strip_prefix(self.top).unwrap_or(Path::new(""));
        let plain = !below.components().any(|part| part == std::path::Component::ParentDir);
        let below = if plain { below } else { Path::new("") };
        let quotas = below.ancestors().filter_map(|group| {
            let directory = Path::new(self.point).join(group);
            let (file, cores) = if self.unified { unified(root, &directory) } else { legacy(root, &directory) }?;
            Some(CpuQuota { cores, file: Path::new("/").join(file) })
        });
        quotas.min_by(|a, b| a.cores.total_cmp(&b.cores))
    }
}

/// `cpu.max`: the time of a period or `max`, and the period, in microseconds.
fn unified(root: &Path, directory: &Path) -> Option<(PathBuf, f64)> {
    let file = directory.join("cpu.max");
    let text = std::fs::read_to_string(root.join(&file)).ok()?;
    let (time, period) = text.trim().split_once(' ')?;
    Some((file, cores(time, period)?))
}

/// The same in two files, with -1 for no quota.
fn legacy(root: &Path, directory: &Path) -> Option<(PathBuf, f64)> {
    let file = directory.join("cpu.cfs_quota_us");
    let time = std::fs::read_to_string(root.join(&file)).ok()?;
    let period = std::fs::read_to_string(root.join(directory).join("cpu.cfs_period_us")).ok()?;
    Some((file, cores(time.trim(), period.trim())?))
}

fn cores(time: &str, period: &str) -> Option<f64> {
    let (time, period): (u64, u64) = (time.parse().ok()?, period.parse().ok()?);
    (time > 0 && period > 0).then(|| time as f64 / period as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIFIED: &str = "29 1 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";
    const LEGACY: &str = "30 1 0:27 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n\
                          31 1 0:28 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n";

    fn quota(group: &str, mounts: &str, files: &[(&str, &str)]) -> Option<(f64, String)> {
        let root = std::env::temp_dir().join(format!("quota-{}-{:?}", std::process::id(), std::thread::current().id()));
        let own = [("proc/self/cgroup", group), ("proc/self/mountinfo", mounts)];
        for (path, text) in own.iter().chain(files) {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
            std::fs::write(path, text).expect("a file");
        }
        let found = cpu_quota(&root);
        std::fs::remove_dir_all(&root).expect("removed");
        found.map(|quota| (quota.cores, quota.file.display().to_string()))
    }

    fn of(cores: f64, file: &str) -> Option<(f64, String)> {
        Some((cores, file.to_owned()))
    }

    #[test]
    fn the_smallest_of_a_group_and_those_above_it_counts() {
        let files = [
            ("sys/fs/cgroup/a/b/cpu.max", "max 100000\n"),
            ("sys/fs/cgroup/a/cpu.max", "150000 100000\n"),
            ("sys/fs/cgroup/cpu.max", "800000 100000\n"),
        ];
        assert_eq!(quota("0::/a/b\n", UNIFIED, &files), of(1.5, "/sys/fs/cgroup/a/cpu.max"));
        assert_eq!(quota("0::/\n", UNIFIED, &files), of(8.0, "/sys/fs/cgroup/cpu.max"), "a container of its own");
        assert_eq!(quota("0::/../c\n", UNIFIED, &files[2..]), of(8.0, "/sys/fs/cgroup/cpu.max"));
        assert_eq!(quota("0::/a/b\n", UNIFIED, &files[..1]), None);
        assert_eq!(quota("0::/a/b\n", UNIFIED, &[]), None);
    }

    #[test]
    fn the_older_hierarchy_of_processor_time_counts_as_well() {
        let files = [
            ("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "50000\n"),
            ("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "100000\n"),
            ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n"),
            ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
        ];
        let groups = "5:cpuset:/x\n4:cpu,cpuacct:/a\n0::/a\n";
        let file = "/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us";
        assert_eq!(quota(groups, LEGACY, &files), of(0.5, file));
        assert_eq!(quota("4:cpu,cpuacct:/\n0::/a\n", LEGACY, &files), None);
        // The path is the host's, and the container sees its own group at the mount point.
        let inside = LEGACY.replacen(" / ", " /docker/17 ", 1);
        assert_eq!(quota("4:cpu,cpuacct:/docker/17/a\n", &inside, &files), of(0.5, file));
        let top = [
            ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "300000"),
            ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000"),
        ];
        let file = "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us";
        assert_eq!(quota("4:cpu,cpuacct:/docker/17\n", LEGACY, &top), of(3.0, file));
    }

    #[test]
    fn nonsense_is_no_quota() {
        for text in ["", "max", "0 100000", "100000 0", "-1 100000", "x y"] {
            assert_eq!(quota("0::/\n", UNIFIED, &[("sys/fs/cgroup/cpu.max", text)]), None, "{text:?}");
        }
        assert_eq!(quota("", "", &[]), None);
        assert_eq!(cpu_quota(Path::new("/no/such/root")), None);
    }
}
