//! The gate: every request passes it before anything else happens to the request.

use std::sync::Arc;

use super::head::RequestHead;
use super::principal::Principal;

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
}

/// Turns requests into principals. Clones are the same gate; cheap, and usable on every thread.
#[derive(Clone)]
pub struct Gate(Arc<Inner>);

struct Inner {
    public: Principal,
}

impl Gate {
    /// The gate of a broker without a policy: everybody is `public`.
    #[must_use]
    pub fn public() -> Self {
        Self(Arc::new(Inner { public: Principal::public() }))
    }

    /// Finds out who asks. It may wait for a thread that checks a password, and never looks anything up that the
    /// request is about.
    pub async fn authenticate(&self, _head: &RequestHead<'_>) -> Outcome {
        Outcome::Principal(self.0.public.clone())
    }
}
