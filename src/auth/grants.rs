//! What somebody may do: for each action, the resources it covers.

use super::action::{Action, Resource};

/// Resources, as they are written in a policy.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Pattern {
    /// `*`: every stream, and the calls about none.
    Everything,
    /// `/`: only the calls that are about no single stream. No stream's name begins with a slash.
    Collection,
    /// `trades.*`: every stream whose name begins so.
    Prefix(String),
    /// A stream's exact name.
    Exact(String),
}

impl Pattern {
    /// Reads one as it is written. A `*` anywhere but at the end is part of a name.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        match text {
            "*" => Self::Everything,
            "/" => Self::Collection,
            _ => match text.strip_suffix('*') {
                Some(prefix) => Self::Prefix(prefix.to_owned()),
                None => Self::Exact(text.to_owned()),
            },
        }
    }

    /// Whether it covers a resource.
    #[must_use]
    pub fn covers(&self, resource: Resource<'_>) -> bool {
        match (self, resource) {
            (Self::Everything, _) | (Self::Collection, Resource::Collection) => true,
            (Self::Prefix(prefix), Resource::Stream(name)) => name.starts_with(prefix.as_str()),
            (Self::Exact(exact), Resource::Stream(name)) => name == exact,
            (Self::Collection, Resource::Stream(_)) | (Self::Prefix(_) | Self::Exact(_), Resource::Collection) => false,
        }
    }

    /// As it is written in a policy.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Everything => "*".to_owned(),
            Self::Collection => "/".to_owned(),
            Self::Prefix(prefix) => format!("{prefix}*"),
            Self::Exact(name) => name.clone(),
        }
    }
}

/// What somebody may do. Nothing, to begin with.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Grants {
    allowed: [Vec<Pattern>; Action::ALL.len()],
}

impl Grants {
    /// Every action on everything.
    #[must_use]
    pub fn all() -> Self {
        Self::of(&Action::ALL)
    }

    /// These actions on everything.
    #[must_use]
    pub fn of(actions: &[Action]) -> Self {
        let mut grants = Self::default();
        for action in actions {
            grants.add(*action, Pattern::Everything);
        }
        grants
    }

    /// Allows one more thing.
    pub fn add(&mut self, action: Action, pattern: Pattern) {
        let patterns = &mut self.allowed[action as usize];
        if !patterns.contains(&pattern) {
            patterns.push(pattern);
        }
    }

    /// Allows everything that `other` allows as well.
    pub fn merge(&mut self, other: &Self) {
        for action in Action::ALL {
            for pattern in other.patterns(action) {
                self.add(action, pattern.clone());
            }
        }
    }

    /// The resources of an action.
    #[must_use]
    pub fn patterns(&self, action: Action) -> &[Pattern] {
        &self.allowed[action as usize]
    }

    /// Whether `action` on `resource` is covered.
    #[must_use]
    pub fn allow(&self, action: Action, resource: Resource<'_>) -> bool {
        self.patterns(action).iter().any(|pattern| pattern.covers(resource))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_cover_what_they_say() {
        let stream = Resource::Stream;
        for (pattern, resource, covered) in [
            ("*", stream("trades"), true),
            ("*", stream(""), true),
            ("*", Resource::Collection, true),
            ("/", Resource::Collection, true),
            ("/", stream("trades"), false),
            ("/", stream(""), false),
            ("trades", stream("trades"), true),
            ("trades", stream("Trades"), false),
            ("trades", stream("trades/"), false),
            ("trades", stream("trades.eu"), false),
            ("trades", Resource::Collection, false),
            ("trades.*", stream("trades.eu"), true),
            ("trades.*", stream("trades."), true),
            ("trades.*", stream("trades"), false),
            ("trades.*", Resource::Collection, false),
            ("", stream(""), true),
            ("", Resource::Collection, false),
            ("a*b", stream("a*b"), true),
            ("a*b", stream("axb"), false),
        ] {
            assert_eq!(Pattern::parse(pattern).covers(resource), covered, "{pattern} {resource:?}");
            assert_eq!(Pattern::parse(pattern).text(), pattern);
        }
    }

    #[test]
    fn a_grant_is_for_its_action_alone() {
        let mut grants = Grants::default();
        assert!(!grants.allow(Action::DataRead, Resource::Stream("r")));
        grants.add(Action::DataRead, Pattern::parse("r"));
        for action in Action::ALL {
            assert_eq!(grants.allow(action, Resource::Stream("r")), action == Action::DataRead);
            assert!(!grants.allow(action, Resource::Collection));
            assert!(Grants::all().allow(action, Resource::Collection));
        }
        let mut merged = Grants::of(&[Action::StatsRead]);
        merged.merge(&grants);
        merged.merge(&grants);
        assert_eq!(merged.patterns(Action::DataRead).len(), 1);
        assert!(merged.allow(Action::StatsRead, Resource::Stream("x")));
    }
}
