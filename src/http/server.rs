//! The thread behind the HTTP side, and the handle that shards and the broker hold.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Handle};
use tokio::sync::{mpsc, watch};

use super::connection::{Adopted, serve};
use super::console;
use super::errors::HttpError;
use super::health::Readiness;
use super::routes::App;
use super::settings::HttpSettings;
use crate::telemetry::Telemetry;

/// Told to a connection over the limit; the socket's buffer is empty, so this never waits.
const BUSY: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";

/// How long accepting pauses after it failed, which is mostly for want of descriptors.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// The HTTP side of a running broker. Clones are the same one; cheap, and usable on every thread.
#[derive(Clone)]
pub struct HttpHandle(Arc<Inner>);

struct Inner {
    app: Arc<App>,
    adopted: mpsc::UnboundedSender<Adopted>,
    stopping: watch::Sender<Option<Instant>>,
    runtime: Handle,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Why a connection was not taken; it is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AdoptRefused {
    /// As many connections as allowed are open.
    #[error("all {max_http_connections} http connections are in use")]
    Full {
        /// The limit.
        max_http_connections: usize,
    },
    /// The HTTP side has ended.
    #[error("http is not served any more")]
    Stopped,
}

/// Starts serving on a thread of its own, which calls `settle` first to go where it belongs; says starting until
/// [`HttpHandle::set_ready`].
///
/// # Errors
/// If the thread or its runtime cannot be made.
pub fn start(
    settings: HttpSettings,
    telemetry: Arc<Telemetry>,
    settle: impl FnOnce() + Send + 'static,
) -> Result<HttpHandle, HttpError> {
    let app = App::new(settings, telemetry)?;
    let (adopted, arrivals) = mpsc::unbounded_channel();
    let (stopping, stop) = watch::channel(None);
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    let served = app.clone();
    let thread = std::thread::Builder::new().name("http".to_owned()).spawn(move || {
        settle();
        runtime.block_on(run(served, arrivals, stop));
        runtime.shutdown_background();
    })?;
    Ok(HttpHandle(Arc::new(Inner { app, adopted, stopping, runtime: handle, thread: Mutex::new(Some(thread)) })))
}

impl HttpHandle {
    /// Takes a connection over, with the bytes read from it so far. Does not block; safe on a shard core.
    ///
    /// # Errors
    /// If it was refused. The socket is closed then, after a short 503 if there are too many.
    pub fn adopt(&self, socket: TcpStream, already_read: Vec<u8>) -> Result<(), AdoptRefused> {
        self.take(socket, already_read, false)
    }

    fn take(&self, mut socket: TcpStream, already_read: Vec<u8>, by_control_address: bool) -> Result<(), AdoptRefused> {
        let inner = &*self.0;
        let Ok(permit) = inner.app.permits.clone().try_acquire_owned() else {
            inner.app.count_refused();
            // Without blocking, whatever mode the socket came in; a peer that gets nothing sees the close.
            if socket.set_nonblocking(true).is_ok() {
                let _ = socket.write(BUSY);
            }
            return Err(AdoptRefused::Full { max_http_connections: inner.app.settings.limits.max_http_connections });
        };
        let adopted = Adopted { socket, already_read, permit, by_control_address };
        inner.adopted.send(adopted).map_err(|_| AdoptRefused::Stopped)
    }

    /// Accepts connections of the control API's own address until the HTTP side stops.
    ///
    /// # Errors
    /// If the runtime cannot watch the listener.
    pub fn listen_for_control(&self, listener: TcpListener) -> std::io::Result<()> {
        listener.set_nonblocking(true)?;
        let _on_the_runtime = self.0.runtime.enter();
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let (http, mut stopping) = (self.clone(), self.0.stopping.subscribe());
        self.0.runtime.spawn(async move {
            loop {
                let accepted = tokio::select! {
                    accepted = listener.accept() => accepted,
                    _ = stopping.wait_for(Option::is_some) => return,
                };
                match accepted.and_then(|(socket, _)| socket.into_std()) {
                    Ok(socket) => {
                        if let Err(refused) = http.take(socket, Vec::new(), true) {
                            tracing::debug!(%refused, "a control connection is refused");
                        }
                    }
                    Err(error) => {
                        tracing::warn!(%error, "a control connection cannot be accepted");
                        tokio::time::sleep(ACCEPT_AGAIN).await;
                    }
                }
            }
        });
        Ok(())
    }

    /// From now on `/readyz` says ready.
    pub fn set_ready(&self) {
        self.0.app.health.set(Readiness::Ready);
    }

    /// From now on `/readyz` says draining. Connections are served on.
    pub fn set_draining(&self) {
        self.0.app.health.set(Readiness::Draining);
    }

    /// How many more connections would be taken now.
    #[must_use]
    pub fn free_connections(&self) -> usize {
        self.0.app.permits.available_permits()
    }

    /// Publishes one row a second for the console page; see [`console::sample`] for what is in it.
    pub fn start_sampler(&self, publish: impl Fn(Vec<u8>) + Send + 'static) {
        let app = &self.0.app;
        console::spawn_sampler(&self.0.runtime, app.telemetry.clone(), app.history.clone(), publish);
    }

    /// The runtime of the HTTP side, for other background work: signals, the console's sampler.
    #[must_use]
    pub fn runtime(&self) -> &Handle {
        &self.0.runtime
    }

    /// Ends every connection after its present answer, waits for them no longer than `patience`, and ends the thread.
    /// Must not be called from the runtime itself. A second call does nothing.
    pub fn stop(&self, patience: Duration) {
        self.set_draining();
        let thread = self.0.thread.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
        let Some(thread) = thread else { return };
        self.0.stopping.send_replace(Some(Instant::now() + patience));
        if thread.join().is_err() {
            tracing::error!("the http thread ended by a panic");
        }
    }
}

/// Serves arrivals until told to stop, then lets the connections finish until the deadline that came with the word.
async fn run(
    app: Arc<App>,
    mut arrivals: mpsc::UnboundedReceiver<Adopted>,
    mut stopping: watch::Receiver<Option<Instant>>,
) {
    let watched = stopping.clone();
    if let Some(batches) = &app.settings.batches {
        tokio::spawn(batches.answers().clone().run());
        batches.resume();
    }
    let mut connections = tokio::task::JoinSet::new();
    loop {
        tokio::select! {
            arrived = arrivals.recv() => match arrived {
                Some(adopted) => { connections.spawn(serve(app.clone(), adopted, watched.clone())); }
                None => break,
            },
            Some(ended) = connections.join_next() => {
                if let Err(error) = ended {
                    tracing::error!(%error, "an http connection ended by a panic");
                }
            }
            _ = stopping.wait_for(Option::is_some) => break,
        }
    }
    drop(arrivals);
    let deadline = stopping.borrow().unwrap_or_else(Instant::now);
    let all_ended = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout_at(deadline.into(), all_ended).await.is_err() {
        connections.shutdown().await;
    }
}
