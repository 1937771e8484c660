//! An open-loop load generator for streamcast servers and their peers.
//!
//! One thread on a core of its own publishes on schedule, reads thousands of subscribers, and counts latency from
//! the time a row was *due*, so a server that stalls cannot hide it. See `README.md` for scenarios and peers.

pub mod affinity;
pub mod cells;
pub mod clock;
pub mod host;
pub mod load;
pub mod net;
pub mod record;
pub mod report;
pub mod results;
pub mod row;
pub mod run;
pub mod scenario;
pub mod schedule;
pub mod server;
pub mod strangers;
pub mod wire;
