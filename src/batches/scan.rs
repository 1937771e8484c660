//! Finds the members of a request and the entries in it without reading them: only where values begin and end.
//!
//! It is exact about what lies between values and trusting inside of them; whoever reads a value finds out whether it
//! is JSON.

/// Where a value lies, and how deep it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub start: usize,
    pub end: usize,
    /// Arrays and objects inside each other; 0 for a scalar.
    pub levels: usize,
}

/// What is wrong, and at which byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Broken {
    pub at: usize,
    pub what: &'static str,
}

pub(super) struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Scanner<'a> {
    pub(super) fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0 }
    }

    fn fail<T>(&self, what: &'static str) -> Result<T, Broken> {
        Err(Broken { at: self.at, what })
    }

    fn skip_space(&mut self) {
        while matches!(self.text.get(self.at), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    /// The next byte that is not space, without taking it.
    pub(super) fn peek(&mut self) -> Option<u8> {
        self.skip_space();
        self.text.get(self.at).copied()
    }

    /// Takes `byte` if it is next.
    pub(super) fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    /// Takes `byte`, which has to be next.
    pub(super) fn need(&mut self, byte: u8, what: &'static str) -> Result<(), Broken> {
        if self.eat(byte) { Ok(()) } else { self.fail(what) }
    }

    /// The end of the text.
    pub(super) fn end(&mut self) -> Result<(), Broken> {
        if self.peek().is_none() { Ok(()) } else { self.fail("there is text after the value") }
    }

    /// Passes over a string; its text with the quotes.
    pub(super) fn string(&mut self) -> Result<Span, Broken> {
        if self.peek() != Some(b'"') {
            return self.fail("a key in double quotes has to be here");
        }
        let start = self.at;
        self.pass_string()?;
        Ok(Span { start, end: self.at, levels: 0 })
    }

    /// Passes over the string that starts here.
    fn pass_string(&mut self) -> Result<(), Broken> {
        self.at += 1;
        loop {
            match memchr::memchr2(b'"', b'\\', &self.text[self.at..]) {
                None => {
                    self.at = self.text.len();
                    return self.fail("the text ends inside of a string");
                }
                Some(found) if self.text[self.at + found] == b'"' => {
                    self.at += found + 1;
                    return Ok(());
                }
                Some(found) => self.at = (self.at + found + 2).min(self.text.len()),
            }
        }
    }

    /// Passes over any value.
    pub(super) fn value(&mut self) -> Result<Span, Broken> {
        let Some(first) = self.peek() else { return self.fail("the text ends where a value has to start") };
        let start = self.at;
        let mut deepest = 0;
        match first {
            b'"' => self.pass_string()?,
            b'{' | b'[' => {
                let mut levels = 0_usize;
                loop {
                    let Some(byte) = self.text.get(self.at) else {
                        return self.fail("the text ends inside of an array or object");
                    };
                    match byte {
                        b'"' => {
                            self.pass_string()?;
                            continue;
                        }
                        b'{' | b'[' => {
                            levels += 1;
                            deepest = deepest.max(levels);
                        }
                        b'}' | b']' => levels -= 1,
                        _ => {}
                    }
                    self.at += 1;
                    if levels == 0 {
                        break;
                    }
                }
            }
            _ => {
                let length = self.text[self.at..]
                    .iter()
                    .position(|byte| matches!(byte, b',' | b']' | b'}' | b' ' | b'\t' | b'\r' | b'\n'));
                self.at += length.unwrap_or(self.text.len() - self.at);
                if self.at == start {
                    return self.fail("a value has to start here");
                }
            }
        }
        Ok(Span { start, end: self.at, levels: deepest })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Result<(&str, usize), Broken> {
        let span = Scanner::new(text.as_bytes()).value()?;
        Ok((&text[span.start..span.end], span.levels))
    }

    #[test]
    fn a_value_ends_where_it_ends() {
        for (text, found, levels) in [
            (r#" {"a":[1,{"b":"}]\"{"}]} ,"#, r#"{"a":[1,{"b":"}]\"{"}]}"#, 3),
            (r#""a\\","#, r#""a\\""#, 0),
            ("12.5e3]", "12.5e3", 0),
            ("true", "true", 0),
            ("[]", "[]", 1),
        ] {
            assert_eq!(value(text), Ok((found, levels)), "{text}");
        }
    }

    #[test]
    fn what_does_not_end_is_broken() {
        for text in ["", "  ", "[", r#"{"a"#, r#""\"#, r#"["\"]"#, ",", "]"] {
            assert!(value(text).is_err(), "{text}");
        }
    }
}
