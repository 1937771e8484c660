//! The gate: every request passes it before anything else happens to the request.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant, SystemTime};

use argon2::password_hash::rand_core::{OsRng, RngCore};

use super::action::{Action, Resource};
use super::credential::{Credential, Fingerprint, Shown, shown};
use super::error::AuthError;
use super::grants::Grants;
use super::head::RequestHead;
use super::limiter::Limiter;
use super::origin;
use super::overview::Overview;
use super::policy::{Policy, PolicySources};
use super::pool::{Checked, Done, Pool};
use super::principal::Principal;
use super::tickets::Tickets;

/// How long a request waits for a thread that checks its password or token.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the gate found out about a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The caller has shown who it is, or nobody is asked.
    Principal(Principal),
    /// The caller has shown nothing.
    Anonymous,
    /// The caller is turned away, whatever it wants.
    Refused(Refusal),
}

/// Why a caller is turned away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// What it showed is wrong, unknown, revoked or expired.
    Credentials,
    /// It comes from a page of a site that is not on the list.
    Origin,
    /// Its address has failed too often.
    TooManyFailures,
    /// Too many others are being checked: there was no room to wait, or it took too long.
    Busy,
}

/// What can be said of a request at once, on a thread that must not wait.
pub enum Glance {
    /// This is who asks.
    Known(Principal),
    /// It takes a while to say.
    Check(Check),
    /// It is turned away, or it has a ticket: somebody with more time should see to it.
    Elsewhere,
}

/// A credential to check.
pub struct Check {
    policy: Arc<Policy>,
    credential: Credential,
    fingerprint: Fingerprint,
    peer: Option<IpAddr>,
}

/// A permission that a WebSocket was opened with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pass {
    /// Who.
    pub principal: Principal,
    /// What for.
    pub action: Action,
    /// The stream.
    pub stream: String,
}

/// Turns requests into principals. Clones are the same gate; cheap, and usable on every thread.
#[derive(Clone)]
pub struct Gate(Arc<Inner>);

struct Inner {
    sources: PolicySources,
    policy: RwLock<Option<Arc<Policy>>>,
    pool: Option<Pool>,
    limiter: Arc<Limiter>,
    tickets: Tickets,
    salt: [u8; 32],
    /// Counts policies.
    generation: AtomicU64,
    public: Principal,
    /// Who callers from this very host are, where no policy is.
    local: Principal,
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gate").field("generation", &self.generation()).finish_non_exhaustive()
    }
}

enum Look {
    Done(Outcome),
    Ticket(String),
    Check(Check),
}

impl Gate {
    /// The gate of a broker without a policy: everybody is `public`.
    #[must_use]
    pub fn public() -> Self {
        Self(Arc::new(Inner::new(PolicySources::default(), None, Principal::public())))
    }

    /// The same, but callers from this host itself may also manage streams: what a broker on loopback needs that has a
    /// registry and no policy.
    #[must_use]
    pub fn public_with_local_control() -> Self {
        let local = Principal::new("public", Grants::all(), None);
        Self(Arc::new(Inner::new(PolicySources::default(), None, local)))
    }

    /// The gate of a policy; [`Gate::public`] if there is no source for one.
    ///
    /// # Errors
    /// When the policy cannot be read, or its threads do not start.
    pub fn open(sources: &PolicySources) -> Result<Self, AuthError> {
        if !sources.any() {
            return Ok(Self::public());
        }
        let policy = Policy::load(sources)?;
        let threads = policy.limits.threads;
        let mut failed = None;
        let inner = Arc::new_cyclic(|weak: &Weak<Inner>| {
            let mut inner = Inner::new(sources.clone(), Some(Arc::new(policy)), Principal::public());
            let weak = Weak::clone(weak);
            let current = move || weak.upgrade().and_then(|inner| inner.policy());
            match Pool::start(threads, Arc::clone(&inner.limiter), current) {
                Ok(pool) => inner.pool = Some(pool),
                Err(error) => failed = Some(error),
            }
            inner
        });
        failed.map_or(Ok(Self(inner)), Err)
    }

    /// Whether callers have to show who they are.
    #[must_use]
    pub fn has_policy(&self) -> bool {
        self.0.sources.any()
    }

    /// What the policy says, without anything that lets anybody in; `None` if there is none.
    #[must_use]
    pub fn overview(&self) -> Option<Overview> {
        self.0.policy().map(|policy| policy.overview(SystemTime::now()))
    }

    /// Reads the policy again. What was found out about credentials is forgotten.
    ///
    /// # Errors
    /// When it cannot be read; the one from before stays in force.
    pub fn reload(&self) -> Result<(), AuthError> {
        if !self.has_policy() {
            return Ok(());
        }
        let policy = Policy::load(&self.0.sources)?;
        *self.0.policy.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(policy));
        self.0.generation.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// A number that changes when another policy comes into force.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.0.generation.load(Ordering::Acquire)
    }

    /// Whether a pass still holds.
    #[must_use]
    pub fn still_holds(&self, pass: &Pass) -> bool {
        let Some(policy) = self.0.policy() else { return true };
        let renewed = policy.renewed(&pass.principal, SystemTime::now());
        renewed.is_some_and(|renewed| renewed.allows(pass.action, Resource::Stream(&pass.stream)))
    }

    /// Says what can be said without waiting; nothing is used up.
    #[must_use]
    pub fn glance(&self, head: &RequestHead<'_>) -> Glance {
        match self.0.look(head) {
            Look::Done(Outcome::Principal(principal)) => Glance::Known(principal),
            Look::Check(check) => Glance::Check(check),
            Look::Done(Outcome::Anonymous | Outcome::Refused(_)) | Look::Ticket(_) => Glance::Elsewhere,
        }
    }

    /// Has a credential checked on another thread; `done` is told there, and then [`Gate::glance`] knows more. False
    /// if too many wait.
    #[must_use]
    pub fn check(&self, check: Check, done: impl FnOnce() + Send + 'static) -> bool {
        self.0.check(check, Box::new(|_| done()))
    }

    /// Finds out who asks. It may wait for a thread that checks a password, but not for long, and never looks anything up
    /// that the request is about.
    pub async fn authenticate(&self, head: &RequestHead<'_>) -> Outcome {
        self.authenticate_within(head, PATIENCE).await
    }

    async fn authenticate_within(&self, head: &RequestHead<'_>, patience: Duration) -> Outcome {
        let outcome = match self.0.look(head) {
            Look::Done(outcome) => outcome,
            Look::Ticket(ticket) => match self.0.redeem(&ticket) {
                Some(principal) => Outcome::Principal(principal),
                None => Outcome::Refused(Refusal::Credentials),
            },
            Look::Check(check) => {
                let (tell, told) = tokio::sync::oneshot::channel();
                let done: Done = Box::new(move |checked| drop(tell.send(checked.clone())));
                if !self.0.check(check, done) {
                    return Outcome::Refused(Refusal::Busy);
                }
                match tokio::time::timeout(patience, told).await {
                    Ok(Ok(Checked::Right(principal))) => Outcome::Principal(principal),
                    Ok(Ok(Checked::Wrong)) => Outcome::Refused(Refusal::Credentials),
                    Ok(Ok(Checked::Blocked)) => Outcome::Refused(Refusal::TooManyFailures),
                    // The check goes on, and is remembered for whoever comes back.
                    Ok(Err(_)) | Err(_) => Outcome::Refused(Refusal::Busy),
                }
            }
        };
        if outcome == Outcome::Refused(Refusal::Credentials) {
            self.0.count_failure(head);
        }
        outcome
    }

    /// A ticket for a principal: good once, for [`super::TICKET_LIFETIME`]. `None` if too many are out.
    #[must_use]
    pub fn ticket(&self, principal: &Principal) -> Option<String> {
        self.0.tickets.issue(principal, Instant::now())
    }
}

impl Inner {
    fn new(sources: PolicySources, policy: Option<Arc<Policy>>, local: Principal) -> Self {
        let mut salt = [0; 32];
        OsRng.fill_bytes(&mut salt);
        Self {
            sources,
            policy: RwLock::new(policy),
            pool: None,
            limiter: Arc::new(Limiter::new()),
            tickets: Tickets::default(),
            salt,
            generation: AtomicU64::new(0),
            public: Principal::public(),
            local,
        }
    }

    fn policy(&self) -> Option<Arc<Policy>> {
        self.policy.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn look(&self, head: &RequestHead<'_>) -> Look {
        let Some(policy) = self.policy() else {
            let local = self.local != self.public && origin::is_local(head);
            return Look::Done(Outcome::Principal(if local { self.local.clone() } else { self.public.clone() }));
        };
        if !origin::is_allowed(head, &policy.origins) {
            return Look::Done(Outcome::Refused(Refusal::Origin));
        }
        let wrong = || Look::Done(Outcome::Refused(Refusal::Credentials));
        let credential = match shown(head) {
            Shown::Nothing => {
                let everybody = policy.anonymous().cloned();
                return Look::Done(everybody.map_or(Outcome::Anonymous, Outcome::Principal));
            }
            Shown::Malformed => return wrong(),
            Shown::Credential(Credential::Ticket(ticket)) => return Look::Ticket(ticket),
            Shown::Credential(Credential::Key(key)) => {
                let found = policy.key(&key, SystemTime::now());
                return found.map_or_else(wrong, |principal| Look::Done(Outcome::Principal(principal)));
            }
            Shown::Credential(credential) => credential,
        };
        let now = Instant::now();
        let peer = client(head, &policy);
        let blocked = || peer.is_some_and(|peer| self.limiter.blocks(peer, policy.pace(), now));
        let too_many = || Look::Done(Outcome::Refused(Refusal::TooManyFailures));
        // Passwords can be guessed: whoever has to wait does not learn whether this one is right.
        if matches!(credential, Credential::Password { .. }) && blocked() {
            return too_many();
        }
        let fingerprint = credential.fingerprint(&self.salt);
        match policy.cache.get(&fingerprint, now) {
            Some(Some(principal)) if principal.expires().is_none_or(|expires| SystemTime::now() < expires) => {
                Look::Done(Outcome::Principal(principal))
            }
            Some(_) => wrong(),
            None if blocked() => too_many(),
            None => Look::Check(Check { policy, credential, fingerprint, peer }),
        }
    }

    fn check(&self, check: Check, done: Done) -> bool {
        let Check { policy, credential, fingerprint, peer } = check;
        self.pool.as_ref().is_some_and(|pool| pool.check(&policy, credential, fingerprint, peer, done))
    }

    fn redeem(&self, ticket: &str) -> Option<Principal> {
        let principal = self.tickets.redeem(ticket, Instant::now())?;
        self.policy()?.renewed(&principal, SystemTime::now())
    }

    fn count_failure(&self, head: &RequestHead<'_>) {
        let Some(policy) = self.policy() else { return };
        let Some(peer) = client(head, &policy) else { return };
        if self.limiter.failed(peer, policy.pace(), Instant::now()) {
            tracing::warn!(target: "audit", %peer, "too many wrong credentials; this address has to wait");
        } else {
            tracing::debug!(target: "audit", %peer, "wrong credentials");
        }
    }
}

/// Where a request came from: the peer, or what a proxy that is believed says of its own.
fn client(head: &RequestHead<'_>, policy: &Policy) -> Option<IpAddr> {
    let peer = head.peer?.to_canonical();
    if !policy.trusted_proxies.iter().any(|proxy| proxy.to_canonical() == peer) {
        return Some(peer);
    }
    let told = head.forwarded_for.and_then(|list| list.rsplit(|byte| *byte == b',').next());
    let told = told.and_then(|last| std::str::from_utf8(last.trim_ascii()).ok()?.parse().ok());
    Some(told.map_or(peer, |address: IpAddr| address.to_canonical()))
}

#[cfg(test)]
mod tests;
