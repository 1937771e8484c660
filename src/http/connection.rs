//! One HTTP connection, from its hand-over to its end.

use std::convert::Infallible;
use std::net::{IpAddr, TcpStream};
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use axum::http::header::CONNECTION;
use axum::http::{HeaderValue, Request, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio_rustls::TlsAcceptor;

use super::activity::Activity;
use super::caller::PeerAddress;
use super::handed::HandedSocket;
use super::lent::lend;
use super::routes::App;
use super::spelled::Spelled;

/// A connection on its way from a shard.
pub struct Adopted {
    pub socket: TcpStream,
    pub already_read: Vec<u8>,
    pub permit: OwnedSemaphorePermit,
    /// Whether it came by the address of the control API.
    pub by_control_address: bool,
}

/// Marks requests that came by the address of the control API.
#[derive(Debug, Clone, Copy)]
pub struct ByControlAddress;

/// Serves a connection until it ends, is upgraded, runs out of time, or the broker stops.
pub async fn serve(app: Arc<App>, adopted: Adopted, stopping: watch::Receiver<Option<Instant>>) {
    let limits = app.settings.limits;
    let _permit = adopted.permit;
    let peer = adopted.socket.peer_addr().ok().map(|address| address.ip());
    let from = (peer, adopted.by_control_address);
    let activity = Arc::new(Activity::new(!adopted.already_read.is_empty(), Instant::now()));
    let socket = match HandedSocket::new(adopted.socket, adopted.already_read, activity.clone(), limits.linger) {
        Ok(socket) => socket,
        Err(error) => {
            tracing::debug!(%error, "an http connection was lost at its hand-over");
            return;
        }
    };
    let Some(certificates) = &app.settings.certificates else {
        return converse(app, socket, from, activity, stopping).await;
    };
    // A handshake is what comes before the first request: it has the time of a head.
    let handshake = TlsAcceptor::from(certificates.current()).accept(socket.with_records());
    match tokio::time::timeout(limits.head_timeout, handshake).await {
        Ok(Ok(secured)) => {
            activity.answered(Instant::now());
            converse(app, secured, from, activity, stopping).await;
        }
        Ok(Err(error)) => tracing::debug!(%error, ?peer, "a TLS handshake failed"),
        Err(_) => tracing::debug!(?peer, "a TLS handshake took too long"),
    }
}

/// Answers the requests of a connection from an address, which may be the control API's.
async fn converse<S>(
    app: Arc<App>,
    socket: S,
    (peer, by_control_address): (Option<IpAddr>, bool),
    activity: Arc<Activity>,
    mut stopping: watch::Receiver<Option<Instant>>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let limits = app.settings.limits;
    let service = service_fn(|mut request: Request<Incoming>| {
        if let Some(peer) = peer {
            request.extensions_mut().insert(PeerAddress(peer));
        }
        if by_control_address {
            request.extensions_mut().insert(ByControlAddress);
        }
        let (app, activity) = (app.clone(), activity.clone());
        async move {
            activity.requested(Instant::now());
            let (head, body) = request.into_parts();
            let (lent, lender) = lend(&head.headers, body);
            let mut response = app.respond(Request::from_parts(head, lent)).await;
            if response.status() != StatusCode::SWITCHING_PROTOCOLS && !lender.read_away(limits.rest_timeout).await {
                activity.leaves_unread();
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            activity.answered(Instant::now());
            Ok::<_, Infallible>(response)
        }
    });
    let connection = http1::Builder::new()
        .max_buf_size(limits.max_head_bytes.max(8_192))
        .max_headers(limits.max_header_count)
        .header_read_timeout(None)
        .serve_connection(TokioIo::new(Spelled::new(socket)), service)
        .with_upgrades();
    let mut connection = pin!(connection);
    let mut asked_to_end = false;
    loop {
        tokio::select! {
            biased;
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "an http connection failed");
                }
                return;
            }
            () = activity.expired(&limits) => return,
            _ = stopping.wait_for(Option::is_some), if !asked_to_end => {
                asked_to_end = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}
