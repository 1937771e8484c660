//! The machine a result belongs to.

use std::fs;

use serde::{Deserialize, Serialize};

/// Hardware, kernel and settings that matter for the figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Host {
    pub processor: String,
    pub cores: usize,
    pub memory_gib: f64,
    pub kernel: String,
    pub hypervisor: bool,
    /// Settings by name, such as `net.ipv4.tcp_rmem` or the clock source.
    pub settings: Vec<(String, String)>,
    /// Filesystem of the data root: device, mount point, type and options.
    pub filesystem: String,
}

impl Host {
    /// Looks at this machine; `data` is on the filesystem that is told about.
    #[must_use]
    pub fn look(data: &std::path::Path) -> Self {
        let processors = read("/proc/cpuinfo");
        let field = |key: &str| {
            let line = processors.lines().find(|line| line.starts_with(key));
            line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
        };
        let memory = read("/proc/meminfo");
        let kib: f64 = memory.split_ascii_whitespace().nth(1).and_then(|word| word.parse().ok()).unwrap_or_default();
        let files = [
            ("clock source", "/sys/devices/system/clocksource/clocksource0/current_clocksource"),
            ("governor", "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            ("net.core.somaxconn", "/proc/sys/net/core/somaxconn"),
            ("net.ipv4.tcp_rmem", "/proc/sys/net/ipv4/tcp_rmem"),
            ("net.ipv4.tcp_wmem", "/proc/sys/net/ipv4/tcp_wmem"),
            ("net.ipv4.tcp_congestion_control", "/proc/sys/net/ipv4/tcp_congestion_control"),
            ("transparent huge pages", "/sys/kernel/mm/transparent_hugepage/enabled"),
            ("isolated cores", "/sys/devices/system/cpu/isolated"),
        ];
        let settings = files
            .iter()
            .map(|(name, path)| ((*name).to_owned(), read(path).split_ascii_whitespace().collect::<Vec<_>>().join(" ")))
            .filter(|(_, value)| !value.is_empty())
            .collect();
        Self {
            processor: format!("{} (family {}, model {})", field("model name"), field("cpu family"), field("model\t")),
            cores: processors.lines().filter(|line| line.starts_with("processor")).count(),
            memory_gib: (kib / 1024.0 / 1024.0 * 10.0).round() / 10.0,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            hypervisor: field("flags").split_ascii_whitespace().any(|flag| flag == "hypervisor"),
            settings,
            filesystem: filesystem(data),
        }
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// The mount that holds `path`: the longest mount point that is a prefix of it.
fn filesystem(path: &std::path::Path) -> String {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let mounts = read("/proc/self/mounts");
    let of = |line: &str| {
        let words: Vec<&str> = line.split_ascii_whitespace().take(4).collect();
        let point = words.get(1).copied()?;
        path.starts_with(point).then(|| (point.len(), words.join(" ")))
    };
    mounts.lines().filter_map(of).max_by_key(|(length, _)| *length).map(|(_, line)| line).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_cores_memory_and_a_filesystem() {
        let host = Host::look(std::path::Path::new("."));
        assert!(host.cores >= 1 && host.memory_gib > 0.1);
        assert!(!host.kernel.is_empty() && !host.filesystem.is_empty());
    }
}
