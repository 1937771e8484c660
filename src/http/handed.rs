//! A socket that somebody else began to read: it yields those bytes first.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::activity::Activity;

/// A handed-over socket with the bytes read from it before.
pub struct HandedSocket {
    socket: TcpStream,
    already_read: Vec<u8>,
    taken: usize,
    activity: Arc<Activity>,
}

impl HandedSocket {
    /// Takes the socket over; the calling task must run on a tokio runtime.
    ///
    /// # Errors
    /// If the runtime cannot watch the socket.
    pub fn new(socket: std::net::TcpStream, already_read: Vec<u8>, activity: Arc<Activity>) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self { socket: TcpStream::from_std(socket)?, already_read, taken: 0, activity })
    }

    /// The bare socket, non-blocking, and what was not yet taken of the bytes before.
    ///
    /// # Errors
    /// If the runtime cannot let go of the socket.
    pub fn into_parts(self) -> io::Result<(std::net::TcpStream, Vec<u8>)> {
        let rest = self.already_read.get(self.taken..).unwrap_or_default().to_vec();
        Ok((self.socket.into_std()?, rest))
    }
}

impl AsyncRead for HandedSocket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.taken < self.already_read.len() {
            let count = buf.remaining().min(self.already_read.len() - self.taken);
            buf.put_slice(&self.already_read[self.taken..self.taken + count]);
            self.taken += count;
            if self.taken == self.already_read.len() {
                self.already_read = Vec::new();
                self.taken = 0;
            }
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.socket).poll_read(cx, buf))?;
        if buf.filled().len() > before {
            self.activity.received(Instant::now());
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for HandedSocket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.socket).poll_write(cx, buf))?;
        self.activity.sent(Instant::now());
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.socket).poll_write_vectored(cx, bufs))?;
        self.activity.sent(Instant::now());
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }
}
