//! What the host decides about the registry.

use std::collections::{BTreeMap, BTreeSet};

use super::definition::Rules;
use super::profile::HistoryGuard;

/// The host's side of the control API.
#[derive(Debug, Clone)]
pub struct RegistrySettings {
    /// What the broker calls itself; a registry belongs to one broker.
    pub broker_id: String,
    /// The largest body of a call, in bytes.
    pub control_max_bytes: usize,
    /// Calls under way at once, and other streams with a pending operation, that still let a call in.
    pub max_pending: usize,
    /// Storage profiles and the ceiling of messages.
    pub rules: Rules,
    /// Streams whose history is protected.
    pub history_guards: BTreeMap<String, HistoryGuard>,
    /// The streams of the configuration.
    pub static_names: BTreeSet<String>,
}

impl RegistrySettings {
    /// A broker without a registry: `static`, no profiles, the usual bounds (wire.md, the table of defaults).
    #[must_use]
    pub fn new(transport_max_bytes: u32) -> Self {
        Self {
            broker_id: "static".to_owned(),
            control_max_bytes: 262_144,
            max_pending: 32,
            rules: Rules { profiles: BTreeMap::new(), transport_max_bytes },
            history_guards: BTreeMap::new(),
            static_names: BTreeSet::new(),
        }
    }
}
