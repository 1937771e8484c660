//! Schemas, rows and filters (wire.md sections 6, 12 and 13): pure functions over bytes.
//!
//! A [`Schema`] is compiled once per stream. Rows are validated and turned into canonical text in one pass by
//! the encoder; a [`Predicate`] works on that text and never parses a row again.

mod binary;
mod columns;
mod compile;
mod dispatch;
mod encode;
mod explain;
mod filter;
mod index;
pub mod json;
mod keywords;
mod node;
mod predicate;
#[cfg(test)]
mod tests;

pub use binary::Encoding;
pub use columns::{Column, ColumnKind, Columns, Element, Schema};
pub use compile::{MAX_CANONICAL_BYTES, MAX_NESTING, SchemaError};
pub use dispatch::Dispatch;
pub use encode::{Invalid, push_any, push_row};
pub use explain::explain;
pub use filter::{Filter, FilterError};
pub use index::RowIndex;
pub use node::{Node, TapeNode, View, Wide, to_members};
pub use predicate::Predicate;
#[cfg(test)]
pub(crate) use tests::generate;
