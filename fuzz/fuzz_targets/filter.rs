//! Filters: any text is refused or compiles, and matching with and without an index is the same on every row,
//! canonical or not. The input is a filter, a line feed and a row.
#![no_main]

use libfuzzer_sys::fuzz_target;
use streamcast_uring_fuzz::schema::{Filter, Predicate, RowIndex, Schema};
use streamcast_uring_fuzz::schemas;
use streamcast_uring_fuzz::wire::{FrameParser, Numbering};

thread_local! {
    static SCHEMAS: [Schema; 2] = schemas();
}

fn matches(predicate: &Predicate, schema: Option<&Schema>, row: &[u8]) -> bool {
    let mut index = RowIndex::new();
    index.scan(schema, row);
    predicate.matches_indexed(row, &index)
}

fn check(filter: &Filter, schema: Option<&Schema>, row: &[u8]) {
    let Ok(predicate) = Predicate::compile(filter, schema) else { return };
    // Torn and foreign rows must not panic, whatever they match.
    let _ = (predicate.matches(row), matches(&predicate, schema, row));
    let echo = Filter::parse(filter.text()).unwrap_or_else(|error| panic!("{error}"));
    let again = Predicate::compile(&echo, schema).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(again, predicate);
    if let Ok(frame) = FrameParser::new().parse(schema, Numbering::Plain, row) {
        for row in frame.rows.iter() {
            assert_eq!(predicate.matches(row), matches(&predicate, schema, row));
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let mut parts = data.splitn(2, |&byte| byte == b'\n');
    let (Some(filter), row) = (parts.next(), parts.next().unwrap_or_default()) else { return };
    let Some(filter) = std::str::from_utf8(filter).ok().and_then(|text| Filter::parse(text).ok()) else { return };
    check(&filter, None, row);
    SCHEMAS.with(|schemas| schemas.iter().for_each(|schema| check(&filter, Some(schema), row)));
});
