//! A small table, and files for it that no one reads.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use iceberg::spec::{ListType, NestedField, PrimitiveType, Schema, Type};

use crate::lake::data_file::{ColumnStats, DataFile};
use crate::lake::store::Store;
use crate::lake::table::{Commit, Table, TableSpec};

pub(super) fn schema() -> Schema {
    let long = || Type::Primitive(PrimitiveType::Long);
    let list = Type::List(ListType { element_field: Arc::new(NestedField::list_element(5, long(), true)) });
    let fields = vec![
        Arc::new(NestedField::required(1, "litelink_offset", long())),
        Arc::new(NestedField::optional(2, "name", Type::Primitive(PrimitiveType::String))),
        Arc::new(NestedField::optional(3, "sizes", list)),
        Arc::new(NestedField::required(4, "streamcast_ts", long())),
    ];
    Schema::builder().with_schema_id(0).with_fields(fields).build().expect("a schema")
}

pub(super) fn spec(directory: &Path) -> TableSpec {
    TableSpec {
        location: format!("file://{}/log", directory.display()),
        schema: schema(),
        sort_by: vec!["name".to_owned()],
        arrow_schema: Some("ffffffff".to_owned()),
        properties: BTreeMap::new(),
    }
}

pub(super) async fn table(directory: &Path) -> Table {
    Table::create(&Store::default(), &spec(directory)).await.expect("created")
}

/// A file with the offsets `start..end` that is there, and one byte long.
pub(super) fn file(table: &Table, start: i64, end: i64) -> DataFile {
    named(table, &format!("sealed/{start}-{end}-{:08x}", start * 31 + end), start, end)
}

pub(super) fn named(table: &Table, name: &str, start: i64, end: i64) -> DataFile {
    let uri = format!("{}/data/{name}.parquet", table.location());
    let path = uri.strip_prefix("file://").expect("a local table");
    std::fs::create_dir_all(Path::new(path).parent().expect("a parent")).expect("made");
    std::fs::write(path, "x").expect("written");
    let stats = |field_id, bounds: Option<(&str, &str)>| ColumnStats {
        field_id,
        size_bytes: 10,
        values: end.abs_diff(start),
        nulls: 0,
        lower: bounds.map(|(low, _)| low.as_bytes().to_vec()),
        upper: bounds.map(|(_, high)| high.as_bytes().to_vec()),
    };
    DataFile {
        uri,
        start,
        end,
        rows: end.abs_diff(start),
        size_bytes: 1,
        ts_us: (start * 1000, end * 1000),
        split_offsets: vec![4],
        columns: vec![stats(1, None), stats(2, Some(("a", "zé"))), stats(4, None), stats(5, None)],
    }
}

pub(super) fn at(now_ms: i64) -> Commit {
    Commit { now_ms: Some(now_ms), ..Commit::default() }
}

/// The names of the files below a directory.
pub(super) fn names(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let Ok(entries) = std::fs::read_dir(directory) else { return found };
    for entry in entries {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(names(&path));
        } else {
            found.push(path.file_name().expect("a name").to_string_lossy().into_owned());
        }
    }
    found.sort();
    found
}
