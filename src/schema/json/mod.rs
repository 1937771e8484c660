//! JSON as this server reads and writes it: one canonical text per value (wire.md section 3.3), integers of
//! any size kept exact, and a strict parser that has the last word on what is JSON (wire.md section 4.4).

mod parse;
mod text;
mod value;

pub use parse::{JsonError, MAX_DEPTH, MAX_INTEGER_DIGITS, parse, parse_unique};
pub use text::{push_f64, push_i64, push_plain_string, push_string};
pub use value::{Json, Members};
