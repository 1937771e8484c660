//! Reading rows from a text: one JSON object a line. A thread of its own, because reading a file or a pipe blocks.

use std::io::{self, BufRead, BufReader, Read};

use serde::de::IgnoredAny;
use tokio::sync::mpsc;

use super::window::{Line, Refused};

/// Longest line that is taken, in bytes.
pub const MAX_LINE_BYTES: usize = 16 << 20;
/// Lines handed over at once.
const CHUNK_LINES: usize = 256;
/// Bytes handed over at once.
const CHUNK_BYTES: usize = 256 << 10;
/// Chunks that may wait.
const WAITING_CHUNKS: usize = 8;

/// One line of input, judged.
#[derive(Debug, PartialEq, Eq)]
pub enum Input {
    /// A row.
    Row(Line),
    /// Something that cannot be a row.
    Refused(Refused),
    /// The input cannot be read further.
    Failed(String),
}

/// Starts reading `input` on a thread. The channel closes at its end.
///
/// # Errors
/// When the thread cannot be started.
pub fn read_lines(input: Box<dyn Read + Send>) -> io::Result<mpsc::Receiver<Vec<Input>>> {
    let (sender, receiver) = mpsc::channel(WAITING_CHUNKS);
    std::thread::Builder::new().name("input".to_owned()).spawn(move || {
        let mut reader = BufReader::with_capacity(CHUNK_BYTES, input);
        let mut number = 0;
        loop {
            let (chunk, more) = chunk(&mut reader, &mut number);
            // A receiver that is gone wants nothing more.
            if (!chunk.is_empty() && sender.blocking_send(chunk).is_err()) || !more {
                return;
            }
        }
    })?;
    Ok(receiver)
}

/// Lines up to a bound, or as many as are there without waiting; and whether there may be more.
fn chunk(reader: &mut BufReader<impl Read>, number: &mut u64) -> (Vec<Input>, bool) {
    let mut chunk = Vec::new();
    let mut bytes = 0;
    loop {
        let mut line = Vec::new();
        let read = reader.by_ref().take(MAX_LINE_BYTES as u64 + 1).read_until(b'\n', &mut line);
        *number += 1;
        match read {
            Ok(0) => return (chunk, false),
            Ok(_) if line.len() > MAX_LINE_BYTES && line.last() != Some(&b'\n') => {
                let detail = format!("longer than {MAX_LINE_BYTES} bytes");
                chunk.push(Input::Refused(Refused { line: Line { number: *number, text: String::new() }, detail }));
                if let Err(error) = reader.skip_until(b'\n') {
                    chunk.push(Input::Failed(error.to_string()));
                    return (chunk, false);
                }
            }
            Ok(_) => {
                bytes += line.len();
                chunk.extend(judge(line, *number));
            }
            Err(error) => {
                chunk.push(Input::Failed(error.to_string()));
                return (chunk, false);
            }
        }
        let full = chunk.len() >= CHUNK_LINES || bytes >= CHUNK_BYTES;
        if full || memchr::memchr(b'\n', reader.buffer()).is_none() {
            return (chunk, true);
        }
    }
}

/// A row, a refusal, or nothing for a blank line. Only what is one whole object may be put into an array with others.
fn judge(line: Vec<u8>, number: u64) -> Option<Input> {
    let refused = |text: String, detail: &str| {
        Some(Input::Refused(Refused { line: Line { number, text }, detail: detail.to_owned() }))
    };
    let text = match String::from_utf8(line) {
        Ok(text) => text,
        Err(error) => return refused(String::from_utf8_lossy(error.as_bytes()).into_owned(), "not UTF-8"),
    };
    // What JSON calls white space, and the byte order mark some programs begin a file with.
    let row = text.trim_matches(|c| matches!(c, ' ' | '\t' | '\r' | '\n'));
    let row = if number == 1 { row.trim_start_matches('\u{feff}') } else { row };
    if row.is_empty() {
        return None;
    }
    if !row.starts_with('{') {
        return refused(row.to_owned(), "not a JSON object");
    }
    match serde_json::from_str::<IgnoredAny>(row) {
        Ok(_) => Some(Input::Row(Line { number, text: row.to_owned() })),
        Err(error) => refused(row.to_owned(), &format!("not valid JSON: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[u8]) -> Vec<Input> {
        let mut reader = BufReader::new(text);
        let (mut all, mut number) = (Vec::new(), 0);
        loop {
            let (chunk, more) = chunk(&mut reader, &mut number);
            all.extend(chunk);
            if !more {
                return all;
            }
        }
    }

    fn shown(text: &[u8]) -> Vec<String> {
        let show = |input| match input {
            Input::Row(line) => format!("{} {}", line.number, line.text),
            Input::Refused(refused) => format!("{} ! {}", refused.line.number, refused.detail),
            Input::Failed(error) => format!("failed {error}"),
        };
        read(text).into_iter().map(show).collect()
    }

    #[test]
    fn judges_line_by_line() {
        let text = b"\xef\xbb\xbf{\"a\":1}\r\n\n  {\"b\" : 2}\t\n[1]\n{\"c\":3},{\"c\":4}\n{\"d\":\xff}\n{\"e\":5}";
        assert_eq!(
            shown(text),
            [
                "1 {\"a\":1}",
                "3 {\"b\" : 2}",
                "4 ! not a JSON object",
                "5 ! not valid JSON: trailing characters at line 1 column 8",
                "6 ! not UTF-8",
                "7 {\"e\":5}",
            ]
        );
        assert_eq!(shown(b""), [""; 0]);
        assert_eq!(shown(b"\n\n"), [""; 0]);
    }

    #[test]
    fn a_line_without_an_end_is_given_up_and_the_next_one_read() {
        let mut text = vec![b'x'; MAX_LINE_BYTES + 10];
        text.extend_from_slice(b"\n{\"a\":1}\n");
        assert_eq!(shown(&text), [format!("1 ! longer than {MAX_LINE_BYTES} bytes"), "2 {\"a\":1}".to_owned()]);
    }

    #[test]
    fn many_lines_arrive_in_order() {
        let text: String = (0..2_000).map(|n| format!("{{\"n\":{n}}}\n")).collect();
        let rows = read(text.as_bytes());
        assert_eq!(rows.len(), 2_000);
        let in_order = rows.iter().zip(1..).all(|(input, n)| matches!(input, Input::Row(line) if line.number == n));
        assert!(in_order);
    }

    #[test]
    fn what_cannot_be_read_is_told() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("gone"))
            }
        }
        let (chunk, more) = chunk(&mut BufReader::new(Broken), &mut 0);
        assert_eq!((chunk, more), (vec![Input::Failed("gone".to_owned())], false));
    }
}
