//! Which processor does what: parsing core lists and planning shards, writer and background threads.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io;
use std::sync::OnceLock;

use crate::manner;

/// What the operator asked for; texts as given on the command line.
#[derive(Debug, Clone, Default)]
pub struct CoreRequest {
    /// `--cores`: a list such as `0-3,6`, or `all`; absent = chosen for the machine.
    pub cores: Option<String>,
    /// `--writer-core`: overrides "the last core given is the writer's".
    pub writer_core: Option<usize>,
    /// `--background-cores`: where HTTP, replay readers and maintenance may run.
    pub background_cores: Option<String>,
}

/// Who runs where. Every list is non-empty and within the process's cpuset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CorePlan {
    /// One shard a core, in this order.
    pub shards: Vec<usize>,
    /// The writer's core; may also be a shard's when there is only one.
    pub writer: usize,
    /// Cores of the background threads.
    pub background: Vec<usize>,
    /// Cores that were asked for and are not in the process's cpuset.
    pub unavailable: Vec<usize>,
}

impl CorePlan {
    /// Whether background threads share a core with a shard or the writer.
    #[must_use]
    pub fn shares_background(&self) -> bool {
        self.background.iter().any(|core| *core == self.writer || self.shards.contains(core))
    }
}

/// Why no plan could be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CoreError {
    /// The text is not a list of cores.
    #[error("`{list}` is not a list of cores: {why}; write numbers and ranges such as `0-3,6`, or `all`")]
    BadList {
        /// The text.
        list: String,
        /// What is wrong with it.
        why: String,
    },
    /// Nothing that was asked for is available.
    #[error(
        "none of the cores {asked} is available to this process, which may use {allowed}; widen its cpuset (taskset, cgroup) or name others"
    )]
    NoneAvailable {
        /// What was asked for.
        asked: String,
        /// The cpuset.
        allowed: String,
    },
}

/// The most cores one list may name: the kernel's own limit on x86-64.
const MAX_CORE: usize = 8191;

/// Parses `0-3,6` or `all` (every core of `allowed`), without duplicates, in the order given.
pub fn parse_list(list: &str, allowed: &[usize]) -> Result<Vec<usize>, CoreError> {
    let bad = |why: &str| CoreError::BadList { list: list.to_owned(), why: why.to_owned() };
    if list.trim().eq_ignore_ascii_case("all") {
        return Ok(allowed.to_vec());
    }
    let number = |text: &str| -> Result<usize, CoreError> {
        let text = text.trim();
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(bad(&format!("`{text}` is not a number")));
        }
        text.parse().ok().filter(|core| *core <= MAX_CORE).ok_or_else(|| bad(&format!("{text} is above {MAX_CORE}")))
    };
    let mut cores = Vec::new();
    for part in list.split(',') {
        let (first, last) = match part.split_once('-') {
            Some((first, last)) => (number(first)?, number(last)?),
            None => (number(part)?, number(part)?),
        };
        if first > last {
            return Err(bad(&format!("the range {first}-{last} runs backwards")));
        }
        for core in first..=last {
            if !cores.contains(&core) {
                cores.push(core);
            }
        }
    }
    Ok(cores)
}

/// Writes cores as the shortest list that [`parse_list`] reads back: `0-3,6`.
#[must_use]
pub fn format_list(cores: &[usize]) -> String {
    let sorted: Vec<usize> = cores.iter().copied().collect::<BTreeSet<_>>().into_iter().collect();
    let mut text = String::new();
    let mut index = 0;
    while index < sorted.len() {
        let first = sorted[index];
        let mut last = first;
        while index + 1 < sorted.len() && sorted[index + 1] == last + 1 {
            index += 1;
            last = sorted[index];
        }
        index += 1;
        let comma = if text.is_empty() { "" } else { "," };
        let _ = if first == last { write!(text, "{comma}{first}") } else { write!(text, "{comma}{first}-{last}") };
    }
    text
}

/// The processors this process may run on (`sched_getaffinity`), ascending.
#[must_use]
pub fn allowed_cores() -> Vec<usize> {
    let mut cores: Vec<usize> =
        core_affinity::get_core_ids().unwrap_or_default().into_iter().map(|core| core.id).collect();
    cores.sort_unstable();
    if cores.is_empty() { vec![0] } else { cores }
}

/// Decides who runs where. The last core given is the writer's and the others run a shard each; with one core
/// the shard and the writer share it. With `--writer-core`, every core given runs a shard. Background threads get the cores of the cpuset that were not named, else
/// the writer's: never a shard's when there is another.
pub fn plan(request: &CoreRequest, allowed: &[usize]) -> Result<CorePlan, CoreError> {
    let asked = match &request.cores {
        Some(list) => parse_list(list, allowed)?,
        None => default_cores(allowed),
    };
    let mut unavailable = Vec::new();
    let mut keep = |cores: Vec<usize>| -> Vec<usize> {
        cores
            .into_iter()
            .filter(|core| {
                let there = allowed.contains(core);
                if !there && !unavailable.contains(core) {
                    unavailable.push(*core);
                }
                there
            })
            .collect()
    };
    let none = |asked: &[usize]| CoreError::NoneAvailable { asked: format_list(asked), allowed: format_list(allowed) };
    let usable = keep(asked.clone());
    let Some(&last) = usable.last() else { return Err(none(&asked)) };
    let (writer, shards) = match request.writer_core {
        // A writer placed by hand takes no core from the shards: leave it out of the list to give it one alone.
        Some(core) => (*keep(vec![core]).first().ok_or_else(|| none(&[core]))?, usable.clone()),
        None if usable.len() == 1 => (last, usable.clone()),
        None => (last, usable.iter().copied().filter(|core| *core != last).collect()),
    };
    let background = match &request.background_cores {
        Some(list) => {
            let asked = parse_list(list, allowed)?;
            let kept = keep(asked.clone());
            if kept.is_empty() {
                return Err(none(&asked));
            }
            kept
        }
        None => {
            let unnamed: Vec<usize> =
                allowed.iter().copied().filter(|core| !usable.contains(core) && *core != writer).collect();
            if unnamed.is_empty() { vec![writer] } else { unnamed }
        }
    };
    Ok(CorePlan { shards, writer, background, unavailable })
}

/// Without `--cores`: up to eight cores of the cpuset, so that an unconfigured broker leaves a large host usable.
fn default_cores(allowed: &[usize]) -> Vec<usize> {
    const DEFAULT_CORES_MAX: usize = 8;
    allowed.iter().copied().take(DEFAULT_CORES_MAX).collect()
}

/// Pins the calling thread; false if the kernel refused.
pub fn pin_current_thread(core: usize) -> bool {
    core_affinity::set_for_current(core_affinity::CoreId { id: core })
}

/// Lets the calling thread (and the threads it starts) run on any of `cores`; false if the kernel refused.
pub fn confine_current_thread(cores: &[usize]) -> bool {
    // SAFETY: `set` is a plain bit set; CPU_SET ignores bits past its size, and the call only reads it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        for core in cores {
            if *core < libc::CPU_SETSIZE as usize {
                libc::CPU_SET(*core, &mut set);
            }
        }
        libc::sched_setaffinity(0, std::mem::size_of::<libc::cpu_set_t>(), &set) == 0
    }
}

/// Lets the calling thread (and the threads it starts) run on `cores` only. Empty means anywhere. A refusal is logged and
/// ignored: the thread then runs where the system puts it.
pub fn pin_to(cores: &[usize]) {
    if !cores.is_empty() && !confine_current_thread(cores) {
        let error = io::Error::last_os_error();
        tracing::warn!(?cores, %error, "cannot pin the thread; it runs wherever the system puts it");
    }
}

/// How far a thread stands back where it shares a core with a shard or the writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Distance {
    /// A tenth of a shard's weight: work that has to keep up however long the core is full, or a log would never be read
    /// or moved.
    Near,
    /// The least weight there is: what is served in the time that rows leave. A shard that wakes is never behind in its
    /// share then, and gets the core at once.
    Far,
}

impl Distance {
    const fn niceness(self) -> libc::c_int {
        match self {
            Self::Near => 10,
            Self::Far => 19,
        }
    }
}

/// Has the calling thread stand back behind everything that somebody waits for on the same core, by the same distance
/// whatever niceness the process was given. A refusal is no reason not to work.
pub fn stand_back(distance: Distance) {
    // A thread inherits niceness: the first that comes here has that of the process.
    static OF_THE_PROCESS: OnceLock<libc::c_int> = OnceLock::new();
    // SAFETY: the call touches no memory; 0 is the calling thread.
    let given = *OF_THE_PROCESS.get_or_init(|| unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) });
    // SAFETY: an all-zero sched_attr is valid.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    attributes.size = size_of::<libc::sched_attr>() as u32;
    // It never takes the core from a thread that just woke.
    attributes.sched_policy = libc::SCHED_BATCH as u32;
    // On Linux every thread has a niceness of its own.
    attributes.sched_nice = (given + distance.niceness()).min(LEAST_NICENESS);
    attributes.sched_runtime = BACKGROUND_SLICE_NS;
    // SAFETY: the call reads `attributes`, whose size is in it; 0 is the calling thread.
    if unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) } != 0 {
        let error = io::Error::last_os_error();
        tracing::debug!(%error, "a background thread does not stand back");
    }
    // So that a nap is as short as was asked for.
    // SAFETY: the call touches no memory.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
    manner::begin();
}

/// Gives the calling thread only the time that nobody else on its core wants; false if the kernel refused.
pub fn only_when_idle() -> bool {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the call reads `parameters`; 0 is the calling thread.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameters) == 0 }
}

/// The kernel knows no lower priority.
const LEAST_NICENESS: libc::c_int = 19;

/// How long background work keeps the core in one piece when others wait; the usual is some milliseconds, which a row on
/// its way would wait, too.
const BACKGROUND_SLICE_NS: u64 = 300_000;

/// Asks the scheduler for time slices of `slice_ns` in return for getting the processor soon after waking, even
/// when others compute on the same core. The calling thread gets no larger share by it.
///
/// Kernels before 6.12 do not know this and a thread with a real-time policy does not need it: both stay as
/// they are.
pub fn prefer_latency(slice_ns: u64) {
    // SAFETY: an all-zero sched_attr is valid; the kernel fills it in.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    let size = size_of::<libc::sched_attr>() as u32;
    // SAFETY: `attributes` is writable and `size` is its size; 0 is the calling thread.
    let known = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) } == 0;
    if !known || attributes.sched_policy != libc::SCHED_OTHER as u32 {
        return;
    }
    attributes.size = size;
    attributes.sched_runtime = slice_ns;
    // SAFETY: `attributes` is what the kernel gave for this thread, but for the slice.
    if unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) } != 0 {
        let error = io::Error::last_os_error();
        tracing::debug!(%error, "the scheduler grants no short time slices");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_parsed_in_order_and_without_duplicates() {
        let allowed = [0, 1, 2, 3];
        for (text, cores) in [
            ("0", vec![0]),
            ("0-2", vec![0, 1, 2]),
            ("3,0-1,1", vec![3, 0, 1]),
            (" 1 , 2 ", vec![1, 2]),
            ("all", vec![0, 1, 2, 3]),
        ] {
            assert_eq!(parse_list(text, &allowed).unwrap(), cores, "{text}");
        }
    }

    #[test]
    fn background_threads_stand_back_from_where_the_process_is() {
        // SAFETY: the call touches no memory; 0 is the calling thread.
        let niceness = || unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
        let given = niceness();
        for distance in [Distance::Near, Distance::Far] {
            let stood_back = move || {
                stand_back(distance);
                // What it starts inherits that, and does not stand back further.
                let started = std::thread::spawn(move || {
                    stand_back(distance);
                    niceness()
                });
                (niceness(), started.join().unwrap())
            };
            let wanted = (given + distance.niceness()).min(19);
            assert_eq!(std::thread::spawn(stood_back).join().unwrap(), (wanted, wanted));
        }
        assert_eq!(niceness(), given, "nobody else is touched");
    }

    #[test]
    fn bad_lists_name_what_is_wrong() {
        for text in ["", "x", "1-", "-1", "3-1", "1,,2", "99999", "0x1", "1.5"] {
            let error = parse_list(text, &[0]).unwrap_err().to_string();
            assert!(error.contains(&format!("`{text}`")), "{error}");
        }
    }

    #[test]
    fn formatting_is_the_inverse_of_parsing() {
        for cores in [vec![0], vec![0, 1, 2], vec![0, 2, 3, 5], vec![7, 6]] {
            let mut sorted = cores.clone();
            sorted.sort_unstable();
            assert_eq!(parse_list(&format_list(&cores), &[]).unwrap(), sorted);
        }
    }

    fn planned(cores: &str, allowed: &[usize]) -> CorePlan {
        plan(&CoreRequest { cores: Some(cores.to_owned()), ..CoreRequest::default() }, allowed).unwrap()
    }

    #[test]
    fn the_last_core_is_the_writers() {
        let plan = planned("0-3", &[0, 1, 2, 3, 4, 5]);
        assert!(!plan.shares_background());
        assert_eq!((plan.shards, plan.writer, plan.background), (vec![0, 1, 2], 3, vec![4, 5]));
    }

    #[test]
    fn one_core_carries_shard_and_writer() {
        let plan = planned("0", &[0]);
        assert_eq!((plan.shards, plan.writer, plan.background), (vec![0], 0, vec![0]));
    }

    #[test]
    fn background_threads_stay_off_shard_cores_when_there_is_another() {
        let plan = planned("0-1", &[0, 1]);
        assert!(plan.shares_background());
        assert_eq!((plan.shards, plan.writer, plan.background), (vec![0], 1, vec![1]));
    }

    #[test]
    fn cores_outside_the_cpuset_are_reported() {
        let plan = planned("0-3", &[0, 1]);
        assert_eq!((plan.shards, plan.writer, plan.unavailable), (vec![0], 1, vec![2, 3]));
        let request = CoreRequest { cores: Some("8-9".into()), ..CoreRequest::default() };
        let error = super::plan(&request, &[0, 1]).unwrap_err().to_string();
        assert!(error.contains("8-9") && error.contains("0-1"), "{error}");
    }

    #[test]
    fn overrides_are_kept() {
        let request =
            CoreRequest { cores: Some("0-2".into()), writer_core: Some(0), background_cores: Some("2".into()) };
        let plan = plan(&request, &[0, 1, 2]).unwrap();
        assert_eq!((plan.shards, plan.writer, plan.background), (vec![0, 1, 2], 0, vec![2]));
    }

    #[test]
    fn what_stands_back_leaves_the_core_soon() {
        std::thread::spawn(|| {
            stand_back(Distance::Near);
            // SAFETY: an all-zero sched_attr is valid; the kernel fills it in.
            let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
            let size = size_of::<libc::sched_attr>() as u32;
            // SAFETY: `attributes` is writable and `size` is its size; 0 is the calling thread.
            let known = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) };
            assert_eq!((known, attributes.sched_policy), (0, libc::SCHED_BATCH as u32));
            // Kernels before 6.12 know no slices of a thread's own.
            assert!([0, BACKGROUND_SLICE_NS].contains(&attributes.sched_runtime), "{}", attributes.sched_runtime);
        })
        .join()
        .unwrap();
    }
}
