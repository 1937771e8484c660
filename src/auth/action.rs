//! What a caller can want to do, and to what (wire.md section 11.1).

use std::fmt;

/// What a caller wants to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// Subscribe, replay, read batches.
    DataRead,
    /// Publish, insert batches.
    DataPublish,
    /// See counters.
    StatsRead,
    /// See declarations and operations.
    ControlRead,
    /// Declare, serve, stop, retire; create and delete.
    ControlMutate,
    /// Migrate.
    ControlMigrate,
}

impl Action {
    /// Every action, in the order of the contract.
    pub const ALL: [Self; 6] = [
        Self::DataRead,
        Self::DataPublish,
        Self::StatsRead,
        Self::ControlRead,
        Self::ControlMutate,
        Self::ControlMigrate,
    ];

    /// The contract's word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::DataRead => "data.read",
            Self::DataPublish => "data.publish",
            Self::StatsRead => "stats.read",
            Self::ControlRead => "control.read",
            Self::ControlMutate => "control.mutate",
            Self::ControlMigrate => "control.migrate",
        }
    }

    /// The action of a word, if it is one.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.as_str() == word)
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a caller wants to do it to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource<'a> {
    /// A call that is about no single stream: the contract's `*`.
    Collection,
    /// The stream of this name, whether there is one or not.
    Stream(&'a str),
}

impl fmt::Display for Resource<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Collection => "*",
            Self::Stream(name) => name,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_actions_are_one_to_one() {
        for action in Action::ALL {
            assert_eq!(Action::parse(action.as_str()), Some(action));
            assert_eq!(action.to_string(), action.as_str());
        }
        for word in ["", "data", "data.*", "DATA.READ", "data.read "] {
            assert_eq!(Action::parse(word), None, "{word:?}");
        }
    }
}
