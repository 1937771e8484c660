//! What the demo can be told.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use crate::config::{CoreRequest, Log};

/// Fewest trades a second.
pub const MIN_RATE_ROWS_PER_S: f64 = 1.0;
/// Most trades a second.
pub const MAX_RATE_ROWS_PER_S: f64 = 100_000.0;
/// Trades a second unless told otherwise; their log grows by about 2 MB a minute.
pub const DEFAULT_RATE_ROWS_PER_S: f64 = 200.0;

/// How the demo is run.
#[derive(Debug, Clone, PartialEq)]
pub struct DemoOptions {
    /// Data root, kept at the end; without one a temporary folder, removed at the end.
    pub root: Option<PathBuf>,
    /// Where the broker listens; port 0 is a free one.
    pub listen: SocketAddr,
    /// Trades a second on average, from [`MIN_RATE_ROWS_PER_S`] to [`MAX_RATE_ROWS_PER_S`].
    pub rate_rows_per_s: f64,
    /// Seed of the market: the same seed and starting time make the same trades. Without one, a new market every time.
    pub seed: Option<u64>,
    /// Cores of the broker, as for the command that serves.
    pub cores: CoreRequest,
    /// Whether an address other than loopback may be served although nobody is asked for a password.
    pub insecure: bool,
    /// What is logged and how.
    pub log: Log,
}

impl Default for DemoOptions {
    fn default() -> Self {
        Self {
            root: None,
            listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8765),
            rate_rows_per_s: DEFAULT_RATE_ROWS_PER_S,
            seed: None,
            cores: CoreRequest::default(),
            insecure: false,
            log: Log::default(),
        }
    }
}
