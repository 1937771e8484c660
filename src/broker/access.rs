//! Who is let in: the gate of a configuration, and reading its files again.

use std::net::SocketAddr;

use rustls::ServerConnection;
use streamcast_shards::Cipher;

use super::error::BrokerError;
use crate::auth::{Gate, PolicySources};
use crate::config::Config;
use crate::tls::{Certificates, Record, TlsFiles};

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

/// The certificates of a configuration, if it wants TLS.
pub(super) fn certificates(config: &Config) -> Result<Option<Certificates>, BrokerError> {
    let (Some(cert), Some(key)) = (&config.tls.cert, &config.tls.key) else { return Ok(None) };
    let files = TlsFiles { cert: cert.clone(), key: key.clone(), client_ca: config.tls.client_ca.clone() };
    Ok(Some(Certificates::load(&files)?))
}

/// The keys of a connection as a shard uses them.
pub(super) fn cipher(keys: Box<ServerConnection>) -> Box<dyn Cipher> {
    Box::new(Record::new(keys))
}

/// Whether there is anything to read again.
pub(super) fn can_reload(gate: &Gate, certificates: &Option<Certificates>) -> bool {
    gate.has_policy() || certificates.is_some()
}

/// Reads policy and certificates again; what cannot be read leaves the old in force.
pub(super) fn reload(gate: &Gate, certificates: &Option<Certificates>) {
    match gate.reload() {
        Ok(()) if gate.has_policy() => tracing::info!(target: "audit", "the policy was read again"),
        Ok(()) => {}
        Err(error) => tracing::error!(target: "audit", %error, "the policy cannot be read; the one from before stays"),
    }
    match certificates.as_ref().map(Certificates::reload) {
        None => {}
        Some(Ok(())) => tracing::info!(target: "audit", "the certificates were read again"),
        Some(Err(error)) => {
            tracing::error!(target: "audit", %error, "the certificates cannot be read; those from before stay");
        }
    }
}
