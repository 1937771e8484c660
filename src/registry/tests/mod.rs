//! The registry against a fleet of streams in memory.

mod calls;
pub(crate) mod fleet;
mod judged;
mod model;
mod recovery;
mod stored;
