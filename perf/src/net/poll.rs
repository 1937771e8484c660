//! A level-triggered epoll set whose wait ends at a given nanosecond.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// What a socket is watched for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interest(u32);

impl Interest {
    pub const NONE: Self = Self(0);
    pub const READ: Self = Self(libc::EPOLLIN as u32 | libc::EPOLLRDHUP as u32);
    pub const WRITE: Self = Self(libc::EPOLLOUT as u32);
    pub const BOTH: Self = Self(Self::READ.0 | Self::WRITE.0);
}

/// What happened to the socket that was registered with `token`.
#[derive(Debug, Clone, Copy)]
pub struct Event {
    pub token: u64,
    pub readable: bool,
    pub writable: bool,
}

/// An epoll instance with room for the events of one wait.
pub struct Poll {
    epoll: OwnedFd,
    events: Vec<libc::epoll_event>,
    ready: usize,
}

impl Poll {
    /// A set that reports at most `capacity` sockets a wait.
    ///
    /// # Errors
    /// When the kernel has no descriptor left.
    pub fn new(capacity: usize) -> io::Result<Self> {
        // SAFETY: epoll_create1 takes flags and touches no memory.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` was just opened and nobody else owns it.
        let epoll = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { epoll, events: vec![libc::epoll_event { events: 0, u64: 0 }; capacity.max(1)], ready: 0 })
    }

    /// Starts to watch `fd`; its events carry `token`.
    ///
    /// # Errors
    /// When the kernel refuses, for example at `fs.epoll.max_user_watches`.
    pub fn add(&self, fd: RawFd, token: u64, interest: Interest) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, token, interest)
    }

    /// Watches `fd` for something else.
    ///
    /// # Errors
    /// When `fd` is not in the set.
    pub fn change(&self, fd: RawFd, token: u64, interest: Interest) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, token, interest)
    }

    fn control(&self, operation: libc::c_int, fd: RawFd, token: u64, interest: Interest) -> io::Result<()> {
        let mut event = libc::epoll_event { events: interest.0, u64: token };
        // SAFETY: `event` is valid for the call; bad descriptors are reported as errors.
        let failed = unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), operation, fd, &raw mut event) } != 0;
        if failed { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Waits until something is ready or `timeout_ns` have passed (0: do not wait) and returns how many are ready.
    ///
    /// # Errors
    /// When the kernel fails other than by a signal, which counts as nothing ready.
    pub fn wait(&mut self, timeout_ns: u64) -> io::Result<usize> {
        let timeout = libc::timespec {
            tv_sec: (timeout_ns / 1_000_000_000) as i64,
            tv_nsec: (timeout_ns % 1_000_000_000) as i64,
        };
        // SAFETY: `events` has the capacity given and the timespec is valid; no signal mask is passed.
        let count = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.epoll.as_raw_fd(),
                self.events.as_mut_ptr(),
                self.events.len() as libc::c_int,
                &raw const timeout,
                std::ptr::null::<libc::sigset_t>(),
                0usize,
            )
        };
        self.ready = match usize::try_from(count) {
            Ok(count) => count,
            Err(_) => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => 0,
                error => return Err(error),
            },
        };
        Ok(self.ready)
    }

    /// The `at`-th event of the last wait.
    #[must_use]
    pub fn event(&self, at: usize) -> Event {
        let event = self.events[..self.ready][at];
        let flags = event.events;
        let broken = (libc::EPOLLERR | libc::EPOLLHUP) as u32;
        Event {
            token: event.u64,
            readable: flags & (libc::EPOLLIN as u32 | libc::EPOLLRDHUP as u32 | broken) != 0,
            writable: flags & (libc::EPOLLOUT as u32 | broken) != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn reports_what_became_ready() {
        let (mut near, far) = UnixStream::pair().unwrap();
        let mut poll = Poll::new(4).unwrap();
        poll.add(far.as_raw_fd(), 7, Interest::READ).unwrap();
        assert_eq!(poll.wait(0).unwrap(), 0);
        near.write_all(b"x").unwrap();
        assert_eq!(poll.wait(1_000_000_000).unwrap(), 1);
        let event = poll.event(0);
        assert_eq!((event.token, event.readable, event.writable), (7, true, false));
        poll.change(far.as_raw_fd(), 7, Interest::NONE).unwrap();
        assert_eq!(poll.wait(1_000).unwrap(), 0);
    }
}
