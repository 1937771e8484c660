//! Who is let in: the gate of a configuration, and reading its files again.

use std::net::{SocketAddr, TcpStream};

use streamcast_shards::Encryption;

use super::error::BrokerError;
use crate::auth::{Gate, PolicySources};
use crate::config::{Config, KernelUse};
use crate::tls::{Certificates, Handshaken, KernelTls, Record, TlsFiles};

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

/// The kernel as the one that makes records, if a configuration wants TLS and that, and the kernel can.
pub(super) fn kernel(config: &Config) -> Option<KernelTls> {
    if config.tls.cert.is_none() || config.tls.kernel == KernelUse::Off {
        return None;
    }
    match KernelTls::probe() {
        Ok(kernel) => {
            tracing::info!(known = %kernel, "the kernel makes the records of readers");
            Some(kernel)
        }
        Err(error) => {
            tracing::info!(%error, "shards make the records of TLS");
            None
        }
    }
}

/// The certificates of a configuration, if it wants TLS; `for_kernel` if that is to make records.
pub(super) fn certificates(config: &Config, for_kernel: bool) -> Result<Option<Certificates>, BrokerError> {
    let (Some(cert), Some(key)) = (&config.tls.cert, &config.tls.key) else { return Ok(None) };
    let files = TlsFiles { cert: cert.clone(), key: key.clone(), client_ca: config.tls.client_ca.clone() };
    Ok(Some(Certificates::load(&files, for_kernel)?))
}

/// How a connection that has become a WebSocket goes on. The kernel gets the keys of those that read: they are many and get the
/// same bytes. Those that publish send a record for each frame, and may change their keys after some millions.
///
/// # Errors
/// When the kernel has taken one half of the keys, and not the other.
pub(super) fn encryption(
    kernel: Option<&KernelTls>,
    socket: &TcpStream,
    handshaken: Option<Handshaken>,
    reads: bool,
) -> std::io::Result<Encryption> {
    match (handshaken, kernel.filter(|_| reads)) {
        (None, _) => Ok(Encryption::Clear),
        (Some(handshaken), Some(kernel)) => kernel.take_over(socket, handshaken),
        (Some(handshaken), None) => Ok(Record::encryption(handshaken.keys)),
    }
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
