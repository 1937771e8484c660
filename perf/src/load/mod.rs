//! The load itself: one thread, one epoll set, any number of subscribers and publishers.

mod beside;
mod connection;
mod driver;
mod publisher;
mod script;
mod subscriber;

pub use beside::{Beside, Counts};
pub use connection::{Plan, Purpose};
pub use driver::{Load, LoadError, LoadSettings};
pub use publisher::{Pace, Publishing};
pub use script::{Next, Script};
pub use subscriber::{Group, Order};
