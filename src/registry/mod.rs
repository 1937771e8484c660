//! The registry: streams that are declared at run time (wire.md section 11), kept in a database of their own.
//!
//! A call is judged ([`judge`]) against what is known, kept with its receipt, answered, and then done by a worker
//! that asks the broker through [`StreamRuntime`].

mod book;
mod cursor;
mod definition;
mod error;
mod fault;
mod judge;
mod owner;
mod profile;
mod record;
mod runtime;
mod settings;
mod store;
#[cfg(test)]
pub(crate) mod tests;
mod worker;

pub use cursor::Cursor;
pub use definition::{Definition, DefinitionLimits, Initialization, Rules, member};
pub use error::RegistryError;
pub use fault::Fault;
pub use judge::{Accepted, Change, Known, etag, judge};
pub use owner::{Call, Registry};
pub use profile::{HistoryGuard, Profile};
pub use record::{Desired, Kind, Observed, Operation, Record, State, Status};
pub use runtime::{Admission, RuntimeError, Serve, Started, StreamRuntime};
pub use settings::RegistrySettings;
pub use store::{KEPT_OPERATIONS, REGISTRY_FILE, Receipt};
