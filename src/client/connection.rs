//! One WebSocket to a broker: texts out and in, pings both ways, the close handshake.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::{Sink, Stream};
use tokio::time::{Instant, Sleep, sleep_until, timeout};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::error::{CapacityError, ProtocolError};
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Bytes, Error, Message, Utf8Bytes, protocol::CloseFrame};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};

use super::address::Address;
use super::close::Closed;
use super::error::ClientError;
use super::greeting::Greeting;
use super::transport::{Transport, Trust};

/// How a connection behaves.
#[derive(Debug, Clone)]
pub struct Options {
    /// Time for the TCP connection and the upgrade together.
    pub connect_timeout: Duration,
    /// Silence after which the broker is pinged.
    pub ping: Duration,
    /// Time it has for the pong.
    pub pong_timeout: Duration,
    /// Time for the close handshake.
    pub close_timeout: Duration,
    /// Largest frame that is received, in bytes.
    pub max_message_bytes: usize,
    /// Whose certificates are taken for good, where the address asks for TLS.
    pub trust: Trust,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            ping: Duration::from_secs(20),
            pong_timeout: Duration::from_secs(20),
            close_timeout: Duration::from_secs(10),
            max_message_bytes: 256 << 20,
            trust: Trust::default(),
        }
    }
}

/// An open WebSocket.
pub(super) struct Connection {
    socket: WebSocketStream<Transport>,
    /// Frames that wait for room in the socket; bounded by the publisher's window.
    outbox: VecDeque<Message>,
    options: Options,
    heard: Instant,
    pinged: bool,
    timer: Pin<Box<Sleep>>,
}

impl Connection {
    /// Connects and reads the greeting, the first frame of every connection that was accepted.
    pub async fn open(address: &Address, target: &str, options: &Options) -> Result<(Self, Greeting), ClientError> {
        let upgrade = upgrade(address, target, options);
        let after = options.connect_timeout;
        let socket = timeout(after, upgrade)
            .await
            .map_err(|_| ClientError::TimedOut { what: "connecting to the broker", after })??;
        let heard = Instant::now();
        let timer = Box::pin(sleep_until(heard + options.ping));
        let options = options.clone();
        let mut connection = Self { socket, outbox: VecDeque::new(), options, heard, pinged: false, timer };
        let first = connection.next().await?;
        let greeting = Greeting::parse(&first)?;
        Ok((connection, greeting))
    }

    /// Queues a text frame; it is written while [`Connection::next`] is awaited.
    pub fn queue(&mut self, text: String) {
        self.outbox.push_back(Message::text(text));
    }

    /// The next frame of the broker. Cancel-safe; pings are answered and queued frames written meanwhile.
    pub async fn next(&mut self) -> Result<Utf8Bytes, ClientError> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// Ends the connection with 1000 and waits, for a bounded time, until the broker has answered.
    pub async fn close(mut self) {
        let reason = CloseFrame { code: CloseCode::Normal, reason: Utf8Bytes::default() };
        self.outbox.push_back(Message::Close(Some(reason)));
        let limit = self.options.close_timeout;
        // Whatever ends the handshake, the connection is over.
        let _ = timeout(limit, async { while self.next().await.is_ok() {} }).await;
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Utf8Bytes, ClientError>> {
        loop {
            self.write(cx)?;
            match Pin::new(&mut self.socket).poll_next(cx) {
                Poll::Ready(None) => return Poll::Ready(Err(ClientError::Lost("it ended without a close".to_owned()))),
                Poll::Ready(Some(message)) => {
                    self.heard = Instant::now();
                    self.pinged = false;
                    match message.map_err(failure)? {
                        Message::Text(text) => return Poll::Ready(Ok(text)),
                        Message::Binary(bytes) => return Poll::Ready(text(bytes)),
                        Message::Close(frame) => {
                            // The answer is queued; a broker that is gone need not get it.
                            let _ = Pin::new(&mut self.socket).poll_flush(cx);
                            let (code, reason) = frame.map_or((1005, String::new()), |frame| {
                                (u16::from(frame.code), frame.reason.as_str().to_owned())
                            });
                            return Poll::Ready(Err(Closed::new(code, &reason).into()));
                        }
                        Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
                    }
                }
                Poll::Pending => {
                    if self.timer.as_mut().poll(cx).is_pending() {
                        return Poll::Pending;
                    }
                    self.keep_alive()?;
                }
            }
        }
    }

    /// Writes what is queued as far as the socket takes it.
    fn write(&mut self, cx: &mut Context<'_>) -> Result<(), ClientError> {
        while !self.outbox.is_empty() {
            match Pin::new(&mut self.socket).poll_ready(cx) {
                Poll::Pending => return Ok(()),
                Poll::Ready(ready) => ready.map_err(failure)?,
            }
            if let Some(message) = self.outbox.pop_front() {
                Pin::new(&mut self.socket).start_send(message).map_err(failure)?;
            }
        }
        match Pin::new(&mut self.socket).poll_flush(cx) {
            Poll::Ready(Err(error)) => Err(failure(error)),
            Poll::Ready(Ok(())) | Poll::Pending => Ok(()),
        }
    }

    /// The timer went off: ping, or give up.
    fn keep_alive(&mut self) -> Result<(), ClientError> {
        let now = Instant::now();
        let due = self.heard + self.options.ping;
        let next = if now < due {
            due
        } else if self.pinged {
            return Err(ClientError::Lost("no answer to a ping".to_owned()));
        } else {
            self.pinged = true;
            self.outbox.push_back(Message::Ping(Bytes::new()));
            now + self.options.pong_timeout
        };
        self.timer.as_mut().reset(next);
        Ok(())
    }
}

async fn upgrade(
    address: &Address,
    target: &str,
    options: &Options,
) -> Result<WebSocketStream<Transport>, ClientError> {
    let socket = Transport::open(address, &options.trust).await?;
    let uri = format!("ws://{}{target}", address.host_header());
    let refused = |why: String| ClientError::Address { uri: address.to_string(), why };
    let mut request = uri.into_client_request().map_err(|error| refused(error.to_string()))?;
    if let Some(authorization) = address.authorization() {
        let value = HeaderValue::try_from(authorization).map_err(|error| refused(error.to_string()))?;
        request.headers_mut().insert("Authorization", value);
    }
    let limit = Some(options.max_message_bytes);
    let config = WebSocketConfig::default().max_message_size(limit).max_frame_size(limit);
    match client_async_with_config(request, socket, Some(config)).await {
        Ok((socket, _)) => Ok(socket),
        Err(Error::Http(response)) => Err(ClientError::Http { status: response.status().as_u16() }),
        Err(error) => Err(failure(error)),
    }
}

/// A binary frame holds the same text.
fn text(bytes: Bytes) -> Result<Utf8Bytes, ClientError> {
    Utf8Bytes::try_from(bytes).map_err(|_| ClientError::Protocol("a frame that is not UTF-8".to_owned()))
}

fn failure(error: Error) -> ClientError {
    match error {
        Error::ConnectionClosed | Error::AlreadyClosed => ClientError::Lost("it was closed".to_owned()),
        Error::Io(error) => ClientError::Lost(error.to_string()),
        Error::Protocol(ProtocolError::ResetWithoutClosingHandshake) => ClientError::Lost("it was reset".to_owned()),
        Error::Protocol(ProtocolError::HandshakeIncomplete) => {
            ClientError::Lost("it ended before the upgrade was answered".to_owned())
        }
        Error::Capacity(CapacityError::MessageTooLong { size, max_size }) => {
            ClientError::Protocol(format!("a frame of {size} bytes, and at most {max_size} are taken"))
        }
        other => ClientError::Protocol(other.to_string()),
    }
}

#[cfg(test)]
#[path = "connection_tests.rs"]
mod tests;
