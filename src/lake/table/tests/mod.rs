//! Tables on a local disk.

mod changes;
mod expiry;
mod fixture;
mod model;
