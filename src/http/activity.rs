//! What a connection is doing and since when: the clock behind its three timeouts.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, ready};
use std::time::Instant;

use super::settings::HttpLimits;

/// The three things a connection can be waiting for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The first byte of a request.
    Idle,
    /// The end of a request's header fields.
    Head,
    /// Our own answer.
    Answer,
}

/// The phase of one connection. Shared by its socket, which sees bytes, and its service, which sees requests.
pub struct Activity {
    phase: Mutex<(Phase, Instant)>,
    unread: AtomicBool,
}

impl Activity {
    /// A connection that was handed over at `now`, with bytes of a request in hand or not.
    pub fn new(has_bytes: bool, now: Instant) -> Self {
        let phase = if has_bytes { Phase::Head } else { Phase::Idle };
        Self { phase: Mutex::new((phase, now)), unread: AtomicBool::new(false) }
    }

    /// Bytes came from the peer. Only the first of a request starts its clock.
    pub fn received(&self, now: Instant) {
        self.update(|phase| (phase == Phase::Idle).then_some((Phase::Head, now)));
    }

    /// The header fields are complete.
    pub fn requested(&self, now: Instant) {
        self.update(|_| Some((Phase::Answer, now)));
    }

    /// The answer is made.
    pub fn answered(&self, now: Instant) {
        self.update(|_| Some((Phase::Idle, now)));
    }

    /// The peer took bytes of an answer that is already made: it reads, so it may go on.
    pub fn sent(&self, now: Instant) {
        self.update(|phase| (phase == Phase::Idle).then_some((Phase::Idle, now)));
    }

    /// The connection ends after its answer although the peer may still be sending.
    pub fn leaves_unread(&self) {
        self.unread.store(true, Ordering::Relaxed);
    }

    /// Whether what the peer is still sending goes unread.
    pub fn is_left_unread(&self) -> bool {
        self.unread.load(Ordering::Relaxed)
    }

    /// When the connection is to be given up if nothing changes.
    pub fn deadline(&self, limits: &HttpLimits) -> Instant {
        let (phase, since) = *self.phase.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        since
            + match phase {
                Phase::Idle => limits.idle_timeout,
                Phase::Head => limits.head_timeout,
                Phase::Answer => limits.request_timeout,
            }
    }

    /// Ends once the deadline has passed. To be polled after whatever may change the phase: a deadline that has come nearer,
    /// as that of a head does behind an idle time, is seen then; one that has moved away is seen when the time has passed.
    pub async fn expired(&self, limits: &HttpLimits) {
        let mut sleep = pin!(tokio::time::sleep_until(self.deadline(limits).into()));
        poll_fn(|cx| {
            loop {
                let deadline = self.deadline(limits).into();
                if deadline < sleep.deadline() || sleep.is_elapsed() {
                    sleep.as_mut().reset(deadline);
                }
                ready!(sleep.as_mut().poll(cx));
                if self.deadline(limits) <= Instant::now() {
                    return Poll::Ready(());
                }
            }
        })
        .await;
    }

    fn update(&self, next: impl FnOnce(Phase) -> Option<(Phase, Instant)>) {
        let mut state = self.phase.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(changed) = next(state.0) {
            *state = changed;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_phase_has_its_own_timeout_and_bytes_do_not_extend_a_head() {
        let limits = HttpLimits::default();
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let activity = Activity::new(false, start);
        assert_eq!(activity.deadline(&limits), after(60));
        activity.received(after(3));
        activity.received(after(9));
        assert_eq!(activity.deadline(&limits), after(13));
        activity.requested(after(10));
        activity.received(after(11));
        assert_eq!(activity.deadline(&limits), after(55));
        activity.sent(after(12));
        assert_eq!(activity.deadline(&limits), after(55));
        activity.answered(after(12));
        assert_eq!(activity.deadline(&limits), after(72));
        activity.sent(after(20));
        assert_eq!(activity.deadline(&limits), after(80));
        assert_eq!(Activity::new(true, start).deadline(&limits), after(10));
    }
}
