//! Client sockets: non-blocking connects from rotating loopback addresses, sends, and hard closes.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

/// Source addresses that connections rotate over, so that thousands a second do not run out of ports.
const SOURCES: u32 = 16;

/// Starts to connect to `address` without waiting; the socket is writable when it is done.
///
/// # Errors
/// When there is no descriptor or the connection is refused at once.
pub fn connect(address: SocketAddr, number: u64) -> io::Result<OwnedFd> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking().cloexec(), Some(Protocol::TCP))?;
    socket.set_tcp_nodelay(true)?;
    if address.ip() == IpAddr::V4(Ipv4Addr::LOCALHOST) {
        bind_to_source(&socket, number)?;
    }
    match socket.connect(&address.into()) {
        Ok(()) => {}
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
        Err(error) => return Err(error),
    }
    Ok(socket.into())
}

/// Ports are chosen at connect, per destination, which is what makes many connections from one address possible.
fn bind_to_source(socket: &Socket, number: u64) -> io::Result<()> {
    let late: libc::c_int = 1;
    // SAFETY: the option takes one int, and the pointer and size describe `late`.
    let failed = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_BIND_ADDRESS_NO_PORT,
            (&raw const late).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    } != 0;
    if failed {
        return Err(io::Error::last_os_error());
    }
    let source = Ipv4Addr::from(u32::from(Ipv4Addr::new(127, 0, 1, 1)) + (number % u64::from(SOURCES)) as u32);
    socket.bind(&SocketAddr::new(source.into(), 0).into())
}

/// Whether a started connection stands.
///
/// # Errors
/// What made the connection fail.
pub fn connected(socket: &OwnedFd) -> io::Result<()> {
    match socket2::SockRef::from(socket).take_error()? {
        None => Ok(()),
        Some(error) => Err(error),
    }
}

/// Sends what the socket takes now and returns how much that was; 0 when it is full.
///
/// # Errors
/// When the connection is broken.
pub fn send(socket: &OwnedFd, bytes: &[u8]) -> io::Result<usize> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: pointer and length describe `bytes`, which outlives the call.
    let count = unsafe { libc::send(socket.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags) };
    match usize::try_from(count) {
        Ok(count) => Ok(count),
        Err(_) => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            error => Err(error),
        },
    }
}

/// Makes the coming close a reset, which leaves no connection in TIME_WAIT. Best effort.
pub fn close_hard(socket: &OwnedFd) {
    let _ = socket2::SockRef::from(socket).set_linger(Some(Duration::ZERO));
}
