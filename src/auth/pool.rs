//! The threads that check passwords and tokens: a few, with a bounded queue, each credential once at a time.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TrySendError, bounded};

use super::credential::{Credential, Fingerprint};
use super::error::AuthError;
use super::limiter::Limiter;
use super::policy::Policy;
use super::principal::Principal;

/// Different credentials that may wait to be checked.
const MAX_WAITING: usize = 512;
/// How often an idle thread looks whether keys of issuers should be fetched again.
const LOOK: Duration = Duration::from_secs(5);

/// What a check says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Checked {
    /// The credential is this principal's.
    Right(Principal),
    /// It is nobody's.
    Wrong,
    /// The address it came from has failed too often; it was not looked at.
    Blocked,
}

/// Told when a check is done.
pub type Done = Box<dyn FnOnce(&Checked) + Send>;

/// A check that waits.
struct Job {
    policy: Arc<Policy>,
    credential: Credential,
    fingerprint: Fingerprint,
    peer: Option<IpAddr>,
}

/// The threads. They end when this is dropped.
pub struct Pool {
    jobs: Sender<Job>,
    shared: Arc<Shared>,
}

struct Shared {
    waiting: Mutex<HashMap<(Fingerprint, usize), Vec<Done>>>,
    limiter: Arc<Limiter>,
}

impl Pool {
    /// Starts the threads. `current` gives the policy whose issuers' keys are kept fresh.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(
        threads: u32,
        limiter: Arc<Limiter>,
        current: impl Fn() -> Option<Arc<Policy>> + Send + Clone + 'static,
    ) -> Result<Self, AuthError> {
        let (jobs, queue) = bounded(MAX_WAITING);
        let shared = Arc::new(Shared { waiting: Mutex::default(), limiter });
        for number in 0..threads {
            let (queue, shared, current) = (queue.clone(), Arc::clone(&shared), current.clone());
            let name = format!("auth-{number}");
            std::thread::Builder::new()
                .name(name)
                .spawn(move || run(&queue, &shared, &current))
                .map_err(AuthError::Thread)?;
        }
        Ok(Self { jobs, shared })
    }

    /// Checks a credential on one of the threads and tells `done`. False, and `done` is never told, if too many wait.
    #[must_use]
    pub fn check(
        &self,
        policy: &Arc<Policy>,
        credential: Credential,
        fingerprint: Fingerprint,
        peer: Option<IpAddr>,
        done: Done,
    ) -> bool {
        // The same credential under another policy is another check.
        let name = (fingerprint, Arc::as_ptr(policy) as usize);
        let mut waiting = self.shared.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(others) = waiting.get_mut(&name) {
            others.push(done);
            return true;
        }
        let job = Job { policy: Arc::clone(policy), credential, fingerprint, peer };
        match self.jobs.try_send(job) {
            Ok(()) => {
                waiting.insert(name, vec![done]);
                true
            }
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => false,
        }
    }
}

fn run(queue: &Receiver<Job>, shared: &Shared, current: &impl Fn() -> Option<Arc<Policy>>) {
    loop {
        match queue.recv_timeout(LOOK) {
            Ok(job) => {
                let checked = check(&job, shared);
                let name = (job.fingerprint, Arc::as_ptr(&job.policy) as usize);
                let mut waiting = shared.waiting.lock().unwrap_or_else(PoisonError::into_inner);
                let told = waiting.remove(&name).unwrap_or_default();
                drop(waiting);
                told.into_iter().for_each(|done| done(&checked));
            }
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                let now = Instant::now();
                if let Some(policy) = current() {
                    for issuer in policy.issuers.iter().filter(|issuer| issuer.keyring.is_due(now)) {
                        issuer.keyring.look(now);
                    }
                }
            }
        }
    }
}

fn check(job: &Job, shared: &Shared) -> Checked {
    let now = Instant::now();
    if let Some(known) = job.policy.cache.get(&job.fingerprint, now) {
        return known.map_or(Checked::Wrong, Checked::Right);
    }
    // While it waited, others of the same address may have failed.
    if job.peer.is_some_and(|peer| shared.limiter.blocks(peer, job.policy.pace(), now)) {
        return Checked::Blocked;
    }
    let policy = &job.policy;
    let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| policy.check(&job.credential, now)));
    let found = found.unwrap_or(None);
    job.policy.cache.put(job.fingerprint, found.clone(), Instant::now());
    found.map_or(Checked::Wrong, Checked::Right)
}
