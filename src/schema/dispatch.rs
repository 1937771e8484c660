//! Finding the filters that a row matches among many, by looking its values up instead of asking every filter.
//!
//! All terms of a filter have to hold, so one of them is enough to rule it out: each filter is listed under the
//! texts of its narrowest term, and only those listed under the row's own value are asked for the rest.

use std::collections::HashMap;

use super::index::RowIndex;
use super::predicate::{Predicate, Term};

/// Filters of one stream by what they compare with.
#[derive(Debug, Default)]
pub struct Dispatch {
    columns: Vec<Column>,
    /// Filters without a term: every row matches.
    always: Vec<u32>,
}

/// The filters whose narrowest term is about one column.
#[derive(Debug)]
struct Column {
    name: Box<[u8]>,
    place: Option<usize>,
    by_text: HashMap<Box<[u8]>, Vec<u32>>,
    /// Filters that a null, or an absent column, matches.
    null: Vec<u32>,
}

impl Dispatch {
    /// No filter.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a filter under a number of the caller's.
    pub fn insert(&mut self, number: u32, predicate: &Predicate) {
        let Some(term) = narrowest(predicate) else { return self.always.push(number) };
        let known = self.columns.iter().position(|column| column.name == term.name);
        let place = known.unwrap_or_else(|| {
            let column =
                Column { name: term.name.clone(), place: term.place, by_text: HashMap::new(), null: Vec::new() };
            self.columns.push(column);
            self.columns.len() - 1
        });
        let column = &mut self.columns[place];
        for text in &term.texts {
            column.by_text.entry(text.clone()).or_default().push(number);
        }
        if term.null {
            column.null.push(number);
        }
    }

    /// Takes a filter out again that was added under `number`.
    pub fn remove(&mut self, number: u32) {
        self.always.retain(|other| *other != number);
        for column in &mut self.columns {
            column.null.retain(|other| *other != number);
            column.by_text.retain(|_, numbers| {
                numbers.retain(|other| *other != number);
                !numbers.is_empty()
            });
        }
        self.columns.retain(|column| !column.by_text.is_empty() || !column.null.is_empty());
    }

    /// Calls `candidate` with the number of every filter that the row may match. All that it does match are among
    /// them, each once; whether a candidate matches is [`Predicate::matches_indexed`]'s to say.
    #[inline]
    pub fn candidates(&self, row: &[u8], index: &RowIndex, mut candidate: impl FnMut(u32)) {
        self.always.iter().copied().for_each(&mut candidate);
        for column in &self.columns {
            let listed = match index.value(row, column.place, &column.name) {
                None | Some(b"null") => Some(&column.null),
                Some(value) => column.by_text.get(value),
            };
            listed.into_iter().flatten().copied().for_each(&mut candidate);
        }
    }
}

fn narrowest(predicate: &Predicate) -> Option<&Term> {
    predicate.terms().iter().min_by_key(|term| term.texts.len() + usize::from(term.null))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::schema::{Filter, Schema};

    fn schema() -> Schema {
        let document = json!({"type": "object", "properties": {
            "a": {"type": ["integer", "null"]}, "b": {"type": "string"}, "c": {"type": "boolean"},
        }, "required": ["b", "c"]});
        Schema::compile(&document, true).expect("a schema")
    }

    proptest! {
        #[test]
        fn the_candidates_hold_every_match_once(
            filters in prop::collection::vec(
                prop_oneof![
                    Just("{}".to_owned()),
                    (0..4).prop_map(|a| format!(r#"{{"a":{a}}}"#)),
                    (0..4, 0..3).prop_map(|(a, b)| format!(r#"{{"a":[{a},null],"b":"{b}"}}"#)),
                    (0..3, any::<bool>()).prop_map(|(b, c)| format!(r#"{{"b":["{b}","9"],"c":{c}}}"#)),
                    any::<bool>().prop_map(|c| format!(r#"{{"c":{c}}}"#)),
                ],
                0..12,
            ),
            gone in prop::collection::vec(0_u32..12, 0..4),
            rows in prop::collection::vec((0_u8..5, 0_u8..4, any::<bool>()), 1..8),
            declared in any::<bool>(),
        ) {
            let schema = schema();
            let schema = declared.then_some(&schema);
            let mut dispatch = Dispatch::new();
            let mut predicates = Vec::new();
            for (number, text) in filters.iter().enumerate() {
                let predicate = Predicate::compile(&Filter::parse(text).expect("a filter"), schema).expect("it compiles");
                dispatch.insert(number as u32, &predicate);
                predicates.push((number as u32, predicate));
            }
            for number in gone {
                dispatch.remove(number);
                predicates.retain(|(other, _)| *other != number);
            }
            let mut index = RowIndex::new();
            for (a, b, c) in rows {
                let a = if a == 4 { "null".to_owned() } else { a.to_string() };
                let row = format!(r#"{{"a":{a},"b":"{b}","c":{c}}}"#);
                index.scan(schema, row.as_bytes());
                let mut found = Vec::new();
                dispatch.candidates(row.as_bytes(), &index, |number| found.push(number));
                let asked = found.len();
                found.sort_unstable();
                found.dedup();
                prop_assert_eq!(found.len(), asked, "a filter was named twice");
                let matching: Vec<u32> = predicates
                    .iter()
                    .filter(|(_, predicate)| predicate.matches_indexed(row.as_bytes(), &index))
                    .map(|(number, _)| *number)
                    .collect();
                prop_assert!(matching.iter().all(|number| found.contains(number)));
            }
        }
    }
}
