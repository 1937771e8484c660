//! Redis 7: a row is stored with XADD, and with `appendfsync always` synced before anything of the same turn of its
//! event loop is written to a socket. Subscribers get it by PUBLISH in the same turn, so it is durable before visible.

use super::error::excerpt;
use super::{Ask, Found, Opened, Opening, Reply, Request, Sink, Wire, WireError};
use crate::net::mask::MaskKeys;

/// A client that speaks RESP 2.
pub struct Redis {
    fanout: bool,
}

impl Redis {
    /// `fanout`: whether rows are also published to subscribers.
    pub fn new(fanout: bool) -> Self {
        Self { fanout }
    }
}

impl Wire for Redis {
    fn opening(&self, ask: &Ask, _: u64, step: u32, received: &[u8]) -> Result<Opening, WireError> {
        let ready = |used| Ok(Opening::Ready { used, opened: Opened::default() });
        match (ask, step) {
            (Ask::Subscribe { offset: Some(_), .. } | Ask::Subscribe { filter: Some(_), .. }, _) => {
                Err(WireError::Refused("this client has no replay and no filter for redis".into()))
            }
            (Ask::Subscribe { stream, .. }, 0) => {
                let mut send = Vec::new();
                command(&mut send, &[b"SUBSCRIBE", stream.as_bytes()]);
                Ok(Opening::Next { used: 0, send })
            }
            (Ask::Publish { .. }, 0) => {
                let mut send = Vec::new();
                command(&mut send, &[b"PING"]);
                Ok(Opening::Next { used: 0, send })
            }
            _ => match value(received, MAX_DEPTH)? {
                Some(used) if received[0] == b'-' => Err(WireError::Refused(excerpt(&received[..used]))),
                Some(used) => ready(used),
                None => Ok(Opening::Wait),
            },
        }
    }

    fn messages<'b>(&self, bytes: &'b [u8], sink: &mut Sink<'_>) -> Result<Found<'b>, WireError> {
        let mut found = Found::default();
        while let Some((message, used)) = message(&bytes[found.used..])? {
            found.used += used;
            if found.messages == 0 {
                found.first = message;
            }
            found.messages += 1;
            found.last = message;
            *sink.left -= 1;
            if *sink.left == 0 {
                *sink.left = sink.every;
                (sink.sampled)(message);
            }
        }
        Ok(found)
    }

    fn request(&self, out: &mut Vec<u8>, _: &mut MaskKeys, request: &Request<'_>) {
        let mut row = Vec::with_capacity(128);
        for at in 0..u64::from(request.rows) {
            row.clear();
            request.writer.write(&mut row, request.first_index + at, request.due_ns);
            command(out, &[b"XADD", request.stream.as_bytes(), b"*", b"d", &row]);
            if self.fanout {
                command(out, &[b"PUBLISH", request.stream.as_bytes(), &row]);
            }
        }
    }

    fn replies_per_request(&self, rows: u32) -> u32 {
        if self.fanout { rows * 2 } else { rows }
    }

    fn replies(&self, bytes: &[u8], replies: &mut Vec<Reply>, _: &mut Vec<u8>) -> Result<usize, WireError> {
        let mut used = 0;
        while let Some(size) = value(&bytes[used..], MAX_DEPTH)? {
            replies.push(match bytes[used] {
                b'-' => Reply::Refused(excerpt(&bytes[used..used + size])),
                _ => Reply::Ok,
            });
            used += size;
        }
        Ok(used)
    }

    fn replays(&self) -> bool {
        false
    }
}

/// Appends one command as an array of bulk strings.
fn command(out: &mut Vec<u8>, words: &[&[u8]]) {
    let mut digits = itoa::Buffer::new();
    out.push(b'*');
    out.extend_from_slice(digits.format(words.len()).as_bytes());
    for word in words {
        out.extend_from_slice(b"\r\n$");
        out.extend_from_slice(digits.format(word.len()).as_bytes());
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(word);
    }
    out.extend_from_slice(b"\r\n");
}

/// What comes before the channel's name in every message.
const MESSAGE: &[u8] = b"*3\r\n$7\r\nmessage\r\n";

/// The payload of the message that `bytes` begin with, and the message's size.
fn message(bytes: &[u8]) -> Result<Option<(&[u8], usize)>, WireError> {
    let Some(head) = bytes.get(..MESSAGE.len()) else { return Ok(None) };
    if head != MESSAGE {
        return Err(WireError::Protocol(excerpt(bytes)));
    }
    let Some((_, payload_at)) = bulk(bytes, MESSAGE.len())? else { return Ok(None) };
    bulk(bytes, payload_at)
}

/// The bulk string at `at` and the place after it.
fn bulk(bytes: &[u8], at: usize) -> Result<Option<(&[u8], usize)>, WireError> {
    let Some((length, start)) = number(bytes, at, b'$')? else { return Ok(None) };
    let end = start.saturating_add(length);
    Ok(bytes.get(..end.saturating_add(2)).map(|whole| (&whole[start..end], end + 2)))
}

/// The length after the mark at `at`, and the place after its line.
fn number(bytes: &[u8], at: usize, mark: u8) -> Result<Option<(usize, usize)>, WireError> {
    let mut value = 0usize;
    let mut place = at + 1;
    match bytes.get(at) {
        None => return Ok(None),
        Some(&found) if found == mark => {}
        Some(_) => return Err(WireError::Protocol(excerpt(&bytes[at..]))),
    }
    loop {
        match bytes.get(place) {
            None => return Ok(None),
            Some(digit @ b'0'..=b'9') if place - at < 12 => value = value * 10 + usize::from(digit - b'0'),
            Some(b'\r') if place > at + 1 => return Ok(Some((value, place + 2))),
            Some(_) => return Err(WireError::Protocol(excerpt(&bytes[at..]))),
        }
        place += 1;
    }
}

/// Arrays within arrays that an answer may have.
const MAX_DEPTH: u32 = 4;

/// The size of the value that `bytes` begin with, or `None` while it is cut off.
fn value(bytes: &[u8], depth: u32) -> Result<Option<usize>, WireError> {
    let Some(mark) = bytes.first() else { return Ok(None) };
    match mark {
        b'+' | b'-' | b':' => Ok(memchr::memchr(b'\n', bytes).map(|end| end + 1)),
        b'$' if bytes.starts_with(b"$-1") => Ok(bytes.get(..5).map(|_| 5)),
        b'$' => Ok(bulk(bytes, 0)?.map(|(_, end)| end)),
        b'*' if depth > 0 => {
            let Some((count, mut at)) = number(bytes, 0, b'*')? else { return Ok(None) };
            for _ in 0..count {
                match bytes.get(at..).map(|rest| value(rest, depth - 1)).transpose()?.flatten() {
                    Some(size) => at += size,
                    None => return Ok(None),
                }
            }
            Ok(Some(at))
        }
        _ => Err(WireError::Protocol(excerpt(bytes))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::{RowWriter, trade};

    #[test]
    fn commands_are_arrays_of_bulk_strings() {
        let mut out = Vec::new();
        command(&mut out, &[b"XADD", b"s", b"*"]);
        assert_eq!(out, b"*3\r\n$4\r\nXADD\r\n$1\r\ns\r\n$1\r\n*\r\n");
        assert_eq!(value(&out, 1).unwrap(), Some(out.len()));
        for cut in 0..out.len() {
            assert_eq!(value(&out[..cut], 1).unwrap(), None, "{cut}");
        }
    }

    #[test]
    fn messages_are_walked_to_the_cut() {
        let mut bytes = Vec::new();
        for payload in [&b"{\"a\":1}"[..], b"", b"cut"] {
            command(&mut bytes, &[b"message", b"trades", payload]);
        }
        bytes.truncate(bytes.len() - 4);
        let mut seen = Vec::new();
        let mut sampled = |message: &[u8]| seen.push(message.to_vec());
        let (mut left, mut answer) = (1, Vec::new());
        let mut sink = Sink { left: &mut left, every: 1, sampled: &mut sampled, answer: &mut answer };
        let found = Redis::new(true).messages(&bytes, &mut sink).unwrap();
        assert_eq!(found.messages, 2);
        assert_eq!((found.first, found.last), (&b"{\"a\":1}"[..], &b""[..]));
        assert_eq!(seen.len(), 2);
        assert!(message(b"*3\r\n$9\r\nsubscribe\r\n").is_err());
    }

    #[test]
    fn two_replies_a_row_when_rows_are_also_published() {
        let writer = RowWriter::new(&trade()).unwrap();
        let request =
            Request { stream: "t", writer: &writer, first_index: 0, rows: 2, due_ns: 1, seq: None, connection: 1 };
        for (fanout, commands) in [(false, 2), (true, 4)] {
            let redis = Redis::new(fanout);
            let mut out = Vec::new();
            redis.request(&mut out, &mut MaskKeys::new(1), &request);
            let (mut at, mut count) = (0, 0);
            while let Some(size) = value(&out[at..], 1).unwrap() {
                at += size;
                count += 1;
            }
            assert_eq!((count, at), (commands, out.len()));
            assert_eq!(redis.replies_per_request(2), commands);
        }
    }

    #[test]
    fn replies_of_every_type() {
        let bytes = b"$3\r\n1-1\r\n:5\r\n+PONG\r\n-ERR no\r\n$-1\r\n*-";
        let mut replies = Vec::new();
        let used = Redis::new(true).replies(&bytes[..bytes.len() - 2], &mut replies, &mut Vec::new()).unwrap();
        assert_eq!(used, bytes.len() - 2);
        assert_eq!(replies.len(), 5);
        assert!(matches!(&replies[3], Reply::Refused(text) if text.contains("ERR no")));
        assert!(value(b"!", 1).is_err());
        assert!(value(&b"*1\r\n".repeat(9), 4).is_err());
        assert!(value(b"$x\r\n", 1).is_err());
    }
}
