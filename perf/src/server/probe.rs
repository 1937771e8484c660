//! One blocking connection, to see whether a server greets.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustls::{ClientConfig, StreamOwned};

use crate::net::tls;
use crate::wire::{Ask, Opening, Wire, WireError};

/// Opens one connection as `ask` and closes it once the server has greeted.
///
/// # Errors
/// When the connection is refused, or nothing comes for `timeout`.
pub fn greet(
    wire: &dyn Wire,
    address: SocketAddr,
    tls: Option<&Arc<ClientConfig>>,
    ask: &Ask,
    timeout: Duration,
) -> Result<(), WireError> {
    let mut socket = TcpStream::connect_timeout(&address, timeout)?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(timeout))?;
    match tls {
        None => greet_over(wire, &mut socket, ask),
        Some(tls) => greet_over(wire, &mut StreamOwned::new(tls::connection(tls)?, socket), ask),
    }
}

fn greet_over(wire: &dyn Wire, socket: &mut (impl Read + Write), ask: &Ask) -> Result<(), WireError> {
    let mut received = Vec::new();
    let mut step = 0;
    loop {
        match wire.opening(ask, 0, step, &received)? {
            Opening::Ready { .. } => return Ok(()),
            Opening::Next { used, send } => {
                received.drain(..used);
                socket.write_all(&send)?;
                step += 1;
            }
            Opening::Wait => {
                let mut chunk = [0; 8192];
                match socket.read(&mut chunk)? {
                    0 => return Err(WireError::Ended),
                    count => received.extend_from_slice(&chunk[..count]),
                }
            }
        }
    }
}
