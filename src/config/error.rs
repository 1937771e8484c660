//! One configuration error: where it is, what is wrong, and the way out.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Why a configuration was refused. Displays as one line, `streamcast.toml:12:1: …`; [`ConfigError::excerpt`] shows the
/// place itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{origin}{message}")]
pub struct ConfigError {
    origin: Origin,
    message: String,
    excerpt: Option<String>,
}

/// Where the refused value was written.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Origin {
    /// No single place: the combination of file and command line.
    Whole,
    /// A file, and the line and column in it where they are known. Both count from 1; columns count characters.
    File { path: PathBuf, at: Option<(usize, usize)> },
    /// An option of the command line, such as `--listen`.
    Option(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole => Ok(()),
            Self::File { path, at: None } => write!(f, "{}: ", path.display()),
            Self::File { path, at: Some((line, column)) } => write!(f, "{}:{line}:{column}: ", path.display()),
            Self::Option(name) => write!(f, "{name}: "),
        }
    }
}

impl ConfigError {
    /// An error about the configuration as a whole.
    pub fn whole(message: impl Into<String>) -> Self {
        Self { origin: Origin::Whole, message: message.into(), excerpt: None }
    }

    /// An error about a file that could not be read or has no useful position.
    pub(super) fn file(path: &Path, message: impl Into<String>) -> Self {
        let origin = Origin::File { path: path.to_owned(), at: None };
        Self { origin, message: message.into(), excerpt: None }
    }

    /// An error about an option of the command line.
    pub fn option(name: &'static str, message: impl Into<String>) -> Self {
        Self { origin: Origin::Option(name), message: message.into(), excerpt: None }
    }

    /// Line and column, counted from 1, when the error has a place in a file.
    #[must_use]
    pub fn position(&self) -> Option<(usize, usize)> {
        match &self.origin {
            Origin::File { at, .. } => *at,
            Origin::Whole | Origin::Option(_) => None,
        }
    }

    /// The refused line with a mark under the refused part, two lines of text, for terminals.
    #[must_use]
    pub fn excerpt(&self) -> Option<&str> {
        self.excerpt.as_deref()
    }
}

/// The text of a file, to turn byte offsets in it into errors people can act on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Source<'a> {
    pub path: &'a Path,
    pub text: &'a str,
}

impl Source<'_> {
    /// An error at these bytes of the text. Offsets that are out of range or inside a character are moved to its start.
    pub fn error(&self, span: Range<usize>, message: impl Into<String>) -> ConfigError {
        let start = floor_boundary(self.text, span.start);
        let line_start = self.text[..start].rfind('\n').map_or(0, |newline| newline + 1);
        let line_end = self.text[start..].find('\n').map_or(self.text.len(), |newline| start + newline);
        let line = self.text[..line_start].matches('\n').count() + 1;
        let column = self.text[line_start..start].chars().count() + 1;
        let end = floor_boundary(self.text, span.end.min(line_end)).max(start);
        let width = self.text[start..end].trim_end().chars().count().max(1);
        let excerpt = excerpt(&self.text[line_start..line_end], line, column, width);
        let origin = Origin::File { path: self.path.to_owned(), at: Some((line, column)) };
        ConfigError { origin, message: message.into(), excerpt: Some(excerpt) }
    }

    /// An error at a line and column as parsers count them: from 1, columns in bytes.
    pub fn error_at(&self, line: usize, column_bytes: usize, message: impl Into<String>) -> ConfigError {
        let line_start = self.text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum::<usize>();
        let start = (line_start + column_bytes.saturating_sub(1)).min(self.text.len());
        self.error(start..start + 1, message)
    }
}

/// Longest line an excerpt repeats, in characters; a longer one is cut around the mark.
const EXCERPT_WIDTH: usize = 100;

fn excerpt(line: &str, number: usize, column: usize, width: usize) -> String {
    let skip = if column > EXCERPT_WIDTH { column - EXCERPT_WIDTH / 2 } else { 0 };
    let shown: String = line.trim_end().chars().skip(skip).take(EXCERPT_WIDTH).collect();
    let pad: String = shown.chars().take(column - 1 - skip).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
    let room = EXCERPT_WIDTH.saturating_sub(column - 1 - skip).max(1);
    let gutter = number.to_string();
    format!("{gutter} | {shown}\n{:w$} | {pad}{}", "", "^".repeat(width.min(room)), w = gutter.len())
}

fn floor_boundary(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str, span: Range<usize>) -> ConfigError {
        Source { path: Path::new("f.toml"), text }.error(span, "no")
    }

    #[test]
    fn names_line_and_column_in_characters() {
        let text = "a = 1\né = 22\n";
        for (span, line, column) in [(0..1, 1, 1), (6..8, 2, 1), (11..13, 2, 5), (7..7, 2, 1), (999..1000, 3, 1)] {
            let error = at(text, span.clone());
            assert_eq!(error.position(), Some((line, column)), "{span:?}");
            assert_eq!(error.to_string(), format!("f.toml:{line}:{column}: no"));
        }
        assert_eq!(at(text, 11..13).excerpt(), Some("2 | é = 22\n  |     ^^"));
    }

    #[test]
    fn cuts_long_lines_around_the_mark() {
        let text = format!("{}bad", "x".repeat(5_000));
        let error = at(&text, 5_000..5_003);
        let lines: Vec<&str> = error.excerpt().into_iter().flat_map(str::lines).collect();
        assert!(lines.iter().all(|line| line.len() < 120), "{lines:?}");
        let mark = lines[1].find('^');
        assert_eq!(mark.map(|at| &lines[0][at..at + 3]), Some("bad"));
    }

    #[test]
    fn turns_line_and_byte_column_into_a_place() {
        let source = Source { path: Path::new("s.json"), text: "{\n \"é\": x\n}" };
        assert_eq!(source.error_at(2, 8, "no").position(), Some((2, 7)));
        assert_eq!(source.error_at(9, 9, "no").position(), Some((3, 2)));
    }
}
