//! Nchan, the fan-out module of nginx: subscribers on WebSockets, publishers by HTTP POST on a kept connection.

use std::net::SocketAddr;

use super::error::excerpt;
use super::http::reply;
use super::streamcast::walk_messages;
use super::{Ask, Found, Opened, Opening, Reply, Request, Sink, Wire, WireError};
use crate::net::http;
use crate::net::mask::MaskKeys;
use crate::net::websocket::{self, Upgrade};

/// A client of nginx with `/sub/NAME` and `/pub/NAME` locations.
pub struct Nchan {
    host: String,
}

impl Nchan {
    /// For the server at `address`.
    pub fn new(address: SocketAddr) -> Self {
        Self { host: address.to_string() }
    }
}

impl Wire for Nchan {
    fn opening(&self, ask: &Ask, _: u64, step: u32, received: &[u8]) -> Result<Opening, WireError> {
        match (ask, step) {
            (Ask::Subscribe { offset: Some(_), .. } | Ask::Subscribe { filter: Some(_), .. }, _) => {
                Err(WireError::Refused("this client has no replay and no filter for nchan".into()))
            }
            (Ask::Subscribe { stream, .. }, 0) => {
                Ok(Opening::Next { used: 0, send: websocket::upgrade_request(&self.host, &format!("/sub/{stream}")) })
            }
            (Ask::Subscribe { .. }, _) => match websocket::upgrade_answer(received) {
                Upgrade::Waiting => Ok(Opening::Wait),
                Upgrade::Done(used) => Ok(Opening::Ready { used, opened: Opened::default() }),
                Upgrade::Refused(line) => Err(WireError::Refused(excerpt(line))),
            },
            (Ask::Publish { .. }, _) => Ok(Opening::Ready { used: 0, opened: Opened::default() }),
        }
    }

    fn messages<'b>(&self, bytes: &'b [u8], sink: &mut Sink<'_>) -> Result<Found<'b>, WireError> {
        walk_messages(bytes, sink)
    }

    fn request(&self, out: &mut Vec<u8>, _: &mut MaskKeys, request: &Request<'_>) {
        let mut row = Vec::with_capacity(128);
        for at in 0..u64::from(request.rows) {
            row.clear();
            request.writer.write(&mut row, request.first_index + at, request.due_ns);
            let head = format!(
                "POST /pub/{} HTTP/1.1\r\nHost: {}\r\nContent-Length: {}\r\n\r\n",
                request.stream,
                self.host,
                row.len()
            );
            out.extend_from_slice(head.as_bytes());
            out.extend_from_slice(&row);
        }
    }

    fn replies_per_request(&self, rows: u32) -> u32 {
        rows
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_with_and_without_a_body() {
        let bytes = b"HTTP/1.1 202 Accepted\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 403 No\r\n\r\nHTTP/1.1 2";
        let nchan = Nchan::new("127.0.0.1:1".parse().unwrap());
        let mut replies = Vec::new();
        let used = nchan.replies(bytes, &mut replies, &mut Vec::new()).unwrap();
        assert_eq!(&bytes[used..], b"HTTP/1.1 2");
        assert_eq!(replies[0], Reply::Ok);
        assert!(matches!(&replies[1], Reply::Refused(text) if text.contains("403")));
        assert!(nchan.replies(b"nonsense\r\n\r\n", &mut replies, &mut Vec::new()).is_err());
    }
}
