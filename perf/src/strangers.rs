//! When threads that are neither the server's nor the generator's held a core that is measured: the kernel's own threads, or
//! whatever else runs on a machine. The kernel tells of every switch of threads (`perf_event_open(2)`), if it lets us ask.

use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// A stranger that holds a core for less is part of every machine: the end of a disk's request, a timer.
const HELD_NS: u64 = 300_000;

/// What is due up to so long before a hold may still be on its way when it begins.
const BEFORE_NS: u64 = 3_000_000;

/// What is due up to so long after a hold may wait for what was held up.
const AFTER_NS: u64 = 10_000_000;

/// Bytes of the kernel's buffer for one core: some ten thousand switches.
const BUFFER_BYTES: usize = 1 << 20;

/// Where the kernel keeps how far it has written, and is told how far was read (`struct perf_event_mmap_page`).
const HEAD_AT: usize = 1024;
const TAIL_AT: usize = 1032;

/// Kinds of record, and the mark of those that tell of a thread leaving a core.
const LOST: u32 = 2;
const SWITCH_CPU_WIDE: u32 = 15;
const SWITCH_OUT: u16 = 1 << 13;

/// `struct perf_event_attr` in its fifth version.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    config1: u64,
    config2: u64,
    branch_sample_type: u64,
    sample_regs_user: u64,
    sample_stack_user: u32,
    clock: i32,
    sample_regs_intr: u64,
    aux_watermark: u32,
    sample_max_stack: u16,
    reserved: u16,
}

const KIND_SOFTWARE: u32 = 1;
const CONFIG_DUMMY: u64 = 9;
const SAMPLE_THREAD: u64 = 1 << 1;
const SAMPLE_TIME: u64 = 1 << 2;
const FLAG_SAMPLE_ID_ALL: u64 = 1 << 18;
const FLAG_USE_CLOCK: u64 = 1 << 25;
const FLAG_CONTEXT_SWITCH: u64 = 1 << 26;

/// Watches some cores.
#[derive(Debug)]
pub struct Strangers {
    cores: Vec<Core>,
    /// When a core was held, in nanoseconds of the one clock, in no order.
    held: Vec<Range<u64>>,
}

impl Strangers {
    /// Watches `cores` from now on.
    ///
    /// # Errors
    /// When the kernel does not tell this process (`kernel.perf_event_paranoid`).
    pub fn watch(cores: impl IntoIterator<Item = usize>) -> io::Result<Self> {
        let mut numbers: Vec<usize> = cores.into_iter().collect();
        numbers.sort_unstable();
        numbers.dedup();
        let cores = numbers.into_iter().map(Core::watch).collect::<io::Result<_>>()?;
        Ok(Self { cores, held: Vec::new() })
    }

    /// Takes what the kernel has told since the last time; threads of the processes `ours` are no strangers. To be called
    /// some times a second, before the kernel's buffer is full: what it could not tell counts as held.
    pub fn look(&mut self, ours: &[u32]) {
        for core in &mut self.cores {
            core.look(ours, &mut self.held);
        }
    }

    /// What was due when no stranger has had to do with it lies outside of these spans, which are ascending and apart.
    #[must_use]
    pub fn spans(&self) -> Vec<Range<u64>> {
        let mut spans: Vec<_> =
            self.held.iter().map(|held| held.start.saturating_sub(BEFORE_NS)..held.end + AFTER_NS).collect();
        spans.sort_unstable_by_key(|span| span.start);
        spans.dedup_by(|next, last| {
            let together = next.start <= last.end;
            if together {
                last.end = last.end.max(next.end);
            }
            together
        });
        spans
    }

    /// Forgets what was before `until_ns`.
    pub fn forget(&mut self, until_ns: u64) {
        self.held.retain(|held| held.end > until_ns);
    }
}

/// One core and what the kernel tells of it.
#[derive(Debug)]
struct Core {
    _event: OwnedFd,
    pages: Pages,
    holder: Holder,
}

impl Core {
    fn watch(number: usize) -> io::Result<Self> {
        let attributes = Attributes {
            kind: KIND_SOFTWARE,
            size: size_of::<Attributes>() as u32,
            config: CONFIG_DUMMY,
            sample_type: SAMPLE_THREAD | SAMPLE_TIME,
            flags: FLAG_SAMPLE_ID_ALL | FLAG_USE_CLOCK | FLAG_CONTEXT_SWITCH,
            clock: libc::CLOCK_MONOTONIC,
            ..Attributes::default()
        };
        let (anybody, no_group, close_on_exec) = (-1 as libc::pid_t, -1 as libc::c_int, 8 as libc::c_ulong);
        let core = libc::c_int::try_from(number).map_err(io::Error::other)?;
        // SAFETY: the kernel reads `attributes`, whose size is in it; the rest are numbers.
        let fd = unsafe {
            libc::syscall(libc::SYS_perf_event_open, &raw const attributes, anybody, core, no_group, close_on_exec)
        };
        let fd = libc::c_int::try_from(fd).ok().filter(|fd| *fd >= 0).ok_or_else(io::Error::last_os_error)?;
        // SAFETY: `fd` was just opened and nobody else owns it.
        let event = unsafe { OwnedFd::from_raw_fd(fd) };
        let pages = Pages::map(&event)?;
        Ok(Self { _event: event, pages, holder: Holder::default() })
    }

    fn look(&mut self, ours: &[u32], held: &mut Vec<Range<u64>>) {
        let holder = &mut self.holder;
        self.pages.read(|record| match Switch::of(record) {
            Some(Switch::To { process, at_ns }) => {
                // Idle is nobody.
                let stranger = process != 0 && process != u32::MAX && !ours.contains(&process);
                held.extend(holder.switched(at_ns, stranger));
            }
            Some(Switch::Unknown) => holder.unknown(),
            None => {}
        });
    }
}

/// What a record says.
#[derive(Debug, PartialEq, Eq)]
enum Switch {
    /// A thread of this process got the core.
    To { process: u32, at_ns: u64 },
    /// There was more than the buffer could hold.
    Unknown,
}

impl Switch {
    fn of(record: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u32::from_ne_bytes(record.get(at..at + 4)?.try_into().ok()?));
        let marks = u16::from_ne_bytes(record.get(4..6)?.try_into().ok()?);
        match word(0)? {
            LOST => Some(Self::Unknown),
            SWITCH_CPU_WIDE if marks & SWITCH_OUT == 0 => {
                // Behind the header the thread before it, then itself and the time.
                let at_ns = u64::from_ne_bytes(record.get(24..32)?.try_into().ok()?);
                Some(Self::To { process: word(16)?, at_ns })
            }
            _ => None,
        }
    }
}

/// Since when strangers hold a core, if they do.
#[derive(Debug, Default)]
struct Holder {
    since_ns: Option<u64>,
    last_ns: u64,
}

impl Holder {
    /// Somebody got the core; the hold that has ended by that, if it was long enough.
    fn switched(&mut self, at_ns: u64, stranger: bool) -> Option<Range<u64>> {
        self.last_ns = at_ns;
        if stranger {
            self.since_ns.get_or_insert(at_ns);
            return None;
        }
        let since_ns = self.since_ns.take()?;
        (at_ns.saturating_sub(since_ns) >= HELD_NS).then_some(since_ns..at_ns)
    }

    /// Nobody knows who had it from the last switch to the next.
    fn unknown(&mut self) {
        self.since_ns.get_or_insert(self.last_ns);
    }
}

/// Memory that the kernel writes records to.
#[derive(Debug)]
struct Pages {
    start: *mut u8,
    page_bytes: usize,
    /// For records that go over the end.
    joined: Vec<u8>,
}

impl Pages {
    fn map(event: &OwnedFd) -> io::Result<Self> {
        // SAFETY: sysconf only reads.
        let page_bytes = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).map_err(io::Error::other)?;
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping at an address of the kernel's choice, of a descriptor that is open.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), page_bytes + BUFFER_BYTES, access, kind, event.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { start: start.cast(), page_bytes, joined: Vec::new() })
    }

    fn counter(&self, at: usize) -> &AtomicU64 {
        // SAFETY: both counters lie in the first page, aligned, for as long as it is mapped; the kernel shares them.
        unsafe { &*self.start.add(at).cast::<AtomicU64>() }
    }

    /// Calls `take` for every whole record that is there, and gives their room back.
    fn read(&mut self, mut take: impl FnMut(&[u8])) {
        let head = self.counter(HEAD_AT).load(Ordering::Acquire);
        let mut tail = self.counter(TAIL_AT).load(Ordering::Relaxed);
        let mut joined = std::mem::take(&mut self.joined);
        while head.saturating_sub(tail) >= 8 {
            self.copy(tail, 8, &mut joined);
            let bytes = usize::from(u16::from_ne_bytes([joined[6], joined[7]]));
            if bytes < 8 || head - tail < bytes as u64 {
                break;
            }
            self.copy(tail, bytes, &mut joined);
            take(&joined);
            tail += bytes as u64;
        }
        self.joined = joined;
        self.counter(TAIL_AT).store(tail, Ordering::Release);
    }

    fn copy(&self, from: u64, bytes: usize, to: &mut Vec<u8>) {
        to.clear();
        let at = (from % BUFFER_BYTES as u64) as usize;
        let first = bytes.min(BUFFER_BYTES - at);
        for (at, bytes) in [(at, first), (0, bytes - first)] {
            // SAFETY: the part lies in the buffer behind the first page; the kernel does not touch it before it is given back.
            to.extend_from_slice(unsafe { std::slice::from_raw_parts(self.start.add(self.page_bytes + at), bytes) });
        }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `map` with this length, and nothing refers to it any more.
        unsafe { libc::munmap(self.start.cast(), self.page_bytes + BUFFER_BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::{affinity, clock};

    fn us(from: u64, to: u64) -> Range<u64> {
        from * 1_000..to * 1_000
    }

    #[test]
    fn only_long_holds_by_strangers_count() {
        let mut holder = Holder::default();
        let mut held = Vec::new();
        for (at_us, stranger) in
            [(0, false), (100, true), (200, false), (1_000, true), (1_200, true), (1_400, false), (2_000, false)]
        {
            held.extend(holder.switched(at_us * 1_000, stranger));
        }
        assert_eq!(held, vec![us(1_000, 1_400)], "two strangers one after the other are one hold");
        holder.unknown();
        assert_eq!(holder.switched(9_000_000, false), Some(us(2_000, 9_000)), "what is not known counts as held");
    }

    #[test]
    fn spans_reach_around_holds_and_are_apart() {
        let ms = |from: u64, to: u64| us(from * 1_000, to * 1_000);
        let mut strangers = Strangers { cores: Vec::new(), held: vec![ms(100, 101), ms(20, 22), ms(30, 31), ms(1, 2)] };
        assert_eq!(strangers.spans(), [ms(0, 12), ms(17, 41), ms(97, 111)]);
        strangers.forget(31_000_000);
        assert_eq!(strangers.spans(), vec![ms(97, 111)]);
    }

    #[test]
    fn records_are_told_apart() {
        let record = |kind: u32, marks: u16, process: u32| {
            let mut bytes = Vec::new();
            bytes.extend(kind.to_ne_bytes());
            bytes.extend(marks.to_ne_bytes());
            bytes.extend(32_u16.to_ne_bytes());
            bytes.extend([7; 8]);
            bytes.extend(process.to_ne_bytes());
            bytes.extend([9; 4]);
            bytes.extend(55_u64.to_ne_bytes());
            bytes
        };
        assert_eq!(Switch::of(&record(SWITCH_CPU_WIDE, 0, 3)), Some(Switch::To { process: 3, at_ns: 55 }));
        assert_eq!(Switch::of(&record(SWITCH_CPU_WIDE, SWITCH_OUT, 3)), None);
        assert_eq!(Switch::of(&record(LOST, 0, 3)), Some(Switch::Unknown));
        assert_eq!(Switch::of(&record(SWITCH_CPU_WIDE, 0, 3)[..20]), None);
    }

    /// Where the kernel does not tell, there is nothing to test.
    #[test]
    fn a_stranger_is_seen() {
        let begin = clock::now_ns();
        let seen = std::thread::spawn(|| {
            // SAFETY: the call has no arguments.
            let core = usize::try_from(unsafe { libc::sched_getcpu() }).unwrap();
            let mut strangers = Strangers::watch([core]).ok()?;
            affinity::pin(&[core]).unwrap();
            let mut child = std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
            // Both want the core, so it changes hands.
            let until = Instant::now() + Duration::from_secs(20);
            while strangers.held.is_empty() && Instant::now() < until {
                strangers.look(&[std::process::id()]);
            }
            child.kill().unwrap();
            child.wait().unwrap();
            Some(strangers.held)
        })
        .join()
        .unwrap();
        let Some(seen) = seen else { return };
        let held = seen.first().expect("a process that never sleeps held the core");
        assert!(held.start >= begin && held.end <= clock::now_ns() && held.end - held.start >= HELD_NS, "{held:?}");
    }
}
