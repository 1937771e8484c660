//! Statistics of logs, and the file they are kept in.

use arrow::datatypes::DataType;
use bytes::Bytes;

use super::support::{schema, seal, stored};
use crate::lake::columns::{
    Layout, LogStatistics, Scalar, WriteOptions, log_statistics, read_manifest_parquet, write_manifest_parquet,
};

#[test]
fn statistics_of_a_log_survive_the_manifest() {
    let directory = tempfile::tempdir().expect("a directory");
    let specs = r#"{"a":{"type":"integer"},"b":{"type":["number","null"]},"s":{"type":"string"},
        "f":{"type":["boolean","null"]},"log":{"type":"integer"},"n":{"type":["integer","null"],"format":"int32"}}"#;
    let layout = Layout::new(&schema(specs)).expect("a layout");
    let first = stored(
        1,
        [
            r#"{"a":5,"b":1.5,"s":"x","f":null,"log":1,"n":null}"#,
            r#"{"a":-7,"b":null,"s":"y","f":false,"log":2,"n":null}"#,
        ],
    );
    let second = stored(3, [r#"{"a":9,"b":0.0,"s":"z","f":true,"log":3,"n":null}"#]);
    let files: Vec<_> =
        [first, second].iter().map(|rows| seal(&layout, directory.path(), &WriteOptions::new(&[]), rows)).collect();
    let log = log_statistics(&layout, "trades", 1, Some(4), &files);
    assert_eq!((log.record_count, log.end_offset), (Some(3), Some(4)));
    let range = |name: &str| log.columns.iter().find(|column| column.name == name).expect("known");
    assert_eq!(range("a").range, Some((Scalar::Int64(-7), Scalar::Int64(9))));
    assert_eq!((range("b").nulls, range("b").values), (1, 3));
    assert_eq!(range("b").range, Some((Scalar::Float64(-0.0), Scalar::Float64(1.5))));
    assert_eq!(range("f").range, Some((Scalar::Bool(false), Scalar::Bool(true))));
    assert_eq!((range("n").range, range("n").nulls), (None, 3));
    assert!(log.columns.iter().all(|column| column.name != "s" && column.name != "litelink_offset"));
    assert!(log.columns.iter().any(|column| column.name == "streamcast_ts" && column.data_type == DataType::Int64));

    let open = LogStatistics {
        log: "trades-v2".to_owned(),
        start_offset: 4,
        end_offset: None,
        record_count: None,
        columns: Vec::new(),
    };
    let text = write_manifest_parquet(&[log.clone(), open.clone()]).expect("written");
    let mut back = read_manifest_parquet("manifest", Bytes::from(text)).expect("read");
    let expected =
        LogStatistics { columns: log.columns.iter().filter(|column| column.name != "log").cloned().collect(), ..log };
    assert_eq!(back.pop(), Some(open));
    assert_eq!(back.pop(), Some(expected));
    assert_eq!(
        read_manifest_parquet("manifest", Bytes::from(write_manifest_parquet(&[]).expect("written"))).expect("read"),
        []
    );
    assert!(read_manifest_parquet("manifest", Bytes::from_static(b"PAR1 no PAR1")).is_err());
}
