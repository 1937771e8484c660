use proptest::prelude::*;

use super::*;

const LIMIT_BYTES: usize = 1000;

fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    crate::frame::push_header(&mut bytes, first & 0x0F, payload.len());
    bytes[0] = first;
    bytes[1] |= 0x80;
    bytes.extend_from_slice(&[1, 2, 3, 4]);
    let start = bytes.len();
    bytes.extend_from_slice(payload);
    unmask(&mut bytes[start..], [1, 2, 3, 4]);
    bytes
}

/// Decodes in pieces and renders every message as text.
fn decoded(bytes: &[u8], piece: usize) -> Result<Vec<String>, Violation> {
    let mut inbound = Inbound::default();
    let mut seen = Vec::new();
    for part in bytes.chunks(piece.max(1)) {
        inbound.decode(&mut part.to_vec(), LIMIT_BYTES, |message| {
            seen.push(match message {
                Message::Text(text) => format!("text {}", String::from_utf8_lossy(text)),
                Message::Binary(data) => format!("binary {data:?}"),
                Message::Ping(data) => format!("ping {data:?}"),
                Message::Pong => "pong".to_owned(),
                Message::Close(code) => format!("close {code:?}"),
            });
            Flow::Continue
        })?;
    }
    Ok(seen)
}

#[test]
fn messages_come_whole_however_the_bytes_are_cut() {
    let bytes = [
        frame(0x81, b"one"),
        frame(0x01, "t\u{e9}".as_bytes()),
        frame(0x89, b"hi"),
        frame(0x80, b"wo"),
        frame(0x82, &[0xFF]),
        frame(0x8A, b""),
        frame(0x81, &[b'x'; 300]),
        frame(0x88, &[3, 232, b'b']),
    ]
    .concat();
    let expected: Vec<String> = [
        "text one",
        "ping [104, 105]",
        "text t\u{e9}wo",
        "binary [255]",
        "pong",
        &format!("text {}", "x".repeat(300)),
        "close Some(1000)",
    ]
    .map(str::to_owned)
    .to_vec();
    for piece in [1, 2, 3, 7, 100, bytes.len()] {
        assert_eq!(decoded(&bytes, piece).unwrap(), expected, "pieces of {piece}");
    }
}

#[test]
fn utf8_may_be_split_over_fragments_but_must_be_whole() {
    let text = "\u{1f600}".as_bytes();
    let whole = [frame(0x01, &text[..1]), frame(0x00, &text[1..3]), frame(0x80, &text[3..])].concat();
    assert_eq!(decoded(&whole, 5).unwrap(), ["text \u{1f600}"]);
    assert_eq!(decoded(&frame(0x81, &text[..3]), 99), Err(Violation::NotUtf8));
    assert_eq!(decoded(&frame(0x88, &[3, 232, 0xFF]), 99), Err(Violation::NotUtf8));
}

#[test]
fn violations_are_seen_in_the_header() {
    let mut unmasked = frame(0x81, b"a");
    unmasked[1] &= 0x7F;
    for (name, bytes) in [
        ("unmasked", unmasked),
        ("reserved bit", frame(0xC1, b"a")),
        ("reserved data opcode", frame(0x83, b"a")),
        ("reserved control opcode", frame(0x8B, b"a")),
        ("continuation of nothing", frame(0x80, b"a")),
        ("fragmented ping", frame(0x09, b"a")),
        ("long ping", frame(0x89, &[0; 126])),
        ("nested message", [frame(0x01, b"a"), frame(0x81, b"b")].concat()),
        ("one byte close", frame(0x88, &[3])),
        ("close 999", frame(0x88, &999u16.to_be_bytes())),
        ("close 1005", frame(0x88, &1005u16.to_be_bytes())),
        ("close 1006", frame(0x88, &1006u16.to_be_bytes())),
        ("close 1015", frame(0x88, &1015u16.to_be_bytes())),
        ("close 2999", frame(0x88, &2999u16.to_be_bytes())),
        ("close 5000", frame(0x88, &5000u16.to_be_bytes())),
    ] {
        assert!(matches!(decoded(&bytes, 1), Err(Violation::Protocol(_))), "{name}");
    }
}

#[test]
fn the_limit_counts_all_fragments_and_needs_no_payload() {
    assert!(decoded(&frame(0x81, &[b'x'; LIMIT_BYTES]), 64).is_ok());
    let announced = [0x81, 0xFF, 0x40, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4];
    assert_eq!(decoded(&announced, 99), Err(Violation::TooBig { size_bytes: 1 << 62 }));
    let fragments = [frame(0x01, &[b'x'; 600]), frame(0x00, &[b'x'; 600])].concat();
    assert_eq!(decoded(&fragments, 99), Err(Violation::TooBig { size_bytes: 1200 }));
}

#[test]
fn a_consumer_can_stop_and_go_on_later() {
    let mut bytes = [frame(0x81, b"a"), frame(0x81, b"b"), frame(0x81, b"c")].concat();
    let mut inbound = Inbound::default();
    let mut seen = Vec::new();
    let mut one = |inbound: &mut Inbound, bytes: &mut [u8]| {
        inbound
            .decode(bytes, LIMIT_BYTES, |message| {
                let Message::Text(text) = message else { panic!("not text") };
                seen.push(text[0]);
                Flow::Stop
            })
            .unwrap()
    };
    assert_eq!(one(&mut inbound, &mut bytes), Flow::Stop);
    assert_eq!(one(&mut inbound, &mut []), Flow::Stop);
    assert_eq!(one(&mut inbound, &mut []), Flow::Stop);
    assert_eq!(one(&mut inbound, &mut []), Flow::Continue);
    assert_eq!(seen, b"abc");
    assert!(inbound.is_idle());
}

#[test]
fn a_consumer_can_stop_after_a_frame_that_came_in_pieces() {
    let mut bytes = [frame(0x81, b"a"), frame(0x81, b"b"), frame(0x81, b"c")].concat();
    for cut in 1..bytes.len() {
        let mut inbound = Inbound::default();
        let mut seen = Vec::new();
        let mut bytes = bytes.clone();
        let (first, rest) = bytes.split_at_mut(cut);
        for piece in [first, rest, &mut [], &mut [], &mut []] {
            let decoded = inbound.decode(piece, LIMIT_BYTES, |message| {
                let Message::Text(text) = message else { panic!("not text") };
                seen.push(text[0]);
                Flow::Stop
            });
            assert!(decoded.is_ok(), "cut at {cut}");
        }
        assert_eq!(seen, b"abc", "cut at {cut}");
        assert!(inbound.is_idle(), "cut at {cut}");
    }
    let whole = decoded(&bytes, bytes.len()).expect("well-formed");
    bytes.truncate(bytes.len() - 1);
    assert_eq!(decoded(&bytes, 5).expect("well-formed"), whole[..2]);
}

proptest! {
    #[test]
    fn unmasking_is_byte_by_byte(mut payload: Vec<u8>, mask: [u8; 4]) {
        let slow: Vec<u8> = payload.iter().enumerate().map(|(index, byte)| byte ^ mask[index % 4]).collect();
        unmask(&mut payload, mask);
        prop_assert_eq!(payload, slow);
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes: Vec<u8>, piece in 1usize..40) {
        let _ = decoded(&bytes, piece);
    }
}
