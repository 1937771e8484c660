//! The fan-out engine of streamcast-uring. It knows cores, sockets, WebSocket frames and bytes; it knows
//! nothing of rows, schemas, SQL or HTTP routes.

mod block;
pub mod frame;

pub use block::Block;
