//! WebSocket bytes from a client and the head before them: how they are cut into reads makes no difference, what is
//! announced is bounded, and a head means the same however much follows it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use streamcast_shards::head::{self, Head};
use streamcast_shards::inbound::{Flow, Inbound, Message};

const LIMIT_BYTES: usize = 4096;

/// What came out: messages in order, and whether the connection could go on.
fn decode(pieces: impl Iterator<Item = Vec<u8>>) -> (Vec<(u8, Vec<u8>)>, bool) {
    let mut inbound = Inbound::default();
    let mut messages = Vec::new();
    for mut piece in pieces {
        let outcome = inbound.decode(&mut piece, LIMIT_BYTES, |message| {
            messages.push(match message {
                Message::Text(text) => {
                    assert!(std::str::from_utf8(text).is_ok());
                    (1, text.to_vec())
                }
                Message::Binary(bytes) => (2, bytes.to_vec()),
                Message::Ping(bytes) => (9, bytes.to_vec()),
                Message::Pong => (10, Vec::new()),
                Message::Close(code) => (8, code.map(|code| code.to_be_bytes().to_vec()).unwrap_or_default()),
            });
            Flow::Continue
        });
        if outcome.is_err() {
            return (messages, false);
        }
        // A frame that has not come whole, one byte more than it may have, and the fragments before it.
        assert!(inbound.kept_bytes() <= 8 * (LIMIT_BYTES + 64));
    }
    (messages, true)
}

fn frames(data: &[u8]) {
    let Some((&cut, bytes)) = data.split_first() else { return };
    let whole = decode(std::iter::once(bytes.to_vec()));
    let cut = bytes.chunks(usize::from(cut) + 1).map(<[u8]>::to_vec);
    assert_eq!(whole, decode(cut));
    for (opcode, payload) in whole.0 {
        assert!(payload.len() <= if opcode < 8 { LIMIT_BYTES } else { 125 });
    }
}

fn heads(bytes: &[u8]) {
    let Head::Upgrade { length, head, response } = head::parse(bytes) else { return };
    assert!(length <= bytes.len() && bytes[..length].ends_with(b"\n"));
    assert!(response.starts_with(b"HTTP/1.1 101 ") && response.ends_with(b"\r\n\r\n"));
    assert_eq!(head::parse(&bytes[..length]), Head::Upgrade { length, head, response });
    assert_eq!(head::parse(&bytes[..length - 1]), Head::Partial);
}

fuzz_target!(|data: &[u8]| {
    if data.starts_with(b"GET ") {
        heads(data);
    } else {
        frames(data);
    }
});
