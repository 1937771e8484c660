//! Connections whose records the kernel makes (kTLS): what is sent to them and read from them is plain, so feeds send them
//! their own bytes, as to connections in clear. What remains is what is no data - alerts, and changes of keys.

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::RawFd;

use crate::conn::ConnId;
use crate::engine::Engine;

/// The content types of records (RFC 8446 section 5.1).
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const DATA: u8 = 23;

/// The alert that nothing follows: a warning, close_notify.
const CLOSE_NOTIFY: [u8; 2] = [1, 0];

/// Bytes of plain text that the kernel puts into a record.
const RECORD_BYTES: u64 = 16 * 1024;

/// The code and the reasons with which a connection ends that cannot go on with the keys it has (wire.md section 9): whoever
/// comes back gets others.
const CLOSE_CODE: u16 = 1012;
const USED_UP: &str = "keys used up";
const CHANGED: &str = "keys changed";

/// What a connection's keys are still good for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Keys {
    /// Blocks that may be sent.
    blocks: u64,
    /// The peer has others by now.
    pub(crate) changed: bool,
}

impl Keys {
    /// Keys that may encrypt as many blocks of 16 bytes, where each record counts one more.
    pub(crate) fn new(blocks: u64) -> Self {
        Self { blocks, changed: false }
    }

    /// Counts what was sent at once; true if the keys are used up.
    pub(crate) fn spend(&mut self, bytes: usize) -> bool {
        let bytes = bytes as u64;
        self.blocks = self.blocks.saturating_sub(bytes.div_ceil(16) + bytes.div_ceil(RECORD_BYTES));
        self.blocks == 0
    }
}

impl<S> Engine<S> {
    /// Counts what was sent at once to a connection that the kernel encrypts, and ends it when its keys are used up.
    pub(crate) fn encrypted(&mut self, id: ConnId, bytes: usize) {
        let keys = self.conn_mut(id).and_then(|conn| conn.kernel.as_mut());
        if keys.is_some_and(|keys| keys.spend(bytes)) {
            self.close(id, CLOSE_CODE, USED_UP);
        }
    }

    /// The peer has changed its keys and cannot be understood any more, but what it has been sent can be.
    pub(crate) fn changed_keys(&mut self, id: ConnId) {
        let Some(conn) = self.conn_mut(id) else { return };
        conn.deaf = true;
        if let Some(keys) = conn.kernel.as_mut() {
            keys.changed = true;
        }
        self.close(id, CLOSE_CODE, CHANGED);
    }
}

/// What was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Received {
    /// Data of so many bytes; with none the peer has ended the connection.
    Data(usize),
    /// The peer says that it ends the connection, or why it has to.
    Alert,
    /// A handshake message: new keys, mostly. What follows cannot be read.
    Handshake,
    /// A record that has no business here.
    Other,
}

/// Room for one control message with a byte in it, aligned as those are.
#[repr(C)]
union Control {
    header: libc::cmsghdr,
    bytes: [u8; 32],
}

/// Reads data, or one record that is none. Never waits.
pub(crate) fn receive(fd: RawFd, buffer: &mut [u8]) -> io::Result<Received> {
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let mut control = Control { bytes: [0; 32] };
    // SAFETY: zeroes are a valid header without anything.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = &mut part;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = size_of::<Control>() as _;
    // SAFETY: the kernel writes at most as many bytes as the parts of the message have.
    let count = unsafe { libc::recvmsg(fd, &mut message, libc::MSG_DONTWAIT) };
    let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
    // SAFETY: the kernel has left a valid list of control messages in `control`, and says how long it is.
    let kind = unsafe {
        let found = libc::CMSG_FIRSTHDR(&message);
        let known =
            !found.is_null() && (*found).cmsg_level == libc::SOL_TLS && (*found).cmsg_type == libc::TLS_GET_RECORD_TYPE;
        if known { *libc::CMSG_DATA(found) } else { DATA }
    };
    Ok(match kind {
        DATA => Received::Data(count),
        ALERT => Received::Alert,
        HANDSHAKE => Received::Handshake,
        _ => Received::Other,
    })
}

/// Says that nothing more follows, if the socket takes it.
pub(crate) fn close_notify(fd: RawFd) {
    let mut alert = CLOSE_NOTIFY;
    let mut part = libc::iovec { iov_base: alert.as_mut_ptr().cast(), iov_len: alert.len() };
    let mut control = Control { bytes: [0; 32] };
    // SAFETY: zeroes are a valid header without anything; the control message has room for a header and a byte.
    unsafe {
        let mut message: libc::msghdr = zeroed();
        message.msg_iov = &mut part;
        message.msg_iovlen = 1;
        message.msg_control = (&raw mut control).cast();
        message.msg_controllen = libc::CMSG_SPACE(1) as _;
        let kind = libc::CMSG_FIRSTHDR(&message);
        (*kind).cmsg_level = libc::SOL_TLS;
        (*kind).cmsg_type = libc::TLS_SET_RECORD_TYPE;
        (*kind).cmsg_len = libc::CMSG_LEN(1) as _;
        *libc::CMSG_DATA(kind) = ALERT;
        libc::sendmsg(fd, &message, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::cipher::Encryption;
    use crate::conn::Phase;
    use crate::engine::{FeedId, FeedLimits, Settings};

    struct Peer {
        id: ConnId,
        socket: UnixStream,
    }

    impl Peer {
        fn subscribed(engine: &mut Engine<()>, feed: FeedId, encryption: Encryption) -> Self {
            let (near, socket) = UnixStream::pair().unwrap();
            socket.set_nonblocking(true).unwrap();
            let id = engine.insert(near.into());
            engine.conn_mut(id).unwrap().phase = Phase::Open;
            engine.encrypt(id, encryption);
            engine.subscribe(id, feed, false);
            Self { id, socket }
        }

        fn heard(&mut self) -> Vec<u8> {
            let mut heard = Vec::new();
            // Ends with "nothing more yet".
            let _ = self.socket.read_to_end(&mut heard);
            heard
        }
    }

    fn engine() -> (Engine<()>, FeedId) {
        let mut engine = Engine::new(Settings::default()).unwrap();
        let feed = engine.create_feed(FeedLimits { max_backlog_frames: usize::MAX, max_backlog_bytes: u64::MAX });
        (engine, feed)
    }

    fn close(reason: &str) -> Vec<u8> {
        [&[0x88, 2 + reason.len() as u8, 0x03, 0xf4], reason.as_bytes()].concat()
    }

    #[test]
    fn who_has_used_up_its_keys_is_told_to_come_back_and_others_go_on() {
        let (mut engine, feed) = engine();
        let mut clear = Peer::subscribed(&mut engine, feed, Encryption::Clear);
        let mut short = Peer::subscribed(&mut engine, feed, Encryption::Kernel { blocks: 30 });
        let mut long = Peer::subscribed(&mut engine, feed, Encryption::Kernel { blocks: u64::MAX });
        let mut own = Peer::subscribed(&mut engine, feed, Encryption::Kernel { blocks: 70 });
        assert_eq!(engine.counts.tls_kernel_connections, 3);
        for _ in 0..5 {
            assert!(engine.append(feed, &[b'x'; 160], &[160]).is_empty());
            engine.flush(Instant::now() + Duration::from_secs(1)).unwrap();
        }
        // Ten blocks and a record each time.
        assert_eq!(short.heard(), [&[b'x'; 3 * 160][..], &close(USED_UP)].concat());
        assert_eq!(own.heard(), [b'x'; 5 * 160]);
        engine.queue(own.id, vec![b'o'; 300]);
        engine.flush(Instant::now() + Duration::from_secs(1)).unwrap();
        assert_eq!(own.heard(), [&[b'o'; 300][..], &close(USED_UP)].concat());
        for peer in [&mut clear, &mut long] {
            assert_eq!(peer.heard(), [b'x'; 5 * 160]);
        }
        for peer in [&clear, &short, &long, &own] {
            engine.abort(peer.id);
        }
        assert_eq!(engine.counts.tls_kernel_connections, 0);
    }

    #[test]
    fn who_has_changed_its_keys_is_told_to_come_back() {
        let (mut engine, feed) = engine();
        let mut peer = Peer::subscribed(&mut engine, feed, Encryption::Kernel { blocks: u64::MAX });
        engine.changed_keys(peer.id);
        engine.flush(Instant::now() + Duration::from_secs(1)).unwrap();
        let conn = engine.conn(peer.id).unwrap();
        assert!(conn.deaf && conn.kernel.is_some_and(|keys| keys.changed));
        // A pipe that is no TCP connection may take the alert that follows for bytes.
        assert!(peer.heard().starts_with(&close(CHANGED)));
    }

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (listener.accept().unwrap().0, client)
    }

    #[test]
    fn keys_last_for_so_many_blocks() {
        let mut keys = Keys::new(3 + 2 * 1_025);
        assert!(!keys.spend(0) && !keys.spend(1) && !keys.spend(2 * 16_384));
        assert!(keys.spend(1));
        assert!(keys.spend(0));
        let mut endless = Keys::new(u64::MAX);
        assert!(!endless.spend(usize::MAX));
    }

    /// Without keys the kernel says nothing of records, and all is data.
    #[test]
    fn what_comes_without_records_is_data() {
        let (server, mut client) = pair();
        let mut buffer = [0; 16];
        let waits = receive(server.as_raw_fd(), &mut buffer).unwrap_err();
        assert_eq!(waits.kind(), io::ErrorKind::WouldBlock);
        client.write_all(b"frame").unwrap();
        while receive(server.as_raw_fd(), &mut buffer).is_err() {}
        assert_eq!(&buffer[..5], b"frame");
        drop(client);
        while receive(server.as_raw_fd(), &mut buffer).is_err() {}
        assert_eq!(receive(server.as_raw_fd(), &mut buffer).unwrap(), Received::Data(0));
    }

    /// A socket that knows no records takes the alert for bytes, or refuses it: it must not wait or end the process.
    #[test]
    fn an_alert_to_nobody_is_harmless() {
        let (server, mut client) = pair();
        close_notify(server.as_raw_fd());
        server.shutdown(std::net::Shutdown::Both).unwrap();
        close_notify(server.as_raw_fd());
        drop(server);
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).unwrap();
        assert!(rest.is_empty() || rest == CLOSE_NOTIFY);
    }
}
