//! Listening sockets: one a shard on the same address (SO_REUSEPORT), or those a service manager hands over.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{FromRawFd, RawFd};

use socket2::{Domain, Protocol, SockRef, Socket, Type};

/// Connections that may wait to be accepted, per listener; the kernel caps it at net.core.somaxconn.
pub const BACKLOG_CONNECTIONS: i32 = 8192;

/// The first descriptor systemd passes (sd_listen_fds(3)).
const LISTEN_FDS_START: RawFd = 3;

/// Why nothing listens.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Somebody else has the address.
    #[error("{address} is already in use; stop what listens there, or choose another address")]
    InUse {
        /// The address.
        address: SocketAddr,
    },
    /// The kernel refused.
    #[error("cannot listen on {address}: {source}")]
    Refused {
        /// The address.
        address: SocketAddr,
        /// The kernel's words.
        source: io::Error,
    },
    /// The service manager handed over something that is not a listening TCP socket.
    #[error("descriptor {fd} from the service manager is not a listening TCP socket: {source}")]
    Inherited {
        /// The descriptor.
        fd: RawFd,
        /// The kernel's words.
        source: io::Error,
    },
}

/// Opens `count` listeners on one address. Port 0 is chosen once and shared.
pub fn listen(address: SocketAddr, count: usize) -> Result<Vec<TcpListener>, ListenError> {
    let refused = |source: io::Error| match source.kind() {
        io::ErrorKind::AddrInUse => ListenError::InUse { address },
        _ => ListenError::Refused { address, source },
    };
    // SO_REUSEPORT would silently share the port with another broker of the same user; a socket without it
    // is refused then.
    let probe = socket(address, false).map_err(refused)?;
    let bound = probe.local_addr().map_err(refused)?.as_socket().unwrap_or(address);
    drop(probe);
    (0..count)
        .map(|_| {
            let socket = socket(bound, true)?;
            socket.listen(BACKLOG_CONNECTIONS)?;
            socket.set_nonblocking(true)?;
            Ok(TcpListener::from(socket))
        })
        .collect::<io::Result<Vec<_>>>()
        .map_err(refused)
}

fn socket(address: SocketAddr, shared: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.set_reuse_address(true)?;
    if shared {
        socket.set_reuse_port(true)?;
    }
    socket.bind(&address.into())?;
    Ok(socket)
}

/// The sockets passed by socket activation (`LISTEN_PID`, `LISTEN_FDS`), duplicated until there are `count`.
/// `None` if the environment names none for this process.
pub fn inherited(count: usize) -> Option<Result<Vec<TcpListener>, ListenError>> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
    if number("LISTEN_PID")? != std::process::id() {
        return None;
    }
    let passed = number("LISTEN_FDS").filter(|fds| *fds > 0)?;
    Some(adopt(passed as usize, count))
}

fn adopt(passed: usize, count: usize) -> Result<Vec<TcpListener>, ListenError> {
    let mut listeners = Vec::with_capacity(count.max(passed));
    for index in 0..passed {
        let fd = LISTEN_FDS_START + index as RawFd;
        let failed = |source| ListenError::Inherited { fd, source };
        // SAFETY: the service manager gave this descriptor to this process and nothing else owns it.
        let listener = unsafe { TcpListener::from_raw_fd(fd) };
        let socket = SockRef::from(&listener);
        socket.set_cloexec(true).map_err(failed)?;
        if !socket.is_listener().map_err(failed)? {
            return Err(failed(io::Error::other("it does not listen")));
        }
        listener.local_addr().map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        listeners.push(listener);
    }
    while listeners.len() < count {
        let index = listeners.len() % passed;
        let fd = LISTEN_FDS_START + index as RawFd;
        let copy = listeners[index].try_clone().map_err(|source| ListenError::Inherited { fd, source })?;
        listeners.push(copy);
    }
    Ok(listeners)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loopback() -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 0))
    }

    #[test]
    fn all_listeners_share_one_port() {
        let listeners = listen(loopback(), 3).unwrap();
        let ports: Vec<u16> = listeners.iter().map(|listener| listener.local_addr().unwrap().port()).collect();
        assert!(ports[0] != 0 && ports.iter().all(|port| *port == ports[0]), "{ports:?}");
    }

    #[test]
    fn an_address_in_use_is_refused_although_it_was_opened_for_sharing() {
        let first = listen(loopback(), 1).unwrap();
        let address = first[0].local_addr().unwrap();
        let error = listen(address, 1).unwrap_err();
        assert!(matches!(error, ListenError::InUse { .. }), "{error}");
        assert!(error.to_string().contains(&address.to_string()));
    }
}
