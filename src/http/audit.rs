//! The audit log: who changed what, and who tried to. Target `audit` of the log; never a query or a body.

use axum::http::{Method, Request, StatusCode};

use super::caller::{Caller, PeerAddress};

/// What there is to say of a request that changes something besides adding rows.
pub struct Record {
    method: Method,
    path: String,
    peer: Option<std::net::IpAddr>,
}

/// Longest path that is written, in bytes.
const MAX_PATH_BYTES: usize = 512;

impl Record {
    /// The record of a request, if it is one for the log.
    pub fn of<B>(request: &Request<B>) -> Option<Self> {
        let path = request.uri().path();
        let ours = path.starts_with("/control/") || path.starts_with("/v1/");
        let changes = match *request.method() {
            Method::PUT | Method::PATCH | Method::DELETE => true,
            // Rows are data: the streams themselves keep them.
            Method::POST => !path.ends_with("/entries"),
            _ => false,
        };
        (ours && changes).then(|| Self {
            method: request.method().clone(),
            path: path.get(..MAX_PATH_BYTES).unwrap_or(path).to_owned(),
            peer: request.extensions().get::<PeerAddress>().map(|peer| peer.0),
        })
    }

    /// Writes it, with who asked and what came of it.
    pub fn write(self, caller: &Caller, status: StatusCode) {
        let principal = if caller.name().is_empty() { "-" } else { caller.name() };
        let peer = self.peer.map_or_else(|| "-".to_owned(), |peer| peer.to_canonical().to_string());
        tracing::info!(
            target: "audit",
            principal,
            peer,
            method = self.method.as_str(),
            path = self.path,
            status = status.as_u16(),
            "control"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_recorded_and_reading_and_rows_are_not() {
        for (method, path, recorded) in [
            ("PUT", "/control/v1/streams/a?x=secret", true),
            ("POST", "/control/v1/streams/a/migrations", true),
            ("POST", "/v1/streams", true),
            ("DELETE", "/v1/streams/a", true),
            ("POST", "/v1/tickets", true),
            ("POST", "/v1/streams/a/entries", false),
            ("GET", "/control/v1/streams", false),
            ("POST", "/stats", false),
        ] {
            let request = Request::builder().method(method).uri(path).body(()).expect("a request");
            let record = Record::of(&request);
            assert_eq!(record.is_some(), recorded, "{method} {path}");
            assert!(record.is_none_or(|record| !record.path.contains("secret")));
        }
    }
}
