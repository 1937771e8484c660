//! Sockets and bytes: an epoll set, one shared receive buffer, and WebSocket, HTTP and TLS from a client's side.

pub mod buffer;
pub mod http;
pub mod mask;
pub mod poll;
pub mod socket;
pub mod tls;
pub mod websocket;
