//! Answers as JSON text, written straight from the rows' bytes.

use streamcast_shards::frame;

use super::time::iso_millis;
use super::token::Tokens;

/// What an insert did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inserted {
    /// The offset of the first entry.
    pub first: i64,
    /// How many entries.
    pub count: u32,
    /// The stamp of the batch, in microseconds.
    pub ts_us: i64,
    /// Whether an earlier request with the same key did it.
    pub duplicate: bool,
}

/// The answer to an insert; with every entry's id, cursor and offset if `list`.
#[must_use]
pub fn inserted(tokens: &Tokens, inserted: &Inserted, list: bool) -> Vec<u8> {
    let Inserted { first, count, ts_us, duplicate } = *inserted;
    let mut out = Vec::with_capacity(320 + if list { count as usize * 104 } else { 0 });
    let end = first + i64::from(count);
    push(&mut out, r#"{"batchId":""#);
    push(&mut out, &tokens.batch(ts_us, first));
    push(&mut out, r#"","committedAt":""#);
    push(&mut out, &iso_millis(ts_us));
    push(&mut out, r#"","inserted":"#);
    number(&mut out, i64::from(count));
    push(&mut out, r#","duplicate":"#);
    push(&mut out, if duplicate { "true" } else { "false" });
    push(&mut out, r#","startCursor":""#);
    tokens.push_cursor(&mut out, first);
    push(&mut out, r#"","committedCursor":""#);
    tokens.push_cursor(&mut out, end);
    push(&mut out, r#"","offset":"#);
    number(&mut out, first);
    if list {
        push(&mut out, r#","entries":["#);
        for offset in first..end {
            push(&mut out, if offset == first { r#"{"id":""# } else { r#",{"id":""# });
            tokens.push_entry(&mut out, offset);
            push(&mut out, r#"","cursor":""#);
            tokens.push_cursor(&mut out, offset + 1);
            push(&mut out, r#"","offset":"#);
            number(&mut out, offset);
            out.push(b'}');
        }
        out.push(b']');
    }
    out.push(b'}');
    out
}

/// Calls `each` with the offset, the stamp and the text of every row of a page of frames, until it says false.
pub fn rows(frames: &[u8], mut each: impl FnMut(i64, i64, &[u8]) -> bool) {
    rows_with_length(frames, |offset, ts_us, row, _| each(offset, ts_us, row));
}

/// The same with the length of the row's frame.
pub(super) fn rows_with_length(frames: &[u8], mut each: impl FnMut(i64, i64, &[u8], usize) -> bool) {
    let mut rest = frames;
    while let Some((payload, after)) = first_frame(rest) {
        let length = rest.len() - after.len();
        rest = after;
        let mut commas = memchr::memchr_iter(b',', payload);
        let (Some(first), Some(second)) = (commas.next(), commas.next()) else { return };
        let digits = |text: &[u8]| std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
        let (Some(offset), Some(ts_us)) = (digits(&payload[1..first]), digits(&payload[first + 1..second])) else {
            return;
        };
        if !each(offset, ts_us, &payload[second + 1..payload.len() - 1], length) {
            return;
        }
    }
}

/// The payload of the first of our own frames, and what is behind it.
fn first_frame(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (header, length) = match *bytes.get(1)? {
        126 => (4, usize::from(u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?))),
        127 => (10, usize::try_from(u64::from_be_bytes(bytes.get(2..10)?.try_into().ok()?)).ok()?),
        length => (2, usize::from(length)),
    };
    let whole = bytes.get(..header + length)?;
    (length >= 4).then(|| (frame::payload(whole), &bytes[header + length..]))
}

/// One entry of a read.
pub fn entry(out: &mut Vec<u8>, tokens: &Tokens, offset: i64, ts_us: i64, row: &[u8]) {
    push(out, r#"{"id":""#);
    tokens.push_entry(out, offset);
    push(out, r#"","cursor":""#);
    tokens.push_cursor(out, offset + 1);
    push(out, r#"","offset":"#);
    number(out, offset);
    push(out, r#","ts":"#);
    number(out, ts_us);
    push(out, r#","entry":"#);
    out.extend_from_slice(row);
    out.push(b'}');
}

/// A page of a read: its rows, the cursor after them, and the head. A cursor is null at the origin of an empty stream.
#[must_use]
pub fn page(tokens: &Tokens, frames: &[Vec<u8>], cursor: Option<i64>, head: Option<i64>) -> Vec<u8> {
    let bytes: usize = frames.iter().map(Vec::len).sum();
    let mut out = Vec::with_capacity(bytes * 2 + 256);
    push(&mut out, r#"{"entries":["#);
    let mut first = true;
    for page in frames {
        rows(page, |offset, ts_us, row| {
            if !std::mem::take(&mut first) {
                out.push(b',');
            }
            entry(&mut out, tokens, offset, ts_us, row);
            true
        });
    }
    push(&mut out, r#"],"cursor":"#);
    cursor_or_null(&mut out, tokens, cursor);
    push(&mut out, r#","head":"#);
    cursor_or_null(&mut out, tokens, head);
    out.push(b'}');
    out
}

/// The rows of a page as lines.
pub fn lines(out: &mut Vec<u8>, tokens: &Tokens, frames: &[u8]) {
    rows(frames, |offset, ts_us, row| {
        entry(out, tokens, offset, ts_us, row);
        out.push(b'\n');
        true
    });
}

/// The rows of a page as server-sent events, whose ids are cursors.
pub fn events(out: &mut Vec<u8>, tokens: &Tokens, frames: &[u8]) {
    rows(frames, |offset, ts_us, row| {
        push(out, "id: ");
        tokens.push_cursor(out, offset + 1);
        push(out, "\ndata: ");
        entry(out, tokens, offset, ts_us, row);
        push(out, "\n\n");
        true
    });
}

fn cursor_or_null(out: &mut Vec<u8>, tokens: &Tokens, offset: Option<i64>) {
    match offset {
        Some(offset) => {
            out.push(b'"');
            tokens.push_cursor(out, offset);
            out.push(b'"');
        }
        None => push(out, "null"),
    }
}

fn push(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
}

fn number(out: &mut Vec<u8>, number: i64) {
    push(out, itoa::Buffer::new().format(number));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::row::push_row_frame;

    fn tokens() -> Tokens {
        Tokens::new("79c6ab49-7ea5-482d-8bb0-9eef7a4b4b14")
    }

    #[test]
    fn answers_are_json_with_the_members_of_the_contract() {
        let tokens = tokens();
        let done = Inserted { first: 7, count: 2, ts_us: 1_793_361_600_123_456, duplicate: true };
        let answer: serde_json::Value = serde_json::from_slice(&inserted(&tokens, &done, true)).expect("json");
        assert_eq!(answer["batchId"], tokens.batch(done.ts_us, 7));
        assert_eq!(answer["committedAt"], "2026-10-30T12:00:00.123Z");
        assert_eq!((&answer["inserted"], &answer["duplicate"]), (&2.into(), &true.into()));
        assert_eq!(
            (&answer["startCursor"], &answer["committedCursor"]),
            (&tokens.cursor(7).into(), &tokens.cursor(9).into())
        );
        assert_eq!(answer["entries"][0]["cursor"], tokens.cursor(8));
        assert_eq!(answer["entries"][1]["cursor"], answer["committedCursor"]);
        assert_eq!(answer["entries"][1]["id"], tokens.entry(8));
        let short: serde_json::Value = serde_json::from_slice(&inserted(&tokens, &done, false)).expect("json");
        assert_eq!(short.get("entries"), None);
    }

    #[test]
    fn rows_of_any_length_are_found_in_a_page() {
        let texts: Vec<String> =
            [0, 90, 200, 70_000, 3].iter().map(|n| format!("{{\"a\":\"{}\"}}", ",".repeat(*n))).collect();
        let mut frames = Vec::new();
        for (text, offset) in texts.iter().zip(5..) {
            push_row_frame(&mut frames, Some(offset), 77, text.as_bytes());
        }
        let mut seen = Vec::new();
        rows(&frames, |offset, ts_us, row| {
            seen.push((offset, ts_us, String::from_utf8_lossy(row).into_owned()));
            true
        });
        let expected: Vec<_> = texts.into_iter().zip(5..).map(|(text, offset)| (offset, 77, text)).collect();
        assert_eq!(seen, expected);
        let text = page(&tokens(), &[frames], Some(10), None);
        let page: serde_json::Value = serde_json::from_slice(&text).expect("json");
        assert_eq!(page["entries"].as_array().map(Vec::len), Some(5));
        assert_eq!((&page["entries"][1]["offset"], &page["entries"][4]["cursor"]), (&6.into(), &page["cursor"]));
        assert!(page["head"].is_null());
    }

    #[test]
    fn a_torn_page_ends_where_it_is_torn() {
        let mut frames = Vec::new();
        push_row_frame(&mut frames, Some(1), 2, b"{}");
        for end in 0..frames.len() {
            rows(&frames[..end], |_, _, _| panic!("a row in a torn frame"));
        }
    }
}
