//! Why a frame's rows are refused: the rules of wire.md section 13 one after the other, in their order.
//!
//! This is the slow and obvious counterpart of the encoder. It runs only on refused frames, and in tests as the
//! judge of the encoder.

use super::columns::{Column, ColumnKind, Columns, Schema};
use super::compile::{OFFSET_COLUMN, STAMP_COLUMN};
use super::encode::{FLOAT32_INTEGERS, FLOAT32_LIMIT, FLOAT64_INTEGERS};
use super::json::Json;

type Row = [(String, Json)];

/// The first broken rule, as one sentence that names the column; `None` if the rows are valid.
#[must_use]
pub fn explain(schema: &Schema, rows: &[&Row]) -> Option<String> {
    // Rules 1 to 3 look at every row of the frame before rule 4 looks at the first.
    let frame_rules: [fn(&Schema, &Row) -> Option<String>; 3] = [undecodable, map_not_an_object, stamped];
    for rule in frame_rules {
        for (index, row) in rows.iter().enumerate() {
            if let Some(why) = rule(schema, row) {
                return Some(placed(index, rows.len(), why));
            }
        }
    }
    for (index, row) in rows.iter().enumerate() {
        if let Some(why) = row_rules(schema, row) {
            return Some(placed(index, rows.len(), why));
        }
    }
    None
}

/// Says which row of a batch is meant.
fn placed(index: usize, rows: usize, why: String) -> String {
    if rows == 1 { why } else { format!("row {index}: {why}") }
}

fn get<'a>(row: &'a Row, name: &str) -> Option<&'a Json> {
    row.iter().find(|(key, _)| key == name).map(|(_, value)| value)
}

fn undecodable(schema: &Schema, row: &Row) -> Option<String> {
    each_declared(schema.columns(), row, "", &mut |kind, value, path| match (kind, value) {
        (ColumnKind::Binary { encoding, .. }, Json::String(text)) => match encoding.decode(text, &mut Vec::new()) {
            Some(()) => None,
            None => Some(format!("column {path}: the text is not {}", encoding.name())),
        },
        _ => None,
    })
}

fn map_not_an_object(schema: &Schema, row: &Row) -> Option<String> {
    each_declared(schema.columns(), row, "", &mut |kind, value, path| match (kind, value) {
        (ColumnKind::Map(_), Json::Object(_) | Json::Null) => None,
        (ColumnKind::Map(_), other) => Some(format!("column {path}: a map must be an object, not {}", other.kind())),
        _ => None,
    })
}

fn stamped(_schema: &Schema, row: &Row) -> Option<String> {
    get(row, STAMP_COLUMN).map(|_| format!("column {STAMP_COLUMN} is written by the server; leave it out"))
}

type Visit<'v> = &'v mut dyn FnMut(&ColumnKind, &Json, &str) -> Option<String>;

/// Visits every value that stands where a column, field, map value or list item is declared.
fn each_declared(columns: &[Column], row: &Row, path: &str, visit: Visit<'_>) -> Option<String> {
    for column in columns {
        if let Some(value) = get(row, &column.name) {
            let path = join(path, &column.name);
            if let Some(why) = visit_deep(&column.kind, value, &path, visit) {
                return Some(why);
            }
        }
    }
    None
}

fn visit_deep(kind: &ColumnKind, value: &Json, path: &str, visit: Visit<'_>) -> Option<String> {
    if let Some(why) = visit(kind, value, path) {
        return Some(why);
    }
    match (kind, value) {
        (ColumnKind::Struct(fields), Json::Object(entries)) => each_declared(fields.as_slice(), entries, path, visit),
        (ColumnKind::Map(values), Json::Object(entries)) => {
            entries.iter().find_map(|(key, value)| visit_deep(&values.kind, value, &join(path, key), visit))
        }
        (ColumnKind::List(items), Json::Array(list)) => list
            .iter()
            .enumerate()
            .find_map(|(index, item)| visit_deep(&items.kind, item, &format!("{path}[{index}]"), visit)),
        _ => None,
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn row_rules(schema: &Schema, row: &Row) -> Option<String> {
    if get(row, OFFSET_COLUMN).is_some() {
        return Some(format!("column {OFFSET_COLUMN} is written by the log; leave it out"));
    }
    if let Some((name, _)) = row.iter().find(|(name, _)| schema.find(name).is_none()) {
        return Some(format!("column {name} is not declared"));
    }
    for column in schema.columns().iter().filter(|column| column.kind.is_nested()) {
        let value = get(row, &column.name).unwrap_or(&Json::Null);
        if *value != Json::Null
            && let Some(why) = nested(&column.kind, value, &column.name)
        {
            return Some(why);
        }
    }
    let missing = missing(&schema.columns, row);
    if !missing.is_empty() {
        return Some(format!("column {} must not be null or absent", missing.join(", ")));
    }
    schema
        .columns()
        .iter()
        .filter(|column| !column.kind.is_nested())
        .find_map(|column| top(&column.kind, get(row, &column.name)?, &column.name))
}

fn missing<'a>(columns: &'a Columns, row: &Row) -> Vec<&'a str> {
    let absent = |column: &&Column| matches!(get(row, &column.name), None | Some(Json::Null));
    columns
        .as_slice()
        .iter()
        .filter(|column| !column.nullable)
        .filter(absent)
        .map(|column| column.name.as_str())
        .collect()
}

/// A scalar column (wire.md section 13.2).
fn top(kind: &ColumnKind, value: &Json, path: &str) -> Option<String> {
    match (kind, value) {
        (_, Json::Null) => None,
        (ColumnKind::Bool, Json::Int(0 | 1)) => None,
        (ColumnKind::Int32 | ColumnKind::Int64 | ColumnKind::Float32 | ColumnKind::Float64, Json::Bool(_)) => None,
        _ => scalar(kind, value, path),
    }
}

/// A value that is not null, where nothing is converted (wire.md section 13.4).
fn scalar(kind: &ColumnKind, value: &Json, path: &str) -> Option<String> {
    let takes = match kind {
        ColumnKind::Bool => "a boolean",
        ColumnKind::Int32 => "an integer of 32 bits",
        ColumnKind::Int64 => "an integer of 64 bits",
        ColumnKind::Float32 => "a number within a 32-bit float, or an integer up to 2^24",
        ColumnKind::Float64 => "a number; an integer beyond 2^53 must be sent with a fraction or exponent",
        ColumnKind::String => "a string",
        ColumnKind::Binary { width_bytes: Some(_), .. } => "text that stands for bytes of the declared length",
        ColumnKind::Binary { .. } => "text that stands for bytes",
        ColumnKind::Struct(_) | ColumnKind::Map(_) => "an object",
        ColumnKind::List(_) => "an array",
    };
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
    if fits { None } else { Some(format!("column {path}: takes {takes}, not {}", value.kind())) }
}

/// A value inside a nested column, the column itself included; not null.
fn nested(kind: &ColumnKind, value: &Json, path: &str) -> Option<String> {
    if let Some(why) = scalar(kind, value, path) {
        return Some(why);
    }
    match (kind, value) {
        (ColumnKind::Struct(fields), Json::Object(entries)) => {
            if let Some((name, _)) = entries.iter().find(|(name, _)| fields.find(name).is_none()) {
                return Some(format!("column {path}: the field {name} is not declared"));
            }
            if let Some(name) = missing(fields, entries).first() {
                return Some(format!("column {path}: the field {name} must not be null or absent"));
            }
            fields.as_slice().iter().find_map(|field| match get(entries, &field.name)? {
                Json::Null => None,
                value => nested(&field.kind, value, &join(path, &field.name)),
            })
        }
        (ColumnKind::Map(values), Json::Object(entries)) => {
            entries.iter().find_map(|(key, value)| element(&values.kind, values.nullable, value, &join(path, key)))
        }
        (ColumnKind::List(items), Json::Array(list)) => list
            .iter()
            .enumerate()
            .find_map(|(index, item)| element(&items.kind, items.nullable, item, &format!("{path}[{index}]"))),
        _ => None,
    }
}

fn element(kind: &ColumnKind, nullable: bool, value: &Json, path: &str) -> Option<String> {
    match value {
        Json::Null if nullable => None,
        Json::Null => Some(format!("column {path} must not be null")),
        value => nested(kind, value, path),
    }
}
