//! The rooms under test. Their sources are included rather than linked, so that a fuzz build needs neither SQLite
//! nor an HTTP server.

pub mod auth;
pub mod batches;
#[path = "../../src/schema/mod.rs"]
pub mod schema;
#[path = "../../src/wire/mod.rs"]
pub mod wire;

/// A schema with every kind of column, and one with few.
#[must_use]
pub fn schemas() -> [schema::Schema; 2] {
    [
        r#"{"properties":{"b":{"type":"boolean"},"i":{"type":["integer","null"],"format":"int32"},"l":{"type":"integer"},
        "f":{"type":["number","null"],"format":"float"},"d":{"type":"number"},"s":{"type":["string","null"]},
        "h":{"type":["string","null"],"contentEncoding":"base16"},"g":{"type":["string","null"],
        "contentEncoding":"base64","format":"bytes2"},"o":{"type":["object","null"],"properties":{"x":{"type":"integer"},
        "y":{"type":["array","null"],"items":{"type":["number","null"]}}},"required":["x"]},"m":{"type":["object","null"],
        "additionalProperties":{"type":["string","null"]}}},"required":["b","l","d"]}"#,
        r#"{"properties":{"id":{"type":"integer"},"price":{"type":["number","null"]}},"required":["id"]}"#,
    ]
    .map(|text| match schema::Schema::compile_text(text, true) {
        Ok(schema) => schema,
        Err(error) => panic!("{error}"),
    })
}
