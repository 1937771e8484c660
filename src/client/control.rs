//! The control API from the other side (wire.md section 11): one call at a time, each on a connection of its own.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, ETAG, HOST, IF_MATCH, IF_NONE_MATCH};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::time::timeout;

use super::address::Address;
use super::error::ClientError;
use super::transport::{Transport, Trust};

/// Largest answer that is read, in bytes.
const MAX_ANSWER_BYTES: usize = 64 << 20;

/// Time for one call.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a failed connection waits for the next attempt, and how many there are.
const RETRY_AFTER: Duration = Duration::from_millis(300);
const ATTEMPTS: usize = 5;

/// Which state a change is meant for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precondition {
    /// The stream is declared for the first time.
    New,
    /// The stream has this revision.
    Revision(u64),
}

/// An answer of the control API.
#[derive(Debug, Clone, PartialEq)]
pub struct ControlAnswer {
    /// The HTTP status.
    pub status: u16,
    /// The revision in the ETag, if there is one.
    pub revision: Option<u64>,
    /// The body; null if it is no JSON.
    pub body: Value,
}

impl ControlAnswer {
    /// The code of a refusal.
    #[must_use]
    pub fn code(&self) -> &str {
        self.body["error"]["code"].as_str().unwrap_or("no code given")
    }
}

/// A broker's control API.
#[derive(Debug, Clone)]
pub struct Control {
    address: Address,
    trust: Trust,
}

impl Control {
    /// The API of the broker at `url`, `http[s]://[user:password@]host[:port]`; `token` goes along as a bearer token, and
    /// `trust` says whose certificates are taken for good under https.
    ///
    /// # Errors
    /// [`ClientError::Address`] when it is no such URL.
    pub fn new(url: &str, token: Option<String>, trust: Trust) -> Result<Self, ClientError> {
        let wrong = |why: &str| ClientError::Address { uri: url.to_owned(), why: why.to_owned() };
        let (scheme, rest) = match url.split_once("://") {
            Some(("http", rest)) => ("ws", rest),
            Some(("https", rest)) => ("wss", rest),
            _ => {
                return Err(wrong("a broker's address begins with http:// or https://, such as http://127.0.0.1:8765"));
            }
        };
        let address = Address::parse(&format!("{scheme}://{rest}")).map_err(|error| match error {
            ClientError::Address { why, .. } => ClientError::Address { uri: url.to_owned(), why },
            other => other,
        })?;
        Ok(Self { address: address.with_token(token), trust })
    }

    /// Whether everything goes under TLS.
    #[must_use]
    pub fn is_secure(&self) -> bool {
        self.address.is_secure()
    }

    /// Reads `path`.
    ///
    /// # Errors
    /// When the broker cannot be reached or answers with something else than HTTP.
    pub async fn get(&self, path: &str) -> Result<ControlAnswer, ClientError> {
        self.repeated(|| self.request(Method::GET, path)).await
    }

    /// Sends a change. A call that gets no answer is repeated under its key, and so is done once.
    ///
    /// # Errors
    /// As [`Control::get`].
    pub async fn change(
        &self,
        method: Method,
        path: &str,
        precondition: Precondition,
        body: &Value,
    ) -> Result<ControlAnswer, ClientError> {
        let key = uuid::Uuid::new_v4().hyphenated().to_string();
        let body = Bytes::from(body.to_string());
        let request = || {
            let request = self.request(method.clone(), path);
            let request = request.header("idempotency-key", &key).header(CONTENT_TYPE, "application/json");
            match precondition {
                Precondition::New => request.header(IF_NONE_MATCH, "*"),
                Precondition::Revision(revision) => request.header(IF_MATCH, format!("\"{revision}\"")),
            }
        };
        self.repeated_with(request, &body).await
    }

    fn request(&self, method: Method, path: &str) -> hyper::http::request::Builder {
        let mut request = Request::builder().method(method).uri(path).header(HOST, self.address.host_header());
        if let Some(authorization) = self.address.authorization() {
            request = request.header(AUTHORIZATION, authorization);
        }
        request
    }

    async fn repeated(
        &self,
        request: impl Fn() -> hyper::http::request::Builder,
    ) -> Result<ControlAnswer, ClientError> {
        self.repeated_with(request, &Bytes::new()).await
    }

    async fn repeated_with(
        &self,
        request: impl Fn() -> hyper::http::request::Builder,
        body: &Bytes,
    ) -> Result<ControlAnswer, ClientError> {
        let mut attempt = 1;
        loop {
            let request = request()
                .body(Full::new(body.clone()))
                .map_err(|error| ClientError::Protocol(format!("the request cannot be made: {error}")))?;
            let called = timeout(CALL_TIMEOUT, self.call(request)).await;
            let timed_out = || ClientError::TimedOut { what: "the broker's answer", after: CALL_TIMEOUT };
            match called.unwrap_or_else(|_| Err(timed_out())) {
                Err(error) if error.is_retryable() && attempt < ATTEMPTS => {
                    attempt += 1;
                    tokio::time::sleep(RETRY_AFTER).await;
                }
                outcome => return outcome,
            }
        }
    }

    async fn call(&self, request: Request<Full<Bytes>>) -> Result<ControlAnswer, ClientError> {
        let socket = Transport::open(&self.address, &self.trust).await?;
        let lost = |error: hyper::Error| ClientError::Lost(error.to_string());
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(socket)).await.map_err(lost)?;
        let driver = tokio::spawn(connection);
        let answer = async {
            let response = sender.send_request(request).await.map_err(lost)?;
            let status = response.status().as_u16();
            let tag = response.headers().get(ETAG).and_then(|tag| tag.to_str().ok());
            let revision = tag.and_then(|tag| tag.trim_matches('"').parse().ok());
            let body = Limited::new(response.into_body(), MAX_ANSWER_BYTES)
                .collect()
                .await
                .map_err(|error| ClientError::Lost(error.to_string()))?
                .to_bytes();
            Ok(ControlAnswer { status, revision, body: serde_json::from_slice(&body).unwrap_or_default() })
        };
        let answer = answer.await;
        driver.abort();
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_urls_of_brokers() {
        for (good, secure) in [
            ("http://127.0.0.1:8765", false),
            ("http://u:p%40@h:1/", false),
            ("http://[::1]:9", false),
            ("https://h", true),
        ] {
            let control = Control::new(good, None, Trust::default()).expect(good);
            assert_eq!(control.is_secure(), secure, "{good}");
        }
        for (bad, why) in [
            ("ftp://h", "begins with http://"),
            ("ws://h", "begins with http://"),
            ("h:1", "begins with http://"),
            ("http://h:x", "no host and port"),
        ] {
            let error = Control::new(bad, None, Trust::default()).expect_err(bad).to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn a_token_goes_before_a_password() {
        let control = Control::new("http://u:p@h", Some("t".to_owned()), Trust::default()).expect("an address");
        let sent = control.request(Method::GET, "/control/v1").body(()).expect("a request");
        assert_eq!(sent.headers()["authorization"], "Bearer t");
        let control = Control::new("http://u:p@h", None, Trust::default()).expect("an address");
        let sent = control.request(Method::GET, "/control/v1").body(()).expect("a request");
        assert_eq!(sent.headers()["authorization"], "Basic dTpw");
    }
}
