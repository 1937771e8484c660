//! The authorities that this host trusts, for the connections it makes itself.

use std::path::Path;
use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore};

use super::files::{TlsError, certificates, wrong};

/// A TLS client that trusts what the operating system trusts, and the certificates of `ca` besides.
///
/// # Errors
/// When `ca` cannot be read, or has no certificate.
pub fn client_config(ca: Option<&Path>) -> Result<ClientConfig, TlsError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(path) = ca {
        for certificate in certificates(path)? {
            roots.add(certificate).map_err(|error| wrong(path, error))?;
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::Client(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_authorities_has_to_have_some() {
        assert!(client_config(None).is_ok());
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ca.pem");
        let refused = |says: &str| {
            let message = client_config(Some(&path)).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(message.contains("ca.pem") && message.contains(says), "{message}");
        };
        refused("No such file");
        std::fs::write(&path, include_str!("testdata/key.pem")).unwrap();
        refused("no certificate");
        std::fs::write(&path, include_str!("testdata/cert.pem")).unwrap();
        assert!(client_config(Some(&path)).is_ok());
    }
}
