//! Why a frame's rows are refused: the rules of wire.md section 13 one after the other, in their order.
//!
//! This is the slow and obvious counterpart of the encoder. It runs only on refused frames, and in tests as the
//! judge of the encoder. It goes by the rows' keys, never by the columns, and writes paths only for the value that is
//! wrong, so that a frame of many short rows or long lists costs little more than its length.

use super::columns::{ColumnKind, Columns, Schema};
use super::compile::{OFFSET_COLUMN, STAMP_COLUMN};
use super::encode::{FLOAT32_INTEGERS, FLOAT32_LIMIT, FLOAT64_INTEGERS};
use super::json::Json;

/// A row: its keys are distinct.
type Row = [(String, Json)];

/// A value that breaks a rule.
struct Broken {
    /// Where it is in the row, such as `book[0].price`.
    path: String,
    /// What is wrong with it.
    why: String,
}

impl Broken {
    fn new(why: impl Into<String>) -> Broken {
        Broken { path: String::new(), why: why.into() }
    }

    /// The same, seen from the object that has it under `key`.
    fn under(mut self, key: &str) -> Broken {
        let dot = if self.path.is_empty() || self.path.starts_with('[') { "" } else { "." };
        self.path = format!("{key}{dot}{}", self.path);
        self
    }

    /// The same, seen from the list that has it at `index`.
    fn at(self, index: usize) -> Broken {
        self.under(&format!("[{index}]"))
    }
}

/// The first broken rule, as one sentence that names the column; `None` if the rows are valid.
#[must_use]
pub fn explain(schema: &Schema, rows: &[impl AsRef<Row>]) -> Option<String> {
    // Rules 1 to 3 look at every row of the frame before rule 4 looks at the first.
    let frame_rules: [fn(&Schema, &Row) -> Option<Broken>; 3] = [undecodable, map_not_an_object, stamped];
    let over_the_frame = frame_rules.iter().find_map(|rule| first(schema, rows, rule));
    over_the_frame.or_else(|| first(schema, rows, &row_rules))
}

fn first(schema: &Schema, rows: &[impl AsRef<Row>], rule: &dyn Fn(&Schema, &Row) -> Option<Broken>) -> Option<String> {
    rows.iter().enumerate().find_map(|(index, row)| {
        let Broken { path, why } = rule(schema, row.as_ref())?;
        let place = if rows.len() == 1 { String::new() } else { format!("row {index}: ") };
        Some(format!("{place}column {path} {why}"))
    })
}

fn get<'a>(row: &'a Row, name: &str) -> Option<&'a Json> {
    row.iter().find(|(key, _)| key == name).map(|(_, value)| value)
}

/// The type of a column or field, if it is declared.
fn kind<'c>(columns: &'c Columns, key: &str) -> Option<&'c ColumnKind> {
    columns.find(key).map(|place| &columns.as_slice()[place].kind)
}

fn undecodable(schema: &Schema, row: &Row) -> Option<Broken> {
    each_declared(&schema.columns, row, &|kind, value| match (kind, value) {
        (ColumnKind::Binary { encoding, .. }, Json::String(text)) => match encoding.decode(text, &mut Vec::new()) {
            Some(()) => None,
            None => Some(Broken::new(format!("holds text that is not {}", encoding.name()))),
        },
        _ => None,
    })
}

fn map_not_an_object(schema: &Schema, row: &Row) -> Option<Broken> {
    each_declared(&schema.columns, row, &|kind, value| match (kind, value) {
        (ColumnKind::Map(_), Json::Object(_) | Json::Null) => None,
        (ColumnKind::Map(_), other) => Some(Broken::new(format!("takes an object, not {}", other.kind()))),
        _ => None,
    })
}

fn stamped(_schema: &Schema, row: &Row) -> Option<Broken> {
    get(row, STAMP_COLUMN).map(|_| Broken::new("is written by the server; leave it out").under(STAMP_COLUMN))
}

type Rule<'r> = &'r dyn Fn(&ColumnKind, &Json) -> Option<Broken>;

/// Applies a rule to every value that stands where a column, field, map value or list item is declared.
fn each_declared(columns: &Columns, row: &Row, rule: Rule<'_>) -> Option<Broken> {
    row.iter().find_map(|(key, value)| deep(kind(columns, key)?, value, rule).map(|broken| broken.under(key)))
}

fn deep(kind: &ColumnKind, value: &Json, rule: Rule<'_>) -> Option<Broken> {
    if let Some(broken) = rule(kind, value) {
        return Some(broken);
    }
    match (kind, value) {
        (ColumnKind::Struct(fields), Json::Object(entries)) => each_declared(fields, entries, rule),
        (ColumnKind::Map(values), Json::Object(entries)) => {
            in_entries(entries, |value| deep(&values.kind, value, rule))
        }
        (ColumnKind::List(items), Json::Array(list)) => in_items(list, |item| deep(&items.kind, item, rule)),
        _ => None,
    }
}

fn in_entries(entries: &Row, rule: impl Fn(&Json) -> Option<Broken>) -> Option<Broken> {
    entries.iter().find_map(|(key, value)| rule(value).map(|broken| broken.under(key)))
}

fn in_items(list: &[Json], rule: impl Fn(&Json) -> Option<Broken>) -> Option<Broken> {
    list.iter().enumerate().find_map(|(index, item)| rule(item).map(|broken| broken.at(index)))
}

fn row_rules(schema: &Schema, row: &Row) -> Option<Broken> {
    if get(row, OFFSET_COLUMN).is_some() {
        return Some(Broken::new("is written by the log; leave it out").under(OFFSET_COLUMN));
    }
    if let Some((name, _)) = row.iter().find(|(name, _)| schema.find(name).is_none()) {
        return Some(Broken::new("is not declared").under(name));
    }
    let nested_column = |(key, value): &(String, Json)| match kind(&schema.columns, key)? {
        kind if kind.is_nested() && *value != Json::Null => nested(kind, value).map(|broken| broken.under(key)),
        _ => None,
    };
    if let Some(broken) = row.iter().find_map(nested_column) {
        return Some(broken);
    }
    let missing = missing(&schema.columns, row);
    if !missing.is_empty() {
        return Some(Broken::new("must not be null or absent").under(&missing.join(", ")));
    }
    row.iter().find_map(|(key, value)| match kind(&schema.columns, key)? {
        kind if kind.is_nested() => None,
        kind => top(kind, value).map(|broken| broken.under(key)),
    })
}

/// The columns that must have a value and have none, in declared order.
fn missing<'a>(columns: &'a Columns, row: &Row) -> Vec<&'a str> {
    let mut filled = vec![false; columns.as_slice().len()];
    for (key, value) in row {
        if let Some(place) = columns.find(key) {
            filled[place] = *value != Json::Null;
        }
    }
    let unfilled = columns.as_slice().iter().zip(filled).filter(|(column, filled)| !column.nullable && !filled);
    unfilled.map(|(column, _)| column.name.as_str()).collect()
}

/// A scalar column (wire.md section 13.2).
fn top(kind: &ColumnKind, value: &Json) -> Option<Broken> {
    match (kind, value) {
        (_, Json::Null) => None,
        (ColumnKind::Bool, Json::Int(0 | 1)) => None,
        (ColumnKind::Int32 | ColumnKind::Int64 | ColumnKind::Float32 | ColumnKind::Float64, Json::Bool(_)) => None,
        _ => scalar(kind, value),
    }
}

/// A value that is not null, where nothing is converted (wire.md section 13.4).
fn scalar(kind: &ColumnKind, value: &Json) -> Option<Broken> {
    let fits = match (kind, value) {
        (ColumnKind::Bool, Json::Bool(_)) | (ColumnKind::Int64, Json::Int(_)) => true,
        (ColumnKind::Int32, Json::Int(value)) => i32::try_from(*value).is_ok(),
        (ColumnKind::Float64, Json::Float(_)) => true,
        (ColumnKind::Float64, Json::Int(value)) => value.unsigned_abs() <= FLOAT64_INTEGERS,
        (ColumnKind::Float32, Json::Float(value)) => value.abs() <= FLOAT32_LIMIT,
        (ColumnKind::Float32, Json::Int(value)) => value.unsigned_abs() <= FLOAT32_INTEGERS,
        (ColumnKind::String, Json::String(_)) => true,
        (ColumnKind::Binary { encoding, width_bytes }, Json::String(text)) => {
            let mut bytes = Vec::new();
            encoding.decode(text, &mut bytes).is_some()
                && width_bytes.is_none_or(|width| u32::try_from(bytes.len()) == Ok(width))
        }
        (ColumnKind::Struct(_) | ColumnKind::Map(_), Json::Object(_)) | (ColumnKind::List(_), Json::Array(_)) => true,
        _ => false,
    };
    if fits {
        return None;
    }
    let takes = match kind {
        ColumnKind::Bool => "a boolean".to_owned(),
        ColumnKind::Int32 => "an integer of 32 bits".to_owned(),
        ColumnKind::Int64 => "an integer of 64 bits".to_owned(),
        ColumnKind::Float32 => "a number within a 32-bit float, or an integer up to 2^24".to_owned(),
        ColumnKind::Float64 => "a number, or an integer up to 2^53 (send larger ones with an exponent)".to_owned(),
        ColumnKind::String => "a string".to_owned(),
        ColumnKind::Binary { encoding, width_bytes: None } => format!("{} text", encoding.name()),
        ColumnKind::Binary { encoding, width_bytes: Some(width) } => {
            format!("{} text of {width} bytes", encoding.name())
        }
        ColumnKind::Struct(_) | ColumnKind::Map(_) => "an object".to_owned(),
        ColumnKind::List(_) => "an array".to_owned(),
    };
    let got = match value {
        Json::String(_) if matches!(kind, ColumnKind::Binary { .. }) => "text of another length",
        Json::Int(_) | Json::Wide(_) if !matches!(kind, ColumnKind::Bool) && is_number(kind) => {
            "an integer beyond that"
        }
        Json::Float(_) if matches!(kind, ColumnKind::Float32) => "a number beyond that",
        other => other.kind(),
    };
    Some(Broken::new(format!("takes {takes}, not {got}")))
}

fn is_number(kind: &ColumnKind) -> bool {
    matches!(kind, ColumnKind::Int32 | ColumnKind::Int64 | ColumnKind::Float32 | ColumnKind::Float64)
}

/// A value inside a nested column, the column itself included; not null.
fn nested(kind: &ColumnKind, value: &Json) -> Option<Broken> {
    if let Some(broken) = scalar(kind, value) {
        return Some(broken);
    }
    match (kind, value) {
        (ColumnKind::Struct(fields), Json::Object(entries)) => {
            if let Some((name, _)) = entries.iter().find(|(name, _)| fields.find(name).is_none()) {
                return Some(Broken::new("is not declared").under(name));
            }
            if let Some(name) = missing(fields, entries).first() {
                return Some(Broken::new("must not be null or absent").under(name));
            }
            entries.iter().find_map(|(key, value)| match value {
                Json::Null => None,
                value => nested(self::kind(fields, key)?, value).map(|broken| broken.under(key)),
            })
        }
        (ColumnKind::Map(values), Json::Object(entries)) => {
            in_entries(entries, |value| element(&values.kind, values.nullable, value))
        }
        (ColumnKind::List(items), Json::Array(list)) => {
            in_items(list, |item| element(&items.kind, items.nullable, item))
        }
        _ => None,
    }
}

fn element(kind: &ColumnKind, nullable: bool, value: &Json) -> Option<Broken> {
    match value {
        Json::Null if nullable => None,
        Json::Null => Some(Broken::new("must not be null")),
        value => nested(kind, value),
    }
}
