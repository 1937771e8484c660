//! The protocol of `docs/wire.md`: WebSocket text frames, a greeting, rows as `[offset,ts,row]`.

use std::fmt::Write;
use std::net::SocketAddr;

use serde_json::Value;

use super::error::excerpt;
use super::{Ask, Found, Opened, Opening, Reply, Request, Sink, Wire, WireError};
use crate::net::mask::{self, MaskKeys};
use crate::net::websocket::{self, Upgrade, opcode};
use crate::row::leading_number;

/// A client of a streamcast server.
pub struct Streamcast {
    host: String,
}

impl Streamcast {
    /// For the server at `address`.
    pub fn new(address: SocketAddr) -> Self {
        Self { host: address.to_string() }
    }
}

impl Wire for Streamcast {
    fn opening(&self, ask: &Ask, _: u64, step: u32, received: &[u8]) -> Result<Opening, WireError> {
        match step {
            0 => Ok(Opening::Next { used: 0, send: websocket::upgrade_request(&self.host, &target(ask)) }),
            1 => match websocket::upgrade_answer(received) {
                Upgrade::Waiting => Ok(Opening::Wait),
                Upgrade::Done(used) => Ok(Opening::Next { used, send: Vec::new() }),
                Upgrade::Refused(line) => Err(WireError::Refused(excerpt(line))),
            },
            _ => greeting(ask, received),
        }
    }

    fn messages<'b>(&self, bytes: &'b [u8], sink: &mut Sink<'_>) -> Result<Found<'b>, WireError> {
        walk_messages(bytes, sink)
    }

    fn offset(&self, message: &[u8]) -> Option<u64> {
        leading_number(message.strip_prefix(b"[")?)
    }

    fn request(&self, out: &mut Vec<u8>, keys: &mut MaskKeys, request: &Request<'_>) {
        mask::push_frame(out, opcode::TEXT, keys, |out| {
            if let Some(seq) = request.seq {
                out.push(b'[');
                out.extend_from_slice(itoa::Buffer::new().format(seq).as_bytes());
                out.push(b',');
            }
            if request.rows == 1 {
                request.writer.write(out, request.first_index, request.due_ns);
            } else {
                for at in 0..u64::from(request.rows) {
                    out.push(if at == 0 { b'[' } else { b',' });
                    request.writer.write(out, request.first_index + at, request.due_ns);
                }
                out.push(b']');
            }
            if request.seq.is_some() {
                out.push(b']');
            }
        });
    }

    fn replies(&self, bytes: &[u8], replies: &mut Vec<Reply>, answer: &mut Vec<u8>) -> Result<usize, WireError> {
        let mut used = 0;
        while let Some(frame) = websocket::first(&bytes[used..])? {
            used += frame.size;
            if !control(frame.opcode, frame.payload, answer)? {
                replies.push(match frame.payload.starts_with(b"{\"ok\":") {
                    true => Reply::Ok,
                    false => Reply::Refused(excerpt(frame.payload)),
                });
            }
        }
        Ok(used)
    }

    fn filters(&self) -> bool {
        true
    }
}

/// Walks WebSocket messages: the quick way over rows, the slow way over whatever is between them.
pub(super) fn walk_messages<'b>(bytes: &'b [u8], sink: &mut Sink<'_>) -> Result<Found<'b>, WireError> {
    let mut found = Found::default();
    loop {
        let walked = websocket::walk(&bytes[found.used..], sink.left, sink.every, &mut *sink.sampled);
        add(&mut found, walked.size, walked.frames, walked.first, walked.last);
        let Some(frame) = websocket::first(&bytes[found.used..])? else { return Ok(found) };
        if control(frame.opcode, frame.payload, sink.answer)? {
            add(&mut found, frame.size, 0, &[], &[]);
            continue;
        }
        if !frame.finished {
            return Err(WireError::Protocol("a row in fragments".into()));
        }
        add(&mut found, frame.size, 1, frame.payload, frame.payload);
        *sink.left -= 1;
        if *sink.left == 0 {
            *sink.left = sink.every;
            (sink.sampled)(frame.payload);
        }
    }
}

fn add<'b>(found: &mut Found<'b>, used: usize, messages: u64, first: &'b [u8], last: &'b [u8]) {
    found.used += used;
    if messages > 0 {
        if found.messages == 0 {
            found.first = first;
        }
        found.messages += messages;
        found.last = last;
    }
}

/// Deals with a control frame; false if the frame is data.
fn control(code: u8, payload: &[u8], answer: &mut Vec<u8>) -> Result<bool, WireError> {
    match code {
        opcode::PING => {
            mask::push_frame(answer, opcode::PONG, &mut MaskKeys::new(payload.len() as u64), |out| {
                out.extend_from_slice(payload);
            });
            Ok(true)
        }
        opcode::PONG => Ok(true),
        opcode::CLOSE => Err(match payload {
            [high, low, reason @ ..] => {
                WireError::Closed { code: u16::from_be_bytes([*high, *low]), reason: excerpt(reason) }
            }
            _ => WireError::Closed { code: 1005, reason: String::new() },
        }),
        _ => Ok(false),
    }
}

/// The request target (wire.md section 1.3).
fn target(ask: &Ask) -> String {
    let mut target = String::from("/");
    match ask {
        Ask::Subscribe { stream, offset, filter } => {
            escape(&mut target, stream);
            let mut separator = '?';
            if let Some(offset) = offset {
                let _ = write!(target, "{separator}offset={offset}");
                separator = '&';
            }
            if let Some(filter) = filter {
                let _ = write!(target, "{separator}where=");
                escape(&mut target, filter);
            }
        }
        Ask::Publish { stream, publisher } => {
            escape(&mut target, stream);
            target.push_str("?publish");
            if let Some(publisher) = publisher {
                target.push_str("&publisher=");
                escape(&mut target, publisher);
            }
        }
    }
    target
}

fn escape(out: &mut String, text: &str) {
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(byte as char),
            other => {
                let _ = write!(out, "%{other:02X}");
            }
        }
    }
}

/// Reads the greeting (wire.md section 2).
fn greeting(ask: &Ask, received: &[u8]) -> Result<Opening, WireError> {
    let Some(frame) = websocket::first(received)? else { return Ok(Opening::Wait) };
    control(frame.opcode, frame.payload, &mut Vec::new())?;
    let told: Value = serde_json::from_slice(frame.payload).unwrap_or_default();
    if !told["streamcast"].is_u64() {
        return Err(WireError::Protocol(format!("no greeting but {}", excerpt(frame.payload))));
    }
    let first_offset = match ask {
        // The earliest row need not be the first of the window (wire.md section 2.1).
        Ask::Subscribe { filter: None, offset: Some(_), .. } => told["replay"][0].as_u64(),
        Ask::Subscribe { filter: None, offset: None, .. } => told["end_offset"].as_u64(),
        _ => None,
    };
    let last_seq = told["publisher"]["last_seq"].as_u64().unwrap_or(0);
    Ok(Opening::Ready { used: frame.size, opened: Opened { first_offset, last_seq } })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::{RowWriter, trade};

    fn frame(head: u8, payload: &[u8]) -> Vec<u8> {
        let mut out = vec![head];
        if payload.len() < 126 {
            out.push(payload.len() as u8);
        } else {
            out.push(126);
            out.extend_from_slice(&(payload.len() as u16).to_be_bytes());
        }
        out.extend_from_slice(payload);
        out
    }

    fn wire() -> Streamcast {
        Streamcast::new("127.0.0.1:1".parse().unwrap())
    }

    #[test]
    fn targets() {
        let subscribe = |offset, filter: Option<&str>| {
            target(&Ask::Subscribe { stream: "a b".into(), offset, filter: filter.map(Into::into) })
        };
        assert_eq!(subscribe(None, None), "/a%20b");
        assert_eq!(subscribe(Some(0), None), "/a%20b?offset=0");
        assert_eq!(subscribe(Some(7), Some("{\"c\":1}")), "/a%20b?offset=7&where=%7B%22c%22%3A1%7D");
        assert_eq!(subscribe(None, Some("{}")), "/a%20b?where=%7B%7D");
        let publish = Ask::Publish { stream: "t".into(), publisher: Some("p/1".into()) };
        assert_eq!(target(&publish), "/t?publish&publisher=p%2F1");
    }

    #[test]
    fn opening_goes_from_request_to_greeting() {
        let ask = Ask::Subscribe { stream: "t".into(), offset: Some(0), filter: None };
        let Opening::Next { send, .. } = wire().opening(&ask, 0, 0, b"").unwrap() else { panic!("a request first") };
        assert!(send.starts_with(b"GET /t?offset=0 HTTP/1.1\r\n"));
        let head = b"HTTP/1.1 101 Switching Protocols\r\n\r\n";
        assert_eq!(wire().opening(&ask, 0, 1, head).unwrap(), Opening::Next { used: head.len(), send: Vec::new() });
        let hello = frame(0x81, br#"{"streamcast":4,"end_offset":9,"replay":[3,9]}"#);
        let opened = Opened { first_offset: Some(3), last_seq: 0 };
        assert_eq!(wire().opening(&ask, 0, 2, &hello).unwrap(), Opening::Ready { used: hello.len(), opened });
        assert_eq!(wire().opening(&ask, 0, 2, &hello[..9]).unwrap(), Opening::Wait);
        let close = frame(0x88, b"\x11\x34{}");
        assert_eq!(wire().opening(&ask, 0, 2, &close).unwrap_err().to_string(), "the server closed with 4404 {}");
        assert!(wire().opening(&ask, 0, 2, &frame(0x81, b"[1]")).is_err());
    }

    #[test]
    fn messages_between_pings_are_all_counted() {
        let mut bytes = frame(0x81, b"[5,1,{}]");
        bytes.extend(frame(0x89, b"hi"));
        bytes.extend(frame(0x81, &[b'x'; 200]));
        bytes.extend(frame(0x81, b"[7,1,{}]"));
        bytes.extend(frame(0x81, b"cut")[..3].to_vec());
        let (mut left, mut answer, mut seen) = (1, Vec::new(), 0);
        let mut sampled = |_: &[u8]| seen += 1;
        let mut sink = Sink { left: &mut left, every: 1, sampled: &mut sampled, answer: &mut answer };
        let found = wire().messages(&bytes, &mut sink).unwrap();
        assert_eq!((found.messages, found.used), (3, bytes.len() - 3));
        assert_eq!((wire().offset(found.first), wire().offset(found.last)), (Some(5), Some(7)));
        assert_eq!(seen, 3);
        assert_eq!(answer[0], 0x8a, "a pong");
        assert_eq!(wire().offset(b"[null,1,{}]"), None);
    }

    #[test]
    fn requests_are_frames_of_rows() {
        let writer = RowWriter::new(&trade()).unwrap();
        let text = |rows, seq| {
            let mut out = Vec::new();
            let request = Request { stream: "t", writer: &writer, first_index: 3, rows, due_ns: 5, seq, connection: 1 };
            wire().request(&mut out, &mut MaskKeys::new(1), &request);
            let header = if out[1] & 0x7f == 126 { 4 } else { 2 };
            let key = out[header..header + 4].try_into().unwrap();
            let mut payload = out.split_off(header + 4);
            mask::apply(&mut payload, key);
            serde_json::from_slice::<Value>(&payload).unwrap()
        };
        assert_eq!(text(1, None)["id"], 3);
        assert_eq!(text(3, None).as_array().unwrap().len(), 3);
        assert_eq!(text(1, Some(8))[0], 8);
        assert_eq!(text(2, Some(8))[1][1]["id"], 4);
    }

    #[test]
    fn replies_in_order() {
        let mut bytes = frame(0x81, b"{\"ok\":[1]}");
        bytes.extend(frame(0x81, b"{\"error\":\"rejected\"}"));
        bytes.push(0x81);
        let mut replies = Vec::new();
        let used = wire().replies(&bytes, &mut replies, &mut Vec::new()).unwrap();
        assert_eq!(used, bytes.len() - 1);
        assert_eq!(replies[0], Reply::Ok);
        assert!(matches!(&replies[1], Reply::Refused(text) if text.contains("rejected")));
    }
}
