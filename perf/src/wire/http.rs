//! The batch API of `docs/batches.md`: every request is one atomic batch, answered when it is durable.

use std::io::Write as _;
use std::net::SocketAddr;

use super::error::excerpt;
use super::{Ask, Found, Opened, Opening, Reply, Request, Sink, Wire, WireError};
use crate::net::http::{self, Answer};
use crate::net::mask::MaskKeys;

/// Columns kept free for the length of a body.
const LENGTH_DIGITS: usize = 10;

/// A client of the batch API.
pub struct StreamcastHttp {
    host: String,
}

impl StreamcastHttp {
    /// For the server at `address`.
    pub fn new(address: SocketAddr) -> Self {
        Self { host: address.to_string() }
    }
}

impl Wire for StreamcastHttp {
    fn opening(&self, ask: &Ask, _: u64, step: u32, received: &[u8]) -> Result<Opening, WireError> {
        match (ask, step) {
            // A request needs nothing before it.
            (Ask::Publish { .. }, _) => Ok(Opening::Ready { used: 0, opened: Opened::default() }),
            (Ask::Subscribe { stream, .. }, 0) => {
                let send = format!("GET /v1/streams/{stream} HTTP/1.1\r\nHost: {}\r\n\r\n", self.host).into_bytes();
                Ok(Opening::Next { used: 0, send })
            }
            (Ask::Subscribe { .. }, _) => match http::answer(received)? {
                None => Ok(Opening::Wait),
                Some(answer) if answer.head.status == 200 => {
                    Ok(Opening::Ready { used: answer.size, opened: Opened::default() })
                }
                Some(_) => Err(WireError::Refused(excerpt(received))),
            },
        }
    }

    fn messages<'b>(&self, bytes: &'b [u8], _: &mut Sink<'_>) -> Result<Found<'b>, WireError> {
        if bytes.is_empty() {
            return Ok(Found::default());
        }
        Err(WireError::Protocol("something unasked: this client only publishes over HTTP".into()))
    }

    fn request(&self, out: &mut Vec<u8>, _: &mut MaskKeys, request: &Request<'_>) {
        // Into memory: it cannot fail.
        let _ = write!(
            out,
            "POST /v1/streams/{}/entries HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: ",
            request.stream, self.host
        );
        let length_at = out.len();
        out.extend_from_slice(&[b' '; LENGTH_DIGITS]);
        out.extend_from_slice(b"\r\n\r\n");
        let body_at = out.len();
        out.extend_from_slice(b"{\"entries\":[");
        for at in 0..u64::from(request.rows) {
            if at > 0 {
                out.push(b',');
            }
            request.writer.write(out, request.first_index + at, request.due_ns);
        }
        out.extend_from_slice(b"],\"returnEntryIds\":false");
        if let Some(seq) = request.seq {
            let _ = write!(out, ",\"idempotencyKey\":\"{}-{seq}-{}\"", request.connection, request.due_ns);
        }
        out.push(b'}');
        let mut digits = itoa::Buffer::new();
        let digits = digits.format(out.len() - body_at).as_bytes();
        out[length_at..length_at + digits.len()].copy_from_slice(digits);
    }

    fn replies(&self, bytes: &[u8], replies: &mut Vec<Reply>, _: &mut Vec<u8>) -> Result<usize, WireError> {
        let mut used = 0;
        while let Some(answer) = http::answer(&bytes[used..])? {
            replies.push(reply(&answer, &bytes[used..]));
            used += answer.size;
        }
        Ok(used)
    }

    fn replays(&self) -> bool {
        false
    }
}

/// What an HTTP answer, with which `bytes` begin, says to a publisher.
pub(super) fn reply(answer: &Answer<'_>, bytes: &[u8]) -> Reply {
    match answer.head.status {
        200..300 => Reply::Ok,
        _ => Reply::Refused(excerpt(&bytes[..answer.size])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::{RowWriter, trade};

    fn request(rows: u32, seq: Option<u64>) -> Vec<u8> {
        let writer = RowWriter::new(&trade()).unwrap();
        let stream = "trades";
        let request = Request { stream, writer: &writer, first_index: 5, rows, due_ns: 7, seq, connection: 3 };
        let mut out = Vec::new();
        StreamcastHttp::new("127.0.0.1:1".parse().unwrap()).request(&mut out, &mut MaskKeys::new(1), &request);
        out
    }

    #[test]
    fn a_request_is_a_batch_of_its_own() {
        for (rows, seq) in [(1, None), (3, Some(9))] {
            let bytes = request(rows, seq);
            let text = String::from_utf8(bytes).unwrap();
            let (head, body) = text.split_once("\r\n\r\n").unwrap();
            assert!(head.starts_with("POST /v1/streams/trades/entries HTTP/1.1\r\nHost: 127.0.0.1:1\r\n"), "{head}");
            let length = head.lines().find_map(|line| line.strip_prefix("Content-Length:")).unwrap();
            assert_eq!(length.trim().parse(), Ok(body.len()));
            let body: serde_json::Value = serde_json::from_str(body).unwrap();
            assert_eq!(body["entries"].as_array().unwrap().len(), rows as usize);
            assert_eq!(body["entries"][0]["id"], 5);
            assert_eq!(body["returnEntryIds"], false);
            assert_eq!(body["idempotencyKey"].as_str(), seq.map(|_| "3-9-7"));
        }
    }

    #[test]
    fn answers_are_replies_and_a_stream_that_is_there_is_a_greeting() {
        let wire = StreamcastHttp::new("127.0.0.1:1".parse().unwrap());
        let bytes =
            b"HTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\n{}HTTP/1.1 429 No\r\ncontent-length: 1\r\n\r\nxHTTP/1";
        let mut replies = Vec::new();
        assert_eq!(wire.replies(bytes, &mut replies, &mut Vec::new()).unwrap(), bytes.len() - 6);
        assert_eq!(replies[0], Reply::Ok);
        assert!(matches!(&replies[1], Reply::Refused(text) if text.contains("429")), "{replies:?}");
        let ask = wire.probe("trades");
        assert!(matches!(wire.opening(&ask, 0, 0, b""), Ok(Opening::Next { .. })));
        assert!(matches!(wire.opening(&ask, 0, 1, b"HTTP/1.1 200 OK\r\n"), Ok(Opening::Wait)));
        assert!(matches!(wire.opening(&ask, 0, 1, b"HTTP/1.1 200 OK\r\n\r\n"), Ok(Opening::Ready { .. })));
        assert!(matches!(wire.opening(&ask, 0, 1, b"HTTP/1.1 404 No\r\n\r\n"), Err(WireError::Refused(_))));
    }
}
