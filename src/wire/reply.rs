//! Replies to publish frames (wire.md section 4.3): payloads of text frames, exactly one per publish frame.

use super::publish::Seq;
use crate::schema::json::{push_i64, push_string};

/// Appends `{"ok":[…]}`: one entry per row.
///
/// `prior` are the offsets, as far as remembered, of an exactly-once frame's leading rows that the log already has;
/// the `count` rows behind them got the offsets from `first` on, or none where nothing assigns offsets.
pub fn push_ok(out: &mut Vec<u8>, prior: &[Option<i64>], first: Option<i64>, count: u32) {
    out.reserve(24 + (prior.len() + count as usize) * 12);
    out.extend_from_slice(b"{\"ok\":[");
    let start = out.len();
    for &offset in prior {
        push_entry(out, offset);
    }
    match first {
        Some(first) => (0..i64::from(count)).for_each(|index| push_entry(out, Some(first + index))),
        None => (0..count).for_each(|_| push_entry(out, None)),
    }
    if out.len() > start {
        out.pop();
    }
    out.push(b']');
    if !prior.is_empty() {
        out.extend_from_slice(b",\"dup\":");
        out.extend_from_slice(itoa::Buffer::new().format(prior.len()).as_bytes());
    }
    out.push(b'}');
}

#[inline]
fn push_entry(out: &mut Vec<u8>, offset: Option<i64>) {
    match offset {
        Some(offset) => push_i64(out, offset),
        None => out.extend_from_slice(b"null"),
    }
    out.push(b',');
}

/// Appends the reply to a frame that could not be parsed or has the wrong shape.
pub fn push_bad_frame(out: &mut Vec<u8>, detail: &str) {
    push_error(out, "bad_frame", detail);
}

/// Appends the reply to a frame with a row that does not fit the schema.
pub fn push_rejected(out: &mut Vec<u8>, detail: &str) {
    push_error(out, "rejected", detail);
}

/// Appends the reply to a frame whose transaction failed.
pub fn push_commit_failed(out: &mut Vec<u8>, detail: &str) {
    push_error(out, "commit_failed", detail);
}

/// Appends the reply to an exactly-once frame that starts at `got` where `expected` comes next.
pub fn push_gap(out: &mut Vec<u8>, expected: u64, got: &Seq) {
    out.extend_from_slice(b"{\"error\":\"gap\",\"expected\":");
    out.extend_from_slice(itoa::Buffer::new().format(expected).as_bytes());
    out.extend_from_slice(b",\"got\":");
    match got {
        Seq::Small(seq) => out.extend_from_slice(itoa::Buffer::new().format(*seq).as_bytes()),
        Seq::Huge(digits) => out.extend_from_slice(digits.as_bytes()),
    }
    out.push(b'}');
}

fn push_error(out: &mut Vec<u8>, error: &str, detail: &str) {
    out.extend_from_slice(b"{\"error\":\"");
    out.extend_from_slice(error.as_bytes());
    out.extend_from_slice(b"\",\"detail\":");
    push_string(out, detail);
    out.push(b'}');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(push: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        push(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn ok() {
        assert_eq!(text(|out| push_ok(out, &[], Some(4), 1)), "{\"ok\":[4]}");
        assert_eq!(text(|out| push_ok(out, &[], Some(9), 3)), "{\"ok\":[9,10,11]}");
        assert_eq!(text(|out| push_ok(out, &[], None, 2)), "{\"ok\":[null,null]}");
        assert_eq!(text(|out| push_ok(out, &[None, Some(5)], Some(12), 1)), "{\"ok\":[null,5,12],\"dup\":2}");
        assert_eq!(text(|out| push_ok(out, &[Some(5)], None, 0)), "{\"ok\":[5],\"dup\":1}");
    }

    #[test]
    fn errors() {
        assert_eq!(text(|out| push_bad_frame(out, "a\"b")), "{\"error\":\"bad_frame\",\"detail\":\"a\\\"b\"}");
        assert_eq!(text(|out| push_rejected(out, "x")), "{\"error\":\"rejected\",\"detail\":\"x\"}");
        assert_eq!(text(|out| push_commit_failed(out, "x")), "{\"error\":\"commit_failed\",\"detail\":\"x\"}");
        assert_eq!(text(|out| push_gap(out, 5, &Seq::Small(6))), "{\"error\":\"gap\",\"expected\":5,\"got\":6}");
        let huge = Seq::Huge("123456789012345678901".to_owned());
        assert_eq!(
            text(|out| push_gap(out, 1, &huge)),
            "{\"error\":\"gap\",\"expected\":1,\"got\":123456789012345678901}"
        );
    }
}
