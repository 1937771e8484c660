//! The registry against a fleet of streams in memory.

mod calls;
mod fleet;
mod judged;
mod model;
mod recovery;
mod stored;
