//! A Rust source file as the border test sees it: its text, and its code without comments, literals and test modules.

use std::path::Path;

pub struct Source {
    /// Path from the repository's root, with `/`.
    pub path: String,
    pub text: String,
    /// The text with comments, the contents of literals and `#[cfg(test)]` items blanked out. Lines keep their numbers.
    pub code: String,
}

impl Source {
    pub fn read(home: &Path, path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let path = path.strip_prefix(home).expect("below the root").to_string_lossy().into_owned();
        let code = without_tests(&without_literals(&text));
        Self { path, text, code }
    }

    /// Whether the file is compiled for tests only.
    pub fn is_test(&self) -> bool {
        let stem = self.path.rsplit('/').next().unwrap_or_default().trim_end_matches(".rs");
        stem == "tests" || stem.ends_with("_tests") || self.path.contains("/tests/")
    }

    /// The module of `src/` the file belongs to; none for the crate's own `lib.rs` and `main.rs`.
    pub fn room(&self) -> Option<String> {
        let name = self.path.strip_prefix("src/")?.split('/').next()?.trim_end_matches(".rs");
        (!matches!(name, "lib" | "main")).then(|| name.to_owned())
    }

    /// Names that follow `base::`, with their line: `crate::a::b` and `use crate::{a, b::c}` give `a` and `b`.
    pub fn paths_below(&self, base: &str) -> Vec<(usize, String)> {
        let mut found = Vec::new();
        for at in self.mentions(base) {
            let Some(rest) = self.code[at + base.len()..].trim_start().strip_prefix("::") else { continue };
            let rest = rest.trim_start();
            let line = self.line_of(at);
            match rest.strip_prefix('{') {
                Some(list) => found.extend(first_names(list).into_iter().map(|name| (line, name))),
                None => found.push((line, word(rest).to_owned())),
            }
        }
        found
    }

    /// Lines on which the code names `name` as the start of a path.
    pub fn lines_naming(&self, name: &str) -> Vec<usize> {
        let named = |at: &usize| {
            let after = self.code[at + name.len()..].trim_start();
            let used = self.code[..*at].ends_with("use ") && (after.starts_with(';') || after.starts_with("as "));
            after.starts_with("::") || used
        };
        self.mentions(name).into_iter().filter(named).map(|at| self.line_of(at)).collect()
    }

    /// Where `name` stands as a word of its own that does not continue another path.
    fn mentions(&self, name: &str) -> Vec<usize> {
        let whole = |at: &usize| {
            let before = self.code[..*at].chars().next_back();
            let after = self.code[at + name.len()..].chars().next();
            !before.is_some_and(|c| c == ':' || c == '.' || c == '_' || c.is_alphanumeric())
                && !after.is_some_and(|c| c == '_' || c.is_alphanumeric())
        };
        self.code.match_indices(name).map(|(at, _)| at).filter(whole).collect()
    }

    fn line_of(&self, at: usize) -> usize {
        self.code[..at].matches('\n').count() + 1
    }
}

fn word(text: &str) -> &str {
    &text[..text.find(|c: char| c != '_' && !c.is_alphanumeric()).unwrap_or(text.len())]
}

/// The first name of each element of a `use` list, up to the brace that closes it.
fn first_names(list: &str) -> Vec<String> {
    let (mut depth, mut expected, mut names) = (0, true, Vec::new());
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => expected = true,
            c if expected && (c == '_' || c.is_alphabetic()) => {
                names.push(word(&list[at..]).to_owned());
                expected = false;
            }
            _ => {}
        }
    }
    names
}

/// Blanks comments and what is inside string and character literals; line breaks stay.
fn without_literals(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let end = literal_end(bytes, at);
        if end > at {
            out.extend(bytes[at..end].iter().map(|byte| if *byte == b'\n' { b'\n' } else { b' ' }));
            at = end;
        } else {
            out.push(bytes[at]);
            at += 1;
        }
    }
    String::from_utf8(out).expect("only whole literals were blanked")
}

/// The end of the comment or literal that starts at `at`, or `at` if none does.
fn literal_end(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..];
    let joined = at > 0 && (bytes[at - 1] == b'_' || bytes[at - 1].is_ascii_alphanumeric());
    if rest.starts_with(b"//") {
        return at + rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
    }
    if rest.starts_with(b"/*") {
        return block_end(bytes, at);
    }
    if rest[0] == b'"' {
        return quoted_end(bytes, at + 1, b'"');
    }
    if rest[0] == b'\'' {
        // A lifetime has no closing quote within the next character.
        let escaped = rest.get(1) == Some(&b'\\');
        let close = rest.iter().skip(2).take(4).position(|byte| *byte == b'\'');
        return match (escaped, close) {
            (true, _) => quoted_end(bytes, at + 1, b'\''),
            (false, Some(offset))
                if std::str::from_utf8(&rest[1..offset + 2]).is_ok_and(|c| c.chars().count() == 1) =>
            {
                at + offset + 3
            }
            _ => at,
        };
    }
    if !joined && matches!(rest[0], b'r' | b'b' | b'c') {
        let prefix = rest.iter().take_while(|byte| matches!(byte, b'r' | b'b' | b'c')).count();
        let hashes = rest[prefix..].iter().take_while(|byte| **byte == b'#').count();
        if rest.get(prefix + hashes) == Some(&b'"') && rest[..prefix].contains(&b'r') {
            let mut close = vec![b'"'];
            close.extend(std::iter::repeat_n(b'#', hashes));
            let start = at + prefix + hashes + 1;
            let length = bytes[start..].windows(close.len()).position(|window| window == close);
            return length.map_or(bytes.len(), |length| start + length + close.len());
        }
    }
    at
}

fn block_end(bytes: &[u8], at: usize) -> usize {
    let (mut depth, mut at) = (0, at);
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if bytes[at..].starts_with(b"*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    at
}

fn quoted_end(bytes: &[u8], mut at: usize, close: u8) -> usize {
    while at < bytes.len() && bytes[at] != close {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(bytes.len())
}

/// Blanks every item under `#[cfg(test)]`, from the attribute to the end of its block or its semicolon.
fn without_tests(code: &str) -> String {
    const MARK: &str = "#[cfg(test)]";
    let mut out = code.to_owned();
    while let Some(start) = out.find(MARK) {
        let end = item_end(&out, start + MARK.len());
        let blank: String = out[start..end].chars().map(|c| if c == '\n' { '\n' } else { ' ' }).collect();
        out.replace_range(start..end, &blank);
    }
    out
}

fn item_end(code: &str, start: usize) -> usize {
    let mut depth = 0;
    for (at, c) in code[start..].char_indices() {
        match c {
            '{' => depth += 1,
            '}' => {
                depth -= 1;
                if depth == 0 {
                    return start + at + 1;
                }
            }
            ';' if depth == 0 => return start + at + 1,
            _ => {}
        }
    }
    code.len()
}

#[test]
fn code_is_what_remains() {
    let text = "use crate::a; // crate::b\nlet s = \"crate::c\"; let r = r#\"\"crate::d\"\"#; let q = '\"'; fn f<'a>(x: &'a str) {}\n\
        /* crate::e /* nested */ */ use crate::{f::g, h};\n#[cfg(test)]\nmod tests { use crate::i; fn x() {} }\nlet b = b'\\''; crate::j();\n";
    let code = without_tests(&without_literals(text));
    let source = Source { path: "src/x.rs".to_owned(), text: text.to_owned(), code };
    let found = source.paths_below("crate");
    let names: Vec<_> = found.iter().map(|(line, name)| (*line, name.as_str())).collect();
    assert_eq!(names, [(1, "a"), (3, "f"), (3, "h"), (6, "j")]);
}

#[test]
fn outside_crates_are_seen_at_the_start_of_paths_only() {
    let code = "use tokio::net; use hyper as h; fn f() { my_tokio::g(); a.tokio::<u8>(); x::tokio::y(); }";
    let source = Source { path: "src/x.rs".to_owned(), text: code.to_owned(), code: code.to_owned() };
    assert_eq!(source.lines_naming("tokio"), [1]);
    assert_eq!(source.lines_naming("hyper"), [1]);
    assert!(source.lines_naming("axum").is_empty());
}
