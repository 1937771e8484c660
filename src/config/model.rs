//! The configuration the broker runs on: plain values with the defaults of wire.md (the table before section 1).

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use super::access::{Auth, Tls};
use super::lake::{Lake, S3};
use super::registry::Registry;

/// Everything a broker needs to know before it starts. `Config::default()` serves nothing on loopback.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Address the listener binds; port 0 asks the kernel for a free one.
    pub listen: SocketAddr,
    /// Data root: the directory that holds the journal. Created when missing.
    pub root: PathBuf,
    /// Which cores do what, as written; resolved against the machine at start.
    pub cores: CoreRequest,
    /// Largest inbound frame of any connection, in bytes (wire.md section 4.6).
    pub transport_max_bytes: u32,
    /// When peers are pinged and how long a pong may take.
    pub keepalive: Keepalive,
    /// Where the statistics document is served (wire.md section 10).
    pub stats: Stats,
    /// Target of one group commit, in rows; a transaction takes queued frames while it holds fewer.
    pub group_rows: u32,
    /// Whether the writer's core is kept from sleeping while transactions follow each other closely.
    pub keep_awake: bool,
    /// Most connections open at once, over all cores.
    pub max_connections: u32,
    /// Most memory one feed may hold for subscribers that lag, in bytes.
    pub max_backlog_bytes: u64,
    /// Most row bytes that may wait for the writer, over all streams. Sockets of publishers are not read meanwhile.
    pub max_inbound_bytes: u64,
    /// Threads that read the journal for replays. `None`: two, or one where background work has a single core.
    pub reader_threads: Option<u32>,
    /// How long an orderly stop may take before what is left is cut off.
    pub stop_timeout: Duration,
    /// Whether an address other than loopback may be served although nobody is asked for a password.
    pub insecure: bool,
    /// Who is let in.
    pub auth: Auth,
    /// Certificates.
    pub tls: Tls,
    /// What is logged and how.
    pub log: Log,
    /// What is declared at run time; `None` for nothing.
    pub registry: Option<Registry>,
    /// Where the HTTP side listens as well, and then alone answers the control API.
    pub control_listen: Option<SocketAddr>,
    /// How S3 is reached.
    pub s3: S3,
    /// How rows are moved, for streams that do not say otherwise.
    pub lake: Lake,
    /// The streams, in the order they were declared. Names are distinct.
    pub streams: Vec<StreamConfig>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8765),
            root: PathBuf::from("data"),
            cores: CoreRequest::default(),
            transport_max_bytes: 1 << 20,
            keepalive: Keepalive::default(),
            stats: Stats::At("/stats".to_owned()),
            group_rows: 10_000,
            keep_awake: true,
            max_connections: 65_536,
            max_backlog_bytes: 256 << 20,
            max_inbound_bytes: 64 << 20,
            reader_threads: None,
            stop_timeout: Duration::from_secs(10),
            insecure: false,
            auth: Auth::default(),
            tls: Tls::default(),
            log: Log::default(),
            registry: None,
            control_listen: None,
            s3: S3::default(),
            lake: Lake::default(),
            streams: Vec::new(),
        }
    }
}

/// The cores asked for. Texts are lists and ranges such as `0-3,6`, or `all`. `None` leaves the choice to the machine.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CoreRequest {
    /// Cores of the engine; the last one is the writer's unless `writer_core` says otherwise.
    pub cores: Option<String>,
    /// Core of the writer.
    pub writer_core: Option<usize>,
    /// Cores of HTTP, replay readers and other background work.
    pub background_cores: Option<String>,
}

/// Liveness of peers: a ping after `ping` of silence, and the connection ends `timeout` after an unanswered one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keepalive {
    pub ping: Duration,
    pub timeout: Duration,
}

impl Default for Keepalive {
    fn default() -> Self {
        Self { ping: Duration::from_secs(20), timeout: Duration::from_secs(20) }
    }
}

/// Where the statistics document is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stats {
    /// Nowhere.
    Off,
    /// At this absolute path, which is not `/`.
    At(String),
}

impl Stats {
    /// The path, unless statistics are off.
    #[must_use]
    pub fn path(&self) -> Option<&str> {
        match self {
            Self::Off => None,
            Self::At(path) => Some(path),
        }
    }
}

/// What is logged and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Log {
    pub level: LogLevel,
    /// One JSON object a line, or text; `None` is text at a terminal and JSON anywhere else.
    pub json: Option<bool>,
}

/// Least severe event that is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogLevel {
    Error,
    Warn,
    #[default]
    Info,
    Debug,
    Trace,
}

impl LogLevel {
    /// Every level, most severe first, with its name in files and on the command line.
    pub const ALL: [(&'static str, Self); 5] = [
        ("error", Self::Error),
        ("warn", Self::Warn),
        ("info", Self::Info),
        ("debug", Self::Debug),
        ("trace", Self::Trace),
    ];

    /// The level's name, which is also a directive of `tracing_subscriber::EnvFilter`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

/// One stream as declared.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamConfig {
    /// Name, compared exactly (wire.md section 1.3); `""` is the stream at `/`.
    pub name: String,
    /// JSON Schema of a row, key order as written (wire.md section 12). `None` is a live-only stream of any objects.
    pub schema: Option<serde_json::Value>,
    /// Whether rows are logged. Needs a schema.
    pub durable: bool,
    /// Whether publishers may name themselves (wire.md section 5). Needs `durable`.
    pub exactly_once: bool,
    /// Whether this stream's frames may share a transaction with others (wire.md section 4.5).
    pub group_commit: bool,
    /// Columns the tables behind the stream are sorted by; distinct and declared.
    pub sort_by: Vec<String>,
    /// Whether a stream that has other columns, or another order, is migrated to these when the broker starts.
    pub migrate: bool,
    /// Most rows a replay may reach back; `None` is unbounded, 0 refuses every replay with rows (wire.md section 7.3).
    pub max_replay: Option<u64>,
    /// What happens to a subscriber that falls further behind than `limits.max_backlog_frames`.
    pub slow: Slow,
    pub limits: Limits,
    /// URI below which its tables are: `file:///prefix` or `s3://bucket/prefix`. `None` is in the data root.
    pub published: Option<String>,
    /// Whether replays read the published table, too (wire.md section 7.2).
    pub replay_published: bool,
    /// How its rows are moved; `None` as all.
    pub lake: Option<Lake>,
}

impl StreamConfig {
    /// A stream with the defaults: durable when it has a schema.
    #[must_use]
    pub fn new(name: impl Into<String>, schema: Option<serde_json::Value>) -> Self {
        Self {
            name: name.into(),
            durable: schema.is_some(),
            schema,
            exactly_once: false,
            group_commit: true,
            sort_by: Vec::new(),
            migrate: false,
            max_replay: Some(100_000),
            slow: Slow::default(),
            limits: Limits::default(),
            published: None,
            replay_published: false,
            lake: None,
        }
    }
}

/// Policy for a subscriber that lags too far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Slow {
    /// Close 4429 after the frames accepted so far (wire.md section 8).
    #[default]
    Drop,
    /// Serve it from the log again until it has caught up. Durable streams only.
    Replay,
}

/// Bounds of one stream (wire.md, the table of defaults).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Frames a subscriber may be behind.
    pub max_backlog_frames: u32,
    /// Rows of all publishers that may wait for the writer.
    pub max_inbound_rows: u32,
    /// Replies one publisher connection may be owed.
    pub max_in_flight_frames: u32,
    /// Largest publish frame in bytes; `None` leaves the transport's ceiling.
    pub max_message_bytes: Option<u32>,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_backlog_frames: 8_192, max_inbound_rows: 65_536, max_in_flight_frames: 64, max_message_bytes: None }
    }
}
