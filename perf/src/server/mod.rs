//! The servers that are measured: how they are started, watched and stopped.

mod metrics;
mod probe;
mod process;
mod script;
mod table;
mod task;
mod usage;

pub use metrics::{Metrics, MetricsError};
pub use process::{Server, ServerError, StartRequest};
pub use script::{Peer, PeerError};
pub use table::{Disk, TableState};
pub use task::{Task, TaskError, TaskRoot, TaskUsage};
pub use usage::{Memory, Usage};
