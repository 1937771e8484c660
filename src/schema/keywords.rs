//! The control API takes no schema with a word it would ignore (wire.md section 12.5).

use serde_json::{Map, Value};

const EVERYWHERE: [&str; 3] = ["type", "title", "description"];
const OBJECT: [&str; 3] = ["properties", "required", "additionalProperties"];

fn check(spec: &Map<String, Value>, more: &[&str]) -> Result<(), String> {
    match spec.keys().find(|key| !EVERYWHERE.contains(&key.as_str()) && !more.contains(&key.as_str())) {
        Some(key) => Err(format!("has the keyword \"{key}\", which would have no effect; remove it")),
        None => Ok(()),
    }
}

/// Checks the keywords of the root.
pub(super) fn check_root(document: &Map<String, Value>) -> Result<(), String> {
    check(document, &OBJECT)?;
    match document.get("additionalProperties") {
        None | Some(Value::Bool(false)) => Ok(()),
        Some(_) => Err("has \"additionalProperties\"; only false is true of it".to_owned()),
    }
}

/// Checks the keywords of a column, field, value or item of the type `word`.
pub(super) fn check_element(spec: &Map<String, Value>, word: &str) -> Result<(), String> {
    let more: &[&str] = match word {
        "object" => &OBJECT,
        "array" => &["items"],
        "integer" | "number" => &["format"],
        "string" => &["format", "contentEncoding"],
        _ => &[],
    };
    check(spec, more)?;
    if spec.get("properties").is_some_and(|properties| !properties.is_object()) {
        return Err("\"properties\" must be an object".to_owned());
    }
    match spec.get("additionalProperties") {
        None | Some(Value::Bool(false) | Value::Object(_)) => Ok(()),
        Some(_) => Err("\"additionalProperties\" must be false or a schema".to_owned()),
    }
}
