//! The registry: streams that are declared at run time (wire.md section 11), kept in a database of their own.

mod definition;
mod fault;
mod profile;
mod runtime;

pub use definition::{Definition, DefinitionLimits, Initialization, Rules, member};
pub use fault::Fault;
pub use profile::{HistoryGuard, Profile};
pub use runtime::{Admission, RuntimeError, Serve, Started, StreamRuntime};
