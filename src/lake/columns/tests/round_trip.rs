//! What is read from a file are the lines that were sealed.

use bytes::Bytes;
use proptest::prelude::*;

use super::support::{assert_same, canonical, path, read, read_file, schema, seal, stored};
use crate::lake::columns::{ColumnsError, FileRows, Layout, ReadRange, Sealer, Source, WriteOptions, describe};
use crate::schema::generate;

const TRADES: &str = r#"{"event_ts":{"type":"integer"},"symbol":{"type":"string"},"price":{"type":"number"},
    "amount":{"type":["number","null"],"format":"float"},"side":{"type":"integer","format":"int32"},
    "ok":{"type":["boolean","null"]}}"#;

const NESTED: &str = r#"{
    "tags":{"type":["array","null"],"items":{"type":["string","null"]}},
    "book":{"type":"object","properties":{
        "bids":{"type":"array","items":{"type":"array","items":{"type":"number"}}},
        "id":{"type":["string","null"],"contentEncoding":"base16","format":"bytes4"}},"required":["bids"]},
    "extra":{"type":["object","null"],"additionalProperties":{"type":["object","null"],"properties":{
        "n":{"type":"integer","format":"int32"}},"required":["n"]}},
    "raw":{"type":"string","contentEncoding":"base64"}}"#;

fn trades(count: i64) -> Vec<String> {
    let row = |i: i64| {
        format!(
            r#"{{"event_ts":{},"symbol":"S{}","price":{:?},"amount":{},"side":{},"ok":{}}}"#,
            i * 137,
            i * 7919 % 13,
            i as f64 * 0.25,
            if i % 5 == 0 { "null".to_owned() } else { format!("{:?}", f64::from(i as f32 * 0.1)) },
            i % 2,
            ["true", "false", "null"][(i % 3) as usize],
        )
    };
    let schema = schema(TRADES);
    (0..count).map(|i| canonical(&schema, &row(i)).expect("a row")).collect()
}

#[test]
fn scalar_rows_come_back() {
    let directory = tempfile::tempdir().expect("a directory");
    let layout = Layout::new(&schema(TRADES)).expect("a layout");
    let rows = stored(41, trades(50_000));
    let file = seal(&layout, directory.path(), &WriteOptions::new(&[]), &rows);
    assert_eq!((file.start, file.end, file.rows), (41, 50_041, 50_000));
    assert_eq!(file.ts_us, (rows[0].1, rows[49_999].1));
    assert_eq!(file.size_bytes, std::fs::metadata(path(&file)).expect("there").len());
    assert_same(&read_file(&layout, &file, i64::MIN, i64::MAX), &rows);
    assert_same(&read_file(&layout, &file, 30_000, 30_010), &rows[29_959..29_969]);
    assert_same(&read_file(&layout, &file, 50_041, i64::MAX), &[]);
    let again = describe(Source::file(path(&file)).expect("opens"), &layout, &file.uri).expect("described");
    assert_eq!(again, file);
    let left = std::fs::read_dir(directory.path()).expect("there").count();
    assert_eq!(left, 1, "only the file itself is left");
}

#[test]
fn sorted_rows_come_back_in_the_order_of_offsets() {
    let directory = tempfile::tempdir().expect("a directory");
    let layout = Layout::new(&schema(TRADES)).expect("a layout");
    let rows = stored(1, trades(60_000));
    let mut options = WriteOptions::new(&["symbol".to_owned(), "amount".to_owned()]);
    options.row_group_bytes = 500_000;
    let file = seal(&layout, directory.path(), &options, &rows);
    assert!(file.split_offsets.len() > 2, "{:?}", file.split_offsets);
    assert_same(&read_file(&layout, &file, i64::MIN, i64::MAX), &rows);
    assert_same(&read_file(&layout, &file, 20_000, 40_000), &rows[19_999..39_999]);
}

#[test]
fn nested_rows_come_back() {
    let directory = tempfile::tempdir().expect("a directory");
    let layout = Layout::new(&schema(NESTED)).expect("a layout");
    let lines = [
        r#"{"tags":null,"book":{"bids":[],"id":null},"extra":null,"raw":""}"#,
        r#"{"tags":[],"book":{"bids":[[],[1.5,-0.0]],"id":"00ff00ff"},"extra":{},"raw":"AQI="}"#,
        r#"{"tags":["a",null,"\"\\\n\u0001é"],"book":{"bids":[[1e300,5e-324]],"id":"01020304"},"extra":{"":null,"k":{"n":-2147483648}},"raw":"AQ=="}"#,
    ];
    let rows = stored(7, lines);
    let file = seal(&layout, directory.path(), &WriteOptions::new(&[]), &rows);
    assert_same(&read_file(&layout, &file, i64::MIN, i64::MAX), &rows);
}

/// An object store that counts what is asked of it.
struct Ranges(Bytes, std::sync::Arc<std::sync::atomic::AtomicUsize>);

impl ReadRange for Ranges {
    fn read_range(&self, start: u64, length: usize) -> std::io::Result<Bytes> {
        self.1.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Ok(self.0.slice(start as usize..start as usize + length))
    }
}

#[test]
fn an_object_is_read_in_few_requests() {
    let directory = tempfile::tempdir().expect("a directory");
    let layout = Layout::new(&schema(TRADES)).expect("a layout");
    let rows = stored(1, trades(60_000));
    let options = WriteOptions { row_group_bytes: 500_000, ..WriteOptions::new(&[]) };
    let file = seal(&layout, directory.path(), &options, &rows);
    let bytes = Bytes::from(std::fs::read(path(&file)).expect("read"));
    let requests = std::sync::Arc::default();
    let ranges = Box::new(Ranges(bytes, std::sync::Arc::clone(&requests)));
    let source = Source::ranges("s3://bucket/key", file.size_bytes, ranges);
    assert_same(&read(FileRows::open(source, &layout, 0, i64::MAX).expect("opens")), &rows);
    let requests = requests.load(std::sync::atomic::Ordering::Relaxed);
    assert!(requests <= 3 + file.split_offsets.len(), "{requests} requests");
}

#[test]
fn damaged_lines_are_told_by_their_offset() {
    let directory = tempfile::tempdir().expect("a directory");
    let layout = Layout::new(&schema(r#"{"a":{"type":"integer"}}"#)).expect("a layout");
    for line in [&b"{\"a\":1"[..], b"", b"{\"a\":}", b"{\"b\":1}", b"{\"a\":null}", b"{\"a\":1}}", b"{\"a\":\"\xff\"}"]
    {
        let mut sealer = Sealer::create(&layout, directory.path(), &WriteOptions::new(&[])).expect("created");
        sealer.push(5, 0, b"{\"a\":1}").expect("taken");
        match sealer.push(6, 0, line) {
            Err(ColumnsError::Line { offset: 6, .. }) => {}
            other => panic!("{line:?}: {other:?}"),
        }
    }
    let sealer = Sealer::create(&layout, directory.path(), &WriteOptions::new(&[])).expect("created");
    assert!(matches!(sealer.finish(), Err(ColumnsError::Empty)));
    let mut sealer = Sealer::create(&layout, directory.path(), &WriteOptions::new(&[])).expect("created");
    for offset in [5, 5] {
        sealer.push(offset, 0, b"{\"a\":1}").expect("taken");
    }
    assert!(matches!(sealer.finish(), Err(ColumnsError::Order { offset: 5, after: 5 })));
    assert_eq!(std::fs::read_dir(directory.path()).expect("there").count(), 0, "nothing is left behind");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_rows_come_back(
        (schema, rows) in generate::schema().prop_flat_map(|schema| {
            let rows = proptest::collection::vec(generate::row_for(&schema), 1..20);
            (Just(schema), rows)
        }),
        sorted in any::<bool>(),
    ) {
        let lines: Vec<String> = rows.iter().filter_map(|row| canonical(&schema, row)).collect();
        prop_assume!(!lines.is_empty());
        let layout = Layout::new(&schema).expect("a layout");
        let sort_by: Vec<String> = schema.columns().iter().filter(|c| sorted && !c.kind.is_nested())
            .map(|c| c.name.clone()).collect();
        let options = WriteOptions { row_group_bytes: 200, ..WriteOptions::new(&sort_by) };
        let directory = tempfile::tempdir().expect("a directory");
        let rows = stored(1, lines);
        let file = seal(&layout, directory.path(), &options, &rows);
        prop_assert_eq!(read_file(&layout, &file, i64::MIN, i64::MAX), rows);
    }
}
