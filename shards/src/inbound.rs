//! Incoming WebSocket bytes: frames, fragments, masks, limits (RFC 6455 sections 5 and 7). Pure: bytes in,
//! messages out.

use std::io::Cursor;

use tungstenite::protocol::frame::FrameHeader;
use tungstenite::protocol::frame::coding::{Control, Data, OpCode};

/// A whole message or control frame from the peer.
#[derive(Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// A text message; valid UTF-8.
    Text(&'a mut [u8]),
    /// A binary message.
    Binary(&'a mut [u8]),
    /// A ping, to be answered with the same payload.
    Ping(&'a [u8]),
    /// A pong.
    Pong,
    /// A close; `None` where it carried no code.
    Close(Option<u16>),
}

/// Why the connection cannot go on, as a close code and a reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// 1002.
    #[error("{0}")]
    Protocol(&'static str),
    /// 1007.
    #[error("a text message is not UTF-8")]
    NotUtf8,
    /// 1009: the size is known before the payload has come.
    #[error("a message of {size_bytes} bytes is over the limit")]
    TooBig {
        /// What was announced or has come so far, in bytes.
        size_bytes: u64,
    },
}

/// The decoder of one connection: what is left of an incomplete frame or message. Empty between messages.
#[derive(Debug, Default)]
pub struct Inbound {
    /// Bytes of a frame that has not come whole, header included.
    pending: Vec<u8>,
    /// Payloads of the fragments so far.
    fragments: Vec<u8>,
    /// Whether the fragmented message is text; `None` between messages.
    fragmented_text: Option<bool>,
}

/// Whether the consumer wants more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// Go on with the next message.
    Continue,
    /// Keep what follows for later.
    Stop,
}

/// The largest header: two bytes, an eight-byte length, a mask.
const MAX_HEADER_BYTES: usize = 14;

impl Inbound {
    /// Whether nothing is kept, so that the decoder needs no memory.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.pending.is_empty() && self.fragmented_text.is_none()
    }

    /// Whether bytes are kept that may hold whole messages (after [`Flow::Stop`]).
    #[must_use]
    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Bytes kept, for accounting.
    #[must_use]
    pub fn kept_bytes(&self) -> usize {
        self.pending.capacity() + self.fragments.capacity()
    }

    /// Keeps bytes that came before the decoder was asked to decode.
    pub fn keep(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
    }

    /// Takes back what [`Inbound::keep`] kept.
    #[must_use]
    pub fn take_pending(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.pending)
    }

    /// Decodes what came (it is unmasked in place), calling `each` for every whole message in order. What is
    /// left over is kept. `limit_bytes` bounds a message over all its fragments.
    pub fn decode(
        &mut self,
        bytes: &mut [u8],
        limit_bytes: usize,
        mut each: impl FnMut(Message<'_>) -> Flow,
    ) -> Result<Flow, Violation> {
        if self.pending.is_empty() {
            let (used, flow) = self.run(bytes, limit_bytes, &mut each)?;
            self.pending.extend_from_slice(&bytes[used..]);
            return Ok(flow);
        }
        let mut pending = std::mem::take(&mut self.pending);
        if let Some(missing) = missing_bytes(&pending)?.filter(|missing| *missing <= bytes.len()) {
            // Only the frame that has begun has to be put together; the others are decoded where they are.
            let (first, rest) = bytes.split_at_mut(missing);
            pending.extend_from_slice(first);
            let (_, flow) = self.run(&mut pending, limit_bytes, &mut each)?;
            let (used, flow) = if flow == Flow::Stop { (0, flow) } else { self.run(rest, limit_bytes, &mut each)? };
            pending.clear();
            pending.extend_from_slice(&rest[used..]);
            if !pending.is_empty() {
                self.pending = pending;
            }
            return Ok(flow);
        }
        pending.extend_from_slice(bytes);
        let (used, flow) = self.run(&mut pending, limit_bytes, &mut each)?;
        if used < pending.len() {
            pending.drain(..used);
            self.pending = pending;
        }
        Ok(flow)
    }

    fn run(
        &mut self,
        bytes: &mut [u8],
        limit_bytes: usize,
        each: &mut impl FnMut(Message<'_>) -> Flow,
    ) -> Result<(usize, Flow), Violation> {
        let mut used = 0;
        while let Some((header, header_bytes, length)) = read_header(&bytes[used..])? {
            self.check(&header, length, limit_bytes)?;
            let start = used + header_bytes;
            let Some(end) = usize::try_from(length).ok().and_then(|length| start.checked_add(length)) else {
                return Err(Violation::TooBig { size_bytes: length });
            };
            if end > bytes.len() {
                break;
            }
            let payload = &mut bytes[start..end];
            unmask(payload, header.mask.unwrap_or_default());
            used = end;
            if self.message(&header, payload, each)? == Flow::Stop {
                return Ok((used, Flow::Stop));
            }
        }
        Ok((used, Flow::Continue))
    }

    /// Refuses a frame by its header alone, before its payload is awaited.
    fn check(&self, header: &FrameHeader, length: u64, limit_bytes: usize) -> Result<(), Violation> {
        if header.rsv1 || header.rsv2 || header.rsv3 {
            return Err(Violation::Protocol("a reserved bit is set and no extension was agreed"));
        }
        if header.mask.is_none() {
            return Err(Violation::Protocol("frames from a client must be masked"));
        }
        match header.opcode {
            OpCode::Control(Control::Reserved(_)) | OpCode::Data(Data::Reserved(_)) => {
                Err(Violation::Protocol("a reserved opcode"))
            }
            OpCode::Control(_) if !header.is_final => Err(Violation::Protocol("a control frame is fragmented")),
            OpCode::Control(_) if length > 125 => Err(Violation::Protocol("a control frame is longer than 125 bytes")),
            OpCode::Control(_) => Ok(()),
            OpCode::Data(data) => {
                match (data, self.fragmented_text) {
                    (Data::Continue, None) => return Err(Violation::Protocol("a continuation of nothing")),
                    (Data::Text | Data::Binary, Some(_)) => {
                        return Err(Violation::Protocol("a new message inside a fragmented one"));
                    }
                    _ => {}
                }
                let size_bytes = length.saturating_add(self.fragments.len() as u64);
                if size_bytes > limit_bytes as u64 { Err(Violation::TooBig { size_bytes }) } else { Ok(()) }
            }
        }
    }

    fn message(
        &mut self,
        header: &FrameHeader,
        payload: &mut [u8],
        each: &mut impl FnMut(Message<'_>) -> Flow,
    ) -> Result<Flow, Violation> {
        match header.opcode {
            OpCode::Control(Control::Ping) => Ok(each(Message::Ping(payload))),
            OpCode::Control(Control::Pong) => Ok(each(Message::Pong)),
            OpCode::Control(_) => Ok(each(Message::Close(close_code(payload)?))),
            OpCode::Data(data) => {
                let text = match data {
                    Data::Continue => self.fragmented_text.unwrap_or(false),
                    _ => data == Data::Text,
                };
                if !header.is_final {
                    self.fragmented_text = Some(text);
                    self.fragments.extend_from_slice(payload);
                    return Ok(Flow::Continue);
                }
                if self.fragmented_text.take().is_none() {
                    return whole(text, payload, each);
                }
                let mut message = std::mem::take(&mut self.fragments);
                message.extend_from_slice(payload);
                whole(text, &mut message, each)
            }
        }
    }
}

fn whole(text: bool, payload: &mut [u8], each: &mut impl FnMut(Message<'_>) -> Flow) -> Result<Flow, Violation> {
    if !text {
        return Ok(each(Message::Binary(payload)));
    }
    if simdutf8::basic::from_utf8(payload).is_err() {
        return Err(Violation::NotUtf8);
    }
    Ok(each(Message::Text(payload)))
}

fn read_header(bytes: &[u8]) -> Result<Option<(FrameHeader, usize, u64)>, Violation> {
    let mut cursor = Cursor::new(&bytes[..bytes.len().min(MAX_HEADER_BYTES)]);
    match FrameHeader::parse(&mut cursor) {
        Ok(Some((header, length))) => Ok(Some((header, cursor.position() as usize, length))),
        Ok(None) => Ok(None),
        Err(_) => Err(Violation::Protocol("a malformed frame header")),
    }
}

/// What is missing of the one frame that `pending` holds a part of; `None` if its header is not whole or more has come.
fn missing_bytes(pending: &[u8]) -> Result<Option<usize>, Violation> {
    let Some((_, header_bytes, length)) = read_header(pending)? else { return Ok(None) };
    let whole = usize::try_from(length).ok().and_then(|length| length.checked_add(header_bytes));
    Ok(whole.and_then(|whole| whole.checked_sub(pending.len())))
}

/// The code of a close frame (RFC 6455 section 7.4).
fn close_code(payload: &[u8]) -> Result<Option<u16>, Violation> {
    match payload {
        [] => Ok(None),
        [_] => Err(Violation::Protocol("a close frame of one byte")),
        [high, low, reason @ ..] => {
            let code = u16::from_be_bytes([*high, *low]);
            if !matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999) {
                return Err(Violation::Protocol("a close code that must not be sent"));
            }
            if simdutf8::basic::from_utf8(reason).is_err() {
                return Err(Violation::NotUtf8);
            }
            Ok(Some(code))
        }
    }
}

/// Applies a mask in place (RFC 6455 section 5.3), eight bytes at a time.
pub fn unmask(payload: &mut [u8], mask: [u8; 4]) {
    let [a, b, c, d] = mask;
    let wide = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
    if wide == 0 {
        return;
    }
    let mut chunks = payload.chunks_exact_mut(8);
    for chunk in &mut chunks {
        let mut word = [0; 8];
        word.copy_from_slice(chunk);
        chunk.copy_from_slice(&(u64::from_ne_bytes(word) ^ wide).to_ne_bytes());
    }
    for (byte, key) in chunks.into_remainder().iter_mut().zip(mask.iter().cycle()) {
        *byte ^= key;
    }
}

#[cfg(test)]
#[path = "inbound_tests.rs"]
mod tests;
