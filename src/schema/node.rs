//! One view of a JSON value for both parsers: the tape of the fast one and the tree of the exact one, so that
//! validation and encoding exist once.

use simd_json::StaticNode;

use super::json::{Json, Members};

/// An integer beyond `i64`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wide<'a> {
    /// It fits an unsigned 64-bit integer.
    Unsigned(u64),
    /// Its canonical digits, with `-` in front if negative.
    Digits(&'a str),
}

/// What a value is.
#[derive(Debug)]
pub enum View<'a, N: Node<'a>> {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// An integer within `i64`.
    Int(i64),
    /// An integer beyond `i64`.
    Wide(Wide<'a>),
    /// A finite double.
    Float(f64),
    /// A string.
    String(&'a str),
    /// An array.
    Array(N::Items),
    /// An object; keys may repeat, and then the last value counts, at the place of the first.
    Object(N::Entries),
}

impl<'a, N: Node<'a>> View<'a, N> {
    /// The value as a tree of its own.
    #[must_use]
    pub fn to_json(self) -> Json {
        match self {
            View::Null => Json::Null,
            View::Bool(value) => Json::Bool(value),
            View::Int(value) => Json::Int(value),
            View::Wide(Wide::Unsigned(value)) => Json::Wide(value.to_string()),
            View::Wide(Wide::Digits(digits)) => Json::Wide(digits.to_owned()),
            View::Float(value) => Json::Float(value),
            View::String(text) => Json::String(text.to_owned()),
            View::Array(items) => Json::Array(items.map(|item| item.view().to_json()).collect()),
            View::Object(entries) => Json::Object(to_members::<N>(entries)),
        }
    }
}

/// The members of an object, each key once.
pub fn to_members<'a, N: Node<'a>>(entries: N::Entries) -> Vec<(String, Json)> {
    let mut members = Members::default();
    for (key, value) in entries {
        members.put(key.to_owned(), value.view().to_json());
    }
    members.into_vec()
}

/// A value of a parsed document.
pub trait Node<'a>: Copy + Sized {
    /// The items of an array.
    type Items: Iterator<Item = Self> + Clone;
    /// The entries of an object.
    type Entries: ExactSizeIterator<Item = (&'a str, Self)> + Clone;

    /// Looks at the value.
    fn view(self) -> View<'a, Self>;
}

impl<'a> Node<'a> for &'a Json {
    type Items = std::slice::Iter<'a, Json>;
    type Entries = JsonEntries<'a>;

    fn view(self) -> View<'a, Self> {
        match self {
            Json::Null => View::Null,
            Json::Bool(value) => View::Bool(*value),
            Json::Int(value) => View::Int(*value),
            Json::Wide(digits) => View::Wide(Wide::Digits(digits)),
            Json::Float(value) => View::Float(*value),
            Json::String(text) => View::String(text),
            Json::Array(items) => View::Array(items.iter()),
            Json::Object(entries) => View::Object(JsonEntries(entries.iter())),
        }
    }
}

/// The entries of an object in a tree.
#[derive(Debug, Clone)]
pub struct JsonEntries<'a>(std::slice::Iter<'a, (String, Json)>);

impl<'a> Iterator for JsonEntries<'a> {
    type Item = (&'a str, &'a Json);

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(|(key, value)| (key.as_str(), value))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl ExactSizeIterator for JsonEntries<'_> {}

/// A value on the tape of simd-json: its nodes lie in document order, a container before its content.
#[derive(Debug, Clone, Copy)]
pub struct TapeNode<'a> {
    /// The value's node and everything behind it.
    rest: &'a [simd_json::Node<'a>],
}

impl<'a> TapeNode<'a> {
    /// The document's root, if the tape is not empty.
    #[must_use]
    pub fn root(tape: &'a simd_json::Tape<'a>) -> Option<Self> {
        if tape.0.is_empty() { None } else { Some(TapeNode { rest: &tape.0 }) }
    }

    /// How many nodes the value takes.
    #[inline]
    fn span(self) -> usize {
        match self.rest[0] {
            simd_json::Node::Object { count, .. } | simd_json::Node::Array { count, .. } => 1 + count,
            simd_json::Node::String(_) | simd_json::Node::Static(_) => 1,
        }
    }
}

impl<'a> Node<'a> for TapeNode<'a> {
    type Items = TapeItems<'a>;
    type Entries = TapeEntries<'a>;

    #[inline]
    fn view(self) -> View<'a, Self> {
        match self.rest[0] {
            simd_json::Node::Static(StaticNode::Null) => View::Null,
            simd_json::Node::Static(StaticNode::Bool(value)) => View::Bool(value),
            simd_json::Node::Static(StaticNode::I64(value)) => View::Int(value),
            simd_json::Node::Static(StaticNode::U64(value)) => match i64::try_from(value) {
                Ok(value) => View::Int(value),
                Err(_) => View::Wide(Wide::Unsigned(value)),
            },
            simd_json::Node::Static(StaticNode::F64(value)) => View::Float(value),
            simd_json::Node::String(text) => View::String(text),
            simd_json::Node::Array { len, .. } => View::Array(TapeItems { rest: &self.rest[1..], left: len }),
            simd_json::Node::Object { len, .. } => View::Object(TapeEntries { rest: &self.rest[1..], left: len }),
        }
    }
}

/// The items of an array on the tape.
#[derive(Debug, Clone)]
pub struct TapeItems<'a> {
    rest: &'a [simd_json::Node<'a>],
    left: usize,
}

impl<'a> Iterator for TapeItems<'a> {
    type Item = TapeNode<'a>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let item = TapeNode { rest: self.rest };
        self.rest = &self.rest[item.span()..];
        Some(item)
    }
}

/// The entries of an object on the tape.
#[derive(Debug, Clone)]
pub struct TapeEntries<'a> {
    rest: &'a [simd_json::Node<'a>],
    left: usize,
}

impl<'a> Iterator for TapeEntries<'a> {
    type Item = (&'a str, TapeNode<'a>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let simd_json::Node::String(key) = self.rest[0] else { return None };
        let value = TapeNode { rest: &self.rest[1..] };
        self.rest = &self.rest[1 + value.span()..];
        Some((key, value))
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for TapeEntries<'_> {}
