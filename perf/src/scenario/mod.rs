//! Scenario files: what is measured, on which peers, against which targets.

mod file;
mod lake;
mod work;

pub use file::{Reference, STREAM, Scenario, ScenarioError, StreamOptions, Target};
pub use lake::{Ingest, LakeOptions, Moving, Open, SourceFormat, Steady};
pub use work::{Disturb, Fanout, Filter, Floor, Fsync, Idle, Ladder, Publish, Replay, Work};
