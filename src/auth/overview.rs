//! What a policy says, for people who look after it: names, grants and dates, and nothing that lets anybody in.

use std::collections::BTreeMap;

use serde::Serialize;

use super::action::Action;
use super::grants::Grants;

/// Grants as they are written in a policy: for each action the resources.
pub type GrantsView = BTreeMap<&'static str, Vec<String>>;

/// A policy without its secrets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Overview {
    /// What callers may do who show nothing; `None` if that is nothing.
    pub anonymous: Option<GrantsView>,
    /// Whose tokens are accepted.
    pub issuers: Vec<IssuerView>,
    /// Principals of the policy file, by name.
    pub principals: Vec<PrincipalView>,
    /// Keys, by id.
    pub keys: Vec<KeyView>,
}

/// A principal of the policy file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PrincipalView {
    /// The name.
    pub name: String,
    /// How many passwords it may use.
    pub passwords: usize,
    /// How many keys go by the name.
    pub keys: usize,
    /// What it may do.
    pub grants: GrantsView,
}

/// An issuer of tokens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct IssuerView {
    /// The exact claim `iss`.
    pub issuer: String,
    /// What every token of it may do.
    pub grants: GrantsView,
}

/// A key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KeyView {
    /// The id, which is part of the key and no secret.
    pub id: String,
    /// The principal that whoever shows it is.
    pub name: String,
    /// Seconds since 1970.
    pub created: u64,
    /// Seconds since 1970 from which it is no longer accepted.
    pub expires: Option<u64>,
    /// Whether that has come.
    pub expired: bool,
    /// Whether the grants are its own and not those of the principal.
    pub own_grants: bool,
    /// What it may do.
    pub grants: GrantsView,
}

/// Grants for people.
#[must_use]
pub fn grants_view(grants: &Grants) -> GrantsView {
    let of = |action: Action| grants.patterns(action).iter().map(super::grants::Pattern::text).collect::<Vec<_>>();
    let all = Action::ALL.into_iter().map(|action| (action.as_str(), of(action)));
    all.filter(|(_, patterns)| !patterns.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::Pattern;

    #[test]
    fn grants_are_shown_as_they_are_written() {
        let mut grants = Grants::of(&[Action::StatsRead]);
        grants.add(Action::DataRead, Pattern::parse("trades.*"));
        grants.add(Action::DataRead, Pattern::parse("/"));
        let text = serde_json::to_string(&grants_view(&grants)).expect("json");
        assert_eq!(text, r#"{"data.read":["trades.*","/"],"stats.read":["*"]}"#);
    }
}
