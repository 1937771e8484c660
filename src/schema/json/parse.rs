//! The strict parser of wire.md section 4.4. It is small and exact rather than fast: publish frames come here
//! only when the fast path cannot decide, filters and tests always.

use super::value::{Json, Members};

/// The deepest nesting of arrays and objects that is read: as deep as the Python package reads it.
pub const MAX_DEPTH: usize = 984;

/// The longest integer that is read, in characters; doubles may be written with any number of digits.
pub const MAX_INTEGER_DIGITS: usize = 4300;

/// Why a text is not JSON, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not json at byte {at}: {what}")]
pub struct JsonError {
    /// Index of the offending byte; the length of the text where something is missing at its end.
    pub at: usize,
    /// What is wrong there.
    pub what: &'static str,
}

/// Reads one JSON value that fills `text` but for surrounding space, tab, carriage return and line feed.
///
/// # Errors
/// [`JsonError`] for anything outside RFC 8259, and for what section 4.4 refuses on top of it: byte order marks,
/// lone surrogates, doubles that overflow, longer integers than [`MAX_INTEGER_DIGITS`], nesting over [`MAX_DEPTH`].
pub fn parse(text: &[u8]) -> Result<Json, JsonError> {
    read(text, false)
}

/// Reads one JSON value as [`parse`] does, in which no object has a key twice.
///
/// # Errors
/// As [`parse`], and for the second appearance of a key.
pub fn parse_unique(text: &[u8]) -> Result<Json, JsonError> {
    read(text, true)
}

fn read(text: &[u8], unique: bool) -> Result<Json, JsonError> {
    let text = match std::str::from_utf8(text) {
        Ok(text) => text,
        Err(error) => return Err(JsonError { at: error.valid_up_to(), what: "the text is not utf-8" }),
    };
    let mut parser = Parser { text, at: 0, depth: 0, unique };
    let value = parser.value()?;
    parser.skip_space();
    match parser.peek() {
        None => Ok(value),
        Some(_) => parser.fail("unexpected text after the value"),
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
    /// Whether a key may be there only once.
    unique: bool,
}

impl Parser<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn fail<T>(&self, what: &'static str) -> Result<T, JsonError> {
        Err(JsonError { at: self.at, what })
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn value(&mut self) -> Result<Json, JsonError> {
        self.skip_space();
        match self.peek() {
            Some(b'{') => self.object(),
            Some(b'[') => self.array(),
            Some(b'"') => self.string().map(Json::String),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word("true", Json::Bool(true)),
            Some(b'f') => self.word("false", Json::Bool(false)),
            Some(b'n') => self.word("null", Json::Null),
            Some(_) => self.fail("a value must start here"),
            None => self.fail("the text ends where a value must start"),
        }
    }

    fn word(&mut self, word: &str, value: Json) -> Result<Json, JsonError> {
        if !self.text[self.at..].starts_with(word) {
            return self.fail("unknown word; only true, false and null exist");
        }
        self.at += word.len();
        Ok(value)
    }

    fn enter(&mut self) -> Result<(), JsonError> {
        if self.depth == MAX_DEPTH {
            return self.fail("arrays and objects are nested too deeply");
        }
        self.depth += 1;
        self.at += 1;
        self.skip_space();
        Ok(())
    }

    fn array(&mut self) -> Result<Json, JsonError> {
        self.enter()?;
        let mut items = Vec::new();
        if !self.eat(b']') {
            loop {
                items.push(self.value()?);
                self.skip_space();
                if self.eat(b']') {
                    break;
                }
                if !self.eat(b',') {
                    return self.fail("expected , or ] in an array");
                }
            }
        }
        self.depth -= 1;
        Ok(Json::Array(items))
    }

    fn object(&mut self) -> Result<Json, JsonError> {
        self.enter()?;
        let mut members = Members::default();
        if !self.eat(b'}') {
            loop {
                self.skip_space();
                if self.peek() != Some(b'"') {
                    return self.fail("expected a key in double quotes");
                }
                let key = self.string()?;
                self.skip_space();
                if !self.eat(b':') {
                    return self.fail("expected : after a key");
                }
                let value = self.value()?;
                if !members.put(key, value) && self.unique {
                    return self.fail("an object has a key twice");
                }
                self.skip_space();
                if self.eat(b'}') {
                    break;
                }
                if !self.eat(b',') {
                    return self.fail("expected , or } in an object");
                }
            }
        }
        self.depth -= 1;
        Ok(Json::Object(members.into_vec()))
    }

    fn string(&mut self) -> Result<String, JsonError> {
        self.at += 1;
        let mut out = String::new();
        loop {
            let start = self.at;
            while !matches!(self.peek(), None | Some(b'"' | b'\\' | 0..=0x1f)) {
                self.at += 1;
            }
            out.push_str(&self.text[start..self.at]);
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(out);
                }
                Some(b'\\') => out.push(self.escape()?),
                Some(_) => return self.fail("a control character in a string must be escaped"),
                None => return self.fail("the string does not end"),
            }
        }
    }

    fn escape(&mut self) -> Result<char, JsonError> {
        self.at += 1;
        let c = match self.peek() {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.code_point(),
            _ => return self.fail("unknown escape"),
        };
        self.at += 1;
        Ok(c)
    }

    fn code_point(&mut self) -> Result<char, JsonError> {
        let high = self.four_hex()?;
        if !(0xd800..0xe000).contains(&high) {
            return char::from_u32(high).map_or_else(|| self.fail("not a code point"), Ok);
        }
        if high >= 0xdc00 || !self.text[self.at..].starts_with("\\u") {
            return self.fail("a surrogate must be half of a pair");
        }
        self.at += 1;
        let low = self.four_hex()?;
        if !(0xdc00..0xe000).contains(&low) {
            return self.fail("a surrogate must be half of a pair");
        }
        let point = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
        char::from_u32(point).map_or_else(|| self.fail("not a code point"), Ok)
    }

    /// Reads `uXXXX`, standing on the `u`.
    fn four_hex(&mut self) -> Result<u32, JsonError> {
        let mut value = 0;
        for index in 1..=4 {
            let digit = self.text.as_bytes().get(self.at + index).and_then(|&byte| char::from(byte).to_digit(16));
            match digit {
                Some(digit) => value = value * 16 + digit,
                None => return self.fail("\\u needs four hexadecimal digits"),
            }
        }
        self.at += 5;
        Ok(value)
    }

    fn digits(&mut self) -> usize {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        self.at - start
    }

    fn number(&mut self) -> Result<Json, JsonError> {
        let start = self.at;
        self.eat(b'-');
        let whole_start = self.at;
        let whole_digits = self.digits();
        if whole_digits == 0 {
            return self.fail("expected a digit");
        }
        if whole_digits > 1 && self.text.as_bytes()[whole_start] == b'0' {
            self.at = whole_start;
            return self.fail("a number must not start with a superfluous 0");
        }
        let mut is_float = false;
        if self.eat(b'.') {
            is_float = true;
            if self.digits() == 0 {
                return self.fail("expected a digit after the point");
            }
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            is_float = true;
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            if self.digits() == 0 {
                return self.fail("expected a digit in the exponent");
            }
        }
        let text = &self.text[start..self.at];
        if is_float {
            return match text.parse::<f64>() {
                Ok(value) if value.is_finite() => Ok(Json::Float(value)),
                _ => {
                    self.at = start;
                    self.fail("the number is beyond the range of a double")
                }
            };
        }
        if text.len() > MAX_INTEGER_DIGITS {
            self.at = start;
            return self.fail("the integer has too many digits");
        }
        Ok(text.parse().map_or_else(|_| Json::Wide(text.to_owned()), Json::Int))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(text: &str) -> Option<String> {
        parse(text.as_bytes()).ok().map(|value| value.to_text())
    }

    #[test]
    fn accepted() {
        let table = [
            (" \t\r\n{\"a\":1}\r\n\t ", "{\"a\":1}"),
            ("{ \"a\" : [ 1 , 2 ] }", "{\"a\":[1,2]}"),
            ("\"\\/\\ud83d\\ude00\\u0000\\u00e9\\u2028\"", "\"/\u{1f600}\\u0000\u{e9}\u{2028}\""),
            ("{\"a\":1,\"b\":2,\"a\":3}", "{\"a\":3,\"b\":2}"),
            ("123456789012345678901234567890", "123456789012345678901234567890"),
            ("[-9223372036854775809,9223372036854775807]", "[-9223372036854775809,9223372036854775807]"),
            ("[-0,-0.0,0e0,1e3,1E+3,1e-3,1e-400]", "[0,-0.0,0.0,1000.0,1000.0,0.001,0.0]"),
            ("{\"\":[[],{},null,true,false]}", "{\"\":[[],{},null,true,false]}"),
        ];
        for (text, expected) in table {
            assert_eq!(canonical(text).as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn refused() {
        let table = [
            "",
            " ",
            "\u{feff}1",
            "{\"a\":1,}",
            "[1,]",
            "[,1]",
            "1 x",
            "{}{}",
            "{\"a\":1/*c*/}",
            "{'a':1}",
            "{a:1}",
            "01",
            "-01",
            "+1",
            ".5",
            "1.",
            "1.e1",
            "1e",
            "1e+",
            "0x1",
            "-",
            "NaN",
            "-Infinity",
            "1e400",
            "-1e400",
            "\"\u{1}\"",
            "\"\n\"",
            "\"\\x\"",
            "\"\\u12\"",
            "\"\\ud800\"",
            "\"\\udc00x\"",
            "\"\\ud800\\u0041\"",
            "\"\\ud800\\ud800\"",
            "\"",
            "\"\\",
            "{\"a\"",
            "{\"a\":",
            "[",
            "[1",
            "\u{b}1",
            "\u{a0}1",
            "None",
            "tru",
            "truex",
            "{1:2}",
            "{\"a\" 1}",
            "[1 2]",
            "\"\\u+123\"",
        ];
        for text in table {
            assert_eq!(canonical(text), None, "{text:?}");
        }
        assert!(parse(b"\"\xff\"").is_err());
    }

    #[test]
    fn limits() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(parse(nested(MAX_DEPTH).as_bytes()).is_ok());
        assert!(parse(nested(MAX_DEPTH + 1).as_bytes()).is_err());
        assert!(parse("[".repeat(1_000_000).as_bytes()).is_err());
        assert!(parse(&b"7".repeat(MAX_INTEGER_DIGITS)).is_ok());
        assert!(parse(&b"7".repeat(MAX_INTEGER_DIGITS + 1)).is_err());
    }

    #[test]
    fn many_keys_find_their_duplicates() {
        let mut text = String::from("{");
        for round in 0..2 {
            for key in 0..40 {
                text.push_str(&format!("\"k{key}\":{round},"));
            }
        }
        text.push_str("\"k3\":2}");
        let Ok(Json::Object(entries)) = parse(text.as_bytes()) else { panic!("not an object") };
        assert_eq!(entries.len(), 40);
        for (place, (key, value)) in entries.iter().enumerate() {
            assert_eq!(*key, format!("k{place}"));
            assert_eq!(*value, Json::Int(if place == 3 { 2 } else { 1 }));
        }
    }

    #[test]
    fn errors_say_where() {
        assert_eq!(
            parse(b"[1,").unwrap_err().to_string(),
            "not json at byte 3: the text ends where a value must start"
        );
    }

    #[test]
    fn a_unique_text_says_everything_once() {
        for text in [r#"{"a":1,"a":2}"#, r#"[{"x":{"a":1,"\u0061":2}}]"#] {
            assert!(parse(text.as_bytes()).is_ok(), "{text}");
            assert!(parse_unique(text.as_bytes()).is_err(), "{text}");
        }
        let many: Vec<_> = (0..40).map(|n| format!("\"{n}\":{n}")).collect();
        let once = format!("{{{}}}", many.join(","));
        assert!(parse_unique(once.as_bytes()).is_ok());
        let twice = format!("{{{},\"7\":0}}", many.join(","));
        assert!(parse_unique(twice.as_bytes()).is_err());
    }
}
