//! The kinds of case, one file each.

mod bench;
mod disturb;
mod fanout;
mod floor;
mod fsync;
mod idle;
mod ingest;
mod ladder;
mod moving;
mod open;
mod pairs;
mod publish;
mod replay;
mod resample;
mod steady;
mod window;

pub use bench::{Bench, CellError, Options};
pub use floor::{SenderArguments, run_sender};
