//! Tests of the room as a whole: schemas, rows and filters as the wire shows them.

mod compile;
mod filters;
pub(crate) mod generate;
mod rows;
