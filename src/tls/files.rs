//! Certificate, key and the authorities of clients, from PEM files.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{CipherSuite, RootCertStore, ServerConfig};

/// Where certificates are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The chain, the server's own first.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Who signs certificates of clients, if those need one.
    pub client_ca: Option<PathBuf>,
}

/// Why TLS cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or has nothing in it that is wanted.
    #[error("{path}: {detail}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        detail: String,
    },
    /// Certificate and key do not go together, or are of a kind that is not known.
    #[error("{cert} with {key}: {detail}", cert = cert.display(), key = key.display())]
    Pair {
        /// The certificate.
        cert: PathBuf,
        /// The key.
        key: PathBuf,
        /// Why.
        detail: String,
    },
    /// No connection of this host's own can be secured.
    #[error("no TLS client can be made: {0}")]
    Client(String),
}

/// The certificates in force. Clones are the same ones.
#[derive(Clone)]
pub struct Certificates(Arc<Inner>);

struct Inner {
    files: TlsFiles,
    for_kernel: bool,
    config: RwLock<Arc<ServerConfig>>,
}

impl Certificates {
    /// Reads certificates. Keys of connections can be given to the kernel only if they are made `for_kernel`.
    ///
    /// # Errors
    /// When they cannot be read or used.
    pub fn load(files: &TlsFiles, for_kernel: bool) -> Result<Self, TlsError> {
        let config = RwLock::new(config(files, for_kernel)?);
        Ok(Self(Arc::new(Inner { files: files.clone(), for_kernel, config })))
    }

    /// Reads them again; connections that there are keep what they began with.
    ///
    /// # Errors
    /// When they cannot be read or used; those from before stay in force.
    pub fn reload(&self) -> Result<(), TlsError> {
        let config = config(&self.0.files, self.0.for_kernel)?;
        *self.0.config.write().unwrap_or_else(PoisonError::into_inner) = config;
        Ok(())
    }

    /// What new connections begin with.
    #[must_use]
    pub fn current(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.0.config.read().unwrap_or_else(PoisonError::into_inner))
    }
}

fn config(files: &TlsFiles, for_kernel: bool) -> Result<Arc<ServerConfig>, TlsError> {
    let mut provider = rustls::crypto::ring::default_provider();
    // The suites are as good as each other here, and this one is the quickest.
    provider.cipher_suites.sort_by_key(|suite| suite.suite() != CipherSuite::TLS13_AES_128_GCM_SHA256);
    let provider = Arc::new(provider);
    let pair = |error: rustls::Error| TlsError::Pair {
        cert: files.cert.clone(),
        key: files.key.clone(),
        detail: error.to_string(),
    };
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(pair)?;
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(path)? {
                roots.add(certificate).map_err(|error| wrong(path, error))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .build()
                .map_err(|error| wrong(path, error))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| wrong(&files.key, error))?;
    let mut config = builder.with_single_cert(certificates(&files.cert)?, key).map_err(pair)?;
    config.ignore_client_order = true;
    config.enable_secret_extraction = for_kernel;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

pub(super) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path).map_err(|error| wrong(path, error))?.collect();
    let found = found.map_err(|error| wrong(path, error))?;
    if found.is_empty() { Err(wrong(path, "there is no certificate in it")) } else { Ok(found) }
}

pub(super) fn wrong(path: &Path, detail: impl ToString) -> TlsError {
    TlsError::File { path: path.to_owned(), detail: detail.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CERT: &str = include_str!("testdata/cert.pem");
    const KEY: &str = include_str!("testdata/key.pem");

    #[test]
    fn certificates_change_only_for_some_that_can_be_used() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let files = TlsFiles { cert: path("cert.pem"), key: path("key.pem"), client_ca: Some(path("cert.pem")) };
        let refused = |says: &str| {
            let message = Certificates::load(&files, false).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(message.contains(says), "{message}");
        };
        refused("cert.pem: ");
        std::fs::write(&files.cert, KEY).unwrap();
        std::fs::write(&files.key, CERT).unwrap();
        refused("no certificate");
        std::fs::write(&files.cert, CERT).unwrap();
        refused("key.pem: ");
        std::fs::write(&files.key, KEY).unwrap();
        let certificates = Certificates::load(&files, false).unwrap();
        let first = certificates.current();
        std::fs::write(&files.cert, "").unwrap();
        assert!(certificates.reload().is_err() && Arc::ptr_eq(&first, &certificates.current()));
        std::fs::write(&files.cert, CERT).unwrap();
        certificates.reload().unwrap();
        assert!(!Arc::ptr_eq(&first, &certificates.current()));
        assert_eq!(first.alpn_protocols, [b"http/1.1".to_vec()]);
    }
}
