//! Answers of an HTTP server, read where they were received.

/// Why something is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HttpError {
    #[error("the server sent something that is not HTTP/1.1")]
    NotHttp,
    #[error("the server sent a head of over {MAX_HEAD_BYTES} bytes")]
    LongHead,
    #[error("the server sent an answer that does not begin with its length")]
    NoLength,
}

/// Bytes that a head may have.
const MAX_HEAD_BYTES: usize = 16 << 10;

/// The head of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head<'b> {
    pub status: u16,
    /// All of it, as text.
    fields: &'b [u8],
    /// Bytes of the head: the body follows.
    pub size: usize,
}

impl<'b> Head<'b> {
    /// The value of a field; `name` in lower case.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&'b str> {
        self.fields.split(|&byte| byte == b'\n').skip(1).find_map(|line| {
            let colon = memchr::memchr(b':', line)?;
            let found = line[..colon].eq_ignore_ascii_case(name.as_bytes());
            if found { std::str::from_utf8(&line[colon + 1..]).ok().map(str::trim) } else { None }
        })
    }
}

/// The head at the start of `bytes`, or `None` while it is cut off.
///
/// # Errors
/// When it is none.
pub fn head(bytes: &[u8]) -> Result<Option<Head<'_>>, HttpError> {
    let Some(end) = memchr::memmem::find(&bytes[..bytes.len().min(MAX_HEAD_BYTES)], b"\r\n\r\n") else {
        return if bytes.len() < MAX_HEAD_BYTES { Ok(None) } else { Err(HttpError::LongHead) };
    };
    let status = bytes.strip_prefix(b"HTTP/1.1 ").and_then(|rest| rest.get(..3));
    let status = status.and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
    Ok(Some(Head { status: status.ok_or(HttpError::NotHttp)?, fields: &bytes[..end], size: end + 4 }))
}

/// A whole answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer<'b> {
    pub head: Head<'b>,
    pub body: &'b [u8],
    /// Bytes of head and body.
    pub size: usize,
}

/// The answer at the start of `bytes`, or `None` while it is cut off.
///
/// # Errors
/// When it is none, or does not say how long it is.
pub fn answer(bytes: &[u8]) -> Result<Option<Answer<'_>>, HttpError> {
    let Some(head) = head(bytes)? else { return Ok(None) };
    let length = match head.field("content-length").map(str::parse::<usize>) {
        Some(Ok(length)) => length,
        None if head.field("transfer-encoding").is_none() => 0,
        _ => return Err(HttpError::NoLength),
    };
    let size = head.size.saturating_add(length);
    Ok(bytes.get(head.size..size).map(|body| Answer { head, body, size }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TWO: &[u8] =
        b"HTTP/1.1 202 Accepted\r\nETag: \"7\"\r\nContent-Length: 2\r\n\r\n{}HTTP/1.1 204 N\r\na: b\r\n\r\n";

    #[test]
    fn answers_follow_one_another() {
        let first = answer(TWO).unwrap().unwrap();
        assert_eq!((first.head.status, first.body, first.head.field("etag")), (202, &b"{}"[..], Some("\"7\"")));
        let second = answer(&TWO[first.size..]).unwrap().unwrap();
        assert_eq!((second.head.status, second.body, second.size), (204, &b""[..], TWO.len() - first.size));
        for cut in 0..first.size {
            assert_eq!(answer(&TWO[..cut]), Ok(None));
        }
    }

    #[test]
    fn what_is_no_answer_is_told() {
        assert_eq!(answer(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"), Err(HttpError::NoLength));
        assert_eq!(answer(b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n"), Err(HttpError::NoLength));
        assert_eq!(answer(b"SMTP\r\n\r\n"), Err(HttpError::NotHttp));
        assert_eq!(head(&vec![b'x'; MAX_HEAD_BYTES]), Err(HttpError::LongHead));
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = answer(&bytes);
            let _ = answer(&[b"HTTP/1.1 200 OK\r\n", &bytes[..], b"\r\n\r\n"].concat());
        }
    }
}
