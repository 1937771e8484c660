//! A socket that somebody else began to read: it yields those bytes first.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use streamcast_shards::manner::give_way;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;

use super::activity::Activity;
use crate::tls::RecordEdge;

/// Bytes taken at a time from a peer whose request is not read, and in all: many clients send their whole body before they
/// look for an answer, and one that is a little too large is to learn that it is.
const LINGER_PIECE_BYTES: usize = 16 << 10;
const MAX_LINGER_BYTES: usize = 32 << 20;

/// A handed-over socket with the bytes read from it before.
pub struct HandedSocket {
    socket: TcpStream,
    already_read: Vec<u8>,
    taken: usize,
    /// Where records of TLS end in what was read, if there are any.
    edge: Option<RecordEdge>,
    activity: Arc<Activity>,
    /// How long a peer whose request is not read may go on sending before its connection is reset.
    patience: Duration,
    linger: Option<Linger>,
}

/// A socket that is shut for writing and still read, for closing it with bytes unread would take the answer from the
/// peer that is sending them.
struct Linger {
    until: Pin<Box<Sleep>>,
    read: usize,
}

impl HandedSocket {
    /// Takes the socket over; the calling task must run on a tokio runtime.
    ///
    /// # Errors
    /// If the runtime cannot watch the socket.
    pub fn new(
        socket: std::net::TcpStream,
        already_read: Vec<u8>,
        activity: Arc<Activity>,
        patience: Duration,
    ) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let socket = TcpStream::from_std(socket)?;
        Ok(Self { socket, already_read, taken: 0, edge: None, activity, patience, linger: None })
    }

    /// The same, with records of TLS in it.
    #[must_use]
    pub fn with_records(mut self) -> Self {
        self.edge = Some(RecordEdge::default());
        self
    }

    /// The bare socket, non-blocking, and what was not yet taken of the bytes before.
    ///
    /// # Errors
    /// If the runtime cannot let go of the socket.
    pub fn into_parts(self) -> io::Result<(std::net::TcpStream, Vec<u8>)> {
        let rest = self.already_read.get(self.taken..).unwrap_or_default().to_vec();
        Ok((self.socket.into_std()?, rest))
    }

    fn sent(&self) {
        self.activity.sent(Instant::now());
        // Hundreds of readers are served in one go, and a send takes longer than all else that is done for one of them.
        give_way();
    }

    /// Whether nothing was read of a record that has not come whole, the bytes before included.
    #[must_use]
    pub fn is_at_edge(&self) -> bool {
        self.edge.is_some_and(|mut edge| {
            edge.pass(self.already_read.get(self.taken..).unwrap_or_default());
            edge.is_whole()
        })
    }
}

impl AsyncRead for HandedSocket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.taken < self.already_read.len() {
            let count = buf.remaining().min(self.already_read.len() - self.taken);
            let Self { already_read, taken, edge, .. } = &mut *self;
            let bytes = &already_read[*taken..*taken + count];
            buf.put_slice(bytes);
            if let Some(edge) = edge {
                edge.pass(bytes);
            }
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
        if let Some(edge) = &mut self.edge {
            edge.pass(&buf.filled()[before..]);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for HandedSocket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.socket).poll_write(cx, buf))?;
        self.sent();
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.linger.is_none() {
            ready!(Pin::new(&mut this.socket).poll_shutdown(cx))?;
            if !this.activity.is_left_unread() {
                return Poll::Ready(Ok(()));
            }
        }
        let patience = this.patience;
        let linger =
            this.linger.get_or_insert_with(|| Linger { until: Box::pin(tokio::time::sleep(patience)), read: 0 });
        let mut piece = [0; LINGER_PIECE_BYTES];
        while linger.read < MAX_LINGER_BYTES && linger.until.as_mut().poll(cx).is_pending() {
            let mut piece = ReadBuf::new(&mut piece);
            match ready!(Pin::new(&mut this.socket).poll_read(cx, &mut piece)) {
                Ok(()) if !piece.filled().is_empty() => linger.read += piece.filled().len(),
                _ => break,
            }
        }
        Poll::Ready(Ok(()))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.socket).poll_write_vectored(cx, bufs))?;
        self.sent();
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }
}
