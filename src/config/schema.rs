//! A stream's schema as written: an inline TOML table, JSON text, or a JSON file. All become one JSON value whose keys
//! keep their order, because the order of properties is the order of columns (wire.md section 12.1).

use std::fmt;
use std::path::Path;

use serde::de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{ConfigError, Source};
use super::table::describe;

/// Parses JSON text and refuses duplicate keys, which would silently drop a column.
pub(super) fn parse_json(text: &str) -> Result<Value, serde_json::Error> {
    let mut parser = serde_json::Deserializer::from_str(text);
    let value = Strict.deserialize(&mut parser)?;
    parser.end()?;
    Ok(value)
}

/// Parses the JSON text of a file; the error names its line and column.
pub(super) fn parse_json_file(path: &Path, text: &str) -> Result<Value, ConfigError> {
    parse_json(text).map_err(|error| {
        let message = without_position(&error);
        Source { path, text }.error_at(error.line(), error.column(), format!("not valid JSON: {message}"))
    })
}

/// serde_json's message without its "at line 1 column 2", for places named in another way.
pub(super) fn without_position(error: &serde_json::Error) -> String {
    let mut text = error.to_string();
    if let Some(at) = text.rfind(" at line ") {
        text.truncate(at);
    }
    text
}

/// A TOML table as a JSON object.
pub(super) fn object_from_toml(source: Source<'_>, table: &DeTable<'_>) -> Result<Value, ConfigError> {
    let mut object = Map::new();
    for (key, value) in table {
        object.insert(key.get_ref().clone().into_owned(), from_toml(source, value)?);
    }
    Ok(Value::Object(object))
}

fn from_toml(source: Source<'_>, value: &Spanned<DeValue<'_>>) -> Result<Value, ConfigError> {
    let number = match value.get_ref() {
        DeValue::String(text) => return Ok(Value::String(text.clone().into_owned())),
        DeValue::Boolean(value) => return Ok(Value::Bool(*value)),
        DeValue::Array(items) => {
            return items.iter().map(|item| from_toml(source, item)).collect::<Result<_, _>>().map(Value::Array);
        }
        DeValue::Table(table) => return object_from_toml(source, table),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix()).ok().map(Number::from),
        DeValue::Float(number) => number.as_str().parse().ok().and_then(Number::from_f64),
        DeValue::Datetime(_) => None,
    };
    let refused = || source.error(value.span(), format!("{} has no form in JSON", describe(value.get_ref())));
    number.map(Value::Number).ok_or_else(refused)
}

/// Builds a [`Value`] and refuses an object that has the same key twice.
#[derive(Clone, Copy)]
struct Strict;

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            if object.contains_key(&key) {
                return Err(A::Error::custom(format_args!("the key {key:?} is there twice")));
            }
            let value = entries.next_value_seed(self)?;
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_order_and_refuses_duplicates() {
        let text = r#"{"z":1,"a":[true,null,-2.5,"x",{"k":18446744073709551615}],"m":{}}"#;
        assert_eq!(parse_json(text).map(|value| value.to_string()).ok().as_deref(), Some(text));
        for bad in [r#"{"a":1,"a":2}"#, r#"[{"b":{"c":1,"c":1}}]"#, "{} {}", "", "{\"a\":}", "[1,]"] {
            assert!(parse_json(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_bad_file_is_named_with_its_place() {
        let error = parse_json_file(Path::new("s.json"), "{\n  \"a\": 1,\n  \"a\": 2\n}");
        let text = error.map_or_else(|error| error.to_string(), |_| String::new());
        assert_eq!(text, "s.json:3:5: not valid JSON: the key \"a\" is there twice");
    }

    #[test]
    fn deep_nesting_is_refused_not_followed() {
        assert!(parse_json(&"[".repeat(100_000)).is_err());
    }
}
