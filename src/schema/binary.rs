//! Binary columns travel as text (wire.md section 13.3).

/// How a binary column's bytes are written in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// Hexadecimal digits, lowercase in canonical text.
    Base16,
    /// RFC 4648 section 4 with padding, trailing bits zero in canonical text.
    Base64,
}

const HEX: &[u8; 16] = b"0123456789abcdef";
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The six bits of each character of the base64 alphabet; 255 for every other byte.
const SIX_BITS: [u8; 256] = {
    let mut table = [255; 256];
    let mut index = 0;
    while index < 64 {
        table[ALPHABET[index] as usize] = index as u8;
        index += 1;
    }
    table
};

impl Encoding {
    /// The `contentEncoding` of the schema.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Encoding::Base16 => "base16",
            Encoding::Base64 => "base64",
        }
    }

    /// Appends the bytes that `text` stands for; `None` if it does not decode, and then `out` is undefined.
    #[must_use]
    pub fn decode(self, text: &str, out: &mut Vec<u8>) -> Option<()> {
        match self {
            Encoding::Base16 => decode_base16(text.as_bytes(), out),
            Encoding::Base64 => decode_base64(text.as_bytes(), out),
        }
    }

    /// Appends the one canonical text of `bytes`, without quotes.
    pub fn encode(self, bytes: &[u8], out: &mut Vec<u8>) {
        match self {
            Encoding::Base16 => {
                out.extend(bytes.iter().flat_map(|&byte| [HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]));
            }
            Encoding::Base64 => encode_base64(bytes, out),
        }
    }
}

/// Pairs of digits; space between bytes but not inside one.
fn decode_base16(text: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let mut rest = text;
    loop {
        match rest {
            [] => return Some(()),
            [b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c, tail @ ..] => rest = tail,
            [high, low, tail @ ..] => {
                out.push((digit(*high)? << 4 | digit(*low)?) as u8);
                rest = tail;
            }
            [_] => return None,
        }
    }
}

/// Quanta of four characters, the last one padded. Bits beyond the last byte are ignored; one or two characters
/// of padding behind a whole quantum are superfluous but legal.
fn decode_base64(text: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let (data, padding) = match text {
        [head @ .., b'=', b'='] => (head, 2),
        [head @ .., b'='] => (head, 1),
        all => (all, 0),
    };
    let fits = match data.len() % 4 {
        0 => padding == 0 || !data.is_empty(),
        2 => padding == 2,
        3 => padding == 1,
        _ => false,
    };
    if !fits {
        return None;
    }
    for quantum in data.chunks(4) {
        let mut bits = 0u32;
        for &byte in quantum {
            match SIX_BITS[usize::from(byte)] {
                255 => return None,
                six => bits = bits << 6 | u32::from(six),
            }
        }
        let [_, bytes @ ..] = (bits << (6 * (4 - quantum.len()))).to_be_bytes();
        out.extend_from_slice(&bytes[..quantum.len() * 3 / 4]);
    }
    Some(())
}

fn encode_base64(bytes: &[u8], out: &mut Vec<u8>) {
    for triple in bytes.chunks(3) {
        let mut bits = [0; 4];
        bits[1..=triple.len()].copy_from_slice(triple);
        let bits = u32::from_be_bytes(bits);
        for place in 0..4 {
            if place <= triple.len() {
                out.push(ALPHABET[(bits >> (18 - 6 * place) & 63) as usize]);
            } else {
                out.push(b'=');
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn canonical(encoding: Encoding, text: &str) -> Option<String> {
        let mut bytes = Vec::new();
        encoding.decode(text, &mut bytes)?;
        let mut out = Vec::new();
        encoding.encode(&bytes, &mut out);
        Some(String::from_utf8(out).unwrap())
    }

    #[test]
    fn base16() {
        let table =
            [("", ""), ("00ff", "00ff"), ("AbCd", "abcd"), (" ab cd ", "abcd"), ("ab\tcd\n", "abcd"), ("  ", "")];
        for (text, expected) in table {
            assert_eq!(canonical(Encoding::Base16, text).as_deref(), Some(expected), "{text:?}");
        }
        for text in ["a", "abc", "a b", "a bc", "0xab", "zz", "ab-cd", "ab\u{a0}cd", "\u{e9}", "+1"] {
            assert_eq!(canonical(Encoding::Base16, text), None, "{text:?}");
        }
    }

    #[test]
    fn base64() {
        let table = [
            ("", ""),
            ("AQ==", "AQ=="),
            ("AQI=", "AQI="),
            ("AQID", "AQID"),
            ("+/+/", "+/+/"),
            ("AR==", "AQ=="),
            ("AQID=", "AQID"),
            ("AQID==", "AQID"),
        ];
        for (text, expected) in table {
            assert_eq!(canonical(Encoding::Base64, text).as_deref(), Some(expected), "{text:?}");
        }
        let refused = [
            "A", "AQ", "AQ=", "A=", "A==", "A===", "===", "====", "A-_D", "AQ\n==", "AQ ==", "\u{e9}", "AQ==AQ==",
            "AQ=A", "AQI=AQID", "AQID===", "AQ===", "AQI==", "=", "==",
        ];
        for text in refused {
            assert_eq!(canonical(Encoding::Base64, text), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn encoding_and_decoding_are_inverse(bytes in proptest::collection::vec(any::<u8>(), 0..50)) {
            for encoding in [Encoding::Base16, Encoding::Base64] {
                let mut text = Vec::new();
                encoding.encode(&bytes, &mut text);
                let mut back = Vec::new();
                prop_assert!(encoding.decode(std::str::from_utf8(&text).unwrap(), &mut back).is_some());
                prop_assert_eq!(&back, &bytes);
            }
        }
    }
}
