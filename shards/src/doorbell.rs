//! Who rings when somebody connects: one thread that watches all listeners with epoll.
//!
//! A listener must not be waited for on a ring. The kernel tears rings down after the process has ended, and
//! until then a request in flight keeps the listening socket alive: after a kill, clients would connect to a
//! socket that nobody serves and be reset. An epoll set keeps nothing alive.

use std::io;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use crate::core::Command;
use crate::inbox::InboxSender;

/// The watched listeners. Each rings once and must be armed again.
#[derive(Clone)]
pub struct Doorbell {
    epoll: Arc<OwnedFd>,
}

impl Doorbell {
    /// Starts the thread, which may run on `cores`. It ends with the process: it owns nothing.
    pub fn start<R: Send + 'static>(inboxes: Vec<InboxSender<Command<R>>>, cores: Vec<usize>) -> io::Result<Self> {
        // SAFETY: epoll_create1 takes no pointers; its result is checked before it is owned.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a fresh descriptor without another owner.
        let epoll = Arc::new(unsafe { OwnedFd::from_raw_fd(fd) });
        let watched = Arc::clone(&epoll);
        std::thread::Builder::new().name("doorbell".to_owned()).spawn(move || {
            crate::cores::confine_current_thread(&cores);
            watch(&watched, &inboxes);
        })?;
        Ok(Self { epoll })
    }

    /// Rings shard `shard` at the next connection; at once if one waits.
    pub fn watch(&self, listener: &TcpListener, shard: usize) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, listener.as_raw_fd(), shard)
    }

    /// Arms a listener again after it has rung.
    pub fn arm(&self, listener: &TcpListener, shard: usize) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, listener.as_raw_fd(), shard)
    }

    fn control(&self, operation: i32, listener: RawFd, shard: usize) -> io::Result<()> {
        let mut event = libc::epoll_event { events: (libc::EPOLLIN | libc::EPOLLONESHOT) as u32, u64: shard as u64 };
        // SAFETY: both descriptors are open and `event` is valid for the call.
        match unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), operation, listener, &mut event) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

fn watch<R>(epoll: &OwnedFd, inboxes: &[InboxSender<Command<R>>]) {
    const EVENTS: usize = 64;
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; EVENTS];
    loop {
        // SAFETY: the kernel writes at most EVENTS entries.
        let count = unsafe { libc::epoll_wait(epoll.as_raw_fd(), events.as_mut_ptr(), EVENTS as i32, -1) };
        if count < 0 && io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return;
        }
        for event in events.iter().take(usize::try_from(count).unwrap_or(0)) {
            let shard = event.u64 as usize;
            if let Some(inbox) = inboxes.get(shard) {
                inbox.send(Command::Accept, 0);
            }
        }
    }
}
