//! Outgoing WebSocket frames (RFC 6455 section 5.2): pure functions from payloads to bytes.
//!
//! The server never masks and never fragments, so a header is two, four or ten bytes.

/// Opcodes of RFC 6455 section 5.2.
pub mod opcode {
    /// A UTF-8 data frame.
    pub const TEXT: u8 = 1;
    /// A binary data frame.
    pub const BINARY: u8 = 2;
    /// A close frame.
    pub const CLOSE: u8 = 8;
    /// A ping.
    pub const PING: u8 = 9;
    /// A pong.
    pub const PONG: u8 = 10;
}

/// Appends the header of an unfragmented, unmasked frame whose payload has `length_bytes`.
pub fn push_header(out: &mut Vec<u8>, opcode: u8, length_bytes: usize) {
    let first = 0x80 | opcode;
    if length_bytes < 126 {
        out.extend_from_slice(&[first, length_bytes as u8]);
    } else if length_bytes <= usize::from(u16::MAX) {
        let length = (length_bytes as u16).to_be_bytes();
        out.extend_from_slice(&[first, 126, length[0], length[1]]);
    } else {
        out.extend_from_slice(&[first, 127]);
        out.extend_from_slice(&(length_bytes as u64).to_be_bytes());
    }
}

/// The bytes of the header that [`push_header`] appends.
#[must_use]
pub const fn header_bytes(length_bytes: usize) -> usize {
    match length_bytes {
        0..126 => 2,
        126..=0xFFFF => 4,
        _ => 10,
    }
}

/// Appends a whole frame.
pub fn push_frame(out: &mut Vec<u8>, opcode: u8, payload: &[u8]) {
    push_header(out, opcode, payload.len());
    out.extend_from_slice(payload);
}

/// Appends a close frame; `reason` must be at most 123 bytes (RFC 6455 section 5.5).
pub fn push_close(out: &mut Vec<u8>, code: u16, reason: &str) {
    debug_assert!(reason.len() <= 123, "a close reason is at most 123 bytes");
    push_header(out, opcode::CLOSE, 2 + reason.len());
    out.extend_from_slice(&code.to_be_bytes());
    out.extend_from_slice(reason.as_bytes());
}

/// The payload of a frame built by this module: what follows the header.
#[must_use]
pub fn payload(frame: &[u8]) -> &[u8] {
    match frame[1] {
        126 => &frame[4..],
        127 => &frame[10..],
        _ => &frame[2..],
    }
}
