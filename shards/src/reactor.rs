//! What a shard waits for: bytes from peers, room in full sockets, the bell of its inbox - on one ring.
//!
//! Sockets are watched with multishot polls, which are armed once and report every arrival (and only arrivals: what
//! was not read stays unreported). All that is to be armed or given up since the last wait goes to the kernel with
//! the next one, so a wait costs one system call whatever happened.
//!
//! A watched socket lives until its watch is given up, even when its descriptor is closed before.

use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue, types};

use crate::conn::ConnId;

/// Entries that are handed over with one wait; more are handed over in between.
const ENTRIES: u32 = 256;

/// Events the ring holds before the kernel keeps them elsewhere.
const EVENTS: u32 = 4096;

/// Kinds of watches, in the bits of a word above those of a connection's.
const KIND_BITS: u32 = 60;
const READ: u64 = 0;
const ROOM: u64 = 1;
const BELL: u64 = 2;
const GIVEN_UP: u64 = 3;

/// Something that was waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// Bytes have come, or the end of them.
    Read {
        /// Whose.
        id: ConnId,
        /// Whether the peer sends nothing more, so that the end follows what can be read.
        hung_up: bool,
        /// Whether the watch goes on.
        watched: bool,
    },
    /// A full socket takes bytes again.
    Room(ConnId),
    /// The inbox has rung.
    Bell {
        /// Whether the watch goes on.
        watched: bool,
    },
}

/// The ring.
pub(crate) struct Reactor {
    ring: IoUring,
}

impl Reactor {
    /// A ring for the calling thread.
    pub(crate) fn new() -> io::Result<Self> {
        // Work is done when it is asked for and not by interrupting; kernels before 6.1 interrupt.
        let ring = IoUring::builder()
            .setup_cqsize(EVENTS)
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .build(ENTRIES)
            .or_else(|_| IoUring::builder().setup_cqsize(EVENTS).build(ENTRIES))?;
        Ok(Self { ring })
    }

    /// Reports arrivals at a connection's socket from here on, and what is there already.
    pub(crate) fn watch(&mut self, fd: RawFd, id: ConnId) {
        let events = (libc::POLLIN | libc::POLLRDHUP) as u32;
        let poll = opcode::PollAdd::new(types::Fd(fd), events).multi(true).build();
        self.push(poll.user_data(word(READ, id)));
    }

    /// Reports once when a socket takes bytes.
    pub(crate) fn watch_room(&mut self, fd: RawFd, id: ConnId) {
        let poll = opcode::PollAdd::new(types::Fd(fd), libc::POLLOUT as u32).build();
        self.push(poll.user_data(word(ROOM, id)));
    }

    /// Reports every ring of a bell.
    pub(crate) fn watch_bell(&mut self, fd: RawFd) {
        let poll = opcode::PollAdd::new(types::Fd(fd), libc::POLLIN as u32).multi(true).build();
        self.push(poll.user_data(BELL << KIND_BITS));
    }

    /// Gives up the watches of a connection; `room` says whether there is one for room.
    pub(crate) fn forget(&mut self, id: ConnId, room: bool) {
        // Not by removing the poll: that fails while an arrival is being reported, and the watch would go on, and with
        // it the socket, for ever.
        for kind in [READ].into_iter().chain(room.then_some(ROOM)) {
            self.push(opcode::AsyncCancel::new(word(kind, id)).build().user_data(GIVEN_UP << KIND_BITS));
        }
    }

    fn push(&mut self, entry: squeue::Entry) {
        // SAFETY: polls and their removal name a descriptor or a number; they refer to no memory.
        while unsafe { self.ring.submission().push(&entry) }.is_err() {
            // It is full: hand it over. An error here is met again by the next wait.
            if self.ring.submit().is_err() {
                return;
            }
        }
    }

    /// Waits for an event for at most `patience`, or only looks when that is zero, and appends what there is.
    pub(crate) fn wait(&mut self, patience: Duration, events: &mut Vec<Event>) -> io::Result<()> {
        if self.ring.completion().is_empty() {
            self.enter(patience)?;
        }
        for entry in self.ring.completion() {
            events.extend(event(&entry));
        }
        Ok(())
    }

    fn enter(&mut self, patience: Duration) -> io::Result<()> {
        let entered = if patience.is_zero() {
            let mut submission = self.ring.submission();
            submission.sync();
            let idle = submission.is_empty() && !submission.taskrun();
            drop(submission);
            if idle && self.ring.params().is_setup_single_issuer() {
                return Ok(());
            }
            self.ring.submit()
        } else {
            let limit = Timespec::new().sec(patience.as_secs()).nsec(patience.subsec_nanos());
            self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&limit))
        };
        match entered {
            Ok(_) => Ok(()),
            Err(error)
                if matches!(error.raw_os_error(), Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN)) =>
            {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

fn word(kind: u64, id: ConnId) -> u64 {
    kind << KIND_BITS | id.to_word()
}

fn event(entry: &cqueue::Entry) -> Option<Event> {
    let id = ConnId::from_word(entry.user_data());
    let (result, watched) = (entry.result(), cqueue::more(entry.flags()));
    match entry.user_data() >> KIND_BITS {
        // It was given up.
        READ | ROOM if result == -libc::ECANCELED => None,
        // Anything else that went wrong is found out by reading or writing.
        READ => {
            let ends = i32::from(libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR);
            Some(Event::Read { id, hung_up: result < 0 || result & ends != 0, watched })
        }
        ROOM => Some(Event::Room(id)),
        BELL => Some(Event::Bell { watched }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (listener.accept().unwrap().0, client)
    }

    fn id(index: u32) -> ConnId {
        ConnId { index, generation: 7 }
    }

    fn next(reactor: &mut Reactor) -> Vec<Event> {
        let mut events = Vec::new();
        reactor.wait(LONG, &mut events).unwrap();
        events
    }

    #[test]
    fn every_arrival_is_reported_and_the_end_as_well() {
        let mut reactor = Reactor::new().unwrap();
        let (server, mut client) = pair();
        reactor.watch(server.as_raw_fd(), id(3));
        for _ in 0..3 {
            client.write_all(b"row").unwrap();
            assert_eq!(next(&mut reactor), [Event::Read { id: id(3), hung_up: false, watched: true }]);
        }
        drop(client);
        let events = next(&mut reactor);
        assert!(matches!(events[..], [Event::Read { hung_up: true, .. }]), "{events:?}");
    }

    #[test]
    fn nothing_happens_in_no_time() {
        let mut reactor = Reactor::new().unwrap();
        let (server, _client) = pair();
        reactor.watch(server.as_raw_fd(), id(1));
        let mut events = Vec::new();
        reactor.wait(Duration::ZERO, &mut events).unwrap();
        reactor.wait(Duration::from_millis(5), &mut events).unwrap();
        assert_eq!(events, []);
    }

    #[test]
    fn a_look_finds_what_came_meanwhile() {
        let mut reactor = Reactor::new().unwrap();
        let (server, mut client) = pair();
        reactor.watch(server.as_raw_fd(), id(1));
        let mut events = Vec::new();
        reactor.wait(Duration::ZERO, &mut events).unwrap();
        client.write_all(b"row").unwrap();
        while events.is_empty() {
            reactor.wait(Duration::ZERO, &mut events).unwrap();
        }
        assert_eq!(events, [Event::Read { id: id(1), hung_up: false, watched: true }]);
    }

    #[test]
    fn room_is_reported_once() {
        let mut reactor = Reactor::new().unwrap();
        let (server, _client) = pair();
        reactor.watch_room(server.as_raw_fd(), id(2));
        assert_eq!(next(&mut reactor), [Event::Room(id(2))]);
        let mut events = Vec::new();
        reactor.wait(Duration::from_millis(5), &mut events).unwrap();
        assert_eq!(events, []);
    }

    #[test]
    fn a_socket_that_is_closed_and_given_up_ends_for_the_peer() {
        let mut reactor = Reactor::new().unwrap();
        let (server, mut client) = pair();
        reactor.watch(server.as_raw_fd(), id(4));
        let mut events = Vec::new();
        reactor.wait(Duration::ZERO, &mut events).unwrap();
        drop(server);
        reactor.forget(id(4), true);
        reactor.wait(Duration::from_millis(1), &mut events).unwrap();
        assert_eq!(events, []);
        client.set_read_timeout(Some(LONG)).unwrap();
        assert_eq!(client.read_to_end(&mut Vec::new()).unwrap(), 0);
    }

    #[test]
    fn a_socket_that_is_given_up_while_bytes_arrive_ends_for_the_peer() {
        let mut reactor = Reactor::new().unwrap();
        let (server, mut client) = pair();
        reactor.watch(server.as_raw_fd(), id(5));
        let mut events = Vec::new();
        reactor.wait(Duration::from_millis(1), &mut events).unwrap();
        // The kernel reports it with the next wait, which hands over first that the watch is given up.
        client.write_all(b"row").unwrap();
        drop(server);
        reactor.forget(id(5), false);
        for _ in 0..3 {
            reactor.wait(Duration::from_millis(1), &mut events).unwrap();
        }
        client.set_read_timeout(Some(LONG)).unwrap();
        // What was not read makes the end a reset.
        let end = client.read_to_end(&mut Vec::new());
        assert!(
            matches!(&end, Ok(0)) || end.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::ECONNRESET)),
            "{end:?}"
        );
    }

    #[test]
    fn more_watches_than_the_ring_has_entries_are_all_armed() {
        let mut reactor = Reactor::new().unwrap();
        let mut pairs: Vec<_> = (0..ENTRIES + 50).map(|_| pair()).collect();
        for (index, (server, client)) in pairs.iter_mut().enumerate() {
            reactor.watch(server.as_raw_fd(), id(index as u32));
            client.write_all(b"row").unwrap();
        }
        let mut seen = std::collections::HashSet::new();
        while seen.len() < pairs.len() {
            let events = next(&mut reactor);
            assert!(!events.is_empty(), "only {} of {} were reported", seen.len(), pairs.len());
            seen.extend(events.iter().map(|event| match event {
                Event::Read { id, .. } => id.index,
                other => panic!("{other:?}"),
            }));
        }
    }
}
