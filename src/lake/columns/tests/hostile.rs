//! Schemas, rows and files that nobody would write.

use bytes::Bytes;
use proptest::prelude::*;

use super::support::{assert_same, canonical, path, read_file, schema, seal, stored};
use crate::lake::columns::rows::Rows;
use crate::lake::columns::{FileRows, Layout, Source, WriteOptions, describe, merge};

#[test]
fn a_thousand_columns() {
    let directory = tempfile::tempdir().expect("a directory");
    let specs: Vec<String> = (0..1000).map(|i| format!("\"c{i}\":{{\"type\":[\"integer\",\"null\"]}}")).collect();
    let schema = schema(&format!("{{{}}}", specs.join(",")));
    let layout = Layout::new(&schema).expect("a layout");
    let rows = (0..50).map(|i| canonical(&schema, &format!("{{\"c{}\":{i}}}", i * 19)).expect("a row"));
    let rows = stored(1, rows);
    let file = seal(&layout, directory.path(), &WriteOptions::new(&["c0".to_owned()]), &rows);
    assert_eq!(file.columns.len(), 1002);
    assert_same(&read_file(&layout, &file, i64::MIN, i64::MAX), &rows);
    assert!(Layout::from_arrow_schema_hex(&layout.arrow_schema_hex().expect("written")).expect("read") == layout);
}

/// A list in a struct in a list …, `depth` levels deep.
fn deep(depth: usize) -> (String, String) {
    let (mut spec, mut value) = (r#"{"type":"integer"}"#.to_owned(), "7".to_owned());
    for level in 0..depth {
        if level % 2 == 0 {
            spec = format!("{{\"type\":\"array\",\"items\":{spec}}}");
            value = format!("[{value}]");
        } else {
            spec = format!("{{\"type\":\"object\",\"properties\":{{\"a\":{spec}}},\"required\":[\"a\"]}}");
            value = format!("{{\"a\":{value}}}");
        }
    }
    (format!("{{\"d\":{spec}}}"), format!("{{\"d\":{value}}}"))
}

#[test]
fn deep_nesting() {
    let directory = tempfile::tempdir().expect("a directory");
    for depth in [1, 32, 36] {
        let (specs, row) = deep(depth);
        let schema = schema(&specs);
        let layout = Layout::new(&schema).expect("a layout");
        let rows = stored(1, [canonical(&schema, &row).expect("a row")]);
        let file = seal(&layout, directory.path(), &WriteOptions::new(&[]), &rows);
        assert_same(&read_file(&layout, &file, i64::MIN, i64::MAX), &rows);
        assert!(Layout::from_arrow_schema_hex(&layout.arrow_schema_hex().expect("written")).expect("read") == layout);
        let table = serde_json::to_string(&layout.iceberg_schema().expect("a schema")).expect("json");
        // As deep as it is in the metadata of a table.
        let document: serde_json::Value = serde_json::from_str(&format!("{{\"schemas\":[{table}]}}")).expect("json");
        assert!(document.is_object());
    }
    let error = Layout::new(&schema(&deep(37).0)).expect_err("refused").to_string();
    assert!(error.contains("nested"), "{error}");
}

#[test]
fn columns_that_no_table_has() {
    let table = [
        (r#"{"a":{"type":"string","contentEncoding":"base64","format":"bytes1048577"}}"#, "1048577 bytes"),
        (
            r#"{"a":{"type":"array","items":{"type":"string","contentEncoding":"base64","format":"bytes2000000000"}}}"#,
            "2000000000",
        ),
        (
            r#"{"a":{"type":"object","properties":{"b":{"type":"integer"}},"required":["b"]},"a.b":{"type":"integer"}}"#,
            "a.b",
        ),
    ];
    for (specs, why) in table {
        let error = Layout::new(&schema(specs)).expect_err(specs).to_string();
        assert!(error.starts_with("the schema cannot be a table: ") && error.contains(why), "{error}");
    }
    let odd = r#"{"a":{"type":"integer"},"":{"type":"integer"},"x.y":{"type":"integer"},"_":{"type":"integer"}}"#;
    Layout::new(&schema(odd)).expect("a layout");
}

#[test]
fn large_strings() {
    let directory = tempfile::tempdir().expect("a directory");
    let layout = Layout::new(&schema(r#"{"s":{"type":"string"},"n":{"type":"integer"}}"#)).expect("a layout");
    let line = |i: i64| format!("{{\"s\":\"{}\",\"n\":{i}}}", "é".repeat(1 << 19));
    let rows = stored(1, (0..20).map(line));
    let options = WriteOptions { row_group_bytes: 8 << 20, ..WriteOptions::new(&[]) };
    let file = seal(&layout, directory.path(), &options, &rows);
    assert!(file.split_offsets.len() > 2);
    assert!(file.columns.iter().all(|stats| stats.upper.as_ref().is_none_or(|bound| bound.len() <= 64)));
    assert_same(&read_file(&layout, &file, i64::MIN, i64::MAX), &rows);
    assert_same(&read_file(&layout, &file, 19, 21), &rows[18..20]);
}

#[test]
fn files_that_are_none() {
    let layout = Layout::new(&schema(r#"{"n":{"type":"integer"}}"#)).expect("a layout");
    for bytes in [&b""[..], b"PAR1", b"PAR1PAR1", b"PAR1\xff\xff\xff\x7fPAR1", b"no parquet file at all"] {
        let source = Source::memory("a file", Bytes::from_static(bytes));
        let error = FileRows::open(source.clone(), &layout, 0, 1).expect_err("refused").to_string();
        assert!(error.starts_with("cannot read a file: "), "{error}");
        assert!(describe(source, &layout, "").is_err());
    }
    // A file of other columns.
    let directory = tempfile::tempdir().expect("a directory");
    let other = Layout::new(&schema(r#"{"m":{"type":"integer"}}"#)).expect("a layout");
    let file = seal(&other, directory.path(), &WriteOptions::new(&[]), &stored(1, ["{\"m\":1}"]));
    let mut rows = FileRows::open(Source::file(path(&file)).expect("opens"), &layout, 0, 9).expect("opens");
    let error = rows.peek().expect_err("refused").to_string();
    assert!(error.contains("\"n\" is missing"), "{error}");
    assert!(rows.peek().is_err(), "it stays unreadable");
}

/// A small file with every kind of column.
fn any_file() -> (Layout, Vec<u8>) {
    let specs = r#"{"a":{"type":["integer","null"]},"s":{"type":"string"},"f":{"type":"number"},
        "l":{"type":["array","null"],"items":{"type":["string","null"]}},
        "m":{"type":"object","additionalProperties":{"type":"boolean"}}}"#;
    let layout = Layout::new(&schema(specs)).expect("a layout");
    let row = |i: i64| {
        format!("{{\"a\":{},\"s\":\"x{}\",\"f\":{i}.5,\"l\":[\"a\",null],\"m\":{{\"k{i}\":true}}}}", i * 3, i % 7)
    };
    let directory = tempfile::tempdir().expect("a directory");
    let options = WriteOptions { row_group_bytes: 8000, ..WriteOptions::new(&[]) };
    let file = seal(&layout, directory.path(), &options, &stored(1, (0..300).map(row)));
    (layout, std::fs::read(path(&file)).expect("read"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn damaged_files_are_errors_or_rows(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in prop_oneof![3 => Just(None), 1 => any::<prop::sample::Index>().prop_map(Some)],
        near_end in any::<bool>(),
    ) {
        thread_local! {
            static FILE: (Layout, Vec<u8>) = any_file();
        }
        FILE.with(|(layout, original)| {
            let mut bytes = original.clone();
            for (place, value) in &changes {
                // Half of the time in the footer, which is where most of the sense is.
                let start = if near_end { bytes.len().saturating_sub(2500) } else { 0 };
                let place = start + place.index(bytes.len() - start);
                bytes[place] = *value;
            }
            if let Some(cut) = cut {
                bytes.truncate(cut.index(bytes.len()));
            }
            let source = Source::memory("a file", Bytes::from(bytes));
            let _ = describe(source.clone(), layout, "");
            let directory = tempfile::tempdir().expect("a directory");
            let _ = merge(std::slice::from_ref(&source), layout, directory.path(), 1, &WriteOptions::new(&[]));
            if let Ok(mut rows) = FileRows::open(source, layout, 0, i64::MAX) {
                while let Ok(Some(_)) = rows.peek() {
                    rows.advance();
                }
            }
        });
    }
}

proptest! {
    #[test]
    fn damaged_lines_are_errors_or_rows(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
        cut in proptest::option::of(any::<prop::sample::Index>()),
    ) {
        const SPECS: &str = r#"{"a":{"type":["integer","null"]},"s":{"type":"string"},"f":{"type":"number","format":"float"},
            "b":{"type":"boolean"},"x":{"type":["string","null"],"contentEncoding":"base16","format":"bytes2"},
            "l":{"type":["array","null"],"items":{"type":["string","null"]}},"y":{"type":"string","contentEncoding":"base64"},
            "m":{"type":"object","additionalProperties":{"type":["object","null"],"properties":{
                "i":{"type":"integer","format":"int32"}},"required":["i"]}}}"#;
        const LINE: &str = concat!(
            r#"{"a":-12,"s":"a\u0001\"é","f":0.25,"b":true,"x":"00ff","l":["\n",null],"y":"AQI=","#,
            r#""m":{"k":{"i":7},"":null}}"#,
        );
        let layout = Layout::new(&schema(SPECS)).expect("a layout");
        let mut rows = Rows::new(layout.clone());
        rows.push(1, 0, LINE.as_bytes()).expect("a row");
        let mut line = LINE.as_bytes().to_vec();
        for (place, value) in changes {
            let place = place.index(line.len());
            line[place] = value;
        }
        if let Some(cut) = cut {
            line.truncate(cut.index(line.len()));
        }
        if rows.push(2, 0, &line).is_ok() {
            let batch = rows.finish().expect("a batch");
            prop_assert_eq!(batch.num_rows(), 2);
        }
    }
}
