//! Where a stream is: `ws[s]://[user:password@]host[:port]/name[?query]`, and the request targets made from it
//! (wire.md sections 1.3 and 1.4).

use std::fmt;

use super::error::ClientError;

/// A stream's address, split into the parts a request is made of. The query's own `offset`, `where`, `publish` and
/// `publisher` are taken out of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// Whether everything goes under TLS.
    secure: bool,
    /// Host name or address, without the brackets of IPv6.
    host: String,
    /// TCP port; 80 when the URI has none, 443 under TLS.
    port: u16,
    /// `user:password`, percent-decoded.
    credentials: Option<String>,
    /// A bearer token, which goes before user and password.
    token: Option<String>,
    /// Percent-encoded path, with its leading slash.
    path: String,
    /// What is left of the query, as written.
    query: Vec<String>,
    /// `offset=` of the URI.
    pub offset: Option<String>,
    /// `where=` of the URI: JSON text.
    pub filter: Option<String>,
    /// `publisher=` of the URI.
    pub publisher: Option<String>,
}

impl Address {
    /// Reads a URI.
    ///
    /// # Errors
    /// [`ClientError::Address`] when it is no `ws://` or `wss://` URI.
    pub fn parse(uri: &str) -> Result<Self, ClientError> {
        parse(uri).map_err(|why| ClientError::Address { uri: uri.to_owned(), why })
    }

    /// Whether everything goes under TLS.
    #[must_use]
    pub fn is_secure(&self) -> bool {
        self.secure
    }

    /// Shows this bearer token instead of user and password.
    #[must_use]
    pub fn with_token(self, token: Option<String>) -> Self {
        Self { token, ..self }
    }

    /// `host:port` as a resolver takes it.
    #[must_use]
    pub fn socket(&self) -> (&str, u16) {
        (&self.host, self.port)
    }

    /// The stream's name, decoded as the broker decodes it.
    #[must_use]
    pub fn stream(&self) -> String {
        decode(&self.path, false).trim_start_matches('/').to_owned()
    }

    /// Value of the `Host` header.
    #[must_use]
    pub fn host_header(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        if self.port == default_port(self.secure) { host } else { format!("{host}:{}", self.port) }
    }

    /// Value of the `Authorization` header, when there is a token or the URI has a user.
    #[must_use]
    pub fn authorization(&self) -> Option<String> {
        if let Some(token) = &self.token {
            return Some(format!("Bearer {token}"));
        }
        let credentials = self.credentials.as_ref()?;
        Some(format!("Basic {}", data_encoding::BASE64.encode(credentials.as_bytes())))
    }

    /// Target of a subscription. `offset` 0 is the earliest row; `filter` is JSON text.
    #[must_use]
    pub fn subscribe_target(&self, offset: Option<u64>, filter: Option<&str>) -> String {
        let offset = offset.map(|offset| format!("offset={offset}"));
        let filter = filter.map(|filter| format!("where={}", encode(filter)));
        self.target([offset, filter])
    }

    /// Target of a publisher; with an id its rows are numbered (wire.md section 5).
    #[must_use]
    pub fn publish_target(&self, publisher: Option<&str>) -> String {
        let publisher = publisher.map(|id| format!("publisher={}", encode(id)));
        self.target([Some("publish".to_owned()), publisher])
    }

    fn target(&self, added: [Option<String>; 2]) -> String {
        let parts: Vec<String> = self.query.iter().cloned().chain(added.into_iter().flatten()).collect();
        if parts.is_empty() { self.path.clone() } else { format!("{}?{}", self.path, parts.join("&")) }
    }
}

impl fmt::Display for Address {
    /// The URI without user and query, for messages.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}{}", if self.secure { "wss" } else { "ws" }, self.host_header(), self.path)
    }
}

fn parse(uri: &str) -> Result<Address, String> {
    let (secure, rest) = match uri.split_once("://") {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("ws") => (false, rest),
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("wss") => (true, rest),
        _ => {
            return Err("a stream's address begins with ws:// or wss://, such as ws://127.0.0.1:8765/trades".to_owned());
        }
    };
    if uri.contains('#') {
        return Err("a `#` cannot stand in an address; in a stream name it is written %23".to_owned());
    }
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, rest) = rest.split_at(end);
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (user, server) = match authority.rsplit_once('@') {
        Some((user, server)) => (Some(user), server),
        None => (None, authority),
    };
    let (host, port) = host_and_port(server)?;
    let mut address = Address {
        secure,
        host,
        port: port.unwrap_or(default_port(secure)),
        credentials: user.map(credentials),
        token: None,
        path: if path.is_empty() { "/".to_owned() } else { encode_path(path) },
        query: Vec::new(),
        offset: None,
        filter: None,
        publisher: None,
    };
    for segment in query.split('&').filter(|segment| !segment.is_empty()) {
        let (key, value) = segment.split_once('=').unwrap_or((segment, ""));
        let value = || Some(decode(value, true));
        match decode(key, true).as_str() {
            "offset" => address.offset = value(),
            "where" => address.filter = value(),
            "publisher" => address.publisher = value(),
            "publish" => {}
            _ => address.query.push(encode_query(segment)),
        }
    }
    Ok(address)
}

fn default_port(secure: bool) -> u16 {
    if secure { 443 } else { 80 }
}

fn host_and_port(server: &str) -> Result<(String, Option<u16>), String> {
    let (host, port) = match server.strip_prefix('[').and_then(|inner| inner.split_once(']')) {
        Some((host, rest)) => (host, rest),
        None => server.split_at(server.rfind(':').unwrap_or(server.len())),
    };
    let plain = |c: char| c.is_ascii_graphic() && !matches!(c, '[' | ']' | '@' | '\\' | '"' | '<' | '>');
    if host.is_empty() || !host.chars().all(plain) {
        return Err(format!("`{server}` is no host and port"));
    }
    match port.strip_prefix(':') {
        None if port.is_empty() => Ok((host.to_owned(), None)),
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => match digits.parse() {
            Ok(port) if port != 0 => Ok((host.to_owned(), Some(port))),
            _ => Err(format!("`{digits}` is no port; ports are 1 to 65535")),
        },
        _ => Err(format!("`{server}` is no host and port")),
    }
}

fn credentials(user: &str) -> String {
    let (user, password) = user.split_once(':').unwrap_or((user, ""));
    format!("{}:{}", decode(user, false), decode(password, false))
}

/// Percent-encodes everything but the unreserved characters of RFC 3986.
fn encode(text: &str) -> String {
    escape(text, |byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~'))
}

/// Encodes what cannot stand in a path as it is; escapes that are there already stay.
fn encode_path(text: &str) -> String {
    escape(text, |byte| {
        byte.is_ascii_graphic() && !matches!(byte, b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'}')
    })
}

fn encode_query(text: &str) -> String {
    escape(text, |byte| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'<' | b'>'))
}

fn escape(text: &str, plain: impl Fn(u8) -> bool) -> String {
    use fmt::Write as _;
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if plain(byte) {
            out.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

/// Percent-decodes as UTF-8 with replacement; `form` also takes `+` for a space.
fn decode(text: &str, form: bool) -> String {
    let hex = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16));
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let escaped = (byte == b'%').then(|| hex(bytes.get(at + 1)).zip(hex(bytes.get(at + 2)))).flatten();
        match escaped {
            Some((high, low)) => {
                out.extend(u8::try_from(high * 16 + low));
                at += 3;
            }
            None => {
                out.push(if form && byte == b'+' { b' ' } else { byte });
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(uri: &str) -> Address {
        Address::parse(uri).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn splits_a_uri() {
        for (uri, host, port, stream, header) in [
            ("ws://localhost:8765/trades", "localhost", 8765, "trades", "localhost:8765"),
            ("WS://h", "h", 80, "", "h"),
            ("wss://h/a", "h", 443, "a", "h"),
            ("WSS://h:80/a", "h", 80, "a", "h:80"),
            ("ws://h:443/a", "h", 443, "a", "h:443"),
            ("ws://[::1]:9/a%20b/c", "::1", 9, "a b/c", "[::1]:9"),
            ("ws://[::1]/a", "::1", 80, "a", "[::1]"),
            ("ws://u:p@h:1/é x?z=1", "h", 1, "é x", "h:1"),
            ("ws://h:1?offset=3", "h", 1, "", "h:1"),
        ] {
            let address = address(uri);
            assert_eq!(address.socket(), (host, port), "{uri}");
            assert_eq!(address.stream(), stream, "{uri}");
            assert_eq!(address.host_header(), header, "{uri}");
        }
    }

    #[test]
    fn makes_targets() {
        let plain = address("ws://h/trades");
        assert_eq!(plain.subscribe_target(None, None), "/trades");
        assert_eq!(plain.subscribe_target(Some(0), None), "/trades?offset=0");
        assert_eq!(
            plain.subscribe_target(Some(7), Some("{\"a b\":\"é+\"}")),
            "/trades?offset=7&where=%7B%22a%20b%22%3A%22%C3%A9%2B%22%7D"
        );
        assert_eq!(plain.publish_target(None), "/trades?publish");
        assert_eq!(plain.publish_target(Some("en r/1")), "/trades?publish&publisher=en%20r%2F1");
        let full = address("ws://h/é b?offset=5&x=%41 y&where=%7B%7D&publish&publisher=p+q");
        assert_eq!(full.offset.as_deref(), Some("5"));
        assert_eq!(full.filter.as_deref(), Some("{}"));
        assert_eq!(full.publisher.as_deref(), Some("p q"));
        assert_eq!(full.subscribe_target(None, None), "/%C3%A9%20b?x=%41%20y");
    }

    #[test]
    fn shows_no_password() {
        let address = address("ws://me%3A:s%20cret@h:1/r?token=9");
        assert_eq!(address.to_string(), "ws://h:1/r");
        assert_eq!(address.authorization().as_deref(), Some("Basic bWU6OnMgY3JldA=="));
        assert_eq!(address.with_token(Some("t".to_owned())).authorization().as_deref(), Some("Bearer t"));
        assert_eq!(self::address("wss://u:p@h/r").to_string(), "wss://h/r");
    }

    #[test]
    fn refuses_what_is_no_address() {
        for uri in [
            "",
            "trades",
            "http://h/",
            "wss:/h/",
            "ws://",
            "ws:///x",
            "ws://h:0/",
            "ws://h:70000/",
            "ws://h:x/",
            "ws://h:+1/",
            "ws://[::1/",
            "ws://[::1]x/",
            "ws://a b/",
            "ws://h/#x",
            "ws://[]:1/",
        ] {
            assert!(Address::parse(uri).is_err(), "{uri}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_name_survives_the_way_there(name in "\\PC{0,40}") {
            let uri = format!("ws://h/{}", encode(&name));
            proptest::prop_assert_eq!(decode(&encode(&name), true), name.clone());
            proptest::prop_assert_eq!(address(&uri).stream(), name.trim_start_matches('/'));
        }

        #[test]
        fn any_text_is_judged_without_a_panic(text in "(ws://)?\\PC{0,60}") {
            let _ = Address::parse(&text);
        }
    }
}
