//! A JSON value that loses nothing: key order, the difference of `1` and `1.0`, integers of any size.

use std::collections::HashMap;

use super::text::{push_f64, push_i64, push_string};

/// A parsed JSON value. Objects are already free of duplicate keys (first position, last value).
#[derive(Debug, Clone, PartialEq)]
pub enum Json {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number without fraction and exponent that fits 64 signed bits.
    Int(i64),
    /// A number without fraction and exponent beyond `i64`: its digits, with `-` in front if negative.
    Wide(String),
    /// A number with a fraction or an exponent; always finite.
    Float(f64),
    /// A string, unescaped.
    String(String),
    /// An array.
    Array(Vec<Json>),
    /// An object in the order of its keys' first appearance.
    Object(Vec<(String, Json)>),
}

impl Json {
    /// The value's canonical compact text, appended to `out` (wire.md section 3.3).
    pub fn push_text(&self, out: &mut Vec<u8>) {
        match self {
            Json::Null => out.extend_from_slice(b"null"),
            Json::Bool(true) => out.extend_from_slice(b"true"),
            Json::Bool(false) => out.extend_from_slice(b"false"),
            Json::Int(value) => push_i64(out, *value),
            Json::Wide(digits) => out.extend_from_slice(digits.as_bytes()),
            Json::Float(value) => push_f64(out, *value),
            Json::String(text) => push_string(out, text),
            Json::Array(items) => {
                out.push(b'[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        out.push(b',');
                    }
                    item.push_text(out);
                }
                out.push(b']');
            }
            Json::Object(entries) => {
                out.push(b'{');
                for (index, (key, value)) in entries.iter().enumerate() {
                    if index > 0 {
                        out.push(b',');
                    }
                    push_string(out, key);
                    out.push(b':');
                    value.push_text(out);
                }
                out.push(b'}');
            }
        }
    }

    /// The value's canonical compact text.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut out = Vec::new();
        self.push_text(&mut out);
        // Everything pushed comes from `str`s and ASCII literals.
        String::from_utf8(out).unwrap_or_default()
    }

    /// The word for the value's kind, for messages.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Json::Null => "null",
            Json::Bool(_) => "a boolean",
            Json::Int(_) | Json::Wide(_) => "an integer",
            Json::Float(_) => "a number with a fraction or exponent",
            Json::String(_) => "a string",
            Json::Array(_) => "an array",
            Json::Object(_) => "an object",
        }
    }
}

/// From this many keys on an object finds its duplicates by hashing.
const HASHED_KEYS: usize = 16;

/// The members of an object being built: the last value of a key counts, at the place of the first.
#[derive(Debug, Default)]
pub struct Members {
    list: Vec<(String, Json)>,
    places: Option<HashMap<String, usize>>,
}

impl Members {
    /// Adds a member, or replaces the value of one; says whether it was added.
    pub fn put(&mut self, key: String, value: Json) -> bool {
        match self.find(&key) {
            Some(place) => {
                self.list[place].1 = value;
                false
            }
            None => {
                if let Some(places) = &mut self.places {
                    places.insert(key.clone(), self.list.len());
                }
                self.list.push((key, value));
                true
            }
        }
    }

    fn find(&mut self, key: &str) -> Option<usize> {
        if self.list.len() < HASHED_KEYS {
            return self.list.iter().position(|(known, _)| known == key);
        }
        let places = self.places.get_or_insert_with(|| {
            self.list.iter().enumerate().map(|(place, (known, _))| (known.clone(), place)).collect()
        });
        places.get(key).copied()
    }

    /// The members in order.
    #[must_use]
    pub fn into_vec(self) -> Vec<(String, Json)> {
        self.list
    }
}
