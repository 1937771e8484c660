//! A client of the wire: subscribe, follow across reconnects, publish with a window. It knows nothing of the server.

mod address;
mod backoff;
mod batch;
mod close;
mod connection;
mod control;
mod cursor;
mod error;
mod feeder;
mod follow;
mod greeting;
mod input;
mod publisher;
mod row;
mod subscription;
mod transport;
mod window;

pub use address::Address;
pub use backoff::Backoff;
pub use batch::{BatchLimits, Batches, Next};
pub use close::{CloseKind, Closed, NotReplayable};
pub use connection::Options;
pub use control::{Control, ControlAnswer, Precondition};
pub use cursor::{Cursor, CursorError, Position};
pub use error::ClientError;
pub use feeder::{Feed, FeedError, FeedEvent, feed};
pub use follow::{Event, Follow, Follower};
pub use greeting::{Greeting, Mark};
pub use hyper::Method;
pub use input::{Input, MAX_LINE_BYTES, read_lines};
pub use publisher::{Publisher, Reply};
pub use row::Row;
pub use subscription::Subscription;
pub use transport::Trust;
pub use window::{Line, Outcome, Refused, Window};
