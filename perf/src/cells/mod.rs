//! The kinds of case, one file each.

mod bench;
mod disturb;
mod fanout;
mod floor;
mod fsync;
mod idle;
mod ladder;
mod publish;
mod replay;
mod window;

pub use bench::{Bench, CellError, Options};
pub use floor::{SenderArguments, run_sender};
