//! The way into a shard from other threads: a queue and one waker.
//!
//! A sender wakes the shard only when it has gone to sleep; a busy shard finds the queue by itself, so a
//! message costs it no system call.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Waker;

use atomic_waker::AtomicWaker;
use crossbeam_channel::{Receiver, Sender, TryRecvError, unbounded};

struct Shared {
    /// True while the shard sleeps and wants to be woken.
    asleep: AtomicBool,
    waker: AtomicWaker,
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
            self.shared.waker.wake();
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

    /// Asks to be woken by the next message. False if one is there already: do not sleep then.
    #[must_use]
    pub fn sleep(&self, waker: &Waker) -> bool {
        self.shared.waker.register(waker);
        self.shared.asleep.store(true, Ordering::SeqCst);
        if self.queue.is_empty() {
            return true;
        }
        self.shared.asleep.store(false, Ordering::SeqCst);
        false
    }
}

/// An inbox and its sender.
#[must_use]
pub fn inbox<M>() -> (InboxSender<M>, Inbox<M>) {
    let (sender, receiver) = unbounded();
    let shared =
        Arc::new(Shared { asleep: AtomicBool::new(false), waker: AtomicWaker::new(), queued_bytes: AtomicU64::new(0) });
    (InboxSender { queue: sender, shared: Arc::clone(&shared) }, Inbox { queue: receiver, shared })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    use super::*;

    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn only_a_sleeper_is_woken_and_only_once() {
        let (sender, inbox) = inbox();
        let count = Arc::new(Count(AtomicUsize::new(0)));
        let waker = Waker::from(Arc::clone(&count));
        sender.send(1, 10);
        assert!(!inbox.sleep(&waker), "slept on a message");
        assert_eq!((inbox.take(), sender.queued_bytes()), (Some(1), 0));
        assert!(inbox.sleep(&waker));
        sender.send(2, 10);
        sender.send(3, 10);
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
        assert_eq!((inbox.take(), inbox.take(), inbox.take()), (Some(2), Some(3), None));
    }
}
