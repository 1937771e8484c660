//! A WebSocket request on a connection that began as HTTP: judged, answered 101, and handed back.

use std::io::Read;

use axum::body::Body;
use axum::http::header::{
    CONNECTION, HeaderName, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use axum::http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use rustls::ServerConnection;
use tokio_rustls::server::TlsStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use super::caller::Caller;
use super::errors::{method_not_allowed, text, with_header};
use super::handed::HandedSocket;
use super::settings;
use super::spelled::Spelled;
use crate::auth::{Action, Pass, Resource, without_ticket};
use crate::tls::Handshaken;
use crate::wire;

/// Whether a request asks for a WebSocket, well-formed or not.
pub fn asks_for_websocket<B>(request: &Request<B>) -> bool {
    has_token(request.headers(), UPGRADE, "websocket")
}

/// Answers a request for a WebSocket (RFC 6455 section 4.2): 101 and the connection goes to `on_upgrade`, or why not.
pub fn answer<B>(mut request: Request<B>, caller: &Caller, on_upgrade: &settings::OnUpgrade) -> Response<Body> {
    let target = request.uri().path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string);
    let (stream, publish) = wire::target::wanted(target.as_bytes());
    let action = if publish { Action::DataPublish } else { Action::DataRead };
    if let Err(refused) = caller.require(action, Resource::Stream(&stream)) {
        return refused;
    }
    let accept = match judge(request.method(), request.version(), request.headers()) {
        Ok(accept) => accept,
        Err(refusal) => return refusal.response(),
    };
    let head = settings::UpgradeHead {
        target: String::from_utf8_lossy(&without_ticket(target.as_bytes())).into_owned(),
        pass: Pass { principal: caller.principal().clone(), action, stream },
        headers: request
            .headers()
            .iter()
            .map(|(name, value)| (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
            .collect(),
    };
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(hand_back(upgrade, head, on_upgrade.clone()));
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    response.headers_mut().insert(UPGRADE, HeaderValue::from_static("websocket"));
    response.headers_mut().insert(SEC_WEBSOCKET_ACCEPT, accept);
    response
}

/// Why a request gets no WebSocket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refusal {
    /// It is not a GET.
    Method,
    /// It asks for another version of the protocol.
    Version,
    /// A part of it is missing or malformed; what, in words.
    Malformed(&'static str),
}

impl Refusal {
    fn response(self) -> Response<Body> {
        match self {
            Self::Method => method_not_allowed("GET"),
            Self::Version => with_header(
                text(StatusCode::UPGRADE_REQUIRED, "only websocket version 13 is spoken here\n"),
                SEC_WEBSOCKET_VERSION,
                HeaderValue::from_static("13"),
            ),
            Self::Malformed(what) => text(StatusCode::BAD_REQUEST, format!("{what}\n")),
        }
    }
}

/// The value of `Sec-WebSocket-Accept`, or the refusal.
fn judge(method: &Method, version: Version, headers: &HeaderMap) -> Result<HeaderValue, Refusal> {
    if method != Method::GET {
        return Err(Refusal::Method);
    }
    if version != Version::HTTP_11 {
        return Err(Refusal::Malformed("a websocket needs HTTP/1.1"));
    }
    if !has_token(headers, CONNECTION, "upgrade") {
        return Err(Refusal::Malformed("the field connection does not say upgrade"));
    }
    match headers.get(SEC_WEBSOCKET_VERSION).map(HeaderValue::as_bytes) {
        Some(b"13") => {}
        Some(_) => return Err(Refusal::Version),
        None => return Err(Refusal::Malformed("the field sec-websocket-version is missing")),
    }
    let key = headers.get(SEC_WEBSOCKET_KEY).map(HeaderValue::as_bytes).unwrap_or_default();
    if !is_key(key) {
        return Err(Refusal::Malformed("the field sec-websocket-key is not 16 bytes in base64"));
    }
    HeaderValue::from_str(&derive_accept_key(key)).map_err(|_| Refusal::Malformed("the key has no answer"))
}

/// Whether the text is base64 of exactly 16 bytes: 22 digits, the last with four spare bits, and the padding.
fn is_key(key: &[u8]) -> bool {
    let digit = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    key.len() == 24 && key[..22].iter().all(digit) && key.ends_with(b"==")
}

/// Whether a field holds `token` in one of its comma-separated lists, in any case.
fn has_token(headers: &HeaderMap, name: HeaderName, token: &str) -> bool {
    headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|list| list.split(','))
        .any(|item| item.trim().eq_ignore_ascii_case(token))
}

/// Waits until the answer is written, then gives the socket away with what the peer sent behind its request.
async fn hand_back(upgrade: OnUpgrade, head: settings::UpgradeHead, on_upgrade: settings::OnUpgrade) {
    let Ok(upgraded) = upgrade.await else {
        return; // The peer left before the answer was written.
    };
    let parted = match upgraded.downcast::<TokioIo<Spelled<HandedSocket>>>() {
        Ok(parts) => {
            let (socket, held) = parts.io.into_inner().into_parts();
            socket.into_parts().map(|(socket, unread)| (socket, [parts.read_buf.to_vec(), held, unread].concat(), None))
        }
        Err(upgraded) => match upgraded.downcast::<TokioIo<Spelled<TlsStream<HandedSocket>>>>() {
            Ok(parts) => {
                let (secured, held) = parts.io.into_inner().into_parts();
                let (socket, keys) = secured.into_inner();
                part_encrypted(socket, keys, [parts.read_buf.to_vec(), held].concat())
            }
            Err(_) => Err(std::io::Error::other("it is not one that was handed over")),
        },
    };
    match parted {
        Ok((socket, leftover, handshaken)) => on_upgrade(socket, head, leftover, handshaken),
        Err(error) => tracing::warn!(%error, "an upgraded connection was lost on its way back to a shard"),
    }
}

type Parted = (std::net::TcpStream, Vec<u8>, Option<Handshaken>);

/// Takes an encrypted connection apart. What was read of it and not opened yet is opened here.
fn part_encrypted(socket: HandedSocket, mut keys: ServerConnection, mut plain: Vec<u8>) -> std::io::Result<Parted> {
    let at_edge = socket.is_at_edge();
    let (socket, unread) = socket.into_parts()?;
    let mut unread = unread.as_slice();
    loop {
        let state = keys.process_new_packets().map_err(std::io::Error::other)?;
        let begin = plain.len();
        plain.resize(begin + state.plaintext_bytes_to_read(), 0);
        keys.reader().read_exact(&mut plain[begin..])?;
        if unread.is_empty() {
            return Ok((socket, plain, Some(Handshaken { keys: Box::new(keys), at_edge })));
        }
        keys.read_tls(&mut unread)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: [(&str, &str); 4] = [
        ("connection", "keep-alive, Upgrade"),
        ("upgrade", "WebSocket"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("sec-websocket-version", "13"),
    ];

    fn request(method: Method, changed: (&str, Option<&str>)) -> Request<()> {
        let mut builder = Request::builder().method(method).uri("/r");
        for (name, value) in GOOD {
            if name != changed.0 {
                builder = builder.header(name, value);
            }
        }
        if let Some(value) = changed.1 {
            builder = builder.header(changed.0, value);
        }
        builder.body(()).expect("a request")
    }

    #[test]
    fn a_request_is_judged_as_rfc_6455_asks() {
        for (name, value, status) in [
            ("x", None, 101),
            ("sec-websocket-key", None, 400),
            ("sec-websocket-key", Some("AA=="), 400),
            ("sec-websocket-key", Some("dGhlIHNhbXBsZSBub25jZQ!="), 400),
            ("sec-websocket-key", Some("dGhlIHNhbXBsZSBub25jZS0tLS0="), 400),
            ("sec-websocket-version", None, 400),
            ("sec-websocket-version", Some("8"), 426),
            ("connection", Some("keep-alive"), 400),
        ] {
            let request = request(Method::GET, (name, value));
            assert!(asks_for_websocket(&request));
            let got = match judge(request.method(), request.version(), request.headers()) {
                Ok(accept) => {
                    assert_eq!(accept, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
                    101
                }
                Err(refusal) => refusal.response().status().as_u16(),
            };
            assert_eq!(got, status, "{name}: {value:?}");
        }
    }

    #[test]
    fn another_version_is_told_which_one_is_spoken_and_other_methods_which_is_allowed() {
        let other = request(Method::GET, ("sec-websocket-version", Some("8")));
        let refusal = judge(other.method(), other.version(), other.headers()).expect_err("refused").response();
        assert_eq!(refusal.headers()["sec-websocket-version"], "13");
        let post = request(Method::POST, ("x", None));
        let refusal = judge(post.method(), post.version(), post.headers()).expect_err("refused").response();
        assert_eq!((refusal.status().as_u16(), &refusal.headers()["allow"]), (405, &HeaderValue::from_static("GET")));
    }

    #[test]
    fn another_protocol_is_no_websocket() {
        assert!(!asks_for_websocket(&request(Method::GET, ("upgrade", Some("h2c")))));
    }
}
