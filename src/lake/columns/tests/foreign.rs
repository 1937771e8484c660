//! Files and descriptions of the Python reference: `fixtures/` was written by it, `rows.ndjson` by its own codec.

use std::path::{Path, PathBuf};

use super::support::{Stored, assert_same, read, read_file};
use crate::lake::columns::ingest::{self, ChunkWriter};
use crate::lake::columns::{FileRows, Layout, Source, WriteOptions, describe, first_offset_after};
use crate::schema::Schema;

pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lake/columns/tests/fixtures").join(name)
}

fn text(name: &str) -> String {
    std::fs::read_to_string(fixture(name)).expect("a fixture")
}

fn layout() -> Layout {
    Layout::new(&Schema::compile_text(&text("schema.json"), true).expect("a schema")).expect("a layout")
}

fn rows() -> Vec<Stored> {
    let row = |line: &str| {
        let (stamp, row) = line.split_once(' ').expect("two parts");
        let (offset, ts_us) = serde_json::from_str(stamp).expect("offset and stamp");
        (offset, ts_us, row.to_owned())
    };
    text("rows.ndjson").lines().map(row).collect()
}

fn read_fixture(layout: &Layout, name: &str) -> Vec<Stored> {
    let source = Source::file(&fixture(name)).expect("opens");
    read(FileRows::open(source, layout, i64::MIN, i64::MAX).unwrap_or_else(|error| panic!("{name}: {error}")))
}

#[test]
fn a_sealed_file_of_the_reference_is_read() {
    // It has no field ids, is sorted by other columns, and its row groups overlap.
    let layout = layout();
    assert_same(&read_fixture(&layout, "reference.parquet"), &rows());
    let file = describe(Source::file(&fixture("reference.parquet")).expect("opens"), &layout, "file:///x");
    let file = file.expect("described");
    assert_eq!((file.start, file.end, file.rows, file.ts_us.1), (1, 41, 40, 1_795_979_200_460_621));
    let ids: Vec<i32> = file.columns.iter().map(|stats| stats.field_id).collect();
    assert_eq!(ids, [1, 2, 3, 4, 5, 6, 7, 8, 9, 17, 15, 18, 19, 20, 13], "{ids:?}");
}

#[test]
fn the_first_row_after_a_moment_is_found() {
    let (layout, rows) = (layout(), rows());
    for name in ["reference.parquet", "codec_none.parquet"] {
        for ts_us in [0, rows[0].1, rows[2].1, rows[30].1, rows[39].1] {
            let known = if name == "reference.parquet" { &rows[..] } else { &rows[..5] };
            let expected = known.iter().find(|row| row.1 > ts_us).map(|row| row.0);
            let found = first_offset_after(Source::file(&fixture(name)).expect("opens"), &layout, ts_us);
            assert_eq!(found.expect("read"), expected, "{name} {ts_us}");
        }
    }
}

#[test]
fn other_shapes_of_the_same_rows_are_read() {
    // A 32-bit integer under a long, plain binary under a fixed one, no statistics, no Arrow schema, `item` instead of
    // `element`, other codecs and encodings, and without the columns that may be null.
    let document = r#"{"type":"object","properties":{"event_ts":{"type":"integer"},"gone":{"type":["string","null"]},
        "price":{"type":"number"},"key":{"type":"string","contentEncoding":"base16","format":"bytes4"},
        "blobs":{"type":"array","items":{"type":"string","contentEncoding":"base16"}}},
        "required":["event_ts","price","key","blobs"]}"#;
    let layout = Layout::new(&Schema::compile_text(document, true).expect("a schema")).expect("a layout");
    let expected: Vec<Stored> = rows()
        .into_iter()
        .map(|(offset, ts_us, line)| {
            let row: serde_json::Value = serde_json::from_str(&line).expect("json");
            let raw = |name: &str| {
                let start = line.find(&format!("\"{name}\":")).expect("there") + name.len() + 3;
                line[start..].split(",\"").next().expect("a value").to_owned()
            };
            let (ts, key, blobs) = (&row["event_ts"], &row["key"], &row["blobs"]);
            let line = format!(
                "{{\"event_ts\":{ts},\"gone\":null,\"price\":{},\"key\":{key},\"blobs\":{blobs}}}",
                raw("price")
            );
            (offset, ts_us, line)
        })
        .collect();
    assert_same(&read_fixture(&layout, "foreign.parquet"), &expected);
    for codec in ["none", "snappy", "gzip", "brotli", "zstd"] {
        assert_same(&read_fixture(&layout, &format!("codec_{codec}.parquet")), &expected[..5]);
    }
    let file = describe(Source::file(&fixture("foreign.parquet")).expect("opens"), &layout, "file:///x");
    let file = file.expect("described, though there are no statistics");
    assert_eq!((file.start, file.end, file.rows), (1, 41, 40));
    assert!(file.columns.iter().all(|stats| stats.lower.is_none()));
}

#[test]
fn arrow_sources_of_the_reference_are_loaded() {
    let (layout, expected) = (layout(), rows());
    for name in ["source.arrow", "source.arrows", "dictionary.arrow"] {
        let directory = tempfile::tempdir().expect("a directory");
        let mut writer = ChunkWriter::create(&layout, directory.path(), &WriteOptions::new(&[])).expect("created");
        let mut next = 1;
        for chunk in ingest::Source::open(&fixture(name), None, &layout).expect("opens") {
            let chunk = chunk.unwrap_or_else(|error| panic!("{name}: {error}"));
            writer.push(&chunk, next, 5).expect("taken");
            next += chunk.rows as i64;
        }
        let file = writer.finish_named().expect("written");
        let rows: Vec<Stored> = expected.iter().map(|(offset, _, line)| (*offset, 5, line.clone())).collect();
        assert_same(&read_file(&layout, &file, i64::MIN, i64::MAX), &rows);
    }
}

#[test]
fn the_recorded_arrow_schema_is_that_of_the_reference() {
    let layout = layout();
    let reference = text("arrow_schema.hex");
    let there = Layout::from_arrow_schema_hex(&reference).expect("read");
    assert!(there == layout, "{:?}", there.schema().canonical());
    let ours = layout.arrow_schema_hex().expect("written");
    assert!(ours.starts_with("ffffffff") && ours.len().is_multiple_of(16));
    assert!(Layout::from_arrow_schema_hex(&ours).expect("read") == layout);
    for damaged in ["", "zz", "ffffffff", &reference[..200], &format!("00{reference}")] {
        assert!(Layout::from_arrow_schema_hex(damaged).is_err(), "{damaged}");
    }
}

#[test]
fn documents_and_tables_describe_the_same_layout() {
    let layout = layout();
    let system = serde_json::json!({"properties": {"streamcast_ts": {"type": "integer", "format": "int64"}}});
    let schema = serde_json::from_str(&text("schema.json")).expect("json");
    assert!(Layout::from_document(&schema, &system).expect("read") == layout);
    assert!(Layout::from_document(&schema, &serde_json::json!({})).is_err());
    let iceberg = layout.iceberg_schema().expect("a schema");
    let again = Layout::from_iceberg_schema(&iceberg).expect("read");
    // A table does not say how bytes are written, and nothing else is lost.
    assert_eq!(layout.conflict(&again), None);
    assert_eq!(again.arrow().fields().len(), layout.arrow().fields().len());
}

#[test]
fn ids_and_names_of_the_table() {
    let document = r#"{"type":"object","properties":{
        "a":{"type":"object","properties":{"x":{"type":"integer"},"y":{"type":"array","items":{"type":"object",
            "properties":{"z":{"type":"integer"}},"required":["z"]}}},"required":["x","y"]},
        "m":{"type":["object","null"],"additionalProperties":{"type":"array","items":{"type":"string"}}}},"required":["a"]}"#;
    let layout = Layout::new(&Schema::compile_text(document, true).expect("a schema")).expect("a layout");
    let mapping: serde_json::Value = serde_json::from_str(&layout.name_mapping()).expect("json");
    let expected = serde_json::json!([
        {"names": ["litelink_offset"], "field-id": 1},
        {"names": ["a"], "field-id": 2, "fields": [
            {"names": ["x"], "field-id": 5},
            {"names": ["y"], "field-id": 6, "fields": [{"names": ["element"], "field-id": 7, "fields": [
                {"names": ["z"], "field-id": 8}]}]}]},
        {"names": ["m"], "field-id": 3, "fields": [
            {"names": ["key"], "field-id": 9},
            {"names": ["value"], "field-id": 10, "fields": [{"names": ["element"], "field-id": 11}]}]},
        {"names": ["streamcast_ts"], "field-id": 4}]);
    assert_eq!(mapping, expected);
    let schema = serde_json::to_value(layout.iceberg_schema().expect("a schema")).expect("json");
    assert_eq!(
        schema["fields"][0],
        serde_json::json!({"id": 1, "name": "litelink_offset", "required": true, "type": "long"})
    );
    assert_eq!(schema["fields"][2]["type"]["value"]["element-id"], 11);
    assert_eq!(schema["fields"][3]["name"], "streamcast_ts");
}

#[test]
fn types_never_change() {
    let layout = |properties: &str| Layout::new(&super::support::schema(properties)).expect("a layout");
    let before = layout(r#"{"a":{"type":"integer"},"l":{"type":"array","items":{"type":"string"}}}"#);
    let same = layout(r#"{"b":{"type":"string"},"a":{"type":["integer","null"]}}"#);
    assert_eq!(before.conflict(&same), None);
    let other = layout(r#"{"a":{"type":"integer","format":"int32"}}"#);
    assert!(before.conflict(&other).expect("a conflict").contains("\"a\" is Int64 and cannot become Int32"));
    let inside = layout(r#"{"l":{"type":"array","items":{"type":["string","null"]}}}"#);
    assert!(before.conflict(&inside).is_some());
}
