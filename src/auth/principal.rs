//! Somebody who has shown who they are.

use std::sync::Arc;
use std::time::SystemTime;

use super::action::{Action, Resource};
use super::grants::Grants;

/// The name of callers that a policy lets do something without credentials.
pub const ANONYMOUS: &str = "anonymous";

/// A caller with a name and grants. Clones are the same one; cheap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal(Arc<Inner>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Inner {
    name: String,
    grants: Grants,
    expires: Option<SystemTime>,
    origin: Origin,
}

/// What a principal was made from: the thing that has to be there still for it to stay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Nobody asked, or nothing was shown.
    Everybody,
    /// A password with this hash.
    Password(Arc<str>),
    /// The key of this id.
    Key(String),
    /// A token of this issuer.
    Token(String),
}

impl Principal {
    /// A principal with these grants, which end at `expires` if that is given.
    #[must_use]
    pub fn new(name: impl Into<String>, grants: Grants, expires: Option<SystemTime>) -> Self {
        Self(Arc::new(Inner { name: name.into(), grants, expires, origin: Origin::Everybody }))
    }

    /// The same principal, made from this.
    #[must_use]
    pub fn from(mut self, origin: Origin) -> Self {
        Arc::make_mut(&mut self.0).origin = origin;
        self
    }

    /// What it was made from.
    #[must_use]
    pub fn origin(&self) -> &Origin {
        &self.0.origin
    }

    /// Whether it has shown nothing: what it may not do it could be asked to show credentials for.
    #[must_use]
    pub fn is_anonymous(&self) -> bool {
        self.0.origin == Origin::Everybody && self.0.name == ANONYMOUS
    }

    /// Everybody, where no policy is: data and statistics of every stream, and no control.
    #[must_use]
    pub fn public() -> Self {
        Self::new("public", Grants::of(&[Action::DataRead, Action::DataPublish, Action::StatsRead]), None)
    }

    /// The name: what receipts are kept under and what the audit log says. It is the same for everybody who shares
    /// credentials, and never a secret.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// When what it showed ends to be valid: a token's expiry.
    #[must_use]
    pub fn expires(&self) -> Option<SystemTime> {
        self.0.expires
    }

    /// Its grants.
    #[must_use]
    pub fn grants(&self) -> &Grants {
        &self.0.grants
    }

    /// Whether it may do `action` to `resource`.
    #[must_use]
    pub fn allows(&self, action: Action, resource: Resource<'_>) -> bool {
        self.0.grants.allow(action, resource)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_policy_everybody_has_the_data_and_nobody_the_control() {
        let public = Principal::public();
        assert_eq!(public.name(), "public");
        for action in Action::ALL {
            let control = matches!(action, Action::ControlRead | Action::ControlMutate | Action::ControlMigrate);
            assert_eq!(public.allows(action, Resource::Collection), !control, "{action}");
            assert_eq!(public.allows(action, Resource::Stream("r")), !control, "{action}");
        }
    }
}
