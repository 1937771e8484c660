//! A broker from start to stop.
//!
//! Start: kernel probed, cores planned, root locked and recovered, streams declared, readers, HTTP, writer,
//! listeners, shards. Stop: listeners first, so that nobody new comes; then every peer gets its answers and a
//! 1001; then the writer commits what is left; then the threads end.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicIsize, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use streamcast_shards::cores::{self, CorePlan, CoreRequest, Distance};
use streamcast_shards::doorbell::Doorbell;
use streamcast_shards::{Command, Handoff, Peer, Settings, UpgradeHead, inbox, listen, probe, shard};

use super::build::{self, Built};
use super::delivery::Delivery;
use super::error::BrokerError;
use super::streams::Streams;
use super::{access, awake, managed, notify, signals, tables};
use crate::auth::{Action, Gate};
use crate::batches::{Answers, Directory, HTTP_SHARD, Service};
use crate::config::Config;
use crate::http::{self, HttpHandle, HttpSettings};
use crate::journal::reader::Readers;
use crate::journal::{self, JournalSettings, Writer};
use crate::lake::life;
use crate::lake::mover::{Lake, Unfinished};
use crate::registry::Registry;
use crate::session::{self, CatalogCell, LIVE_ORIGIN_NONE, Links, LiveRows, Remote, SessionApp, now_us};
use crate::telemetry::Telemetry;
use crate::tls::{Certificates, Handshaken, KernelTls};
use crate::wire::RowBatch;

/// The most shards a token can name.
const MAX_SHARDS: usize = HTTP_SHARD as usize;

/// How often the stop looks whether everybody is gone.
const STOP_POLL: Duration = Duration::from_millis(2);

/// Threads for replays where nobody says how many and there are as many cores for them.
const MOST_READERS: usize = 2;

type ShardThread = JoinHandle<std::io::Result<()>>;

/// A broker that serves.
pub struct Broker {
    address: SocketAddr,
    plan: CorePlan,
    telemetry: Arc<Telemetry>,
    http: HttpHandle,
    peers: Vec<Peer<Remote>>,
    threads: Vec<ShardThread>,
    writer: Writer,
    readers: Readers,
    streams: Arc<Streams>,
    registry: Registry,
    control_address: Option<SocketAddr>,
    gate: Gate,
    lake: Arc<Lake>,
    certificates: Option<Certificates>,
    stop_timeout: Duration,
}

impl Broker {
    /// Starts everything; returns when connections are accepted.
    ///
    /// # Errors
    /// Everything that keeps a broker from serving; nothing is left running then but threads that end with
    /// their channels.
    pub fn start(config: &Config) -> Result<Self, BrokerError> {
        probe::probe_io_uring()?;
        let allowed = cores::allowed_cores();
        let plan = cores::plan(&core_request(config), &allowed)?;
        if plan.shards.len() > MAX_SHARDS {
            return Err(BrokerError::TooManyShards { shards: plan.shards.len() });
        }
        report_cores(&plan, &allowed);
        raise_descriptor_limit();
        let gate = access::gate(config)?;
        let kernel = access::kernel(config);
        let certificates = access::certificates(config, kernel.is_some())?;
        let shards = plan.shards.len();
        let telemetry = Arc::new(Telemetry::new(shards));
        for (counters, core) in telemetry.shards.iter().zip(&plan.shards) {
            counters.core_plus_one.store(*core as u64 + 1, Relaxed);
        }
        let (max_group_rows, keep_awake) = (config.group_rows, awake::keeps_awake(config, Path::new("/")));
        let checkpoint_cores = plan.background.clone();
        let settings = JournalSettings { max_group_rows, keep_awake, checkpoint_cores, ..JournalSettings::default() };
        tables::migrate_declared(config)?;
        let mut journal = journal::open(&config.root, settings)?;
        let root = journal.root().to_owned();
        life::reconcile(&root, &mut journal)?;
        let registry = managed::open(config, &root)?;
        let names = registry.is_managed().then(|| registry.names());
        let path = journal.path().to_owned();
        let lake = Arc::new(Lake::open(&root, &path, &tables::lake_settings(config, Some(&plan)))?);
        life::follow_files(&root, lake.catalog(), &mut journal)?;
        let built = build::build(config, names.as_deref(), &mut journal, &lake, &telemetry, shards)?;
        let readers = Readers::start(
            &path,
            &lake.archive(),
            config
                .reader_threads
                .map_or_else(|| plan.background.len().clamp(1, MOST_READERS), |threads| threads as usize),
            {
                let plan = plan.clone();
                move || settle(&plan, Distance::Near)
            },
            Arc::clone(&telemetry),
        )?;
        let (peers, inboxes) = channels(shards).map_err(BrokerError::Thread)?;
        let senders: Vec<_> = peers.iter().map(|peer| peer.inbox.clone()).collect();
        let Built { catalog, console } = built;
        let catalog = Arc::new(CatalogCell::new(catalog));
        let answers = Answers::default();
        let delivery = Delivery::new(Arc::clone(&catalog), senders.clone(), answers.clone());
        let recorded = journal.recorded()?;
        let writer = journal.start(Box::new(delivery), Arc::clone(&telemetry), Some(plan.writer))?;
        lake.start(writer.sender(), Arc::clone(&telemetry));
        let (jobs, all) = (writer.sender(), senders.clone());
        let streams = Arc::new(Streams::new(
            config.clone(),
            Arc::clone(&catalog),
            jobs,
            all,
            Arc::clone(&telemetry),
            readers.handle(),
            Arc::clone(&lake),
        ));
        streams.heard_by(&answers);
        let batches = Arc::new(Service::new(
            Arc::clone(&streams) as Arc<dyn Directory>,
            writer.sender(),
            readers.handle(),
            answers,
            Arc::clone(&telemetry),
            recorded,
        ));
        let http = start_http(config, &registry, &telemetry, &plan, &peers, (&gate, &certificates, kernel), batches)?;
        let listeners = match listen::inherited(shards) {
            Some(inherited) => inherited?,
            None => listen::listen(config.listen, shards)?,
        };
        let open_to_all = listeners.iter().filter_map(|listener| listener.local_addr().ok());
        access::check_addresses(config, open_to_all.chain(config.control_listen))?;
        let address = listeners.first().and_then(|listener| listener.local_addr().ok()).unwrap_or(config.listen);
        let mut broker = Self {
            address,
            plan,
            telemetry,
            http,
            peers,
            threads: Vec::new(),
            writer,
            readers,
            streams,
            registry,
            control_address: None,
            gate,
            lake,
            certificates,
            stop_timeout: config.stop_timeout,
        };
        // Before anybody can connect: an unknown stream would end long-running clients for good.
        let plan = broker.plan.clone();
        managed::recover(&broker.registry, &broker.streams, move || settle(&plan, Distance::Far))?;
        broker.control_address =
            config.control_listen.map(|address| listen_for_control(&broker.http, address)).transpose()?;
        let doorbell = Doorbell::start(senders.clone(), broker.plan.background.clone()).map_err(BrokerError::Thread)?;
        for (index, (listener, receiver)) in listeners.into_iter().zip(inboxes).enumerate() {
            broker.start_shard(config, index, (listener, doorbell.clone()), receiver, &catalog)?;
        }
        let console_inbox = senders[0].clone();
        broker.http.start_sampler(move |row| {
            let rows = own_row(row);
            let live = LiveRows { stream: console, origin: LIVE_ORIGIN_NONE, rows, ts_us: now_us() };
            console_inbox.send(Command::App(Remote::Live(live)), 0);
        });
        broker.http.set_ready();
        tracing::info!(%address, streams = config.streams.len(), root = %config.root.display(), "serving");
        Ok(broker)
    }

    fn start_shard(
        &mut self,
        config: &Config,
        index: usize,
        (listener, doorbell): (TcpListener, Doorbell),
        receiver: inbox::Inbox<Command<Remote>>,
        catalog: &Arc<CatalogCell>,
    ) -> Result<(), BrokerError> {
        let links = Links {
            shard: index,
            catalog: Arc::clone(catalog),
            jobs: self.writer.sender(),
            readers: self.readers.handle(),
            inboxes: self.peers.iter().map(|peer| peer.inbox.clone()).collect(),
            gate: self.gate.clone(),
            telemetry: Arc::clone(&self.telemetry),
        };
        let shards = self.plan.shards.len();
        let setup = shard::Setup {
            index,
            core: self.plan.shards[index],
            listener,
            doorbell,
            settings: Settings {
                ping_s: seconds(config.keepalive.ping),
                pong_timeout_s: seconds(config.keepalive.timeout),
                max_connections: (config.max_connections as usize).div_ceil(shards),
                secure: self.certificates.is_some(),
                ..Settings::default()
            },
            inbox: receiver,
            peers: self.peers.clone(),
            handoff: handoff(&self.http),
        };
        let thread = shard::spawn(setup, move |_| SessionApp::new(links)).map_err(BrokerError::Thread)?;
        self.threads.push(thread);
        Ok(())
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where the control API has an address of its own.
    #[must_use]
    pub fn control_address(&self) -> Option<SocketAddr> {
        self.control_address
    }

    /// Where its streams are started and stopped.
    #[must_use]
    pub fn streams(&self) -> &Arc<Streams> {
        &self.streams
    }

    /// Its counters.
    #[must_use]
    pub fn telemetry(&self) -> &Arc<Telemetry> {
        &self.telemetry
    }

    /// The runtime of its background work.
    #[must_use]
    pub fn runtime(&self) -> &tokio::runtime::Handle {
        self.http.runtime()
    }

    /// Who is let in.
    #[must_use]
    pub fn gate(&self) -> &Gate {
        &self.gate
    }

    /// The number of a shard that has ended by itself, if one has.
    #[must_use]
    pub fn dead_shard(&self) -> Option<usize> {
        self.threads.iter().position(JoinHandle::is_finished)
    }

    /// Stops in order and within `stop_timeout`, give or take the last commit.
    ///
    /// # Errors
    /// When the writer could not commit everything in time, or a shard had failed.
    pub fn stop(self) -> Result<(), BrokerError> {
        let deadline = Instant::now() + self.stop_timeout;
        self.http.set_draining();
        self.registry.refuse_calls();
        let closed: Vec<_> = self.peers.iter().map(close_listener).collect();
        for done in closed {
            // The shard drops its end when its listener is closed.
            let _ = done.recv_timeout(deadline.saturating_duration_since(Instant::now()));
        }
        tracing::info!("no longer accepting; closing connections");
        for peer in &self.peers {
            peer.inbox.send(Command::App(Remote::Stop), 0);
        }
        // Peers get half of the time that is left: the writer needs some, too.
        let patience = Instant::now() + deadline.saturating_duration_since(Instant::now()) / 2;
        while self.connections() > 0 && Instant::now() < patience && self.dead_shard().is_none() {
            std::thread::sleep(STOP_POLL);
        }
        let left = self.connections();
        if left > 0 {
            tracing::warn!(connections = left, "some peers did not close in time and are cut off");
        }
        // What the registry has begun is ended if there is time; what is left is done after the next start.
        if !self.registry.close(deadline.saturating_duration_since(Instant::now()) / 2) {
            tracing::warn!("an operation of the registry is still under way; it is taken up at the next start");
        }
        self.finish_tables(deadline);
        // An open reader would keep the write-ahead log's file from being folded in.
        drop(self.readers);
        let committed =
            self.writer.stop(deadline.saturating_duration_since(Instant::now()).max(Duration::from_secs(1)));
        for peer in &self.peers {
            peer.inbox.send(Command::Quit, 0);
        }
        let mut failed = None;
        for (shard, thread) in self.threads.into_iter().enumerate() {
            let detail = match thread.join() {
                Ok(Ok(())) => continue,
                Ok(Err(error)) => error.to_string(),
                Err(_) => "it panicked".to_owned(),
            };
            failed = failed.or(Some(BrokerError::Shard { shard, detail }));
        }
        self.http.stop(Duration::from_millis(500));
        committed?;
        failed.map_or(Ok(()), Err)
    }

    /// Has everything that is committed sealed and published, within the time that is left.
    fn finish_tables(&self, deadline: Instant) {
        // What was queued is committed when the errand is run.
        if let Err(error) = self.streams.errand(|_| ()) {
            tracing::warn!(%error, "the last rows may stay in the journal");
        }
        for left in self.lake.stop(deadline) {
            let Unfinished { stream, unsealed_rows, unpublished_rows, error } = left;
            let error = error.unwrap_or_default();
            tracing::warn!(
                stream,
                unsealed_rows,
                unpublished_rows,
                error,
                "rows are not in the table yet; they are safe and follow after the next start"
            );
        }
    }

    fn connections(&self) -> isize {
        self.peers.iter().map(|peer| peer.connections.load(Relaxed)).sum()
    }
}

/// Serves until SIGTERM or SIGINT. SIGHUP reads the policy again; where there is none, it ends the broker as well.
///
/// # Errors
/// Whatever keeps the broker from starting, serving or stopping in order.
pub fn run(config: Config) -> Result<(), BrokerError> {
    let signals = signals::listen().map_err(BrokerError::Thread)?;
    let broker = Broker::start(&config)?;
    let scheme = if broker.certificates.is_some() { "https" } else { "http" };
    println!("streamcast-uring listens on {scheme}://{}", broker.address());
    if let Some(address) = broker.control_address() {
        println!("control API on {scheme}://{address}");
    }
    notify::notify("READY=1");
    loop {
        match signals.recv_timeout(Duration::from_millis(500)) {
            Ok(signals::RELOAD) if access::can_reload(&broker.gate, &broker.certificates) => {
                access::reload(&broker.gate, &broker.certificates);
            }
            Ok(signal) => {
                tracing::info!(signal, "stopping");
                break;
            }
            Err(mpsc::RecvTimeoutError::Timeout) if broker.dead_shard().is_none() => {}
            Err(_) => {
                tracing::error!("a shard has ended; stopping");
                break;
            }
        }
    }
    notify::notify("STOPPING=1");
    broker.stop()
}

fn core_request(config: &Config) -> CoreRequest {
    CoreRequest {
        cores: config.cores.cores.clone(),
        writer_core: config.cores.writer_core,
        background_cores: config.cores.background_cores.clone(),
    }
}

fn report_cores(plan: &CorePlan, allowed: &[usize]) {
    if !plan.unavailable.is_empty() {
        tracing::warn!(
            unavailable = cores::format_list(&plan.unavailable),
            allowed = cores::format_list(allowed),
            "some cores are not in this process's cpuset and are left out"
        );
    }
    tracing::info!(
        shards = cores::format_list(&plan.shards),
        writer = plan.writer,
        background = cores::format_list(&plan.background),
        "cores"
    );
}

type Inboxes = Vec<inbox::Inbox<Command<Remote>>>;

fn channels(shards: usize) -> std::io::Result<(Vec<Peer<Remote>>, Inboxes)> {
    (0..shards)
        .map(|_| {
            let (sender, receiver) = inbox::inbox()?;
            Ok((Peer { inbox: sender, connections: Arc::new(AtomicIsize::new(0)) }, receiver))
        })
        .collect()
}

fn start_http(
    config: &Config,
    registry: &Registry,
    telemetry: &Arc<Telemetry>,
    plan: &CorePlan,
    peers: &[Peer<Remote>],
    (gate, certificates, kernel): (&Gate, &Option<Certificates>, Option<KernelTls>),
    batches: Arc<Service>,
) -> Result<HttpHandle, BrokerError> {
    let (peers, keeps) = (peers.to_vec(), gate.has_policy());
    let on_upgrade = move |stream: TcpStream,
                           head: http::UpgradeHead,
                           rest: Vec<u8>,
                           handshaken: Option<Handshaken>| {
        let reads = head.pass.action == Action::DataRead;
        let encryption = match access::encryption(kernel.as_ref(), &stream, handshaken, reads) {
            Ok(encryption) => encryption,
            Err(error) => {
                tracing::error!(%error, "the kernel did not take the keys of a connection, which is lost; it gets no more");
                return;
            }
        };
        let Some(peer) = peers.iter().min_by_key(|peer| peer.connections.load(Relaxed)) else { return };
        peer.connections.fetch_add(1, Relaxed);
        let head = UpgradeHead {
            target: head.target.into_bytes(),
            headers: head.headers.into_iter().map(|(name, value)| (name, value.into_bytes())).collect(),
            pass: keeps.then(|| session::attach(head.pass)),
        };
        peer.inbox.send(Command::Upgraded(stream, head, rest, encryption), 0);
    };
    let settings = HttpSettings {
        stats_path: config.stats.path().map(str::to_owned),
        registry: registry.clone(),
        control_apart: config.control_listen.is_some(),
        batches: Some(batches),
        gate: gate.clone(),
        certificates: certificates.clone(),
        ..HttpSettings::new(Arc::new(on_upgrade))
    };
    let plan = plan.clone();
    Ok(http::start(settings, Arc::clone(telemetry), move || settle(&plan, Distance::Far))?)
}

/// Puts the calling thread, and those it starts, on the background cores. Where a shard or the writer is on one of them it
/// stands back: rows on their way to subscribers come first.
fn settle(plan: &CorePlan, distance: Distance) {
    cores::pin_to(&plan.background);
    if plan.shares_background() {
        cores::stand_back(distance);
    }
}

/// Listens on the address of the control API; says which it is, for port 0.
fn listen_for_control(http: &HttpHandle, address: SocketAddr) -> Result<SocketAddr, BrokerError> {
    let fail = |source| BrokerError::ControlAddress { address, source };
    let listener = TcpListener::bind(address).map_err(fail)?;
    let address = listener.local_addr().map_err(fail)?;
    http.listen_for_control(listener).map_err(fail)?;
    Ok(address)
}

fn handoff(http: &HttpHandle) -> Handoff {
    let http = http.clone();
    Arc::new(move |stream: TcpStream, bytes: Vec<u8>| {
        if let Err(refused) = http.adopt(stream, bytes) {
            tracing::debug!(%refused, "an http connection is refused");
        }
    })
}

fn close_listener(peer: &Peer<Remote>) -> mpsc::Receiver<()> {
    let (done, closed) = mpsc::channel();
    peer.inbox.send(Command::CloseListener(done), 0);
    closed
}

fn own_row(mut row: Vec<u8>) -> RowBatch {
    row.push(b'\n');
    let ends = vec![row.len() as u32];
    RowBatch { body: row, ends }
}

fn seconds(duration: Duration) -> u32 {
    u32::try_from(duration.as_secs()).unwrap_or(u32::MAX).max(1)
}

/// Every connection is a descriptor: take what the hard limit gives.
fn raise_descriptor_limit() {
    // SAFETY: both calls only read and write the struct they are given.
    unsafe {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 && limit.rlim_cur < limit.rlim_max {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
    }
}
