//! Making files of rows, and reading them.

use std::path::Path;

use crate::lake::DataFile;
use crate::lake::columns::{FileName, FileRows, Layout, Sealer, Source, WriteOptions};
use crate::schema::json::{Json, parse};
use crate::schema::{Schema, push_row};

pub type Stored = (i64, i64, String);

pub fn schema(properties: &str) -> Schema {
    let required: Vec<String> = serde_json::from_str::<serde_json::Value>(properties)
        .expect("json")
        .as_object()
        .expect("an object")
        .iter()
        .filter(|(_, spec)| !spec["type"].is_array())
        .map(|(name, _)| serde_json::to_string(name).expect("json"))
        .collect();
    let text = format!("{{\"type\":\"object\",\"properties\":{properties},\"required\":[{}]}}", required.join(","));
    Schema::compile_text(&text, true).expect("a schema")
}

pub fn canonical(schema: &Schema, row: &str) -> Option<String> {
    let Ok(Json::Object(members)) = parse(row.as_bytes()) else { return None };
    let row = Json::Object(members);
    let crate::schema::View::Object(entries) = crate::schema::Node::view(&row) else { return None };
    let mut line = Vec::new();
    push_row::<&Json>(&mut line, schema, entries, false).ok()?;
    String::from_utf8(line).ok()
}

/// `lines` from offset `start` on, each with another stamp.
pub fn stored(start: i64, lines: impl IntoIterator<Item = impl Into<String>>) -> Vec<Stored> {
    (start..).zip(lines).map(|(offset, line)| (offset, 1_700_000_000_000_000 + offset / 3, line.into())).collect()
}

pub fn seal(layout: &Layout, directory: &Path, options: &WriteOptions, rows: &[Stored]) -> DataFile {
    let mut sealer = Sealer::create(layout, directory, options).expect("created");
    for (offset, ts_us, line) in rows {
        sealer.push(*offset, *ts_us, line.as_bytes()).expect("taken");
    }
    sealer.finish_named(FileName::Extent).expect("written")
}

pub fn path(file: &DataFile) -> &Path {
    Path::new(file.uri.strip_prefix("file://").expect("a local file"))
}

pub fn read(mut rows: FileRows) -> Vec<Stored> {
    let mut all = Vec::new();
    while let Some(row) = rows.peek().expect("readable") {
        all.push((row.offset, row.ts_us, String::from_utf8(row.line.to_vec()).expect("utf-8")));
        rows.advance();
    }
    all
}

pub fn read_file(layout: &Layout, file: &DataFile, from: i64, until: i64) -> Vec<Stored> {
    let source = Source::file(path(file)).expect("opens");
    read(FileRows::open(source, layout, from, until).expect("opens"))
}

/// Compares rows without printing all of them.
#[track_caller]
pub fn assert_same(found: &[Stored], expected: &[Stored]) {
    if let Some(at) = found.iter().zip(expected).position(|(a, b)| a != b) {
        panic!("row {at} is {:?} and should be {:?}", found[at], expected[at]);
    }
    assert_eq!(found.len(), expected.len());
}
