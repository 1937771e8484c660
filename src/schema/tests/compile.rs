//! The compiler and the canonical form (wire.md section 12).

use serde_json::{Value, json};

use crate::schema::{MAX_CANONICAL_BYTES, MAX_NESTING, Schema};

/// The schema with one required column `c`.
fn root(spec: Value) -> Value {
    json!({"type": "object", "properties": {"c": spec}, "required": ["c"]})
}

fn canonical(document: &Value) -> Option<String> {
    Schema::compile(document, true).ok().map(|schema| schema.canonical().to_owned())
}

/// Checks the canonical form of the column `c`, without its frame.
fn accepted(spec: Value, expected: &str) {
    let frame = format!("{{\"type\":\"object\",\"properties\":{{\"c\":{expected}}},\"required\":[\"c\"]}}");
    assert_eq!(canonical(&root(spec.clone())).as_deref(), Some(frame.as_str()), "{spec}");
    let again: Value = serde_json::from_str(&frame).unwrap();
    assert_eq!(canonical(&again).as_deref(), Some(frame.as_str()), "the canonical form is not a fixed point: {frame}");
}

fn refused(document: Value) {
    assert_eq!(canonical(&document), None, "{document}");
}

#[test]
fn scalars() {
    accepted(json!({"type": "boolean"}), r#"{"type":"boolean"}"#);
    accepted(json!({"type": "integer"}), r#"{"type":"integer","format":"int64"}"#);
    accepted(json!({"format": "int64", "type": "integer"}), r#"{"type":"integer","format":"int64"}"#);
    accepted(json!({"type": "integer", "format": "int32"}), r#"{"type":"integer","format":"int32"}"#);
    accepted(json!({"type": "number", "title": 1}), r#"{"type":"number","format":"double"}"#);
    accepted(json!({"type": "number", "format": "double"}), r#"{"type":"number","format":"double"}"#);
    accepted(json!({"type": "number", "format": "float"}), r#"{"type":"number","format":"float"}"#);
    accepted(json!({"type": "string"}), r#"{"type":"string"}"#);
    accepted(json!({"type": ["string"]}), r#"{"type":"string"}"#);
    accepted(json!({"type": "integer", "format": 32}), r#"{"type":"integer","format":"int64"}"#);
    accepted(json!({"type": "integer", "contentEncoding": "base16"}), r#"{"type":"integer","format":"int64"}"#);
}

#[test]
fn binary() {
    accepted(json!({"type": "string", "contentEncoding": "base16"}), r#"{"type":"string","contentEncoding":"base16"}"#);
    accepted(
        json!({"type": "string", "contentEncoding": "base64", "format": "bytes08"}),
        r#"{"type":"string","contentEncoding":"base64","format":"bytes8"}"#,
    );
    accepted(
        json!({"type": "string", "contentEncoding": "base64", "format": "bytes0"}),
        r#"{"type":"string","contentEncoding":"base64","format":"bytes0"}"#,
    );
    for format in ["bytes", "bytes-1", "bytes+1", "bytes 1", "Bytes1", "byte", "bytes2147483648", "bytes1 "] {
        refused(root(json!({"type": "string", "contentEncoding": "base64", "format": format})));
    }
    for encoding in [json!("base32"), json!("BASE64"), json!(""), Value::Null] {
        refused(root(json!({"type": "string", "contentEncoding": encoding})));
    }
    refused(root(json!({"type": "string", "contentEncoding": "base16", "format": 2})));
    refused(root(json!({"type": "string", "format": "bytes4"})));
}

#[test]
fn nested() {
    let int = r#"{"type":"integer","format":"int64"}"#;
    accepted(
        json!({"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": ["null", "string"]}}, "required": ["x"]}),
        &format!(
            r#"{{"type":"object","properties":{{"x":{int},"y":{{"type":["string","null"]}}}},"required":["x"],"additionalProperties":false}}"#
        ),
    );
    let map = format!(r#"{{"type":"object","additionalProperties":{int}}}"#);
    accepted(json!({"type": "object", "additionalProperties": {"type": "integer"}}), &map);
    accepted(json!({"type": "object", "properties": {}, "additionalProperties": {"type": "integer"}}), &map);
    accepted(json!({"type": "object", "properties": null, "additionalProperties": {"type": "integer"}}), &map);
    accepted(json!({"type": "array", "items": {"type": "integer"}}), &format!(r#"{{"type":"array","items":{int}}}"#));
    accepted(
        json!({"type": "array", "items": {"type": ["integer", "null"]}}),
        r#"{"type":"array","items":{"type":["integer","null"],"format":"int64"}}"#,
    );
    for spec in [
        json!({"type": "object"}),
        json!({"type": "object", "properties": {}}),
        json!({"type": "object", "properties": {"x": {"type": "integer"}}}),
        json!({"type": "object", "properties": {"x": {"type": "integer"}}, "required": "x"}),
        json!({"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["y"]}),
        json!({"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"], "additionalProperties": {"type": "integer"}}),
        json!({"type": "object", "additionalProperties": true}),
        json!({"type": "object", "additionalProperties": {}}),
        json!({"type": "array"}),
        json!({"type": "array", "items": true}),
        json!({"type": "array", "items": [{"type": "integer"}]}),
    ] {
        refused(root(spec));
    }
}

#[test]
fn types_and_formats_that_are_refused() {
    for word in [
        json!("decimal"),
        json!("null"),
        json!(["null"]),
        json!([]),
        json!(1),
        json!(["integer", "string"]),
        json!(["integer", "integer"]),
        json!(["integer", "string", "null"]),
        json!(["integer", null]),
        Value::Null,
    ] {
        refused(root(json!({"type": word})));
    }
    for (word, format) in [
        ("integer", "int16"),
        ("integer", "uint32"),
        ("integer", "double"),
        ("number", "int64"),
        ("string", "uuid"),
        ("string", "date-time"),
        ("string", "date"),
        ("string", "time"),
        ("string", "byte"),
        ("string", "binary"),
        ("boolean", "x"),
    ] {
        refused(root(json!({"type": word, "format": format})));
    }
    refused(root(json!({})));
    refused(root(json!(1)));
}

#[test]
fn roots() {
    let int = json!({"type": "integer"});
    for document in [
        json!([1]),
        json!(null),
        json!({"type": ["object"], "properties": {"a": int}, "required": ["a"]}),
        json!({"type": "array", "items": int}),
        json!({"type": "object"}),
        json!({"type": "object", "properties": {}}),
        json!({"type": "object", "properties": [1]}),
        json!({"type": "object", "properties": {"a": int}}),
        json!({"type": "object", "properties": {"a": int}, "required": "a"}),
        json!({"type": "object", "properties": {"a": int}, "required": null}),
        json!({"type": "object", "properties": {"a": int}, "required": ["a", "b"]}),
        json!({"type": "object", "properties": {"a": int}, "required": ["a", 1]}),
    ] {
        refused(document);
    }
    let expected = r#"{"type":"object","properties":{"a":{"type":"integer","format":"int64"}},"required":["a"]}"#;
    for document in [
        json!({"properties": {"a": int}, "required": ["a"]}),
        json!({"type": null, "properties": {"a": int}, "required": ["a", "a"]}),
        json!({"properties": {"a": int}, "required": ["a"], "additionalProperties": {"type": "string"}, "$schema": "x"}),
    ] {
        assert_eq!(canonical(&document).as_deref(), Some(expected), "{document}");
    }
}

#[test]
fn nullability() {
    assert_eq!(
        canonical(&json!({"properties": {"b": {"type": ["null", "integer", "null"]}, "a": {"type": "boolean"}}, "required": ["b", "a"]})).as_deref(),
        Some(
            r#"{"type":"object","properties":{"b":{"type":["integer","null"],"format":"int64"},"a":{"type":"boolean"}},"required":["a"]}"#
        )
    );
}

#[test]
fn names() {
    let document = |names: &[&str]| {
        let properties: serde_json::Map<String, Value> =
            names.iter().map(|name| ((*name).to_owned(), json!({"type": "integer"}))).collect();
        json!({"properties": properties, "required": names})
    };
    for (names, durable, live) in [
        (&["streamcast_ts"][..], false, false),
        (&["litelink_offset"], false, false),
        (&["STREAMCAST_TS"], false, true),
        (&["LiteLink_Offset"], false, true),
        (&["a", "A"], false, true),
        (&["a\"b"], false, true),
        (&["a\0b"], false, true),
        (&["\u{c9}", "\u{e9}"], true, true),
        (&["", " ", "a b", "c.d", "\u{e9}", "a'b"], true, true),
    ] {
        assert_eq!(Schema::compile(&document(names), true).is_ok(), durable, "durable {names:?}");
        assert_eq!(Schema::compile(&document(names), false).is_ok(), live, "live {names:?}");
        assert!(Schema::compile_types(&document(names)).is_ok(), "types {names:?}");
    }
    let inside = json!({"type": "object", "properties": {"streamcast_ts": {"type": "integer"}, "a": {"type": "integer"},
        "A": {"type": "integer"}}, "required": ["streamcast_ts", "a", "A"]});
    assert!(Schema::compile(&root(inside), true).is_ok());
}

#[test]
fn limits() {
    let nested = |levels: usize| {
        (0..levels).fold(json!({"type": "integer"}), |items, _| json!({"type": "array", "items": items}))
    };
    assert!(Schema::compile(&root(nested(MAX_NESTING)), true).is_ok());
    assert!(Schema::compile(&root(nested(MAX_NESTING + 1)), true).is_err());

    let long = |bytes: usize| {
        let name = "n".repeat(bytes);
        Schema::compile(&json!({"properties": {name: {"type": ["string", "null"]}}}), true)
    };
    let frame = long(0).unwrap().canonical().len();
    assert_eq!(long(MAX_CANONICAL_BYTES - frame).unwrap().canonical().len(), MAX_CANONICAL_BYTES);
    let error = long(MAX_CANONICAL_BYTES - frame + 1).unwrap_err().to_string();
    assert!(error.contains("524289 bytes"), "{error}");
}

#[test]
fn the_control_api_is_stricter() {
    let int = json!({"type": "integer"});
    let strict = |document: &Value| Schema::compile_strict(document, true).is_ok();
    for document in [
        root(int.clone()),
        json!({"type": "object", "title": 1, "description": [], "properties": {"a": {"type": "integer", "title": {}}}, "required": ["a"], "additionalProperties": false}),
        root(json!({"type": "object", "additionalProperties": {"type": "array", "items": {"type": "string"}}})),
        root(json!({"type": "string", "contentEncoding": "base16", "format": "bytes2"})),
    ] {
        assert!(strict(&document), "{document}");
    }
    for document in [
        root(json!({"type": "integer", "enum": [1]})),
        root(json!({"type": "integer", "minimum": 0})),
        root(json!({"type": "string", "items": {}})),
        root(json!({"type": "integer", "contentEncoding": "base16"})),
        root(json!({"type": "array", "items": {"type": "integer", "maximum": 1}})),
        root(json!({"type": "object", "properties": {"x": int}, "required": ["x"], "additionalProperties": true})),
        root(json!({"type": "object", "properties": null, "additionalProperties": int})),
        json!({"$schema": "x", "properties": {"a": int}, "required": ["a"]}),
        json!({"properties": {"a": int}, "required": ["a"], "additionalProperties": true}),
        json!({"properties": {"a": int}, "required": ["a"], "additionalProperties": int}),
        json!({"properties": {"litelink_offset": int}, "required": ["litelink_offset"]}),
    ] {
        assert!(!strict(&document), "{document}");
    }
}

#[test]
fn errors_name_the_column() {
    let error = |document: &Value| Schema::compile(document, true).unwrap_err().to_string();
    let document = root(json!({"type": "array", "items": {"type": "object", "additionalProperties": {"type": "x"}}}));
    assert_eq!(error(&document), "column c[]{}: has the unknown type \"x\"");
    let document = root(json!({"type": "object", "properties": {"x": {"type": "integer"}}}));
    assert!(error(&document).starts_with("column c.x: may be absent"), "{}", error(&document));
    assert!(Schema::compile_text("{", true).unwrap_err().to_string().starts_with("the schema is not json"));
}
