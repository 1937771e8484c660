//! Who has sent a request, as its handler sees it.

use std::convert::Infallible;
use std::net::IpAddr;

use axum::body::Body;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{Request, Response, StatusCode};

use super::errors::{authentication_required, envelope, forbidden};
use crate::auth::{Action, Gate, Grants, Outcome, Pass, Pattern, Principal, Refusal, RequestHead, Resource};

/// The caller of a request. Handlers take it as an argument; it is known before any of them runs, and requests
/// without valid credentials have been answered 401 by then where a policy asks for some.
#[derive(Debug, Clone)]
pub struct Caller {
    principal: Principal,
    peer: Option<IpAddr>,
    /// Who let it in.
    gate: Option<Gate>,
}

/// Where a connection came from; every request of it carries one.
#[derive(Debug, Clone, Copy)]
pub struct PeerAddress(pub IpAddr);

impl Caller {
    /// Finds out who sent a request, or gives the answer that turns it away.
    pub async fn of<B>(gate: &Gate, request: &Request<B>) -> Result<Self, Response<Body>> {
        let peer = request.extensions().get::<PeerAddress>().map(|peer| peer.0);
        let target = request.uri().path_and_query().map_or("/", |target| target.as_str());
        let fields = request.headers().iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        let head = RequestHead::new(request.method().as_str(), target.as_bytes(), fields, peer);
        match gate.authenticate(&head).await {
            Outcome::Principal(principal) => Ok(Self { principal, peer, gate: Some(gate.clone()) }),
            Outcome::Anonymous => Err(authentication_required()),
            Outcome::Refused(refusal) => Err(refused(refusal)),
        }
    }

    /// A caller who may do nothing.
    pub fn nobody() -> Self {
        Self { principal: Principal::new("", Grants::default(), None), peer: None, gate: None }
    }

    /// A caller that no request was needed for.
    #[cfg(test)]
    pub fn of_test(name: &str, grants: Grants) -> Self {
        Self { principal: Principal::new(name, grants, None), peer: None, gate: None }
    }

    /// The principal.
    #[must_use]
    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// The principal's name: what idempotency receipts are kept under (wire.md section 11.4).
    #[must_use]
    pub fn name(&self) -> &str {
        self.principal.name()
    }

    /// Where the request came from, if that is known.
    #[must_use]
    pub fn peer(&self) -> Option<IpAddr> {
        self.peer
    }

    /// Whether the caller may do this.
    #[must_use]
    pub fn allows(&self, action: Action, resource: Resource<'_>) -> bool {
        self.principal.allows(action, resource)
    }

    /// Whether what the caller may do to a stream, as it was let in, it may do now: its credentials may have ended
    /// meanwhile, or the policy have changed.
    #[must_use]
    pub fn still_allows(&self, action: Action, stream: &str) -> bool {
        let Some(gate) = self.gate.as_ref().filter(|gate| gate.has_policy()) else { return true };
        gate.still_holds(&Pass { principal: self.principal.clone(), action, stream: stream.to_owned() })
    }

    /// Whether the caller may do this to every stream there is or will be; for answers that are about all of them.
    ///
    /// # Errors
    /// The answer that says no.
    #[expect(clippy::result_large_err, reason = "the error is the answer, made where the request ends")]
    pub fn require_all(&self, action: Action) -> Result<(), Response<Body>> {
        match self.principal.grants().patterns(action).contains(&Pattern::Everything) {
            true => Ok(()),
            false if self.principal.is_anonymous() => Err(authentication_required()),
            false => Err(forbidden()),
        }
    }

    /// Whether the caller may do this, as a step of a handler.
    ///
    /// # Errors
    /// The 403 that answers the request; a 401 for somebody who has shown nothing yet.
    #[expect(clippy::result_large_err, reason = "the error is the answer, made where the request ends")]
    pub fn require(&self, action: Action, resource: Resource<'_>) -> Result<(), Response<Body>> {
        match self.allows(action, resource) {
            true => Ok(()),
            // It has shown nothing yet, and could.
            false if self.principal.is_anonymous() => Err(authentication_required()),
            false => Err(forbidden()),
        }
    }
}

fn refused(refusal: Refusal) -> Response<Body> {
    match refusal {
        Refusal::Credentials => authentication_required(),
        Refusal::Origin => forbidden(),
        Refusal::TooManyFailures => envelope(StatusCode::TOO_MANY_REQUESTS, "too_many_failures"),
        Refusal::Busy => envelope(StatusCode::SERVICE_UNAVAILABLE, "broker_unavailable"),
    }
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        // A request that came past the gate in no way has no rights.
        Ok(parts.extensions.get::<Self>().cloned().unwrap_or_else(Self::nobody))
    }
}
