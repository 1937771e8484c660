//! Sockets and bytes: an epoll set, one shared receive buffer, and WebSocket framing from a client's side.

pub mod buffer;
pub mod mask;
pub mod poll;
pub mod socket;
pub mod websocket;
