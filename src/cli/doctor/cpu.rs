//! Cores: which the broker would use, and what else uses them.

use streamcast_shards::cores::{CorePlan, CoreRequest, format_list, parse_list, plan};
use streamcast_shards::quota::{CpuQuota, cpu_quota};

use super::host::Host;
use super::report::Finding;

pub fn check(host: &Host, request: &CoreRequest, allowed: &[usize]) -> Vec<Finding> {
    let plan = match plan(request, allowed) {
        Ok(plan) => plan,
        Err(error) => return vec![Finding::fail("cores", error.to_string(), "name others with --cores")],
    };
    let busy = busy(&plan);
    vec![cores(&plan, allowed), siblings(host, &busy), isolation(host, &busy), governor(host, &busy), quota(host)]
}

/// Cores of shards and writer: the ones that mind company.
fn busy(plan: &CorePlan) -> Vec<usize> {
    let mut busy = plan.shards.clone();
    if !busy.contains(&plan.writer) {
        busy.push(plan.writer);
    }
    busy
}

fn cores(plan: &CorePlan, allowed: &[usize]) -> Finding {
    let (shards, background) = (format_list(&plan.shards), format_list(&plan.background));
    let found = format!("shards on {shards}, writer on {}, background on {background}", plan.writer);
    if !plan.unavailable.is_empty() {
        let missing = format_list(&plan.unavailable);
        let fix =
            format!("widen the cpuset, which is {} (taskset, systemd AllowedCPUs=, cgroup)", format_list(allowed));
        return Finding::warn("cores", format!("{found}; {missing} not available"), fix);
    }
    if plan.shards.contains(&plan.writer) {
        let fix = "give it a second core, so that commits and fan-out do not wait for each other";
        return Finding::warn("cores", found, fix);
    }
    Finding::ok("cores", found)
}

fn siblings(host: &Host, busy: &[usize]) -> Finding {
    for core in busy {
        let file = format!("sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list");
        let together = host.cores(&file).unwrap_or_default();
        let others: Vec<usize> =
            busy.iter().copied().filter(|other| other > core && together.contains(other)).collect();
        if !others.is_empty() {
            let found = format!("core {core} and {} are threads of one physical core", format_list(&others));
            return Finding::warn("siblings", found, "name one thread of each physical core with --cores");
        }
    }
    Finding::ok("siblings", "every core is a physical core of its own")
}

fn isolation(host: &Host, busy: &[usize]) -> Finding {
    let list =
        |path: &str| -> Vec<usize> { host.read(path).and_then(|text| parse_list(&text, &[]).ok()).unwrap_or_default() };
    let isolated = list("sys/devices/system/cpu/isolated");
    let tickless = list("sys/devices/system/cpu/nohz_full");
    let without = |have: &[usize]| busy.iter().copied().filter(|core| !have.contains(core)).collect::<Vec<_>>();
    let (shared, ticking) = (without(&isolated), without(&tickless));
    if shared.is_empty() && ticking.is_empty() {
        return Finding::ok("isolation", format!("{} are isolated and tickless", format_list(busy)));
    }
    let found = if shared.is_empty() {
        format!("{} are isolated, and {} have a timer tick", format_list(busy), format_list(&ticking))
    } else {
        format!("{} are shared with whatever else runs", format_list(&shared))
    };
    let cores = format_list(busy);
    let fix = format!("for the lowest latency boot with isolcpus={cores} nohz_full={cores} rcu_nocbs={cores}");
    Finding::warn("isolation", found, fix)
}

fn governor(host: &Host, busy: &[usize]) -> Finding {
    let read = |core: &usize| host.read(&format!("sys/devices/system/cpu/cpu{core}/cpufreq/scaling_governor"));
    let slow: Vec<(usize, String)> =
        busy.iter().filter_map(|core| Some((*core, read(core)?))).filter(|(_, name)| name != "performance").collect();
    match slow.first() {
        Some((_, name)) => {
            let cores: Vec<usize> = slow.iter().map(|(core, _)| *core).collect();
            let found = format!("`{name}` on {}: a core that slept takes time to speed up", format_list(&cores));
            Finding::warn("governor", found, "cpupower frequency-set -g performance")
        }
        None if busy.iter().any(|core| read(core).is_some()) => Finding::ok("governor", "performance"),
        None => Finding::ok("governor", "none here, as in most virtual machines"),
    }
}

fn quota(host: &Host) -> Finding {
    let Some(CpuQuota { cores, file }) = cpu_quota(host.root()) else {
        return Finding::ok("quota", "processor time has none");
    };
    let found = format!(
        "{} has a quota, the time of {cores:.2} cores: whoever has used it up stands still until the next period, and the \
         writer's core is not kept awake",
        file.display()
    );
    let fix =
        "give it cores (cpuset, systemd AllowedCPUs=) and no quota (CPUQuota=, docker --cpus, Kubernetes limits.cpu)";
    Finding::warn("quota", found, fix)
}

#[cfg(test)]
mod tests {
    use super::super::host::made_up;
    use super::super::report::Level;
    use super::*;

    fn levels(files: &[(&str, &str)], cores: &str, allowed: &[usize]) -> Vec<(&'static str, Level)> {
        let (_kept, host) = made_up(files);
        let request = CoreRequest { cores: Some(cores.to_owned()), ..CoreRequest::default() };
        check(&host, &request, allowed).into_iter().map(|finding| (finding.name, finding.level)).collect()
    }

    #[test]
    fn a_tuned_host_is_fine() {
        let files = [
            ("sys/devices/system/cpu/isolated", "2-3\n"),
            ("sys/devices/system/cpu/nohz_full", "2-3\n"),
            ("sys/devices/system/cpu/cpu2/cpufreq/scaling_governor", "performance\n"),
            ("sys/devices/system/cpu/cpu3/cpufreq/scaling_governor", "performance\n"),
            ("sys/devices/system/cpu/cpu2/topology/thread_siblings_list", "2,6\n"),
        ];
        let found = levels(&files, "2-3", &[0, 1, 2, 3]);
        assert!(found.iter().all(|(_, level)| *level == Level::Ok), "{found:?}");
    }

    #[test]
    fn company_is_told() {
        let files = [
            ("sys/devices/system/cpu/isolated", "\n"),
            ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n"),
            ("sys/devices/system/cpu/cpu0/topology/thread_siblings_list", "0-1\n"),
            ("proc/self/cgroup", "0::/broker\n"),
            ("proc/self/mountinfo", "29 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
            ("sys/fs/cgroup/broker/cpu.max", "150000 100000\n"),
        ];
        let found = levels(&files, "0-1", &[0, 1]);
        let expected = [
            ("cores", Level::Ok),
            ("siblings", Level::Warn),
            ("isolation", Level::Warn),
            ("governor", Level::Warn),
            ("quota", Level::Warn),
        ];
        assert_eq!(found, expected);
        assert_eq!(levels(&[], "0", &[0, 1])[0], ("cores", Level::Warn));
        assert_eq!(levels(&[], "0-3", &[0, 1])[0], ("cores", Level::Warn));
        assert_eq!(levels(&[], "8", &[0, 1]), [("cores", Level::Fail)]);
    }
}
