//! What the HTTP side is told at start, and its limits.

use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use crate::auth::{Gate, Pass};
use crate::batches::Service;
use crate::registry::{Registry, RegistrySettings};
use crate::tls::{Certificates, Handshaken};

/// Takes a connection back that was handed over as HTTP and then asked for a WebSocket.
///
/// The `101` answer is on its way already. The arguments are the socket (non-blocking), the request, and what
/// the peer sent behind it, and the keys of the connection if it is encrypted. Called on a background thread; it must not
/// block.
pub type OnUpgrade = Arc<dyn Fn(TcpStream, UpgradeHead, Vec<u8>, Option<Handshaken>) + Send + Sync>;

/// The request that became a WebSocket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpgradeHead {
    /// The request target: path and query, still percent-encoded (wire.md section 1.3), without tickets.
    pub target: String,
    /// Field names in lower case and values in the order sent; bytes that are not UTF-8 are replaced.
    pub headers: Vec<(String, String)>,
    /// What the caller may do on it.
    pub pass: Pass,
}

/// How the HTTP side is set up.
pub struct HttpSettings {
    /// Where the statistics are served (wire.md section 10); `None` turns them off.
    pub stats_path: Option<String>,
    /// Whether the console page is served at `/`.
    pub console: bool,
    /// Bounds on connections, requests and waiting.
    pub limits: HttpLimits,
    /// Who is let in.
    pub gate: Gate,
    /// What is declared at run time, behind `/control/v1`.
    pub registry: Registry,
    /// Whether `/control/v1` and its description are only there for connections of
    /// [`super::HttpHandle::listen_for_control`].
    pub control_apart: bool,
    /// The batch API; `None` turns it off.
    pub batches: Option<Arc<Service>>,
    /// With them every connection is encrypted.
    pub certificates: Option<Certificates>,
    /// Where upgraded connections go.
    pub on_upgrade: OnUpgrade,
}

impl HttpSettings {
    /// The usual settings: `/stats`, the console, the usual limits, no policy and no registry.
    #[must_use]
    pub fn new(on_upgrade: OnUpgrade) -> Self {
        Self {
            stats_path: Some("/stats".to_owned()),
            console: true,
            limits: HttpLimits::default(),
            gate: Gate::public(),
            registry: Registry::none(RegistrySettings::new(1 << 20)),
            control_apart: false,
            batches: None,
            certificates: None,
            on_upgrade,
        }
    }
}

/// Every bound of the HTTP side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HttpLimits {
    /// Connections open at once. One more is answered 503 and closed.
    pub max_http_connections: usize,
    /// Bytes of a request line with its header fields. More is answered 431.
    pub max_head_bytes: usize,
    /// Header fields of a request. More is answered 431.
    pub max_header_count: usize,
    /// Bytes of a request body. More is answered 413.
    pub max_body_bytes: usize,
    /// From the first byte of a request to the end of its header fields.
    pub head_timeout: Duration,
    /// From the end of the header fields to the answer.
    pub request_timeout: Duration,
    /// Between an answer and the first byte of the next request; also for a peer that does not read its answer.
    pub idle_timeout: Duration,
    /// For the rest of a body that nobody reads, before the answer says that the connection ends.
    pub rest_timeout: Duration,
    /// For a peer that goes on sending what nobody reads, before its connection is reset.
    pub linger: Duration,
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            max_http_connections: 1_024,
            max_head_bytes: 65_536,
            max_header_count: 128,
            max_body_bytes: 262_144,
            head_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(45),
            idle_timeout: Duration::from_secs(60),
            rest_timeout: Duration::from_secs(1),
            linger: Duration::from_secs(2),
        }
    }
}
