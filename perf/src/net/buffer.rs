//! One receive buffer for all connections, with room in front for what a connection had left over.

use std::io;
use std::os::fd::RawFd;

use super::tls::{Channel, TlsError};

/// Bytes a message may have left over between two reads; a longer message ends its connection.
pub const MAX_CARRY_BYTES: usize = 1 << 20;

/// The shared buffer. A connection's leftover (a cut message, so a few bytes as a rule) is copied to just before the
/// place that reads go to, so messages are always whole and always parsed in place.
pub struct ReadBuffer {
    bytes: Box<[u8]>,
}

impl ReadBuffer {
    /// A buffer that takes up to `read_bytes` with one call.
    #[must_use]
    pub fn new(read_bytes: usize) -> Self {
        Self { bytes: vec![0; MAX_CARRY_BYTES + read_bytes.max(4096)].into_boxed_slice() }
    }

    /// Receives once from `fd` without waiting and returns how many bytes came; 0 is the end of the stream.
    ///
    /// # Errors
    /// `WouldBlock` when there is nothing; otherwise what broke the connection.
    pub fn receive(&mut self, fd: RawFd) -> io::Result<usize> {
        let space = &mut self.bytes[MAX_CARRY_BYTES..];
        // SAFETY: the pointer and length describe `space`, which outlives the call.
        let count = unsafe { libc::recv(fd, space.as_mut_ptr().cast(), space.len(), libc::MSG_DONTWAIT) };
        usize::try_from(count).map_err(|_| io::Error::last_os_error())
    }

    /// What a connection left over, followed by the `received` bytes of the last call.
    ///
    /// # Panics
    /// When `carry` is longer than [`MAX_CARRY_BYTES`]: a fault of this program.
    pub fn joined(&mut self, carry: &[u8], received: usize) -> &[u8] {
        let start = MAX_CARRY_BYTES - carry.len();
        self.bytes[start..MAX_CARRY_BYTES].copy_from_slice(carry);
        &self.bytes[start..MAX_CARRY_BYTES + received]
    }

    /// As [`ReadBuffer::joined`], for bytes of an encrypted connection, which are opened in place.
    ///
    /// # Errors
    /// When they cannot be opened, or what was left over is too long.
    pub fn opened(&mut self, channel: &mut Channel, carry: &[u8], received: usize) -> Result<&[u8], TlsError> {
        let begin = MAX_CARRY_BYTES.checked_sub(channel.cut().len()).filter(|begin| *begin >= carry.len());
        let begin = begin.ok_or_else(|| TlsError::Protocol("a message that is too long".into()))?;
        self.bytes[begin..MAX_CARRY_BYTES].copy_from_slice(channel.cut());
        let plain = channel.open(&mut self.bytes[begin..MAX_CARRY_BYTES + received])?;
        let start = begin - carry.len();
        self.bytes[start..begin].copy_from_slice(carry);
        Ok(&self.bytes[start..begin + plain])
    }
}

/// Keeps the unread end of `bytes` for the next read; false if it is too long to be a message.
#[must_use]
pub fn keep(carry: &mut Vec<u8>, rest: &[u8]) -> bool {
    carry.clear();
    if rest.len() > MAX_CARRY_BYTES {
        return false;
    }
    carry.extend_from_slice(rest);
    true
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn leftovers_come_before_what_is_read() {
        let (mut near, far) = UnixStream::pair().unwrap();
        let mut buffer = ReadBuffer::new(8192);
        let kind = buffer.receive(far.as_raw_fd()).unwrap_err().kind();
        assert_eq!(kind, io::ErrorKind::WouldBlock);
        near.write_all(b"world").unwrap();
        let count = buffer.receive(far.as_raw_fd()).unwrap();
        assert_eq!(buffer.joined(b"hello ", count), b"hello world");
        drop(near);
        assert_eq!(buffer.receive(far.as_raw_fd()).unwrap(), 0);
    }

    #[test]
    fn leftovers_are_bounded() {
        let mut carry = b"old".to_vec();
        assert!(keep(&mut carry, b"new"));
        assert_eq!(carry, b"new");
        assert!(!keep(&mut carry, &vec![0; MAX_CARRY_BYTES + 1]));
        assert!(carry.is_empty());
    }
}
