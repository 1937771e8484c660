//! Writing canonical JSON (wire.md section 3.3).

/// Bytes of a string that are looked at together; the loop over them compiles to vector instructions.
const LANES: usize = 16;

const HEX: &[u8; 16] = b"0123456789abcdef";

/// Appends an integer in plain decimal.
#[inline]
pub fn push_i64(out: &mut Vec<u8>, value: i64) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// From here on a double's text has a positive exponent.
const EXPONENT_FROM: f64 = 1e16;

/// Appends a finite double: its shortest digits that read back as the same value.
///
/// A value that is not finite has no JSON; `null` is written, as nothing better exists.
#[inline]
pub fn push_f64(out: &mut Vec<u8>, value: f64) {
    debug_assert!(value.is_finite(), "the parser lets no infinity and no NaN through");
    let mut buffer = zmij::Buffer::new();
    if value.abs() < EXPONENT_FROM {
        out.extend_from_slice(buffer.format_finite(value).as_bytes());
    } else if value.is_finite() {
        // The contract's format is that of ryu, which writes a positive exponent without a sign.
        out.extend(buffer.format_finite(value).bytes().filter(|&byte| byte != b'+'));
    } else {
        out.extend_from_slice(b"null");
    }
}

/// Appends a string with its quotes, escaping where JSON demands it.
#[inline]
pub fn push_string(out: &mut Vec<u8>, text: &str) {
    let bytes = text.as_bytes();
    if bytes.chunks(LANES).any(needs_escape) {
        push_escaped(out, bytes);
    } else {
        push_plain_string(out, text);
    }
}

/// Appends a string with its quotes. The caller knows that nothing in it needs an escape.
#[inline]
pub fn push_plain_string(out: &mut Vec<u8>, text: &str) {
    out.reserve(text.len() + 2);
    out.push(b'"');
    out.extend_from_slice(text.as_bytes());
    out.push(b'"');
}

#[inline]
fn is_special(byte: u8) -> bool {
    (byte < 0x20) | (byte == b'"') | (byte == b'\\')
}

#[inline]
fn needs_escape(chunk: &[u8]) -> bool {
    match <&[u8; LANES]>::try_from(chunk) {
        Ok(whole) => whole.iter().fold(false, |found, &byte| found | is_special(byte)),
        Err(_) => chunk.iter().any(|&byte| is_special(byte)),
    }
}

#[cold]
fn push_escaped(out: &mut Vec<u8>, bytes: &[u8]) {
    out.reserve(bytes.len() + 8);
    out.push(b'"');
    let mut start = 0;
    for (index, &byte) in bytes.iter().enumerate() {
        if !is_special(byte) {
            continue;
        }
        out.extend_from_slice(&bytes[start..index]);
        start = index + 1;
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            0x08 => out.extend_from_slice(b"\\b"),
            b'\t' => out.extend_from_slice(b"\\t"),
            b'\n' => out.extend_from_slice(b"\\n"),
            0x0c => out.extend_from_slice(b"\\f"),
            b'\r' => out.extend_from_slice(b"\\r"),
            _ => {
                let escape = [b'\\', b'u', b'0', b'0', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]];
                out.extend_from_slice(&escape);
            }
        }
    }
    out.extend_from_slice(&bytes[start..]);
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn string(text: &str) -> String {
        let mut out = Vec::new();
        push_string(&mut out, text);
        String::from_utf8(out).unwrap()
    }

    fn float(value: f64) -> String {
        let mut out = Vec::new();
        push_f64(&mut out, value);
        String::from_utf8(out).unwrap()
    }

    /// The rule of wire.md section 3.3, character by character.
    fn slow_string(text: &str) -> String {
        let mut out = String::from("\"");
        for c in text.chars() {
            match c {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\u{8}' => out.push_str("\\b"),
                '\t' => out.push_str("\\t"),
                '\n' => out.push_str("\\n"),
                '\u{c}' => out.push_str("\\f"),
                '\r' => out.push_str("\\r"),
                c if u32::from(c) < 0x20 => out.push_str(&format!("\\u{:04x}", u32::from(c))),
                c => out.push(c),
            }
        }
        out.push('"');
        out
    }

    /// The table of wire.md section 3.3, with the fewest digits that read back as the value.
    fn slow_float(value: f64) -> String {
        let sign = if value.is_sign_negative() { "-" } else { "" };
        if value == 0.0 {
            return format!("{sign}0.0");
        }
        let scientific = (0..17)
            .map(|decimals| format!("{:.*e}", decimals, value.abs()))
            .find(|text| text.parse() == Ok(value.abs()))
            .unwrap();
        let (mantissa, exponent) = scientific.split_once('e').unwrap();
        let digits = mantissa.replace('.', "");
        let n = digits.len() as i32;
        let k = exponent.parse::<i32>().unwrap() + 1;
        let body = if k >= n && k <= 16 {
            format!("{digits}{}.0", "0".repeat((k - n) as usize))
        } else if 0 < k && k < n && k <= 16 {
            format!("{}.{}", &digits[..k as usize], &digits[k as usize..])
        } else if -5 < k && k <= 0 {
            format!("0.{}{digits}", "0".repeat(-k as usize))
        } else if n == 1 {
            format!("{digits}e{}", k - 1)
        } else {
            format!("{}.{}e{}", &digits[..1], &digits[1..], k - 1)
        };
        format!("{sign}{body}")
    }

    #[test]
    fn floats_of_the_specification() {
        let table = [
            (1e15, "1000000000000000.0"),
            (1e16, "1e16"),
            (1.2345678901234568e17, "1.2345678901234568e17"),
            (0.00001, "0.00001"),
            (0.000012345, "0.000012345"),
            (1e-6, "1e-6"),
            (9.9999e-6, "9.9999e-6"),
            (5e-324, "5e-324"),
            (250.0, "250.0"),
            (-0.0, "-0.0"),
        ];
        for (value, text) in table {
            assert_eq!(float(value), text);
            assert_eq!(slow_float(value), text);
        }
    }

    #[test]
    fn strings_of_the_specification() {
        assert_eq!(string("/\u{7f}\u{2028}\u{1f600}"), "\"/\u{7f}\u{2028}\u{1f600}\"");
        assert_eq!(string("a\"\\\u{8}\t\n\u{c}\r\u{b}\u{0}"), "\"a\\\"\\\\\\b\\t\\n\\f\\r\\u000b\\u0000\"");
    }

    #[test]
    fn a_special_byte_is_found_at_every_place() {
        for length in 1..70 {
            for place in 0..length {
                let mut text = vec![b'x'; length];
                text[place] = b'\n';
                let text = String::from_utf8(text).unwrap();
                assert_eq!(string(&text), slow_string(&text));
            }
        }
    }

    proptest! {
        #[test]
        fn floats_equal_the_table(bits in any::<u64>()) {
            let value = f64::from_bits(bits);
            prop_assume!(value.is_finite());
            let text = float(value);
            prop_assert_eq!(&text, &slow_float(value));
            let mut ryu = ryu::Buffer::new();
            prop_assert_eq!(&text, ryu.format_finite(value));
            prop_assert_eq!(text.parse::<f64>().unwrap().to_bits(), bits);
        }

        #[test]
        fn decimal_floats_equal_the_table(digits in any::<i64>(), scale in 0..20i32) {
            let value = digits as f64 / 10f64.powi(scale);
            prop_assert_eq!(float(value), slow_float(value));
        }

        #[test]
        fn strings_equal_the_rule(text in "(\\PC|[\\x00-\\x7f]){0,60}") {
            prop_assert_eq!(string(&text), slow_string(&text));
        }
    }
}
