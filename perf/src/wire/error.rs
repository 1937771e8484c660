//! What can go wrong on a connection.

use crate::net::http::HttpError;
use crate::net::tls::TlsError;
use crate::net::websocket::FrameError;

/// Why a connection ended or could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    #[error("the server refused the connection: {0}")]
    Refused(String),
    #[error("the server closed with {code} {reason}")]
    Closed { code: u16, reason: String },
    #[error("the server ended the connection")]
    Ended,
    #[error("the server sent what its protocol does not allow: {0}")]
    Protocol(String),
    #[error("a message is longer than {0} bytes")]
    TooLong(usize),
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error(transparent)]
    Http(#[from] HttpError),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// The start of bytes from outside, fit for an error message.
pub(super) fn excerpt(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(160)]).escape_debug().to_string()
}
