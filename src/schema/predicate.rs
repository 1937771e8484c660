//! Matching rows against a filter (wire.md section 6.2), on their canonical text.
//!
//! A canonical value has one text per meaning, apart from numbers: 1 may be written `1`, `1.0` or `true`. So a
//! filter's value becomes the few texts that are equal to it, and matching is comparing bytes. Numbers stay
//! mathematically exact: a text is only added for a double that equals the filter's number without rounding.

use std::collections::BTreeSet;

use super::columns::{ColumnKind, Schema};
use super::filter::{Filter, FilterError};
use super::index::RowIndex;
use super::json::{Json, push_f64, push_string};

/// A compiled filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Predicate {
    terms: Vec<Term>,
    key: String,
}

/// What a filter asks of one column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Term {
    /// The column's name as canonical JSON.
    pub(super) name: Box<[u8]>,
    /// Its place in the schema.
    pub(super) place: Option<usize>,
    /// The canonical texts that match, sorted.
    pub(super) texts: Vec<Box<[u8]>>,
    /// Whether null, and with it an absent column, matches.
    pub(super) null: bool,
}

impl Predicate {
    /// Compiles a filter for a stream.
    ///
    /// # Errors
    /// [`FilterError::Column`], in the order of wire.md section 6.1.
    pub fn compile(filter: &Filter, schema: Option<&Schema>) -> Result<Predicate, FilterError> {
        for (column, value) in &filter.terms {
            check_shape(value, schema.is_none_or(|schema| schema.find(column).is_some()))
                .map_err(|why| FilterError::Column { column: column.clone(), why })?;
        }
        let mut terms = Vec::with_capacity(filter.terms.len());
        for (column, value) in &filter.terms {
            let place = schema.and_then(|schema| schema.find(column));
            let kind = schema.zip(place).map(|(schema, place)| &schema.columns()[place].kind);
            let term = Term::compile(column, place, kind, value)
                .map_err(|why| FilterError::Column { column: column.clone(), why })?;
            terms.push(term);
        }
        let key = key(&terms);
        Ok(Predicate { terms, key })
    }

    /// A text that two filters of one stream share exactly if they match the same rows by construction; it is
    /// the same for reordered terms and members and for other forms of a number.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    pub(super) fn terms(&self) -> &[Term] {
        &self.terms
    }

    /// Whether a canonical row matches.
    #[must_use]
    pub fn matches(&self, row: &[u8]) -> bool {
        let mut index = RowIndex::new();
        index.scan(None, row);
        self.terms.iter().all(|term| term.matches(index.value(row, None, &term.name)))
    }

    /// Whether the canonical row that `index` was scanned from matches; `index` must have been scanned with the
    /// schema the predicate was compiled with.
    #[inline]
    #[must_use]
    pub fn matches_indexed(&self, row: &[u8], index: &RowIndex) -> bool {
        self.terms.iter().all(|term| term.matches(index.value(row, term.place, &term.name)))
    }
}

fn check_shape(value: &Json, declared: bool) -> Result<(), &'static str> {
    if !declared {
        return Err("the stream has no such column");
    }
    match value {
        Json::Object(_) => Err("an object is no value to compare with; give a scalar or an array of scalars"),
        Json::Array(items) if items.is_empty() => Err("an empty array matches nothing; name at least one value"),
        Json::Array(items) if items.iter().any(|item| matches!(item, Json::Array(_) | Json::Object(_))) => {
            Err("an array may hold only null, booleans, numbers and strings")
        }
        _ => Ok(()),
    }
}

impl Term {
    fn compile(
        column: &str,
        place: Option<usize>,
        kind: Option<&ColumnKind>,
        value: &Json,
    ) -> Result<Term, &'static str> {
        if kind.is_some_and(ColumnKind::is_nested) {
            return Err("structs, lists and maps cannot be compared");
        }
        let mut texts = BTreeSet::new();
        let mut null = false;
        for value in if let Json::Array(items) = value { items.as_slice() } else { std::slice::from_ref(value) } {
            match (kind, value) {
                (_, Json::Null) => null = true,
                (Some(ColumnKind::Binary { encoding, .. }), Json::String(text)) => {
                    let mut bytes = Vec::new();
                    encoding.decode(text, &mut bytes).ok_or("the text does not decode as the column's bytes")?;
                    let mut quoted = vec![b'"'];
                    encoding.encode(&bytes, &mut quoted);
                    quoted.push(b'"');
                    texts.insert(quoted.into_boxed_slice());
                }
                (_, Json::String(text)) => {
                    let mut quoted = Vec::new();
                    push_string(&mut quoted, text);
                    texts.insert(quoted.into_boxed_slice());
                }
                (_, value) => texts.extend(number_texts(value)),
            }
        }
        let mut name = Vec::new();
        push_string(&mut name, column);
        Ok(Term { name: name.into(), place, texts: texts.into_iter().collect(), null })
    }

    #[inline]
    fn matches(&self, value: Option<&[u8]>) -> bool {
        match value {
            None | Some(b"null") => self.null,
            Some(value) if self.texts.len() <= 8 => self.texts.iter().any(|text| **text == *value),
            Some(value) => self.texts.binary_search_by(|text| (**text).cmp(value)).is_ok(),
        }
    }
}

/// Every canonical text of a value that equals a number or boolean; none for anything else.
fn number_texts(value: &Json) -> Vec<Box<[u8]>> {
    let (integer, double) = match value {
        Json::Bool(value) => (Some(i64::from(*value).to_string()), Some(f64::from(*value))),
        Json::Int(value) => (Some(value.to_string()), exact_double(&value.to_string())),
        Json::Wide(digits) => (Some(digits.clone()), exact_double(digits)),
        // `{:.0}` writes all digits of an integral double, never rounding.
        Json::Float(value) if value.fract() == 0.0 => (Some(format!("{:.0}", value + 0.0)), Some(*value)),
        Json::Float(value) => (None, Some(*value)),
        _ => return Vec::new(),
    };
    let mut texts = Vec::new();
    match integer.as_deref() {
        Some("0" | "-0") => {
            return ["0", "0.0", "-0.0", "false"].map(|text| text.as_bytes().into()).to_vec();
        }
        Some("1") => texts.push("true".as_bytes().into()),
        _ => {}
    }
    texts.extend(integer.map(|digits| digits.into_bytes().into_boxed_slice()));
    if let Some(double) = double {
        let mut text = Vec::new();
        push_f64(&mut text, double);
        texts.push(text.into());
    }
    texts
}

/// The double that equals an integer exactly, if there is one.
fn exact_double(digits: &str) -> Option<f64> {
    let double = digits.parse::<f64>().ok().filter(|double| double.is_finite())?;
    if format!("{double:.0}") == digits { Some(double) } else { None }
}

/// The canonical text of a compiled filter.
fn key(terms: &[Term]) -> String {
    let mut terms: Vec<&Term> = terms.iter().collect();
    terms.sort_by(|one, other| one.name.cmp(&other.name));
    let mut key = String::from("{");
    for term in terms {
        key.push_str(&String::from_utf8_lossy(&term.name));
        key.push('=');
        if term.null {
            key.push_str("null,");
        }
        for text in &term.texts {
            key.push_str(&String::from_utf8_lossy(text));
            key.push(',');
        }
        key.push(';');
    }
    key.push('}');
    key
}
