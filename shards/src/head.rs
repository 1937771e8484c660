//! The first bytes of a connection: is it a WebSocket upgrade, a plain HTTP request, or nothing yet?

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use tungstenite::handshake::derive_accept_key;

/// The longest request head the shard waits for, in bytes; a longer one is handed over unread.
pub const MAX_HEAD_BYTES: usize = 64 * 1024;

/// Headers a request may have before it is handed over.
const MAX_HEADERS: usize = 64;

/// What the application found out about whoever asks, on its way from where that happens to the session.
#[derive(Clone)]
pub struct Pass(pub Arc<dyn Any + Send + Sync>);

impl fmt::Debug for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pass")
    }
}

impl PartialEq for Pass {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Pass {}

/// What an upgrade asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpgradeHead {
    /// The request target as sent: path and query, still percent-encoded.
    pub target: Vec<u8>,
    /// Every header as sent, in order.
    pub headers: Vec<(String, Vec<u8>)>,
    /// What the application knows of who asks.
    pub pass: Option<Pass>,
}

impl UpgradeHead {
    /// The first header called `name`, in any case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        self.headers.iter().find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_slice())
    }
}

/// What the bytes read so far are.
#[derive(Debug, PartialEq, Eq)]
pub enum Head {
    /// The head is not complete.
    Partial,
    /// A well-formed WebSocket upgrade: the head ends at `length`, and `response` is the 101.
    Upgrade {
        /// Bytes of the head.
        length: usize,
        /// What was asked for.
        head: UpgradeHead,
        /// The whole answer that accepts it.
        response: Vec<u8>,
    },
    /// Anything else: the HTTP plane decides.
    Plain,
}

/// Looks at the bytes read so far (RFC 6455 section 4.2.1, RFC 9112 section 3).
#[must_use]
pub fn parse(bytes: &[u8]) -> Head {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let length = match request.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) if bytes.len() < MAX_HEAD_BYTES => return Head::Partial,
        Ok(httparse::Status::Partial) | Err(_) => return Head::Plain,
    };
    let Some(key) = upgrade_key(&request) else { return Head::Plain };
    let response = accept_response(key);
    let head = UpgradeHead {
        target: request.path.unwrap_or("/").as_bytes().to_vec(),
        headers: request.headers.iter().map(|header| (header.name.to_owned(), header.value.to_vec())).collect(),
        pass: None,
    };
    Head::Upgrade { length, head, response }
}

/// The answer that accepts an upgrade with this `Sec-WebSocket-Key`. No extension and no subprotocol is ever
/// taken up (wire.md section 1.1).
#[must_use]
pub fn accept_response(key: &[u8]) -> Vec<u8> {
    let accept = derive_accept_key(key);
    let mut response = Vec::with_capacity(160);
    response.extend_from_slice(
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ",
    );
    response.extend_from_slice(accept.as_bytes());
    response.extend_from_slice(b"\r\n\r\n");
    response
}

/// The key of a request that is a complete and correct upgrade, else nothing.
fn upgrade_key<'a>(request: &httparse::Request<'_, 'a>) -> Option<&'a [u8]> {
    let (mut upgrade, mut connection, mut version, mut key, mut host) = (false, false, None, None, false);
    for header in request.headers.iter() {
        let name = header.name;
        if name.eq_ignore_ascii_case("upgrade") {
            upgrade |= has_token(header.value, b"websocket");
        } else if name.eq_ignore_ascii_case("connection") {
            connection |= has_token(header.value, b"upgrade");
        } else if name.eq_ignore_ascii_case("sec-websocket-version") {
            if version.replace(trim(header.value)).is_some() {
                return None;
            }
        } else if name.eq_ignore_ascii_case("sec-websocket-key") {
            if key.replace(trim(header.value)).is_some() {
                return None;
            }
        } else if name.eq_ignore_ascii_case("host") {
            if std::mem::replace(&mut host, true) {
                return None;
            }
        } else if name.eq_ignore_ascii_case("transfer-encoding")
            || (name.eq_ignore_ascii_case("content-length") && trim(header.value) != b"0")
        {
            return None;
        }
    }
    let key = key.filter(|key| is_key(key))?;
    let whole = request.method == Some("GET") && request.version == Some(1) && host;
    (whole && upgrade && connection && version == Some(b"13")).then_some(key)
}

/// Sixteen bytes in base64: 22 characters and two paddings.
fn is_key(key: &[u8]) -> bool {
    key.len() == 24
        && key.ends_with(b"==")
        && key[..22].iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/'))
}

fn has_token(value: &[u8], token: &[u8]) -> bool {
    value.split(|byte| *byte == b',').any(|part| trim(part).eq_ignore_ascii_case(token))
}

fn trim(value: &[u8]) -> &[u8] {
    value.trim_ascii()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "GET /trades?offset=0 HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n\
                        Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";

    #[test]
    fn an_upgrade_is_recognised_with_what_follows_it() {
        let mut bytes = GOOD.as_bytes().to_vec();
        bytes.extend_from_slice(b"\x81\x80");
        let Head::Upgrade { length, head, response } = parse(&bytes) else { panic!("not an upgrade") };
        assert_eq!(length, GOOD.len());
        assert_eq!(head.target, b"/trades?offset=0");
        assert_eq!(head.header("host"), Some(b"x".as_slice()));
        // The key and the answer are the example of RFC 6455 section 1.3.
        assert!(String::from_utf8(response).unwrap().contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    }

    #[test]
    fn a_head_is_awaited_until_it_is_whole() {
        for length in 0..GOOD.len() {
            assert_eq!(parse(&GOOD.as_bytes()[..length]), Head::Partial, "{length}");
        }
    }

    #[test]
    fn what_is_not_a_correct_upgrade_goes_to_http() {
        for (from, to) in [
            ("GET", "POST"),
            ("Sec-WebSocket-Version: 13", "Sec-WebSocket-Version: 8"),
            ("dGhlIHNhbXBsZSBub25jZQ==", "AA=="),
            ("Upgrade: websocket", "Upgrade: h2c"),
            ("keep-alive, Upgrade", "keep-alive"),
            ("Host: x\r\n", ""),
            ("Host: x", "Host: x\r\nhost: y"),
            ("Host: x", "Host: x\r\nContent-Length: 4"),
            ("HTTP/1.1", "HTTP/1.0"),
            ("HTTP/1.1", "HTTP/9.9"),
        ] {
            assert_eq!(parse(GOOD.replacen(from, to, 1).as_bytes()), Head::Plain, "{from} -> {to}");
        }
    }

    #[test]
    fn a_head_that_never_ends_is_handed_over() {
        let endless = [b"GET / HTTP/1.1\r\nA: ".to_vec(), vec![b'b'; MAX_HEAD_BYTES]].concat();
        assert_eq!(parse(&endless), Head::Plain);
    }
}
