//! Scenario files: what is measured, on which peers, against which targets.

mod file;
mod work;

pub use file::{Reference, STREAM, Scenario, ScenarioError, StreamOptions, Target};
pub use work::{Disturb, Fanout, Filter, Floor, Fsync, Idle, Ladder, Publish, Replay, Work};
