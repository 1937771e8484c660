//! What a server says of itself: its metrics in Prometheus' text form (docs/operations.md).

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::net::http::{self, HttpError};

/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Bytes that an answer may have.
const MAX_BYTES: usize = 4 << 20;

/// Why there are no metrics.
#[derive(Debug, thiserror::Error)]
pub enum MetricsError {
    #[error("cannot read /metrics: {0}")]
    Io(#[from] io::Error),
    #[error("cannot read /metrics: {0}")]
    Http(#[from] HttpError),
    #[error("/metrics was answered with status {0}")]
    Status(u16),
    #[error("/metrics is longer than {MAX_BYTES} bytes")]
    Long,
    #[error("/metrics has no {0} of stream {1}")]
    Missing(&'static str, String),
}

/// Metrics as they were at one moment.
#[derive(Debug)]
pub struct Metrics(String);

impl Metrics {
    /// Asks the server at `address`, which must answer in clear text.
    ///
    /// # Errors
    /// When it does not answer, or not with metrics.
    pub fn read(address: SocketAddr) -> Result<Self, MetricsError> {
        let mut socket = TcpStream::connect_timeout(&address, PATIENCE)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        write!(socket, "GET /metrics HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n")?;
        let mut received = Vec::new();
        let mut chunk = vec![0; 64 << 10];
        loop {
            if let Some(answer) = http::answer(&received)? {
                return match answer.head.status {
                    200 => Ok(Self(String::from_utf8_lossy(answer.body).into_owned())),
                    other => Err(MetricsError::Status(other)),
                };
            }
            if received.len() > MAX_BYTES {
                return Err(MetricsError::Long);
            }
            match socket.read(&mut chunk)? {
                0 => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                count => received.extend_from_slice(&chunk[..count]),
            }
        }
    }

    /// The whole number `name` of a stream, whose name must be a plain word.
    ///
    /// # Errors
    /// When it is not there.
    pub fn of_stream(&self, name: &'static str, stream: &str) -> Result<u64, MetricsError> {
        let label = format!("{{stream=\"{stream}\"}}");
        let value = |line: &str| line.strip_prefix(name)?.strip_prefix(&label)?.trim().parse::<f64>().ok();
        let found = self.0.lines().find_map(value).filter(|value| *value >= 0.0);
        found.map(|value| value as u64).ok_or_else(|| MetricsError::Missing(name, stream.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// A server that answers one request and is gone.
    fn answering(answer: &'static str) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            let mut request = [0; 1024];
            let count = socket.read(&mut request).unwrap();
            assert!(request[..count].starts_with(b"GET /metrics HTTP/1.1\r\n"));
            let (first, second) = answer.split_at(answer.len() / 2);
            socket.write_all(first.as_bytes()).unwrap();
            socket.write_all(second.as_bytes()).unwrap();
        });
        address
    }

    #[test]
    fn numbers_of_a_stream() {
        let address = answering(
            "HTTP/1.1 200 OK\r\ncontent-length: 109\r\n\r\n# TYPE x_rows counter\nx_rows{stream=\"ab\"} 7\nx_rows{stream=\"a\"} 12\nx_rows_total{stream=\"a\"} 5\nx{stream=\"a\"} -1\n",
        );
        let metrics = Metrics::read(address).unwrap();
        assert_eq!(metrics.of_stream("x_rows", "a").unwrap(), 12);
        assert_eq!(metrics.of_stream("x_rows", "ab").unwrap(), 7);
        for (name, stream) in [("x", "a"), ("x_rows", "b"), ("rows", "a")] {
            let error = metrics.of_stream(name, stream).unwrap_err();
            assert_eq!(error.to_string(), format!("/metrics has no {name} of stream {stream}"));
        }
    }

    #[test]
    fn what_is_no_answer_is_told() {
        for (answer, told) in [
            ("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n", "/metrics was answered with status 404"),
            ("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nshort", "cannot read /metrics: unexpected end of file"),
            ("220 smtp.example ESMTP\r\n\r\n", "cannot read /metrics: the server sent something that is not HTTP/1.1"),
        ] {
            assert_eq!(Metrics::read(answering(answer)).unwrap_err().to_string(), told);
        }
    }
}
