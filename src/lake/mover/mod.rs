//! Moving rows: from the journal into sealed files, into the table, and out of where they are not needed any more
//! (docs/storage.md, "Moving rows").

mod background;
mod clean;
mod compact;
mod error;
mod evict;
mod find;
mod finished;
mod gather;
mod holes;
mod lake;
mod plan;
mod publish;
mod purge;
mod repair;
mod replay;
mod seal;
mod settings;
mod shared;
mod source;
mod stream;
mod tasks;

pub use error::MoverError;
pub use lake::{Flushed, Lake, Unfinished};
pub use settings::{LakeSettings, MoverSettings};
pub use stream::LakeStream;

#[cfg(test)]
mod tests;
