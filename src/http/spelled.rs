//! A connection whose first request may spell its target as the shards take it: with quotes and letters beyond ASCII in
//! its query as they are. They are escaped before hyper, which refuses them, sees them; what they mean stays the same.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The longest request line that is looked at, in bytes. A longer one is passed on as it is, to be refused.
const MAX_LINE_BYTES: usize = 64 << 10;

/// Bytes read at a time before the end of the first line.
const PIECE_BYTES: usize = 4 << 10;

/// A connection in front of its HTTP server.
pub struct Spelled<S> {
    inner: S,
    /// What came of the first line so far; afterwards what is still to be passed on, from `taken` on.
    held: Vec<u8>,
    taken: usize,
    passed: bool,
}

impl<S> Spelled<S> {
    /// Nothing of `inner` has been read as a request yet.
    pub fn new(inner: S) -> Self {
        Self { inner, held: Vec::new(), taken: 0, passed: false }
    }

    /// The connection, and what was read of it and not passed on.
    pub fn into_parts(self) -> (S, Vec<u8>) {
        let rest = self.held.get(self.taken..).unwrap_or_default().to_vec();
        (self.inner, rest)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Spelled<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        while !this.passed {
            let mut piece = [0; PIECE_BYTES];
            let mut piece = ReadBuf::new(&mut piece);
            ready!(Pin::new(&mut this.inner).poll_read(cx, &mut piece))?;
            this.held.extend_from_slice(piece.filled());
            if let Some(end) = memchr::memchr(b'\n', &this.held) {
                let line = respelled(&this.held[..end]);
                this.held.splice(..end, line);
                this.passed = true;
            } else if piece.filled().is_empty() || this.held.len() > MAX_LINE_BYTES {
                this.passed = true;
            }
        }
        if this.taken == this.held.len() {
            return Pin::new(&mut this.inner).poll_read(cx, buf);
        }
        let count = buf.remaining().min(this.held.len() - this.taken);
        buf.put_slice(&this.held[this.taken..this.taken + count]);
        this.taken += count;
        if this.taken == this.held.len() {
            (this.held, this.taken) = (Vec::new(), 0);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Spelled<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

/// A request line with its target escaped; one that is none stays as it is.
fn respelled(line: &[u8]) -> Vec<u8> {
    let mut words = line.split(|byte| *byte == b' ');
    let (Some(method), Some(target), Some(version), None) = (words.next(), words.next(), words.next(), words.next())
    else {
        return line.to_vec();
    };
    let mut out = Vec::with_capacity(line.len());
    out.extend_from_slice(method);
    out.push(b' ');
    let query = target.iter().position(|byte| *byte == b'?').unwrap_or(target.len());
    for (at, byte) in target.iter().enumerate() {
        match byte {
            b'"' | b'<' | b'>' | b'`' | 0x80.. if at > query => {
                let digit = |half: u8| b"0123456789ABCDEF"[usize::from(half)];
                out.extend_from_slice(&[b'%', digit(byte >> 4), digit(byte & 15)]);
            }
            _ => out.push(*byte),
        }
    }
    out.push(b' ');
    out.extend_from_slice(version);
    out
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;

    #[test]
    fn only_the_target_changes_and_only_where_it_has_to() {
        for (line, spelled) in [
            ("GET /r?where={\"a\":\"<é>\"} HTTP/1.1\r", "GET /r?where={%22a%22:%22%3C%C3%A9%3E%22} HTTP/1.1\r"),
            ("GET /{\"é\"} HTTP/1.1\r", "GET /{\"é\"} HTTP/1.1\r"),
            ("GET /r?where=%7B%22a%22%3A1%7D&x='*~ HTTP/1.1\r", "GET /r?where=%7B%22a%22%3A1%7D&x='*~ HTTP/1.1\r"),
            ("GET /{ } HTTP/1.1", "GET /{ } HTTP/1.1"),
            ("GET /{", "GET /{"),
            ("", ""),
        ] {
            assert_eq!(respelled(line.as_bytes()), spelled.as_bytes(), "{line}");
        }
    }

    #[tokio::test]
    async fn however_it_is_cut_everything_arrives() {
        let (head, rest) = ("GET /?<> HTTP/1.1\r\nHost: <x>\r\n\r\n", "GET /?<> HTTP/1.1\r\n".repeat(600));
        let sent = format!("{head}{rest}");
        let wanted = sent.replacen("/?<>", "/?%3C%3E", 1);
        for size in [1, 7, 4096, 1 << 20] {
            let (inner, mut peer) = tokio::io::duplex(64);
            let sent = sent.clone();
            let sending = tokio::spawn(async move {
                for piece in sent.as_bytes().chunks(size) {
                    tokio::io::AsyncWriteExt::write_all(&mut peer, piece).await.expect("sent");
                }
            });
            let mut found = String::new();
            Spelled::new(inner).read_to_string(&mut found).await.expect("read");
            sending.await.expect("ended");
            assert_eq!(found, wanted, "in pieces of {size}");
        }
        // A line without an end is passed on, and the end is seen.
        let mut found = Vec::new();
        let endless = vec![b'x'; MAX_LINE_BYTES + 10];
        Spelled::new(endless.as_slice()).read_to_end(&mut found).await.expect("read");
        assert_eq!(found, endless);
        let mut early = Spelled::new(&b"GET /{"[..]);
        let mut two = [0; 2];
        early.read_exact(&mut two).await.expect("read");
        assert_eq!((&two, early.into_parts().1.as_slice()), (b"GE", &b"T /{"[..]));
    }
}
