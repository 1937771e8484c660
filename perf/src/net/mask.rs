//! A client's WebSocket frames: header, random mask, masked payload (RFC 6455 sections 5.2 and 5.3).

/// A cheap source of mask keys. Masks protect intermediaries, not secrets, so any unpredictable-enough key will do.
#[derive(Debug, Clone)]
pub struct MaskKeys(u64);

impl MaskKeys {
    /// Keys that depend on `seed` alone.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    fn next(&mut self) -> [u8; 4] {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 16) as u32).to_ne_bytes()
    }
}

/// Bytes kept free for the longest header: 2, an 8-byte length, the key.
const MAX_HEADER_BYTES: usize = 14;

/// Appends one masked frame whose payload is what `fill` appends.
pub fn push_frame(out: &mut Vec<u8>, opcode: u8, keys: &mut MaskKeys, fill: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; MAX_HEADER_BYTES]);
    fill(out);
    let payload = start + MAX_HEADER_BYTES;
    let length = out.len() - payload;
    let key = keys.next();
    apply(&mut out[payload..], key);

    let mut header = [0u8; MAX_HEADER_BYTES];
    header[0] = 0x80 | opcode;
    let size = match length {
        0..=125 => {
            header[1] = 0x80 | length as u8;
            2
        }
        126..=0xffff => {
            header[1] = 0x80 | 126;
            header[2..4].copy_from_slice(&(length as u16).to_be_bytes());
            4
        }
        _ => {
            header[1] = 0x80 | 127;
            header[2..10].copy_from_slice(&(length as u64).to_be_bytes());
            10
        }
    };
    header[size..size + 4].copy_from_slice(&key);
    let used = size + 4;
    out[start..start + used].copy_from_slice(&header[..used]);
    out.copy_within(payload.., start + used);
    out.truncate(start + used + length);
}

/// Masks (or unmasks) `bytes` with `key`, eight bytes a step.
pub fn apply(bytes: &mut [u8], key: [u8; 4]) {
    let [a, b, c, d] = key;
    let wide = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
    let mut chunks = bytes.chunks_exact_mut(8);
    for chunk in &mut chunks {
        let mut word = [0; 8];
        word.copy_from_slice(chunk);
        chunk.copy_from_slice(&(u64::from_ne_bytes(word) ^ wide).to_ne_bytes());
    }
    for (at, byte) in chunks.into_remainder().iter_mut().enumerate() {
        *byte ^= key[at % 4];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_every_length_class_unmask_to_their_payload() {
        let mut keys = MaskKeys::new(99);
        for length in [0usize, 1, 7, 125, 126, 127, 65_535, 65_536, 70_001] {
            let payload: Vec<u8> = (0..length).map(|at| at as u8).collect();
            let mut out = b"before".to_vec();
            push_frame(&mut out, 1, &mut keys, |out| out.extend_from_slice(&payload));
            let frame = &out[6..];
            assert_eq!(frame[0], 0x81);
            assert_eq!(frame[1] & 0x80, 0x80, "clients mask");
            let size = match length {
                0..=125 => 2,
                126..=65_535 => 4,
                _ => 10,
            };
            let key = frame[size..size + 4].try_into().unwrap();
            let mut body = frame[size + 4..].to_vec();
            apply(&mut body, key);
            assert!(body == payload, "{length}");
        }
    }

    #[test]
    fn keys_differ() {
        let mut keys = MaskKeys::new(0);
        let seen: std::collections::HashSet<_> = (0..1_000).map(|_| keys.next()).collect();
        assert_eq!(seen.len(), 1_000);
    }
}
