//! Who is let in: the gate of a configuration, and reading its files again.

use std::net::SocketAddr;

use super::error::BrokerError;
use crate::auth::{Gate, PolicySources};
use crate::config::Config;

/// The gate that a configuration asks for. A registry without a policy is this very host's to manage.
pub(super) fn gate(config: &Config) -> Result<Gate, BrokerError> {
    let sources = PolicySources { policy: config.auth.policy.clone(), keys: config.auth.keys.clone() };
    if config.registry.is_some() && !sources.any() {
        return Ok(Gate::public_with_local_control());
    }
    Ok(Gate::open(&sources)?)
}

/// Whether these addresses may be served: beyond this host only with a policy, or when somebody has said that none is
/// wanted.
pub(super) fn check_addresses(config: &Config, addresses: impl Iterator<Item = SocketAddr>) -> Result<(), BrokerError> {
    let Some(address) = addresses.into_iter().find(|address| !address.ip().is_loopback()) else { return Ok(()) };
    if !config.auth.any() && !config.insecure {
        return Err(BrokerError::NotLoopback { address });
    }
    if config.auth.any() && config.tls.cert.is_none() {
        tracing::warn!(%address, "passwords and keys cross the network in clear: give --tls-cert, or put a TLS proxy in front");
    }
    Ok(())
}

/// Whether there is anything to read again.
pub(super) fn can_reload(gate: &Gate) -> bool {
    gate.has_policy()
}

/// Reads the policy again; one that cannot be read leaves the old one in force.
pub(super) fn reload(gate: &Gate) {
    match gate.reload() {
        Ok(()) => tracing::info!(target: "audit", "the policy was read again"),
        Err(error) => tracing::error!(target: "audit", %error, "the policy cannot be read; the one from before stays"),
    }
}
