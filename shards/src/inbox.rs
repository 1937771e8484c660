//! The way into a shard from other threads: a queue, and an eventfd that wakes the shard.
//!
//! A sender wakes the shard only when it has gone to sleep; a busy shard finds the queue by itself, so a
//! message costs it no system call. The eventfd is never read: the shard is told of every write to it.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crossbeam_channel::{Receiver, Sender, TryRecvError, unbounded};

struct Shared {
    /// True while the shard sleeps and wants to be woken.
    asleep: AtomicBool,
    bell: Arc<OwnedFd>,
    /// Bytes of the messages in the queue, as their senders declared them.
    queued_bytes: AtomicU64,
}

/// The sending end; cheap to clone, never blocks.
pub struct InboxSender<M> {
    queue: Sender<(M, u64)>,
    shared: Arc<Shared>,
}

impl<M> Clone for InboxSender<M> {
    fn clone(&self) -> Self {
        Self { queue: self.queue.clone(), shared: Arc::clone(&self.shared) }
    }
}

impl<M> InboxSender<M> {
    /// Queues a message of about `bytes`. A message to a shard that has ended is dropped.
    pub fn send(&self, message: M, bytes: usize) {
        self.shared.queued_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        if self.queue.send((message, bytes as u64)).is_ok() && self.shared.asleep.swap(false, Ordering::SeqCst) {
            ring(&self.shared.bell);
        }
    }

    /// Bytes that wait in the queue: what a sender looks at before it adds bulk.
    #[must_use]
    pub fn queued_bytes(&self) -> u64 {
        self.shared.queued_bytes.load(Ordering::Relaxed)
    }
}

/// The shard's end.
pub struct Inbox<M> {
    queue: Receiver<(M, u64)>,
    shared: Arc<Shared>,
    bell: Option<Arc<OwnedFd>>,
}

impl<M> Inbox<M> {
    /// The next message, if one is queued.
    pub fn take(&self) -> Option<M> {
        match self.queue.try_recv() {
            Ok((message, bytes)) => {
                self.shared.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
                Some(message)
            }
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => None,
        }
    }

    /// The eventfd that is written to when a sleeping shard gets a message; it can be taken once.
    pub fn take_bell(&mut self) -> Option<Arc<OwnedFd>> {
        self.bell.take()
    }

    /// Asks for the bell at the next message. False if a message is there already: do not sleep then.
    #[must_use]
    pub fn sleep(&self) -> bool {
        self.shared.asleep.store(true, Ordering::SeqCst);
        if self.queue.is_empty() {
            return true;
        }
        self.shared.asleep.store(false, Ordering::SeqCst);
        false
    }
}

/// An inbox and its sender.
///
/// # Errors
/// When there is no descriptor left for the bell.
pub fn inbox<M>() -> io::Result<(InboxSender<M>, Inbox<M>)> {
    let (sender, receiver) = unbounded();
    // SAFETY: eventfd takes no pointers; its result is checked before it is owned.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a fresh descriptor without another owner.
    let bell = Arc::new(unsafe { OwnedFd::from_raw_fd(fd) });
    let queued_bytes = AtomicU64::new(0);
    let shared = Arc::new(Shared { asleep: AtomicBool::new(false), bell: Arc::clone(&bell), queued_bytes });
    let sender = InboxSender { queue: sender, shared: Arc::clone(&shared) };
    Ok((sender, Inbox { queue: receiver, shared, bell: Some(bell) }))
}

fn ring(bell: &OwnedFd) {
    let one = 1_u64.to_ne_bytes();
    // SAFETY: eight bytes are read from `one`. It cannot fail before it was rung 2^64 times.
    unsafe { libc::write(bell.as_raw_fd(), one.as_ptr().cast(), one.len()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often the bell was rung since the last look.
    fn rung(bell: &OwnedFd) -> u64 {
        let mut count = [0; 8];
        // SAFETY: eight bytes may be written to `count`.
        let read = unsafe { libc::read(bell.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
        if read == 8 { u64::from_ne_bytes(count) } else { 0 }
    }

    #[test]
    fn only_a_sleeper_is_woken_and_only_once() {
        let (sender, mut inbox) = inbox().unwrap();
        let bell = inbox.take_bell().unwrap();
        sender.send(1, 10);
        assert!(!inbox.sleep(), "slept on a message");
        assert_eq!((inbox.take(), sender.queued_bytes()), (Some(1), 0));
        assert_eq!(rung(&bell), 0);
        assert!(inbox.sleep());
        sender.send(2, 10);
        sender.send(3, 10);
        assert_eq!(rung(&bell), 1);
        assert_eq!((inbox.take(), inbox.take(), inbox.take()), (Some(2), Some(3), None));
    }

    #[test]
    fn a_message_to_a_shard_that_is_gone_is_dropped() {
        let (sender, inbox) = inbox().unwrap();
        assert!(inbox.sleep());
        drop(inbox);
        sender.send(1, 1);
        sender.send(2, 1);
    }
}
