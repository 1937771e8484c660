//! Why an object cannot be read or written.

/// Why an object cannot be read or written. No text in it contains a key or a token.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Not a URI that a store can open.
    #[error("{uri} names no object: {why}")]
    Uri {
        /// As it was given.
        uri: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The settings cannot work.
    #[error("the object store cannot be used: {why}")]
    Config {
        /// What is wrong and the way out.
        why: String,
    },
    /// There is no such object.
    #[error("{uri} does not exist")]
    NotFound {
        /// The object.
        uri: String,
    },
    /// There is no such bucket. Never taken for an object that is missing.
    #[error("the bucket of {uri} does not exist; create it or correct the URI")]
    NoBucket {
        /// The object that was asked for.
        uri: String,
    },
    /// The object is larger than what is read whole.
    #[error(
        "{uri} has {size_bytes} bytes, more than the {max_bytes} that are read at once; it is not what it should be"
    )]
    TooLarge {
        /// The object.
        uri: String,
        /// Its size.
        size_bytes: u64,
        /// The limit.
        max_bytes: u64,
    },
    /// The store knows us not, or does not let us.
    #[error("no access to {uri}: {why}; check the keys and what they may do")]
    Denied {
        /// The object.
        uri: String,
        /// What the store said.
        why: String,
    },
    /// The store could not be reached or did not do it. Nothing is known to have changed; trying again later is right.
    #[error("cannot {action} {uri}: {why}")]
    Unavailable {
        /// What was being done.
        action: &'static str,
        /// The object.
        uri: String,
        /// What happened.
        why: String,
    },
    /// A write was sent and its answer did not arrive: the object may be there now, later, or never.
    #[error("cannot tell whether {uri} was written: {why}")]
    Ambiguous {
        /// The object.
        uri: String,
        /// What happened.
        why: String,
    },
    /// The file system refused.
    #[error("cannot {action} {uri}: {source}")]
    Io {
        /// What was being done.
        action: &'static str,
        /// The file or directory.
        uri: String,
        /// What the system said.
        source: std::io::Error,
    },
}

impl StoreError {
    /// Whether the same call may succeed later without anybody changing a setting.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable { .. } | Self::Ambiguous { .. } | Self::Io { .. })
    }

    /// Whether a write may have taken effect although it failed.
    #[must_use]
    pub fn is_ambiguous(&self) -> bool {
        matches!(self, Self::Ambiguous { .. })
    }

    /// Whether it failed because the object is not there.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound { .. })
    }
}
