//! A compiled schema: the columns of a stream (wire.md section 12.2).

use std::collections::HashMap;

use super::binary::Encoding;
use super::json::push_string;

/// Up to this many names are found by looking at each; beyond it by hashing.
const HASHED_NAMES: usize = 12;

/// The type of a value.
#[derive(Debug, Clone, PartialEq)]
pub enum ColumnKind {
    /// A boolean.
    Bool,
    /// A signed 32-bit integer.
    Int32,
    /// A signed 64-bit integer.
    Int64,
    /// A 32-bit float; stored rounded, written widened to a double.
    Float32,
    /// A double.
    Float64,
    /// A string.
    String,
    /// Bytes, written as text.
    Binary {
        /// How they are written.
        encoding: Encoding,
        /// The exact length in bytes, if the column has one.
        width_bytes: Option<u32>,
    },
    /// An object of declared fields.
    Struct(Columns),
    /// An object from any string to values of one type.
    Map(Box<Element>),
    /// An array of values of one type.
    List(Box<Element>),
}

impl ColumnKind {
    /// Whether values are arrays or objects, which a filter cannot name.
    #[must_use]
    pub fn is_nested(&self) -> bool {
        matches!(self, ColumnKind::Struct(_) | ColumnKind::Map(_) | ColumnKind::List(_))
    }
}

/// The values of a map or the items of a list.
#[derive(Debug, Clone, PartialEq)]
pub struct Element {
    /// Their type.
    pub kind: ColumnKind,
    /// Whether null is one of them.
    pub nullable: bool,
}

/// A column of a stream, or a field of a struct.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its type.
    pub kind: ColumnKind,
    /// Whether it may be null or absent.
    pub nullable: bool,
    /// What stands before its value in a canonical object: `{"name":` for the first, `,"name":` for others.
    pub(super) lead: Box<[u8]>,
}

impl Column {
    /// What stands before its value in a canonical object: `{"name":` for the first, `,"name":` for others.
    #[must_use]
    pub fn lead(&self) -> &[u8] {
        &self.lead
    }
}

/// Columns in declared order, found by name.
#[derive(Debug, Clone, PartialEq)]
pub struct Columns {
    list: Vec<Column>,
    by_name: HashMap<String, usize>,
}

impl Columns {
    /// Makes columns of `(name, kind, nullable)`; the names are distinct.
    pub(super) fn new(parts: Vec<(String, ColumnKind, bool)>) -> Self {
        let mut list = Vec::with_capacity(parts.len());
        for (name, kind, nullable) in parts {
            let mut lead = vec![if list.is_empty() { b'{' } else { b',' }];
            push_string(&mut lead, &name);
            lead.push(b':');
            list.push(Column { name, kind, nullable, lead: lead.into() });
        }
        let by_name = if list.len() > HASHED_NAMES {
            list.iter().enumerate().map(|(place, column)| (column.name.clone(), place)).collect()
        } else {
            HashMap::new()
        };
        Columns { list, by_name }
    }

    /// The columns in declared order.
    #[must_use]
    pub fn as_slice(&self) -> &[Column] {
        &self.list
    }

    /// The place of the column `name`.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<usize> {
        if self.by_name.is_empty() {
            self.list.iter().position(|column| column.name == name)
        } else {
            self.by_name.get(name).copied()
        }
    }
}

/// The declared columns of a stream.
#[derive(Debug, Clone, PartialEq)]
pub struct Schema {
    pub(super) columns: Columns,
    pub(super) canonical: String,
}

/// The canonical text of the schema of a stream whose rows are any objects: the table has them as text in one column.
pub(super) const ANY_OBJECT: &str = r#"{"type":"object","properties":{"entry":{"type":"string","contentMediaType":"application/json"}},"required":["entry"]}"#;

impl Schema {
    /// The schema of a durable stream whose rows are any JSON objects (docs/batches.md): they are stored and sent as
    /// published, and tables hold them as JSON text in the column `entry`. No declaration gives it.
    #[must_use]
    pub fn any_object() -> Self {
        let columns = Columns::new(vec![("entry".to_owned(), ColumnKind::String, false)]);
        Schema { columns, canonical: ANY_OBJECT.to_owned() }
    }

    /// Whether it is [`Schema::any_object`].
    #[must_use]
    pub fn is_any_object(&self) -> bool {
        self.canonical == ANY_OBJECT
    }

    /// The columns in declared order.
    #[must_use]
    pub fn columns(&self) -> &[Column] {
        self.columns.as_slice()
    }

    /// The place of the column `name`.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<usize> {
        self.columns.find(name)
    }

    /// The schema as the greeting publishes it: compact JSON text (wire.md section 12.4).
    #[must_use]
    pub fn canonical(&self) -> &str {
        &self.canonical
    }
}
