//! Where one TLS record ends and the next begins in what was received.

/// Bytes of a record's header: type, version, length (RFC 8446 section 5.1).
const HEADER_BYTES: u8 = 5;

/// Follows received bytes from record to record without opening them.
#[derive(Debug, Clone, Copy, Default)]
pub struct RecordEdge {
    /// Bytes of a header that have come.
    header: u8,
    /// The length, as far as it has come; then what is still to come of the record.
    left: u16,
}

impl RecordEdge {
    /// Takes the bytes that follow those from before.
    pub fn pass(&mut self, mut bytes: &[u8]) {
        while let Some((&first, rest)) = bytes.split_first() {
            if self.header < HEADER_BYTES {
                if self.header >= 3 {
                    self.left = self.left << 8 | u16::from(first);
                }
                self.header += 1;
                bytes = rest;
            } else {
                let skipped = bytes.len().min(usize::from(self.left));
                self.left -= skipped as u16;
                bytes = &bytes[skipped..];
            }
            if self.header == HEADER_BYTES && self.left == 0 {
                *self = Self::default();
            }
        }
    }

    /// Whether the last record that has begun has come whole.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.header == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_are_found_however_the_bytes_are_cut() {
        let mut bytes = Vec::new();
        let mut edges = vec![0];
        for length in [0u16, 1, 5, 255, 256, 16_640, 0, 0, 700] {
            bytes.extend_from_slice(&[23, 3, 3]);
            bytes.extend_from_slice(&length.to_be_bytes());
            bytes.resize(bytes.len() + usize::from(length), 23);
            edges.push(bytes.len());
        }
        for piece in [1, 2, 3, 4, 5, 6, 7, 255, 1_000, 20_000] {
            let (mut edge, mut at) = (RecordEdge::default(), 0);
            assert!(edge.is_whole());
            for bytes in bytes.chunks(piece) {
                edge.pass(bytes);
                at += bytes.len();
                assert_eq!(edge.is_whole(), edges.contains(&at), "{piece} at {at}");
            }
        }
    }
}
