//! The load itself: one thread, one epoll set, any number of subscribers and publishers.

mod connection;
mod driver;
mod publisher;
mod subscriber;

pub use connection::{Plan, Purpose};
pub use driver::{Load, LoadError, LoadSettings};
pub use publisher::{Pace, Publishing};
pub use subscriber::{Group, Order};
