//! From a JSON Schema document to columns and back to its canonical form (wire.md section 12).

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::binary::Encoding;
use super::columns::{ANY_OBJECT, Column, ColumnKind, Columns, Element, Schema};
use super::json::push_string;
use super::keywords;

/// The longest canonical schema text. The greeting carries it, and a client takes messages up to 1 MiB.
pub const MAX_CANONICAL_BYTES: usize = 512 * 1024;

/// The deepest nesting of structs, maps and lists in a column.
pub const MAX_NESTING: usize = 100;

/// The time stamp that the server adds to every stored row.
pub(super) const STAMP_COLUMN: &str = "streamcast_ts";
/// The offset that the log adds to every stored row.
pub(super) const OFFSET_COLUMN: &str = "litelink_offset";

/// Why a schema is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// The document is not JSON.
    #[error("the schema is not json: {0}")]
    NotJson(String),
    /// The document as a whole.
    #[error("the schema {0}")]
    Root(String),
    /// One column, field, value or item.
    #[error("column {path}: {why}")]
    Column {
        /// Where, such as `book.bids[]`.
        path: String,
        /// What is wrong, and what would be right.
        why: String,
    },
}

/// Which rules a document must keep beyond those of its types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rules {
    names: Names,
    strict: bool,
}

/// Which names columns may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Names {
    Any,
    LiveOnly,
    Durable,
}

impl Names {
    fn of(durable: bool) -> Names {
        if durable { Names::Durable } else { Names::LiveOnly }
    }
}

impl Schema {
    /// Compiles the schema of a stream; `durable` if its rows go to a log.
    ///
    /// # Errors
    /// [`SchemaError`] for everything in wire.md section 12.3, and for schemas the server could not serve.
    pub fn compile(document: &Value, durable: bool) -> Result<Schema, SchemaError> {
        Rules { names: Names::of(durable), strict: false }.schema(document)
    }

    /// Compiles the text of a schema document.
    ///
    /// # Errors
    /// As [`Schema::compile`], and if the text is not JSON.
    pub fn compile_text(text: &str, durable: bool) -> Result<Schema, SchemaError> {
        let document = serde_json::from_str(text).map_err(|error| SchemaError::NotJson(error.to_string()))?;
        Schema::compile(&document, durable)
    }

    /// Compiles a schema given over the control API, which knows no ornaments (wire.md section 12.5).
    ///
    /// # Errors
    /// As [`Schema::compile`], and for every keyword that would be ignored.
    pub fn compile_strict(document: &Value, durable: bool) -> Result<Schema, SchemaError> {
        Rules { names: Names::of(durable), strict: true }.schema(document)
    }

    /// Compiles the types of a schema whatever its columns are named: for its canonical form, not for a stream.
    ///
    /// # Errors
    /// As [`Schema::compile`], without those about names.
    pub fn compile_types(document: &Value) -> Result<Schema, SchemaError> {
        Rules { names: Names::Any, strict: false }.schema(document)
    }
}

/// Whether a document is the recorded form of [`Schema::any_object`].
fn is_any_object(document: &Value) -> bool {
    document["properties"]["entry"]["contentMediaType"] == "application/json"
        && serde_json::from_str::<Value>(ANY_OBJECT).is_ok_and(|any_object| any_object == *document)
}

fn root(why: impl Into<String>) -> SchemaError {
    SchemaError::Root(why.into())
}

fn column(path: &str, why: impl Into<String>) -> SchemaError {
    SchemaError::Column { path: path.to_owned(), why: why.into() }
}

impl Rules {
    fn schema(self, document: &Value) -> Result<Schema, SchemaError> {
        if !self.strict && is_any_object(document) {
            return Ok(Schema::any_object());
        }
        let Value::Object(document) = document else { return Err(root("must be an object")) };
        match document.get("type") {
            None | Some(Value::Null) => {}
            Some(Value::String(word)) if word == "object" => {}
            Some(_) => return Err(root("must have the type \"object\"")),
        }
        if self.strict {
            keywords::check_root(document).map_err(root)?;
        }
        let parts = self.properties(document, "", 0).map_err(|why| match why {
            SchemaError::Column { path, why } if path.is_empty() => root(why),
            other => other,
        })?;
        self.check_names(&parts)?;
        let columns = Columns::new(parts);
        let mut canonical = Vec::new();
        push_object(&mut canonical, &columns, "\"object\"");
        canonical.push(b'}');
        if canonical.len() > MAX_CANONICAL_BYTES {
            return Err(root(format!(
                "takes {} bytes in the greeting; at most {MAX_CANONICAL_BYTES} fit: declare fewer or shorter names",
                canonical.len()
            )));
        }
        // Everything pushed comes from `str`s and ASCII literals.
        let canonical = String::from_utf8(canonical).map_err(|_| root("has a name that is not utf-8"))?;
        Ok(Schema { columns, canonical })
    }

    /// Names that the log could not hold or tell apart, and those it uses itself. A name must fail here, not when
    /// the first row comes.
    fn check_names(self, parts: &[(String, ColumnKind, bool)]) -> Result<(), SchemaError> {
        if self.names == Names::Any {
            return Ok(());
        }
        let durable = self.names == Names::Durable;
        let mut folded = HashSet::new();
        for (name, _, _) in parts {
            let reserved = |word: &str| name == word || (durable && name.eq_ignore_ascii_case(word));
            if reserved(STAMP_COLUMN) || reserved(OFFSET_COLUMN) {
                return Err(column(name, "the name belongs to a column that the server adds; choose another"));
            }
            if durable && name.contains(['"', '\0']) {
                return Err(column(name, "a durable stream's column must have neither \" nor NUL in its name"));
            }
            if durable && !folded.insert(name.to_ascii_lowercase()) {
                return Err(column(
                    name,
                    "another column's name differs only by case; a durable stream needs distinct names",
                ));
            }
        }
        Ok(())
    }

    /// The members of the root or a struct.
    fn properties(
        self,
        object: &Map<String, Value>,
        path: &str,
        depth: usize,
    ) -> Result<Vec<(String, ColumnKind, bool)>, SchemaError> {
        let properties = match object.get("properties") {
            Some(Value::Object(properties)) if !properties.is_empty() => properties,
            _ => return Err(column(path, "must declare its columns in a non-empty object \"properties\"")),
        };
        let mut required = HashSet::new();
        match object.get("required") {
            None => {}
            Some(Value::Array(names)) => {
                for name in names {
                    match name {
                        Value::String(name) if properties.contains_key(name) => required.insert(name.as_str()),
                        other => return Err(column(path, format!("\"required\" names {other}, which is no property"))),
                    };
                }
            }
            Some(_) => return Err(column(path, "\"required\" must be an array of names")),
        }
        let mut parts = Vec::with_capacity(properties.len());
        for (name, spec) in properties {
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            let (kind, nullable) = self.element(spec, &path, depth)?;
            if !nullable && !required.contains(name.as_str()) {
                return Err(column(
                    &path,
                    "may be absent but not null; list it in \"required\" or add \"null\" to its type",
                ));
            }
            parts.push((name.clone(), kind, nullable));
        }
        Ok(parts)
    }

    /// One column, field, map value or list item, and whether it may be null.
    fn element(self, spec: &Value, path: &str, depth: usize) -> Result<(ColumnKind, bool), SchemaError> {
        let Value::Object(spec) = spec else { return Err(column(path, "must be described by an object")) };
        if depth > MAX_NESTING {
            return Err(column(path, format!("is nested more than {MAX_NESTING} levels deep")));
        }
        let (word, nullable) = type_word(spec).map_err(|why| column(path, why))?;
        if self.strict {
            keywords::check_element(spec, word).map_err(|why| column(path, why))?;
        }
        let kind = match word {
            "boolean" => match format(spec) {
                None => ColumnKind::Bool,
                Some(other) => return Err(unknown_format(path, word, other)),
            },
            "integer" => match format(spec) {
                None | Some("int64") => ColumnKind::Int64,
                Some("int32") => ColumnKind::Int32,
                Some(other) => return Err(unknown_format(path, word, other)),
            },
            "number" => match format(spec) {
                None | Some("double") => ColumnKind::Float64,
                Some("float") => ColumnKind::Float32,
                Some(other) => return Err(unknown_format(path, word, other)),
            },
            "string" => string_kind(spec, path)?,
            "object" => self.object_kind(spec, path, depth)?,
            "array" => match spec.get("items") {
                Some(items @ Value::Object(_)) => {
                    let (kind, nullable) = self.element(items, &format!("{path}[]"), depth + 1)?;
                    ColumnKind::List(Box::new(Element { kind, nullable }))
                }
                _ => return Err(column(path, "an array needs an object \"items\" that describes its items")),
            },
            other => return Err(column(path, format!("has the unknown type \"{other}\""))),
        };
        Ok((kind, nullable))
    }

    fn object_kind(self, spec: &Map<String, Value>, path: &str, depth: usize) -> Result<ColumnKind, SchemaError> {
        let fields = matches!(spec.get("properties"), Some(Value::Object(properties)) if !properties.is_empty());
        match (fields, spec.get("additionalProperties")) {
            (true, Some(Value::Object(_))) => {
                Err(column(path, "has both \"properties\" and a schema for other values; choose one"))
            }
            (true, _) => Ok(ColumnKind::Struct(Columns::new(self.properties(spec, path, depth + 1)?))),
            (false, Some(values @ Value::Object(_))) => {
                let (kind, nullable) = self.element(values, &format!("{path}{{}}"), depth + 1)?;
                Ok(ColumnKind::Map(Box::new(Element { kind, nullable })))
            }
            (false, _) => Err(column(
                path,
                "an object needs non-empty \"properties\" (a struct) or an object \"additionalProperties\" (a map)",
            )),
        }
    }
}

/// The one type of a spec that is not "null", and whether "null" is there too.
fn type_word(spec: &Map<String, Value>) -> Result<(&str, bool), &'static str> {
    const ONE: &str = "needs one \"type\", alone or together with \"null\" in an array";
    match spec.get("type") {
        Some(Value::String(word)) if word != "null" => Ok((word, false)),
        Some(Value::Array(words)) => {
            let mut found = None;
            let mut nullable = false;
            for word in words {
                match word {
                    Value::String(word) if word == "null" => nullable = true,
                    Value::String(word) if found.is_none() => found = Some(word.as_str()),
                    _ => return Err(ONE),
                }
            }
            found.map(|word| (word, nullable)).ok_or(ONE)
        }
        _ => Err(ONE),
    }
}

/// The `format`, if it is a string; anything else is no format.
fn format(spec: &Map<String, Value>) -> Option<&str> {
    spec.get("format").and_then(Value::as_str)
}

fn unknown_format(path: &str, word: &str, format: &str) -> SchemaError {
    let known = match word {
        "integer" => "\"int64\" and \"int32\"",
        "number" => "\"double\" and \"float\"",
        _ => "no format",
    };
    column(path, format!("has the unknown format \"{format}\"; the type {word} knows {known}"))
}

fn string_kind(spec: &Map<String, Value>, path: &str) -> Result<ColumnKind, SchemaError> {
    let encoding = match spec.get("contentEncoding") {
        None => match format(spec) {
            None => return Ok(ColumnKind::String),
            Some(other) => {
                return Err(column(
                    path,
                    format!("has the format \"{other}\"; a string has none, bytes need a \"contentEncoding\""),
                ));
            }
        },
        Some(Value::String(word)) if word == "base16" => Encoding::Base16,
        Some(Value::String(word)) if word == "base64" => Encoding::Base64,
        Some(other) => {
            return Err(column(path, format!("has the contentEncoding {other}; known are \"base16\" and \"base64\"")));
        }
    };
    let width_bytes = match spec.get("format") {
        None | Some(Value::Null) => None,
        Some(format) => match format.as_str().and_then(width) {
            Some(width) => Some(width),
            None => {
                return Err(column(
                    path,
                    format!("has the format {format}; bytes know only \"bytesN\", such as \"bytes16\""),
                ));
            }
        },
    };
    Ok(ColumnKind::Binary { encoding, width_bytes })
}

/// The N of `bytesN`.
fn width(format: &str) -> Option<u32> {
    let digits = format.strip_prefix("bytes")?;
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse::<i32>().ok()?.try_into().ok()
}

/// Appends `{"type":…,"properties":{…},"required":[…]`, open at the end.
fn push_object(out: &mut Vec<u8>, columns: &Columns, type_text: &str) {
    out.extend_from_slice(b"{\"type\":");
    out.extend_from_slice(type_text.as_bytes());
    out.extend_from_slice(b",\"properties\":");
    for Column { kind, nullable, lead, .. } in columns.as_slice() {
        out.extend_from_slice(lead);
        push_element(out, kind, *nullable);
    }
    out.extend_from_slice(b"},\"required\":[");
    let mut first = true;
    for column in columns.as_slice().iter().filter(|column| !column.nullable) {
        if !first {
            out.push(b',');
        }
        first = false;
        push_string(out, &column.name);
    }
    out.push(b']');
}

fn push_element(out: &mut Vec<u8>, kind: &ColumnKind, nullable: bool) {
    let type_text = |word: &str| if nullable { format!("[\"{word}\",\"null\"]") } else { format!("\"{word}\"") };
    let plain = |word: &str, more: &str| format!("{{\"type\":{}{more}", type_text(word));
    match kind {
        ColumnKind::Bool => out.extend_from_slice(plain("boolean", "").as_bytes()),
        ColumnKind::Int32 => out.extend_from_slice(plain("integer", ",\"format\":\"int32\"").as_bytes()),
        ColumnKind::Int64 => out.extend_from_slice(plain("integer", ",\"format\":\"int64\"").as_bytes()),
        ColumnKind::Float32 => out.extend_from_slice(plain("number", ",\"format\":\"float\"").as_bytes()),
        ColumnKind::Float64 => out.extend_from_slice(plain("number", ",\"format\":\"double\"").as_bytes()),
        ColumnKind::String => out.extend_from_slice(plain("string", "").as_bytes()),
        ColumnKind::Binary { encoding, width_bytes } => {
            let mut more = format!(",\"contentEncoding\":\"{}\"", encoding.name());
            if let Some(width) = width_bytes {
                more.push_str(&format!(",\"format\":\"bytes{width}\""));
            }
            out.extend_from_slice(plain("string", &more).as_bytes());
        }
        ColumnKind::Struct(fields) => {
            push_object(out, fields, &type_text("object"));
            out.extend_from_slice(b",\"additionalProperties\":false");
        }
        ColumnKind::Map(values) => {
            out.extend_from_slice(plain("object", ",\"additionalProperties\":").as_bytes());
            push_element(out, &values.kind, values.nullable);
        }
        ColumnKind::List(items) => {
            out.extend_from_slice(plain("array", ",\"items\":").as_bytes());
            push_element(out, &items.kind, items.nullable);
        }
    }
    out.push(b'}');
}
