//! NATS: core (nothing is stored) and JetStream (stored, and synced when the server is told so, before the
//! acknowledgement and before anybody sees it).

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};

use super::error::excerpt;
use super::{Ask, Found, Opened, Opening, Reply, Request, Sink, Wire, WireError};
use crate::net::mask::MaskKeys;

/// How rows are kept and how they reach subscribers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Store {
    /// Not kept.
    None,
    /// Kept in a stream; each subscriber is a push consumer of it.
    Consumers,
    /// Kept in a stream that republishes what it has stored to plain subscribers.
    Republish,
}

/// A client of a NATS server.
pub struct Nats {
    store: Store,
}

const CONNECT: &str = "CONNECT {\"verbose\":false,\"pedantic\":false,\"headers\":true,\"no_responders\":false}\r\n";

impl Nats {
    /// Plain publish and subscribe.
    pub fn core() -> Self {
        Self { store: Store::None }
    }

    /// A stored stream with a push consumer a subscriber.
    pub fn jetstream() -> Self {
        Self { store: Store::Consumers }
    }

    /// A stored stream that republishes to plain subscribers.
    pub fn republish() -> Self {
        Self { store: Store::Republish }
    }

    fn subscribe(
        &self,
        stream: &str,
        offset: Option<u64>,
        number: u64,
        step: u32,
        received: &[u8],
    ) -> Result<Opening, WireError> {
        let consumer = self.store == Store::Consumers || offset.is_some();
        match (consumer, step) {
            (false, 0) => {
                let subject = if self.store == Store::None { stream.to_owned() } else { live(stream) };
                next(format!("{CONNECT}SUB {subject} 1\r\nPING\r\n"))
            }
            (false, _) => until_pong(received),
            (true, 0) => {
                let request = consumer_config(stream, offset, number).to_string();
                let length = request.len();
                next(format!(
                    "{CONNECT}SUB {inbox} 2\r\nPUB $JS.API.CONSUMER.CREATE.{stream} {inbox} {length}\r\n{request}\r\n",
                    inbox = inbox(number)
                ))
            }
            (true, 1) => match api_answer(received)? {
                Some(used) => Ok(Opening::Next { used, send: format!("SUB deliver.{number} 1\r\n").into_bytes() }),
                None => Ok(Opening::Wait),
            },
            // The consumer counts from its creation, so nothing is missed before the subscription arrives.
            (true, _) => Ok(Opening::Ready { used: 0, opened: Opened::default() }),
        }
    }
}

fn next(send: String) -> Result<Opening, WireError> {
    Ok(Opening::Next { used: 0, send: send.into_bytes() })
}

fn inbox(number: u64) -> String {
    format!("_INBOX.perf.{number}")
}

fn live(stream: &str) -> String {
    format!("live.{stream}")
}

fn consumer_config(stream: &str, offset: Option<u64>, number: u64) -> Value {
    let mut config = json!({
        "deliver_subject": format!("deliver.{number}"),
        "deliver_policy": "new",
        "ack_policy": "none",
        "replay_policy": "instant",
        "mem_storage": true,
        "num_replicas": 1,
    });
    match offset {
        None => {}
        Some(0) => config["deliver_policy"] = "all".into(),
        Some(offset) => {
            config["deliver_policy"] = "by_start_sequence".into();
            config["opt_start_seq"] = offset.into();
        }
    }
    json!({ "stream_name": stream, "config": config })
}

impl Wire for Nats {
    fn opening(&self, ask: &Ask, number: u64, step: u32, received: &[u8]) -> Result<Opening, WireError> {
        match (ask, step) {
            (Ask::Subscribe { filter: Some(_), .. }, _) => Err(WireError::Refused("nats has no filter".into())),
            (Ask::Subscribe { offset: Some(_), .. }, _) if self.store == Store::None => {
                Err(WireError::Refused("core nats has no replay".into()))
            }
            (Ask::Subscribe { stream, offset, .. }, _) => self.subscribe(stream, *offset, number, step, received),
            (Ask::Publish { .. }, 0) => next(format!("{CONNECT}SUB {} 2\r\nPING\r\n", inbox(number))),
            (Ask::Publish { .. }, _) => until_pong(received),
        }
    }

    fn messages<'b>(&self, bytes: &'b [u8], sink: &mut Sink<'_>) -> Result<Found<'b>, WireError> {
        let mut found = Found::default();
        while let Some(part) = part(&bytes[found.used..])? {
            found.used += part.used;
            match part.what {
                What::Message(message) => {
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
                What::Ping => sink.answer.extend_from_slice(b"PONG\r\n"),
                What::Pong | What::Other => {}
            }
        }
        Ok(found)
    }

    fn request(&self, out: &mut Vec<u8>, _: &mut MaskKeys, request: &Request<'_>) {
        let mut row = Vec::with_capacity(128);
        let mut digits = itoa::Buffer::new();
        for at in 0..u64::from(request.rows) {
            row.clear();
            request.writer.write(&mut row, request.first_index + at, request.due_ns);
            out.extend_from_slice(b"PUB ");
            out.extend_from_slice(request.stream.as_bytes());
            if self.store != Store::None {
                out.extend_from_slice(b" _INBOX.perf.");
                out.extend_from_slice(digits.format(request.connection).as_bytes());
            }
            out.push(b' ');
            out.extend_from_slice(digits.format(row.len()).as_bytes());
            out.extend_from_slice(b"\r\n");
            out.extend_from_slice(&row);
            out.extend_from_slice(b"\r\n");
        }
        if self.store == Store::None {
            out.extend_from_slice(b"PING\r\n");
        }
    }

    fn replies_per_request(&self, rows: u32) -> u32 {
        if self.store == Store::None { 1 } else { rows }
    }

    fn replies(&self, bytes: &[u8], replies: &mut Vec<Reply>, answer: &mut Vec<u8>) -> Result<usize, WireError> {
        let mut used = 0;
        while let Some(part) = part(&bytes[used..])? {
            used += part.used;
            match part.what {
                What::Message(message) if memchr::memmem::find(message, b"\"error\"").is_some() => {
                    replies.push(Reply::Refused(excerpt(message)));
                }
                What::Message(_) => replies.push(Reply::Ok),
                What::Pong if self.store == Store::None => replies.push(Reply::Ok),
                What::Ping => answer.extend_from_slice(b"PONG\r\n"),
                What::Pong | What::Other => {}
            }
        }
        Ok(used)
    }

    fn prepare(&self, address: SocketAddr, stream: &str) -> Result<(), WireError> {
        if self.store == Store::None {
            return Ok(());
        }
        let mut config = json!({
            "name": stream, "subjects": [stream], "storage": "file", "num_replicas": 1,
            "retention": "limits", "discard": "old", "max_consumers": -1, "max_msgs": -1, "max_bytes": -1,
        });
        if self.store == Store::Republish {
            config["republish"] = json!({ "src": stream, "dest": live(stream) });
        }
        let config = config.to_string();
        let mut socket = TcpStream::connect(address)?;
        socket.set_read_timeout(Some(Duration::from_secs(10)))?;
        let length = config.len();
        let inbox = inbox(0);
        write!(
            socket,
            "{CONNECT}SUB {inbox} 2\r\nPUB $JS.API.STREAM.CREATE.{stream} {inbox} {length}\r\n{config}\r\n"
        )?;
        let mut received = Vec::new();
        while api_answer(&received)?.is_none() {
            let mut chunk = [0; 4096];
            match socket.read(&mut chunk)? {
                0 => return Err(WireError::Ended),
                count => received.extend_from_slice(&chunk[..count]),
            }
        }
        Ok(())
    }

    /// A consumer needs the stream, which is created later.
    fn probe(&self, stream: &str) -> Ask {
        Ask::Publish { stream: stream.to_owned(), publisher: None }
    }

    fn replays(&self) -> bool {
        self.store != Store::None
    }
}

enum What<'b> {
    Message(&'b [u8]),
    Ping,
    Pong,
    Other,
}

struct Part<'b> {
    what: What<'b>,
    used: usize,
}

/// The protocol line that `bytes` begin with, its payload included.
fn part(bytes: &[u8]) -> Result<Option<Part<'_>>, WireError> {
    let Some(end) = memchr::memchr(b'\n', bytes) else { return Ok(None) };
    let line = &bytes[..end];
    let used = end + 1;
    let simple = |what| Ok(Some(Part { what, used }));
    match line {
        [b'M', b'S', b'G', ..] | [b'H', b'M', b'S', b'G', ..] => {
            let length = last_number(line).ok_or_else(|| WireError::Protocol(excerpt(line)))?;
            let stop = used.saturating_add(length);
            let whole = bytes.get(used..stop.saturating_add(2));
            Ok(whole.map(|_| Part { what: What::Message(&bytes[used..stop]), used: stop + 2 }))
        }
        [b'P', b'I', b'N', b'G', ..] => simple(What::Ping),
        [b'P', b'O', b'N', b'G', ..] => simple(What::Pong),
        [b'-', b'E', b'R', b'R', ..] => Err(WireError::Refused(excerpt(line))),
        [b'+', ..] | [b'I', b'N', b'F', b'O', ..] => simple(What::Other),
        _ => Err(WireError::Protocol(excerpt(line))),
    }
}

/// The number at the end of a line that still has its carriage return.
fn last_number(line: &[u8]) -> Option<usize> {
    let mut value = 0usize;
    let mut scale = 1usize;
    for byte in line.strip_suffix(b"\r")?.iter().rev() {
        match byte {
            b'0'..=b'9' => {
                value = value.checked_add(usize::from(byte - b'0').checked_mul(scale)?)?;
                scale = scale.checked_mul(10)?;
            }
            b' ' if scale > 1 => return Some(value),
            _ => return None,
        }
    }
    None
}

fn until_pong(received: &[u8]) -> Result<Opening, WireError> {
    let mut used = 0;
    while let Some(part) = part(&received[used..])? {
        used += part.used;
        if matches!(part.what, What::Pong) {
            return Ok(Opening::Ready { used, opened: Opened::default() });
        }
    }
    Ok(Opening::Wait)
}

/// Where the first message ends, which must be an API's answer without an error.
fn api_answer(received: &[u8]) -> Result<Option<usize>, WireError> {
    let mut used = 0;
    while let Some(part) = part(&received[used..])? {
        used += part.used;
        if let What::Message(message) = part.what {
            let answer: Value = serde_json::from_slice(message).unwrap_or_default();
            return match answer.get("error") {
                None => Ok(Some(used)),
                Some(error) => Err(WireError::Refused(excerpt(error.to_string().as_bytes()))),
            };
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::{RowWriter, trade};

    fn walk<'b>(bytes: &'b [u8], answer: &mut Vec<u8>) -> Result<Found<'b>, WireError> {
        let mut sampled = |_: &[u8]| {};
        let mut left = 1;
        Nats::core().messages(bytes, &mut Sink { left: &mut left, every: 1, sampled: &mut sampled, answer })
    }

    #[test]
    fn messages_with_and_without_headers() {
        let bytes =
            b"INFO {}\r\nMSG t 1 3\r\nabc\r\nHMSG t 1 re.ply 12 15\r\nNATS/1.0\r\n\r\nxyz\r\nPING\r\nMSG t 1 9\r\ncut";
        let mut answer = Vec::new();
        let found = walk(bytes, &mut answer).unwrap();
        assert_eq!(found.messages, 2);
        assert_eq!(found.first, b"abc");
        assert!(found.last.ends_with(b"xyz"));
        assert_eq!(&bytes[found.used..], b"MSG t 1 9\r\ncut");
        assert_eq!(answer, b"PONG\r\n");
        assert!(walk(b"-ERR 'Slow Consumer'\r\n", &mut answer).is_err());
        assert!(walk(b"MSG t 1 x\r\n", &mut answer).is_err());
        assert!(walk(b"HTTP/1.1 400\r\n", &mut answer).is_err());
    }

    #[test]
    fn requests_carry_the_reply_subject_of_their_connection() {
        let writer = RowWriter::new(&trade()).unwrap();
        let request =
            Request { stream: "t", writer: &writer, first_index: 0, rows: 2, due_ns: 1, seq: None, connection: 7 };
        let text = |nats: Nats| {
            let mut out = Vec::new();
            nats.request(&mut out, &mut MaskKeys::new(1), &request);
            (String::from_utf8(out).unwrap(), nats.replies_per_request(2))
        };
        let (stored, replies) = text(Nats::jetstream());
        assert!(stored.starts_with("PUB t _INBOX.perf.7 "));
        assert_eq!((stored.matches("PUB t ").count(), replies), (2, 2));
        let (core, replies) = text(Nats::core());
        assert!(core.ends_with("\r\nPING\r\n"));
        assert_eq!(replies, 1);
    }

    #[test]
    fn api_errors_are_told() {
        let ok = b"+OK\r\nMSG _INBOX.perf.1 2 13\r\n{\"type\":\"ok\"}\r\n";
        assert_eq!(api_answer(ok).unwrap(), Some(ok.len()));
        assert_eq!(api_answer(&ok[..20]).unwrap(), None);
        let error = b"MSG i 2 30\r\n{\"error\":{\"description\":\"no\"}}\r\n";
        assert!(api_answer(error).unwrap_err().to_string().contains("no"));
    }
}
