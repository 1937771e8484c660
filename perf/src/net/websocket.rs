//! The receiving side of a WebSocket: the upgrade's answer, and a walk over frames in place.

/// Opcodes of RFC 6455 section 5.2 that a client meets.
pub mod opcode {
    pub const TEXT: u8 = 1;
    pub const CLOSE: u8 = 8;
    pub const PING: u8 = 9;
    pub const PONG: u8 = 10;
}

/// One frame found in received bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'b> {
    pub opcode: u8,
    pub finished: bool,
    pub payload: &'b [u8],
    /// Bytes of the whole frame.
    pub size: usize,
}

/// What a server did that no WebSocket server may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("the server masked a frame")]
    Masked,
    #[error("a frame has reserved bits set: no extension was agreed on")]
    Reserved,
}

/// The first frame of `bytes`, or `None` while it is cut off.
///
/// # Errors
/// When the header breaks RFC 6455.
pub fn first(bytes: &[u8]) -> Result<Option<Frame<'_>>, FrameError> {
    let [head, length, ..] = *bytes else { return Ok(None) };
    if length & 0x80 != 0 {
        return Err(FrameError::Masked);
    }
    if head & 0x70 != 0 {
        return Err(FrameError::Reserved);
    }
    let (header, length): (usize, usize) = match length {
        126 => match bytes.get(2..4) {
            Some(wide) => (4, usize::from(u16::from_be_bytes([wide[0], wide[1]]))),
            None => return Ok(None),
        },
        127 => match bytes.get(2..10).and_then(|wide| wide.try_into().ok()) {
            Some(wide) => (10, usize::try_from(u64::from_be_bytes(wide)).unwrap_or(usize::MAX)),
            None => return Ok(None),
        },
        short => (2, usize::from(short)),
    };
    let size = header.saturating_add(length);
    Ok(bytes.get(header..size).map(|payload| Frame { opcode: head & 15, finished: head & 0x80 != 0, payload, size }))
}

/// Walks whole, unfragmented data frames with short headers (up to 65,535 bytes) from the start of `bytes`, which is
/// nearly all a subscriber ever gets. Calls `sampled` with the payload of every frame at which `left`, counting down
/// from `every`, reaches zero. Stops at anything else; [`first`] says what that is.
pub fn walk<'b>(bytes: &'b [u8], left: &mut u64, every: u64, mut sampled: impl FnMut(&'b [u8])) -> Walked<'b> {
    let mut walked = Walked { size: 0, frames: 0, first: &[], last: &[] };
    let mut at = 0;
    let mut countdown = *left;
    // Fragments and control frames differ in the first byte, so one comparison rules them out.
    while let Some(&[head, length]) = bytes.get(at..at + 2).and_then(|two| <&[u8; 2]>::try_from(two).ok()) {
        if head != 0x80 | opcode::TEXT {
            break;
        }
        let (start, length) = if length < 126 {
            (at + 2, usize::from(length))
        } else if let (126, Some(wide)) = (length, bytes.get(at + 2..at + 4)) {
            (at + 4, usize::from(u16::from_be_bytes([wide[0], wide[1]])))
        } else {
            break;
        };
        let Some(payload) = bytes.get(start..start + length) else { break };
        if walked.frames == 0 {
            walked.first = payload;
        }
        walked.frames += 1;
        walked.last = payload;
        countdown -= 1;
        if countdown == 0 {
            countdown = every;
            sampled(payload);
        }
        at = start + length;
    }
    *left = countdown;
    walked.size = at;
    walked
}

/// Result of [`walk`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Walked<'b> {
    /// Bytes walked over.
    pub size: usize,
    pub frames: u64,
    /// Payload of the first and of the last frame; empty when there was none.
    pub first: &'b [u8],
    pub last: &'b [u8],
}

/// The request that upgrades a connection, for `target` on `host`.
#[must_use]
pub fn upgrade_request(host: &str, target: &str) -> Vec<u8> {
    format!(
        "GET {target} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Key: c3RyZWFtY2FzdC1wZXJmIQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    .into_bytes()
}

/// What the server answered to an upgrade.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Upgrade<'b> {
    /// The answer is not complete.
    Waiting,
    /// Upgraded; frames begin after so many bytes.
    Done(usize),
    /// Refused, with the status line.
    Refused(&'b [u8]),
}

/// Reads the head of an HTTP answer.
#[must_use]
pub fn upgrade_answer(bytes: &[u8]) -> Upgrade<'_> {
    let Some(end) = memchr::memmem::find(bytes, b"\r\n\r\n") else { return Upgrade::Waiting };
    if bytes.starts_with(b"HTTP/1.1 101 ") {
        return Upgrade::Done(end + 4);
    }
    Upgrade::Refused(&bytes[..memchr::memchr(b'\r', bytes).unwrap_or(end)])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn server_frame(out: &mut Vec<u8>, head: u8, payload: &[u8]) {
        out.push(head);
        match payload.len() {
            length @ 0..=125 => out.push(length as u8),
            length @ 126..=65_535 => {
                out.push(126);
                out.extend_from_slice(&(length as u16).to_be_bytes());
            }
            length => {
                out.push(127);
                out.extend_from_slice(&(length as u64).to_be_bytes());
            }
        }
        out.extend_from_slice(payload);
    }

    /// The obvious way: frame by frame through `first`.
    fn slowly(bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut at = 0;
        let mut found = Vec::new();
        while let Ok(Some(frame)) = first(&bytes[at..]) {
            if frame.opcode != opcode::TEXT || !frame.finished || frame.payload.len() > 65_535 {
                break;
            }
            found.push(frame.payload.to_vec());
            at += frame.size;
        }
        found
    }

    #[test]
    fn walks_short_and_medium_frames_and_stops_at_the_cut() {
        let mut bytes = Vec::new();
        for length in [0, 1, 125, 126, 300] {
            server_frame(&mut bytes, 0x81, &vec![length as u8; length]);
        }
        let whole = bytes.len();
        server_frame(&mut bytes, 0x81, b"cut off");
        bytes.truncate(whole + 5);
        let mut left = 2;
        let mut sampled = Vec::new();
        let walked = walk(&bytes, &mut left, 2, |payload| sampled.push(payload.len()));
        assert_eq!((walked.size, walked.frames), (whole, 5));
        assert_eq!((walked.first.len(), walked.last.len()), (0, 300));
        assert_eq!(sampled, [1, 126]);
        assert_eq!(left, 1, "the countdown goes on with the next read");
    }

    #[test]
    fn stops_before_control_frames_fragments_and_long_frames() {
        for (head, length) in [(0x89, 0), (0x88, 2), (0x01, 3), (0x80, 3), (0x82, 3), (0x81, 65_536)] {
            let mut bytes = Vec::new();
            server_frame(&mut bytes, 0x81, b"data");
            let before = bytes.len();
            server_frame(&mut bytes, head, &vec![b'x'; length]);
            let walked = walk(&bytes, &mut 100, 100, |_| {});
            assert_eq!((walked.size, walked.frames), (before, 1), "{head:#x}");
            let frame = first(&bytes[before..]).unwrap().unwrap();
            assert_eq!((frame.opcode, frame.payload.len()), (head & 15, length));
        }
    }

    #[test]
    fn server_frames_must_be_plain() {
        assert_eq!(first(&[0x81, 0x80]), Err(FrameError::Masked));
        assert_eq!(first(&[0xc1, 1]), Err(FrameError::Reserved));
        assert_eq!(first(&[0x81]), Ok(None));
        assert_eq!(first(&[0x81, 127, 0, 0]), Ok(None));
        assert_eq!(first(&[0x81, 127, 255, 255, 255, 255, 255, 255, 255, 255, 0]), Ok(None));
    }

    #[test]
    fn answers_to_an_upgrade() {
        assert_eq!(upgrade_answer(b"HTTP/1.1 101 Switching"), Upgrade::Waiting);
        assert_eq!(upgrade_answer(b"HTTP/1.1 101 S\r\nA: b\r\n\r\n\x81\x00"), Upgrade::Done(24));
        assert_eq!(upgrade_answer(b"HTTP/1.1 503 Busy\r\n\r\n"), Upgrade::Refused(b"HTTP/1.1 503 Busy"));
    }

    proptest! {
        #[test]
        fn the_walk_finds_what_the_slow_way_finds(
            lengths in prop::collection::vec(0usize..400, 0..20), cut in 0usize..200, every in 1u64..5,
        ) {
            let mut bytes = Vec::new();
            for length in &lengths {
                server_frame(&mut bytes, 0x81, &vec![*length as u8; *length]);
            }
            bytes.truncate(bytes.len().saturating_sub(cut));
            let expected = slowly(&bytes);
            let mut left = every;
            let mut sampled = Vec::new();
            let walked = walk(&bytes, &mut left, every, |payload| sampled.push(payload.to_vec()));
            prop_assert_eq!(walked.frames as usize, expected.len());
            let wanted: Vec<_> = expected.iter().skip(every as usize - 1).step_by(every as usize).cloned().collect();
            prop_assert_eq!(sampled, wanted);
            prop_assert_eq!(walked.last, expected.last().map_or(&[][..], |payload| &payload[..]));
        }

        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            let walked = walk(&bytes, &mut 1, 1, |_| {});
            prop_assert!(walked.size <= bytes.len());
            let _ = first(&bytes[walked.size..]);
        }
    }
}
