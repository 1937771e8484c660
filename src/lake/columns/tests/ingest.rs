//! Bulk sources: every format, and everything that is refused.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, DictionaryArray, Float64Array, Int8Array, Int32Array, Int64Array, LargeStringArray,
    ListArray, MapBuilder, RecordBatch, StringArray, StringBuilder,
};
use arrow::datatypes::{DataType, Field, Int32Type, Schema as ArrowSchema};
use arrow::ipc::writer::{FileWriter, StreamWriter};
use parquet::arrow::ArrowWriter;
use proptest::prelude::*;

use super::foreign::fixture;
use super::support::{assert_same, read_file, schema, stored};
use crate::lake::columns::ingest::{ChunkWriter, Format, IngestError, ReadAhead, Source};
use crate::lake::columns::{Layout, WriteOptions};

const SPECS: &str = r#"{"id":{"type":"integer"},"px":{"type":"number"},"n":{"type":["integer","null"],"format":"int32"},
    "s":{"type":"string"},"raw":{"type":["string","null"],"contentEncoding":"base16"}}"#;

fn layout(specs: &str) -> Layout {
    Layout::new(&schema(specs)).expect("a layout")
}

/// Columns in another order, of other types that can be cast.
fn table() -> RecordBatch {
    let keys = DictionaryArray::<Int32Type>::from_iter(["a", "b", "a"]);
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("s", Arc::new(keys)),
        ("raw", Arc::new(BinaryArray::from_opt_vec(vec![Some(b"\x01\x02"), None, Some(b"")]))),
        ("n", Arc::new(Int8Array::from(vec![Some(-1), None, Some(7)]))),
        ("px", Arc::new(Int64Array::from(vec![1, 2, 3]))),
        ("id", Arc::new(Float64Array::from(vec![-5.0, 6.0, 7.0]))),
    ];
    RecordBatch::try_from_iter(columns).expect("a batch")
}

const EXPECTED: [&str; 3] = [
    r#"{"id":-5,"px":1.0,"n":-1,"s":"a","raw":"0102"}"#,
    r#"{"id":6,"px":2.0,"n":null,"s":"b","raw":null}"#,
    r#"{"id":7,"px":3.0,"n":7,"s":"a","raw":""}"#,
];

fn write_parquet(path: &Path, batch: &RecordBatch) {
    let file = fs::File::create(path).expect("created");
    let mut writer = ArrowWriter::try_new(file, batch.schema(), None).expect("a writer");
    writer.write(batch).expect("written");
    writer.close().expect("closed");
}

fn load(layout: &Layout, path: &Path, directory: &Path) -> Result<crate::lake::DataFile, IngestError> {
    let source = Source::open(path, None, layout)?;
    let options = WriteOptions { threads: 2, ..WriteOptions::new(&[]) };
    let mut writer = ChunkWriter::create(layout, directory, &options)?;
    let mut next = 101;
    for chunk in ReadAhead::start(source).expect("a thread") {
        let chunk = chunk?;
        assert_eq!(chunk.first_row, next as u64 - 101);
        writer.push(&chunk, next, 77)?;
        next += chunk.rows as i64;
    }
    Ok(writer.finish_named()?)
}

#[test]
fn every_format_is_recognised_and_cast() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name);
    let layout = layout(SPECS);
    write_parquet(&at("a.bin"), &table());
    let mut writer =
        FileWriter::try_new(fs::File::create(at("b.bin")).expect("created"), &table().schema()).expect("a writer");
    writer.write(&table()).expect("written");
    writer.finish().expect("finished");
    let mut writer =
        StreamWriter::try_new(fs::File::create(at("c.bin")).expect("created"), &table().schema()).expect("a writer");
    writer.write(&table()).expect("written");
    writer.finish().expect("finished");
    fs::write(at("d.csv"), "\u{feff}s,raw,n,px,id\r\na,0102,-1,1,-5\r\n\r\n\"b\",,,2e0,6\r\na,\"\",7,3.0,7")
        .expect("written");
    fs::write(
        at("e.bin"),
        " {\"s\":\"a\",\"raw\":\"01 02\",\"n\":-1,\"px\":1,\"id\":-5}\n\n{\"s\":\"b\",\"px\":2.0,\"id\":6}\r\n{\"id\":7,\"px\":3,\"n\":7,\"s\":\"a\",\"raw\":\"\"}",
    )
    .expect("written");
    let formats = [
        ("a.bin", Format::Parquet),
        ("b.bin", Format::ArrowFile),
        ("c.bin", Format::ArrowStream),
        ("d.csv", Format::Csv),
        ("e.bin", Format::Ndjson),
    ];
    for (name, format) in formats {
        let source = Source::open(&at(name), None, &layout).expect("opens");
        assert_eq!(source.format(), format, "{name}");
        assert_eq!(source.rows_total(), (format == Format::Parquet).then_some(3));
        let file = load(&layout, &at(name), &at("out")).unwrap_or_else(|error| panic!("{name}: {error}"));
        let rows = stored(101, EXPECTED).into_iter().map(|(offset, _, line)| (offset, 77, line));
        let mut rows: Vec<_> = rows.collect();
        if format == Format::Csv {
            // An empty cell is null where null may be.
            rows[2].2 = rows[2].2.replace("\"raw\":\"\"", "\"raw\":null");
        }
        assert_same(&read_file(&layout, &file, i64::MIN, i64::MAX), &rows);
    }
}

#[test]
fn large_sources_come_in_pieces() {
    let directory = tempfile::tempdir().expect("a directory");
    let layout = layout(r#"{"id":{"type":"integer"},"l":{"type":"array","items":{"type":"integer"}}}"#);
    let count = 200_000;
    let lists = ListArray::from_iter_primitive::<arrow::datatypes::Int64Type, _, _>(
        (0..count).map(|i| Some(vec![Some(i), Some(i + 1)])),
    );
    let columns: Vec<(&str, ArrayRef)> =
        vec![("l", Arc::new(lists)), ("id", Arc::new(Int32Array::from_iter_values(0..count as i32)))];
    let batch = RecordBatch::try_from_iter(columns).expect("a batch");
    let path = directory.path().join("a");
    let mut writer = FileWriter::try_new(fs::File::create(&path).expect("created"), &batch.schema()).expect("a writer");
    writer.write(&batch).expect("written");
    writer.finish().expect("finished");
    let pieces: Vec<usize> =
        Source::open(&path, None, &layout).expect("opens").map(|chunk| chunk.expect("a chunk").rows).collect();
    assert!(pieces.len() > 2 && pieces.iter().sum::<usize>() == 200_000, "{pieces:?}");
    let file = load(&layout, &path, directory.path()).expect("loaded");
    let rows: Vec<_> = (0..count).map(|i| (101 + i, 77, format!("{{\"id\":{i},\"l\":[{i},{}]}}", i + 1))).collect();
    assert_same(&read_file(&layout, &file, i64::MIN, i64::MAX), &rows);
}

/// What the source of one column `c` is refused for.
fn refused(spec: &str, column: ArrayRef) -> String {
    let directory = tempfile::tempdir().expect("a directory");
    let layout = layout(&format!("{{\"c\":{spec}}}"));
    let path = directory.path().join("a");
    write_parquet(&path, &RecordBatch::try_from_iter(vec![("c", column)]).expect("a batch"));
    load(&layout, &path, directory.path()).expect_err("refused").to_string()
}

#[test]
fn rows_that_do_not_fit_are_told_by_number() {
    let doubles = |values: &[f64]| -> ArrayRef { Arc::new(Float64Array::from(values.to_vec())) };
    let ints = |values: &[i64]| -> ArrayRef { Arc::new(Int64Array::from(values.to_vec())) };
    let long: Vec<i64> = (0..100_000).map(|i| if i == 90_000 { i64::MAX } else { i }).collect();
    let list = |values: Vec<Option<f64>>| -> ArrayRef {
        Arc::new(ListArray::from_iter_primitive::<arrow::datatypes::Float64Type, _, _>([
            Some(vec![Some(1.0)]),
            Some(values),
        ]))
    };
    let mut map = MapBuilder::new(None, StringBuilder::new(), StringBuilder::new());
    for keys in [["a", "b"], ["b", "b"]] {
        for key in keys {
            map.keys().append_value(key);
            map.values().append_value("x");
        }
        map.append(true).expect("appended");
    }
    let integer = r#"{"type":"integer"}"#;
    let number = r#"{"type":"number"}"#;
    let table: [(&str, ArrayRef, u64, &str); 13] = [
        (number, doubles(&[1.0, f64::NAN]), 2, "finite"),
        (number, doubles(&[f64::INFINITY]), 1, "finite"),
        (number, ints(&[1, (1 << 53) + 1]), 2, "no equal"),
        (r#"{"type":"number","format":"float"}"#, doubles(&[1.0, 1e300]), 2, "finite"),
        (integer, doubles(&[1.0, 2.0, 2.5]), 3, "no equal"),
        (integer, Arc::new(Int64Array::from(vec![Some(1), None])), 2, "null"),
        (integer, Arc::new(LargeStringArray::from(vec!["1", "x"])), 2, "x"),
        (r#"{"type":"integer","format":"int32"}"#, ints(&long), 90_001, "9223372036854775807"),
        (r#"{"type":"array","items":{"type":"number"}}"#, list(vec![Some(f64::NAN)]), 2, "finite"),
        (r#"{"type":"array","items":{"type":"number"}}"#, list(vec![None]), 2, "null"),
        (r#"{"type":"object","additionalProperties":{"type":["string","null"]}}"#, Arc::new(map.finish()), 2, "twice"),
        (
            r#"{"type":"string","contentEncoding":"base64","format":"bytes2"}"#,
            Arc::new(BinaryArray::from_vec(vec![b"ab", b"abc"])),
            2,
            "",
        ),
        (r#"{"type":"boolean"}"#, Arc::new(StringArray::from(vec!["true", "maybe"])), 2, "maybe"),
    ];
    for (spec, column, row, why) in table {
        let text = refused(spec, column);
        assert!(text.contains(&format!("row {row} of ")) && text.contains(why), "{spec}: {text}");
    }
    let text = refused(r#"{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]}"#, ints(&[1]));
    assert!(text.contains("does not become"), "{text}");
}

#[test]
fn lines_and_cells_that_do_not_fit_are_told_by_number() {
    let directory = tempfile::tempdir().expect("a directory");
    let layout = layout(SPECS);
    let good = "{\"id\":1,\"px\":1,\"s\":\"\"}\n";
    let table = [
        ("a.ndjson", format!("{good}{good}{{\"id\":1}}\n"), "row 3 of ", "px"),
        ("b.ndjson", format!("{good}[{good}]\n"), "row 2 of ", "object"),
        ("c.ndjson", format!("{good}\n{{\"id\":\n"), "row 2 of ", ""),
        ("d.ndjson", format!("{good}{{\"id\":1,\"px\":1,\"s\":\"\",\"zz\":1}}"), "row 2 of ", "zz"),
        ("e.csv", "id,px,n,s,raw\n1,1,,,\n1,1,3000000000,,\n".to_owned(), "row 2 of ", "3000000000"),
        ("f.csv", "id,px,n,s,raw\n,1,,,\n".to_owned(), "row 1 of ", "null"),
        ("g.csv", "id,px,n,s,raw\n1,nan,,,\n".to_owned(), "row 1 of ", "finite"),
        ("h.csv", "id,px,n,s,raw\n1,1,,,\n1,1,,,0\n".to_owned(), "row 2 of ", "base16"),
        ("i.csv", "id,px,n,s,raw\n1,1,,\n".to_owned(), "cannot read", ""),
        ("j.csv", "id,px,n,s,raw\n1,1,,\"a,\n".to_owned(), "row 1 of ", "quote"),
        ("k.csv", "id,px,n,raw\n".to_owned(), "columns", "\"s\" is missing"),
        ("l.csv", "id,px,n,s,raw,litelink_offset\n".to_owned(), "columns", "litelink_offset"),
        ("m.csv", "id,px,n,s,raw,streamcast_ts\n".to_owned(), "columns", "streamcast_ts"),
        ("n.csv", "id,px,n,s,raw,zz\n".to_owned(), "columns", "\"zz\""),
        ("o.csv", "id,px,n,s,raw,s\n".to_owned(), "columns", "twice"),
        ("p.csv", String::new(), "cannot read", "header"),
        ("t.csv", "id,px,n,s,raw\r1,1,,,\r".to_owned(), "cannot read", "carriage return"),
        ("u.csv", "id,px,n,s,\"raw\"\r1,1,,,\n1,1,,,\n".to_owned(), "cannot read", "carriage return"),
        ("q.bin", "what".to_owned(), "cannot read", "format"),
        ("r.bin", "PAR1what".to_owned(), "cannot read", ""),
        ("s.bin", "ARROW1what".to_owned(), "cannot read", ""),
    ];
    for (name, text, place, why) in table {
        let path = directory.path().join(name);
        fs::write(&path, text).expect("written");
        let text = load(&layout, &path, &directory.path().join("out")).expect_err(name).to_string();
        assert!(text.contains(place) && text.contains(why), "{name}: {text}");
    }
    let left = fs::read_dir(directory.path().join("out")).map_or(0, Iterator::count);
    assert_eq!(left, 0, "nothing is left behind");
}

#[test]
fn empty_sources_have_no_rows() {
    let directory = tempfile::tempdir().expect("a directory");
    let layout = layout(SPECS);
    let path = |name: &str| -> PathBuf { directory.path().join(name) };
    write_parquet(&path("a"), &table().slice(0, 0));
    fs::write(path("b.csv"), "id,px,n,s,raw").expect("written");
    fs::write(path("c.ndjson"), "\n").expect("written");
    for name in ["a", "b.csv", "c.ndjson"] {
        assert_eq!(Source::open(&path(name), None, &layout).expect("opens").count(), 0, "{name}");
    }
    let nested = self::layout(r#"{"l":{"type":"array","items":{"type":"integer"}}}"#);
    fs::write(path("d.csv"), "l\n").expect("written");
    let text = Source::open(&path("d.csv"), None, &nested).expect_err("refused").to_string();
    assert!(text.contains("nested"), "{text}");
    let empty = RecordBatch::new_empty(Arc::new(ArrowSchema::new(vec![Field::new("l", DataType::Int64, true)])));
    write_parquet(&path("e"), &empty);
    assert_eq!(Source::open(&path("e"), None, &nested).expect("opens").count(), 0);
}

/// An Arrow file of one batch with every kind of column, and the lines of its rows.
fn any_arrow(rows: usize, stream: bool) -> (Layout, Vec<u8>, Vec<String>) {
    let directory = tempfile::tempdir().expect("a directory");
    let specs = r#"{"b":{"type":["boolean","null"]},"i":{"type":["integer","null"]},"s":{"type":["string","null"]},
        "x":{"type":["string","null"],"contentEncoding":"base16","format":"bytes2"},
        "l":{"type":["array","null"],"items":{"type":["array","null"],"items":{"type":["string","null"]}}},
        "t":{"type":["object","null"],"properties":{"f":{"type":"boolean"},"n":{"type":["number","null"]}},"required":["f"]},
        "m":{"type":["object","null"],"additionalProperties":{"type":["integer","null"],"format":"int32"}}}"#;
    let layout = layout(specs);
    let null = |i: usize, every: usize, text: String| if i.is_multiple_of(every) { "null".to_owned() } else { text };
    let lines = (0..rows).map(|i| {
        format!(
            "{{\"b\":{},\"i\":{},\"s\":{},\"x\":{},\"l\":{},\"t\":{},\"m\":{}}}",
            null(i, 3, (i % 2 == 0).to_string()),
            null(i, 5, i.to_string()),
            null(i, 7, format!("\"{}\"", "é".repeat(i % 4))),
            null(i, 11, format!("\"{:04x}\"", i % 65_536)),
            null(i, 13, format!("[{}]", vec!["[null,\"a\"],null"; i % 3].join(","))),
            null(i, 4, format!("{{\"f\":{},\"n\":{}}}", i % 3 == 0, null(i, 6, format!("{i}.5")))),
            null(i, 9, format!("{{\"k{i}\":{}}}", null(i, 2, "7".to_owned()))),
        )
    });
    let lines: Vec<String> = lines.collect();
    let path = directory.path().join("a.ndjson");
    fs::write(&path, lines.join("\n")).expect("written");
    let chunks: Vec<_> = Source::open(&path, None, &layout).expect("opens").collect::<Result<_, _>>().expect("rows");
    let fields = layout.arrow().fields();
    let schema = Arc::new(ArrowSchema::new(fields[1..fields.len() - 1].to_vec()));
    let batches = chunks.into_iter().map(|chunk| RecordBatch::try_new(schema.clone(), chunk.columns).expect("a batch"));
    let batches: Vec<_> = batches.collect();
    let batch = arrow::compute::concat_batches(&schema, &batches).expect("one batch");
    let mut out = Vec::new();
    if stream {
        let mut writer = StreamWriter::try_new(&mut out, &schema).expect("a writer");
        writer.write(&batch).expect("written");
        writer.finish().expect("finished");
    } else {
        let mut writer = FileWriter::try_new(&mut out, &schema).expect("a writer");
        writer.write(&batch).expect("written");
        writer.finish().expect("finished");
    }
    (layout, out, lines)
}

#[test]
fn one_huge_batch_is_read_in_pieces() {
    let directory = tempfile::tempdir().expect("a directory");
    for stream in [false, true] {
        let (layout, bytes, lines) = any_arrow(150_000, stream);
        let path = directory.path().join("a");
        fs::write(&path, bytes).expect("written");
        let pieces = Source::open(&path, None, &layout).expect("opens").count();
        assert!(pieces > 2, "{pieces}");
        let file = load(&layout, &path, directory.path()).expect("loaded");
        let rows: Vec<_> = (101..).zip(lines).map(|(offset, line)| (offset, 77, line)).collect();
        assert_same(&read_file(&layout, &file, i64::MIN, i64::MAX), &rows);
    }
}

/// `fixtures/lz4.arrow` and `zstd.arrow` are one batch each, written by pyarrow.
#[test]
fn compressed_batches_are_unpacked_in_pieces() {
    let null = |i: usize, every: usize, text: String| if i.is_multiple_of(every) { "null".to_owned() } else { text };
    let lines = (0..1_500).map(|i| {
        format!(
            "{{\"b\":{},\"i\":{},\"s\":{},\"l\":{}}}",
            null(i, 3, (i % 2 == 0).to_string()),
            i % 100,
            null(i, 7, format!("\"{}\"", "é".repeat(8_192 + i % 4))),
            null(i, 13, format!("[{}]", vec![(i % 5).to_string(); i % 3].join(","))),
        )
    });
    let rows: Vec<_> = (101..).zip(lines).map(|(offset, line)| (offset, 77, line)).collect();
    let specs = r#"{"b":{"type":["boolean","null"]},"i":{"type":"integer"},"s":{"type":["string","null"]},
        "l":{"type":["array","null"],"items":{"type":["integer","null"]}}}"#;
    let layout = layout(specs);
    let directory = tempfile::tempdir().expect("a directory");
    for name in ["lz4.arrow", "zstd.arrow"] {
        let path = fixture(name);
        assert!(Source::open(&path, None, &layout).expect("opens").count() > 1);
        let file = load(&layout, &path, directory.path()).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_same(&read_file(&layout, &file, i64::MIN, i64::MAX), &rows);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn damaged_arrow_is_an_error_or_rows(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in proptest::option::weighted(0.2, any::<prop::sample::Index>()),
        stream in any::<bool>(),
    ) {
        thread_local! {
            static FILES: [(Layout, Vec<u8>, Vec<String>); 2] = [any_arrow(100, false), any_arrow(100, true)];
        }
        FILES.with(|files| {
            let (layout, original, _) = &files[usize::from(stream)];
            let mut bytes = original.clone();
            for (place, value) in &changes {
                let place = place.index(bytes.len());
                bytes[place] = *value;
            }
            if let Some(cut) = cut {
                bytes.truncate(cut.index(bytes.len()));
            }
            let directory = tempfile::tempdir().expect("a directory");
            let path = directory.path().join("a");
            fs::write(&path, bytes).expect("written");
            let format = if stream { Format::ArrowStream } else { Format::ArrowFile };
            if let Ok(source) = Source::open(&path, Some(format), layout) {
                assert!(source.count() < 1000);
            }
        });
    }
}

proptest! {
    // Each case unpacks 25 MB.
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn damaged_compressed_arrow_is_an_error_or_rows(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        lz4 in any::<bool>(),
    ) {
        let layout = layout(r#"{"b":{"type":["boolean","null"]},"i":{"type":"integer"},"s":{"type":["string","null"]},
            "l":{"type":["array","null"],"items":{"type":["integer","null"]}}}"#);
        let name = if lz4 { "lz4.arrow" } else { "zstd.arrow" };
        let mut bytes = fs::read(fixture(name)).expect("there");
        for (place, value) in &changes {
            let place = place.index(bytes.len());
            bytes[place] = *value;
        }
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("a");
        fs::write(&path, bytes).expect("written");
        if let Ok(source) = Source::open(&path, Some(Format::ArrowFile), &layout) {
            assert!(source.count() < 1000);
        }
    }
}
