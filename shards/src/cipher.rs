//! Connections under encryption: what goes in is opened before the engine sees it, what goes out is sealed last.
//!
//! Frames stay shared: they are sealed for one connection at the moment they are sent to it, as many as wait in one go,
//! into a buffer that the shard has for this alone. A connection keeps only what its socket did not take.

use std::io;
use std::ops::Range;

use crate::conn::{Conn, ConnId};
use crate::engine::Engine;
use crate::kernel::Keys;

/// The record layer of one connection, keys and all, after its handshake.
pub trait Cipher: Send {
    /// Appends to `sealed` what says `plain` to the peer.
    ///
    /// # Errors
    /// When nothing more can be said.
    fn seal(&mut self, plain: &[u8], sealed: &mut Vec<u8>) -> io::Result<()>;

    /// Appends to `plain` what `bytes` from the peer say, and to `sealed` what has to be answered below all that. True
    /// if the peer says nothing more.
    ///
    /// # Errors
    /// When it is not what the peer has sent.
    fn open(&mut self, bytes: &[u8], plain: &mut Vec<u8>, sealed: &mut Vec<u8>) -> io::Result<bool>;

    /// Appends to `sealed` that we say nothing more.
    fn finish(&mut self, sealed: &mut Vec<u8>);
}

/// Who makes the records of a connection.
pub enum Encryption {
    /// Nobody: it is in clear.
    Clear,
    /// Its shard.
    Shard(Box<dyn Cipher>),
    /// The kernel, which has the keys already.
    Kernel {
        /// Blocks of 16 bytes that the keys may encrypt, where each record counts one more.
        blocks: u64,
    },
}

/// An emptied buffer larger than this is given back.
const KEPT_BYTES: usize = 4 * 1024;

/// Sealed bytes after which a batch is sent: what was sealed first shall still be in the core's cache then.
pub(crate) const BATCH_BYTES: usize = 192 * 1024;

/// A cipher and what it has sealed and the socket has not taken.
pub(crate) struct Secured {
    cipher: Box<dyn Cipher>,
    sealed: Vec<u8>,
    sent: usize,
}

impl Secured {
    pub(crate) fn new(cipher: Box<dyn Cipher>) -> Self {
        Self { cipher, sealed: Vec::new(), sent: 0 }
    }

    /// Sealed bytes for the socket.
    pub(crate) fn pending(&self) -> &[u8] {
        &self.sealed[self.sent..]
    }

    /// Counts sealed bytes as taken.
    pub(crate) fn advance(&mut self, taken: usize) {
        self.sent += taken;
        if self.sent >= self.sealed.len() {
            self.sent = 0;
            self.sealed.clear();
            if self.sealed.capacity() > KEPT_BYTES {
                self.sealed = Vec::new();
            }
        }
    }

    /// Seals behind what is pending. What cannot be sealed is not sent; reading will find out why.
    pub(crate) fn seal(&mut self, plain: &[u8]) {
        let _ = self.cipher.seal(plain, &mut self.sealed);
    }

    /// As [`Secured::seal`] with nothing pending, but appends to `batch` and says where.
    pub(crate) fn seal_into(&mut self, plain: &[u8], batch: &mut Vec<u8>) -> Range<usize> {
        debug_assert!(self.pending().is_empty(), "what is pending has to be sent first");
        let begin = batch.len();
        let _ = self.cipher.seal(plain, batch);
        begin..batch.len()
    }

    /// Keeps what the socket has not taken of something sealed elsewhere.
    pub(crate) fn keep(&mut self, left: &[u8]) {
        self.sealed.extend_from_slice(left);
    }

    pub(crate) fn open(&mut self, bytes: &[u8], plain: &mut Vec<u8>) -> io::Result<bool> {
        self.cipher.open(bytes, plain, &mut self.sealed)
    }

    pub(crate) fn finish(&mut self) {
        self.cipher.finish(&mut self.sealed);
    }
}

impl<S> Engine<S> {
    /// From here on a connection is encrypted like this.
    pub(crate) fn encrypt(&mut self, id: ConnId, encryption: Encryption) {
        let Some(conn) = self.conn_mut(id) else { return };
        match encryption {
            Encryption::Clear => {}
            Encryption::Shard(cipher) => {
                conn.secured = Some(Box::new(Secured::new(cipher)));
                self.counts.tls_shard_connections += 1;
            }
            Encryption::Kernel { blocks } => {
                conn.kernel = Some(Keys::new(blocks));
                self.counts.tls_kernel_connections += 1;
            }
        }
    }
}

/// Says under encryption that nothing more follows, if the socket takes it: what ends without was cut off.
pub(crate) fn farewell<S>(conn: &mut Conn<S>) {
    let fd = conn.fd();
    if conn.kernel.is_some() {
        return crate::kernel::close_notify(fd);
    }
    let Some(secured) = conn.secured.as_mut().filter(|secured| secured.pending().is_empty()) else { return };
    secured.finish();
    let bytes = secured.pending();
    // SAFETY: the bytes are valid for the call, and the descriptor is open.
    unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) };
    let length = bytes.len();
    secured.advance(length);
}

#[cfg(test)]
#[path = "cipher_tests.rs"]
mod tests;
