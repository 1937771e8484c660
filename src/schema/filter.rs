//! A `where=` object as requested (wire.md section 6).

use super::json::{Json, JsonError, parse};

/// Why a filter is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// Not JSON.
    #[error("where is {0}")]
    NotJson(#[from] JsonError),
    /// JSON, but no object.
    #[error("where must be a json object, not {0}")]
    NotAnObject(&'static str),
    /// A term that the stream cannot answer.
    #[error("where column {column}: {why}")]
    Column {
        /// The column of the term.
        column: String,
        /// What is wrong with it.
        why: &'static str,
    },
}

/// The terms of a filter in request order, each column once with its last value.
#[derive(Debug, Clone, PartialEq)]
pub struct Filter {
    pub(super) terms: Vec<(String, Json)>,
    text: String,
}

impl Filter {
    /// Reads the value of `where=`.
    ///
    /// # Errors
    /// [`FilterError::NotJson`] and [`FilterError::NotAnObject`]. Whether its terms suit a stream is decided when
    /// [`Predicate::compile`](super::Predicate::compile) meets the stream's schema.
    pub fn parse(text: &str) -> Result<Filter, FilterError> {
        let value = parse(text.as_bytes())?;
        let text = value.to_text();
        match value {
            Json::Object(terms) => Ok(Filter { terms, text }),
            other => Err(FilterError::NotAnObject(other.kind())),
        }
    }

    /// The request's object as compact JSON, as the greeting echoes it: key order and value forms are kept.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}
