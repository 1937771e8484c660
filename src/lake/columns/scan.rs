//! Reading the scalars of canonical JSON (wire.md section 3.3). The text was written by our own encoder, so this looks
//! for exactly what that writes; anything else is damage.

/// Where and why a line is not canonical.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Damage {
    /// Index of the byte.
    pub at: usize,
    /// What should have been there.
    pub what: &'static str,
}

/// A place in a line.
#[derive(Debug)]
pub(super) struct Cursor<'a> {
    line: &'a [u8],
    at: usize,
}

/// Powers of ten that are doubles.
const TENS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20,
    1e21, 1e22,
];

/// Integers up to this are doubles.
const EXACT: u64 = 1 << 53;

impl<'a> Cursor<'a> {
    pub fn new(line: &'a [u8]) -> Self {
        Self { line, at: 0 }
    }

    #[inline]
    pub fn peek(&self) -> Option<u8> {
        self.line.get(self.at).copied()
    }

    #[cold]
    pub fn fail<T>(&self, what: &'static str) -> Result<T, Damage> {
        Err(Damage { at: self.at, what })
    }

    /// Goes over `text`, which must stand here.
    #[inline]
    pub fn go_over(&mut self, text: &[u8], what: &'static str) -> Result<(), Damage> {
        if !self.eat(text) {
            return self.fail(what);
        }
        Ok(())
    }

    /// Goes over `text` if it stands here.
    #[inline]
    pub fn eat(&mut self, text: &[u8]) -> bool {
        let found = self.line[self.at..].starts_with(text);
        if found {
            self.at += text.len();
        }
        found
    }

    /// Goes over `byte` if it stands here.
    #[inline]
    pub fn eat_byte(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    /// The line must end here.
    #[inline]
    pub fn end(&self) -> Result<(), Damage> {
        if self.at == self.line.len() { Ok(()) } else { self.fail("the end of the row must be here") }
    }

    #[inline]
    pub fn bool(&mut self) -> Result<bool, Damage> {
        if self.eat(b"true") {
            Ok(true)
        } else if self.eat(b"false") {
            Ok(false)
        } else {
            self.fail("true or false must be here")
        }
    }

    /// The digits that stand here, as a number modulo 2^64, and how many they are.
    #[inline]
    fn digits(&mut self, mut value: u64) -> (u64, usize) {
        let start = self.at;
        while let Some(digit) = self.line.get(self.at).map(|byte| byte.wrapping_sub(b'0')).filter(|digit| *digit < 10) {
            value = value.wrapping_mul(10).wrapping_add(u64::from(digit));
            self.at += 1;
        }
        (value, self.at - start)
    }

    #[inline]
    pub fn int(&mut self) -> Result<i64, Damage> {
        let negative = self.eat_byte(b'-');
        let start = self.at;
        let (value, count) = self.digits(0);
        let value = match count {
            0 => return self.fail("an integer must be here"),
            1..=18 => value as i64,
            _ => {
                // The digits are ASCII, and there may be a sign before them.
                let text = std::str::from_utf8(&self.line[start - usize::from(negative)..self.at]).unwrap_or_default();
                return match text.parse() {
                    Ok(value) => Ok(value),
                    Err(_) => self.fail("an integer of 64 bits must be before this"),
                };
            }
        };
        Ok(if negative { -value } else { value })
    }

    #[inline]
    pub fn float(&mut self) -> Result<f64, Damage> {
        let start = self.at;
        let negative = self.eat_byte(b'-');
        let (whole, mut count) = self.digits(0);
        if count == 0 {
            return self.fail("a number must be here");
        }
        let (mut value, mut decimals) = (whole, 0);
        if self.eat_byte(b'.') {
            (value, decimals) = self.digits(whole);
            count += decimals;
        }
        let plain = !matches!(self.peek(), Some(b'e'));
        // Both numbers are doubles, so that their quotient is rounded once: it is the nearest double.
        if plain && count <= 19 && value <= EXACT && decimals < TENS.len() {
            let value = value as f64 / TENS[decimals];
            return Ok(if negative { -value } else { value });
        }
        if self.eat_byte(b'e') {
            self.eat_byte(b'-');
            self.digits(0);
        }
        let text = std::str::from_utf8(&self.line[start..self.at]).unwrap_or_default();
        match text.parse::<f64>() {
            Ok(value) if value.is_finite() => Ok(value),
            _ => self.fail("a finite number must be before this"),
        }
    }

    /// Appends the content of the string that stands here.
    #[inline]
    pub fn string(&mut self, out: &mut Vec<u8>) -> Result<(), Damage> {
        self.go_over(b"\"", "a string must be here")?;
        loop {
            let rest = &self.line[self.at..];
            let Some(length) = memchr::memchr2(b'"', b'\\', rest) else {
                return self.fail("the string that starts here must end");
            };
            out.extend_from_slice(&rest[..length]);
            self.at += length + 1;
            if rest[length] == b'"' {
                return Ok(());
            }
            out.push(self.escape()?);
        }
    }

    /// The string that stands here and has no escape in it.
    #[inline]
    pub fn plain_string(&mut self) -> Result<&'a [u8], Damage> {
        self.go_over(b"\"", "a string must be here")?;
        let rest = &self.line[self.at..];
        let Some(length) = memchr::memchr(b'"', rest) else {
            return self.fail("the string that starts here must end");
        };
        self.at += length + 1;
        Ok(&rest[..length])
    }

    /// The byte that an escape stands for, behind its backslash.
    #[cold]
    fn escape(&mut self) -> Result<u8, Damage> {
        let byte = match self.peek() {
            Some(byte @ (b'"' | b'\\')) => byte,
            Some(b'b') => 0x08,
            Some(b't') => b'\t',
            Some(b'n') => b'\n',
            Some(b'f') => 0x0c,
            Some(b'r') => b'\r',
            Some(b'u') => {
                let digits = self.line.get(self.at + 1..self.at + 5);
                let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
                return match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
                    Some(byte) if byte < 0x20 => {
                        self.at += 5;
                        Ok(byte)
                    }
                    _ => self.fail("an escape of a control character must be here"),
                };
            }
            _ => return self.fail("an escape must be here"),
        };
        self.at += 1;
        Ok(byte)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::schema::json::{push_f64, push_string};

    fn float(text: &str) -> Result<f64, Damage> {
        let mut cursor = Cursor::new(text.as_bytes());
        let value = cursor.float()?;
        cursor.end().map(|()| value)
    }

    fn string(text: &[u8]) -> Result<Vec<u8>, Damage> {
        let (mut cursor, mut out) = (Cursor::new(text), Vec::new());
        cursor.string(&mut out)?;
        cursor.end().map(|()| out)
    }

    #[test]
    fn integers() {
        let table = [("0", 0), ("-7", -7), ("9223372036854775807", i64::MAX), ("-9223372036854775808", i64::MIN)];
        for (text, value) in table {
            assert_eq!(Cursor::new(text.as_bytes()).int(), Ok(value), "{text}");
        }
        for text in ["", "-", "x", "9223372036854775808", "-9223372036854775809", "100000000000000000000000"] {
            assert!(Cursor::new(text.as_bytes()).int().is_err(), "{text}");
        }
    }

    #[test]
    fn damaged_floats() {
        for text in ["", "-", ".5", "1e999", "1e", "nan", "1.0x"] {
            assert!(float(text).is_err(), "{text}");
        }
        assert_eq!(float("-0.0").map(f64::to_bits), Ok((-0.0f64).to_bits()));
    }

    #[test]
    fn damaged_strings() {
        for text in ["", "\"", "\"a", "\"\\\"", "\"\\", "\"\\x\"", "\"\\u0041\"", "\"\\u001", "\"\\u00\u{e9}\"", "x\""]
        {
            assert!(string(text.as_bytes()).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn floats_come_back(bits in any::<u64>()) {
            let value = f64::from_bits(bits);
            prop_assume!(value.is_finite());
            let mut text = Vec::new();
            push_f64(&mut text, value);
            let text = String::from_utf8(text).unwrap();
            prop_assert_eq!(float(&text).map(f64::to_bits), Ok(bits));
        }

        #[test]
        fn decimals_come_back(digits in any::<i64>(), scale in 0..25i32) {
            let value = digits as f64 / 10f64.powi(scale);
            let mut text = Vec::new();
            push_f64(&mut text, value);
            let text = String::from_utf8(text).unwrap();
            prop_assert_eq!(float(&text).map(f64::to_bits), Ok(value.to_bits()));
        }

        #[test]
        fn strings_come_back(text in "(\\PC|[\\x00-\\x7f]){0,60}") {
            let mut canonical = Vec::new();
            push_string(&mut canonical, &text);
            prop_assert_eq!(string(&canonical), Ok(text.into_bytes()));
        }

        #[test]
        fn no_text_makes_it_panic(text in "[-+0-9.eE\"\\\\u]{0,30}") {
            let _ = Cursor::new(text.as_bytes()).int();
            let _ = float(&text);
            let _ = string(text.as_bytes());
        }
    }
}
