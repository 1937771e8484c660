//! The bytes below a client: a socket in clear, or one under TLS.

use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::address::Address;
use super::error::ClientError;
use crate::tls;

/// Whose certificates are taken for good: those the system trusts, and those of a file besides. Read when it is first
/// needed, and once. Clones are the same one.
#[derive(Debug, Clone, Default)]
pub struct Trust(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    ca: Option<PathBuf>,
    config: OnceLock<Arc<ClientConfig>>,
}

impl Trust {
    /// Trusts the certificates of a PEM file as well.
    #[must_use]
    pub fn with_file(ca: &Path) -> Self {
        Self(Arc::new(Inner { ca: Some(ca.to_owned()), config: OnceLock::new() }))
    }

    /// Reads the certificates now instead of at the first connection.
    ///
    /// # Errors
    /// When the file cannot be read, or has no certificate.
    pub fn read(&self) -> Result<(), tls::TlsError> {
        self.config().map(drop)
    }

    fn config(&self) -> Result<Arc<ClientConfig>, tls::TlsError> {
        if let Some(config) = self.0.config.get() {
            return Ok(Arc::clone(config));
        }
        let mut config = tls::client_config(self.0.ca.as_deref())?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::clone(self.0.config.get_or_init(|| Arc::new(config))))
    }
}

/// A connected socket.
pub(super) enum Transport {
    Clear(TcpStream),
    Secured(Box<TlsStream<TcpStream>>),
}

impl Transport {
    /// Connects to an address, under TLS if it asks for that.
    pub async fn open(address: &Address, trust: &Trust) -> Result<Self, ClientError> {
        let (host, port) = address.socket();
        let at = || format!("{host}:{port}");
        let unreachable = |source| ClientError::Connect { at: at(), source };
        let socket = TcpStream::connect((host, port)).await.map_err(unreachable)?;
        socket.set_nodelay(true).map_err(unreachable)?;
        if !address.is_secure() {
            return Ok(Self::Clear(socket));
        }
        let insecure = |why: String| ClientError::Insecure { at: at(), why };
        let config = trust.config().map_err(|error| insecure(error.to_string()))?;
        let name = ServerName::try_from(host.to_owned()).map_err(|error| insecure(error.to_string()))?;
        match TlsConnector::from(config).connect(name, socket).await {
            Ok(secured) => Ok(Self::Secured(Box::new(secured))),
            Err(error) => match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
                Some(error) => Err(insecure(explained(error))),
                None => Err(ClientError::Lost(error.to_string())),
            },
        }
    }
}

/// What went wrong, and the way out where people meet it.
fn explained(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer) => {
            "nobody that this host trusts has signed the broker's certificate; name its authority with --ca FILE"
                .to_owned()
        }
        rustls::Error::InvalidMessage(_) => "the other side does not speak TLS; try ws:// or http://".to_owned(),
        other => other.to_string(),
    }
}

impl AsyncRead for Transport {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Clear(socket) => Pin::new(socket).poll_read(cx, buf),
            Self::Secured(socket) => Pin::new(socket).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Transport {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Clear(socket) => Pin::new(socket).poll_write(cx, buf),
            Self::Secured(socket) => Pin::new(socket).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Clear(socket) => Pin::new(socket).poll_flush(cx),
            Self::Secured(socket) => Pin::new(socket).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Clear(socket) => Pin::new(socket).poll_shutdown(cx),
            Self::Secured(socket) => Pin::new(socket).poll_shutdown(cx),
        }
    }
}
