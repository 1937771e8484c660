//! Filters (wire.md section 6): predicates on text against a slow comparison of values.

use proptest::prelude::*;

use super::generate;
use crate::schema::json::{self, Json};
use crate::schema::{ColumnKind, Filter, Predicate, RowIndex, Schema, View, push_any, push_row};

fn compile(filter: &str, schema: Option<&Schema>) -> Result<Predicate, String> {
    let filter = Filter::parse(filter).map_err(|error| error.to_string())?;
    Predicate::compile(&filter, schema).map_err(|error| error.to_string())
}

/// The canonical text of a row, if it is valid.
fn canonical(schema: Option<&Schema>, row: &str) -> Option<Vec<u8>> {
    let value = json::parse(row.as_bytes()).ok()?;
    let View::Object(entries) = crate::schema::Node::view(&value) else { return None };
    let mut out = Vec::new();
    match schema {
        Some(schema) => push_row::<&Json>(&mut out, schema, entries, false).ok()?,
        None => push_any(&mut out, &value, false),
    }
    Some(out)
}

/// Matches both with and without an index.
fn matches(predicate: &Predicate, schema: Option<&Schema>, row: &[u8]) -> bool {
    let mut index = RowIndex::new();
    index.scan(schema, row);
    let indexed = predicate.matches_indexed(row, &index);
    assert_eq!(predicate.matches(row), indexed, "{}", String::from_utf8_lossy(row));
    indexed
}

/// A number as digits without sign, point and trailing zeros, and the place of the point: exact and unique.
fn exact(value: &Json) -> Option<(bool, String, i64)> {
    let text = match value {
        Json::Bool(value) => u8::from(*value).to_string(),
        Json::Int(value) => value.to_string(),
        Json::Wide(digits) => digits.clone(),
        // Far more decimals than any double has.
        Json::Float(value) => format!("{value:.1080}"),
        _ => return None,
    };
    let negative = text.starts_with('-');
    let text = text.trim_start_matches('-');
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = format!("{whole}{fraction}");
    let trimmed = digits.trim_end_matches('0');
    let point = whole.len() as i64 - trimmed.len() as i64;
    let leading = trimmed.trim_start_matches('0');
    if leading.is_empty() { Some((false, String::new(), 0)) } else { Some((negative, leading.to_owned(), point)) }
}

fn equal(kind: Option<&ColumnKind>, term: &Json, value: &Json) -> bool {
    match (term, value) {
        (Json::Null, Json::Null) => true,
        (Json::String(term), Json::String(value)) => match kind {
            Some(ColumnKind::Binary { encoding, .. }) => {
                let (mut one, mut other) = (Vec::new(), Vec::new());
                encoding.decode(term, &mut one).unwrap();
                encoding.decode(value, &mut other).unwrap();
                one == other
            }
            _ => term == value,
        },
        (term, value) => exact(term).is_some() && exact(term) == exact(value),
    }
}

/// The definition: every term equals, or one of its members does.
fn slow_matches(filter: &str, schema: Option<&Schema>, row: &[u8]) -> bool {
    let (Ok(Json::Object(terms)), Ok(Json::Object(row))) = (json::parse(filter.as_bytes()), json::parse(row)) else {
        panic!("both are objects")
    };
    terms.iter().all(|(column, term)| {
        let value = row.iter().find(|(key, _)| key == column).map_or(&Json::Null, |(_, value)| value);
        let kind = schema.and_then(|schema| Some(&schema.columns()[schema.find(column)?].kind));
        match term {
            Json::Array(members) => members.iter().any(|member| equal(kind, member, value)),
            term => equal(kind, term, value),
        }
    })
}

/// Filter objects over the names that generated rows have.
fn filter() -> impl Strategy<Value = String> {
    let term = prop_oneof![
        2 => generate::scalar(),
        1 => proptest::collection::vec(generate::scalar(), 1..12).prop_map(|members| format!("[{}]", members.join(","))),
    ];
    proptest::collection::vec((proptest::sample::select(vec!["a", "b", "cc", "q\\\""]), term), 0..3).prop_map(|terms| {
        let terms: Vec<String> = terms.iter().map(|(column, term)| format!("\"{column}\":{term}")).collect();
        format!("{{{}}}", terms.join(","))
    })
}

proptest! {
    #[test]
    fn rows_without_a_schema_match_as_defined(filter in filter(), row in generate::row()) {
        if let (Ok(predicate), Some(row)) = (compile(&filter, None), canonical(None, &row)) {
            prop_assert_eq!(matches(&predicate, None, &row), slow_matches(&filter, None, &row));
        }
    }

    #[test]
    fn rows_with_a_schema_match_as_defined(
        filter in filter(),
        (schema, row) in generate::schema().prop_flat_map(|schema| {
            let row = generate::row_for(&schema);
            (Just(schema), row)
        })
    ) {
        if let (Ok(predicate), Some(row)) = (compile(&filter, Some(&schema)), canonical(Some(&schema), &row)) {
            prop_assert_eq!(matches(&predicate, Some(&schema), &row), slow_matches(&filter, Some(&schema), &row));
        }
    }

    #[test]
    fn filters_with_one_key_match_the_same_rows(
        one in filter(), other in filter(), rows in proptest::collection::vec(generate::row(), 8)
    ) {
        if let (Ok(one), Ok(other)) = (compile(&one, None), compile(&other, None))
            && one.key() == other.key()
        {
            for row in rows.iter().filter_map(|row| canonical(None, row)) {
                prop_assert_eq!(matches(&one, None, &row), matches(&other, None, &row));
            }
        }
    }

    #[test]
    fn a_number_equals_itself_in_every_form(value in generate::scalar()) {
        let text = json::parse(value.as_bytes()).ok().map(|value| value.to_text());
        if let Some(text) = text {
            let predicate = compile(&format!("{{\"a\":{text}}}"), None).unwrap();
            let row = format!("{{\"a\":{text}}}");
            prop_assert!(matches(&predicate, None, row.as_bytes()));
        }
    }
}

#[test]
fn the_vectors_of_appendix_a9() {
    let schema = Schema::compile_text(r#"{"properties":{"i":{"type":["integer","null"]}}}"#, true).unwrap();
    let rows = ["1", "2", "0", "null", "null", "1", "9007199254740993"];
    for (filter, expected) in [
        (r#"{"i":1}"#, &[1, 6][..]),
        (r#"{"i":1.0}"#, &[1, 6]),
        (r#"{"i":true}"#, &[1, 6]),
        (r#"{"i":[0,2.0]}"#, &[2, 3]),
        (r#"{"i":[1,null]}"#, &[1, 4, 5, 6]),
        (r#"{"i":["1"]}"#, &[]),
        (r#"{"i":9007199254740993}"#, &[7]),
        (r#"{"i":9007199254740992.0}"#, &[]),
        (r#"{"i":false}"#, &[3]),
        (r#"{"i":-0.0}"#, &[3]),
        (r#"{"i":123456789012345678901234567890}"#, &[]),
        (r#"{"i":2,"i":1}"#, &[1, 6]),
        ("{}", &[1, 2, 3, 4, 5, 6, 7]),
    ] {
        let predicate = compile(filter, Some(&schema)).unwrap();
        let matched: Vec<usize> = rows
            .iter()
            .enumerate()
            .filter(|(_, value)| matches(&predicate, Some(&schema), format!("{{\"i\":{value}}}").as_bytes()))
            .map(|(place, _)| place + 1)
            .collect();
        assert_eq!(matched, expected, "{filter}");
    }
}

#[test]
fn refused_filters() {
    let schema = Schema::compile_text(
        r#"{"properties":{"k":{"type":["integer","null"]},"h":{"type":["string","null"],"contentEncoding":"base16"},
        "o":{"type":["object","null"],"properties":{"x":{"type":["integer","null"]}}},
        "l":{"type":["array","null"],"items":{"type":"integer"}},"m":{"type":["object","null"],"additionalProperties":{"type":"integer"}}}}"#,
        true,
    )
    .unwrap();
    for filter in [
        r#"{"zz":1}"#,
        r#"{"litelink_offset":1}"#,
        r#"{"streamcast_ts":1}"#,
        r#"{"k":[]}"#,
        r#"{"k":[[1]]}"#,
        r#"{"k":[{}]}"#,
        r#"{"k":{}}"#,
        r#"{"o":null}"#,
        r#"{"l":1}"#,
        r#"{"m":null}"#,
        r#"{"h":"zz"}"#,
        r#"{"h":["00","0"]}"#,
        "[]",
        "1",
        "",
        "{",
        "{\"k\":NaN}",
    ] {
        assert!(compile(filter, Some(&schema)).is_err(), "{filter}");
    }
    for filter in [r#"{"k":"x"}"#, r#"{"h":1}"#, r#"{"h":[null,true]}"#, "{}"] {
        assert!(compile(filter, Some(&schema)).is_ok(), "{filter}");
    }
    assert!(compile(r#"{"zz":1,"streamcast_ts":2}"#, None).is_ok());
    // Shapes of all terms come before the columns' kinds.
    assert!(compile(r#"{"o":1,"zz":1}"#, Some(&schema)).unwrap_err().contains("zz"));
}

#[test]
fn the_echo_keeps_order_and_forms() {
    let echo = |text: &str| Filter::parse(text).unwrap().text().to_owned();
    assert_eq!(
        echo(r#" { "b" : 1.0 , "a" : [ "\u00e9", 1e2, true ], "b" : 2 } "#),
        "{\"b\":2,\"a\":[\"\u{e9}\",100.0,true]}"
    );
    assert_eq!(echo(r#"{"h":"01 FF"}"#), r#"{"h":"01 FF"}"#);
    assert_eq!(echo(r#"{"i":123456789012345678901234567890}"#), r#"{"i":123456789012345678901234567890}"#);
}

#[test]
fn equal_filters_share_a_key() {
    let key = |text: &str| compile(text, None).unwrap().key().to_owned();
    assert_eq!(key(r#"{"a":1,"b":[2,"x"]}"#), key(r#"{"b":["x",2.0,2],"a":[true]}"#));
    assert_eq!(key(r#"{"a":[1,null]}"#), key(r#"{"a":[null,1,1.0]}"#));
    for (one, other) in [
        (r#"{"a":1}"#, r#"{"a":"1"}"#),
        (r#"{"a":1}"#, r#"{"b":1}"#),
        (r#"{"a":null}"#, r#"{"a":"null"}"#),
        (r#"{"a":[1,2]}"#, r#"{"a":[1,3]}"#),
        (r#"{"a":9007199254740993}"#, r#"{"a":9007199254740992.0}"#),
        (r#"{"a":["x,","y"]}"#, r#"{"a":["x","y,"]}"#),
        ("{}", r#"{"a":null}"#),
    ] {
        assert_ne!(key(one), key(other), "{one} {other}");
    }
}

#[test]
fn a_row_of_another_schema_is_found_by_its_keys() {
    let schema = Schema::compile_text(
        r#"{"properties":{"a":{"type":["integer","null"]},"b":{"type":["string","null"]}}}"#,
        true,
    )
    .unwrap();
    let predicate = compile(r#"{"b":"x"}"#, Some(&schema)).unwrap();
    for (row, expected) in [
        (r#"{"a":1,"b":"x"}"#, true),
        (r#"{"b":"x","a":1}"#, true),
        (r#"{"old":{"b":"]}"},"b":"x"}"#, true),
        (r#"{"a":1}"#, false),
        (r#"{"a":1,"b":"x","c":[1,"}"]}"#, true),
        (r#"{"a":1,"b":"\"x"}"#, false),
        ("{}", false),
    ] {
        assert_eq!(matches(&predicate, Some(&schema), row.as_bytes()), expected, "{row}");
    }
}

#[test]
fn torn_rows_do_not_panic() {
    let schema = Schema::compile_text(r#"{"properties":{"a":{"type":["string","null"]}}}"#, true).unwrap();
    let predicate = compile(r#"{"a":"x"}"#, Some(&schema)).unwrap();
    let whole = br#"{"a":"x\"y","b":[{"c":"\\"}]}"#;
    for end in 0..whole.len() {
        let _ = matches(&predicate, Some(&schema), &whole[..end]);
    }
    for row in ["", "x", "[]", "]", "{\"a\":]", "{\"a\":}", "{\"\\", "{\"a\":\"\\"] {
        let _ = matches(&predicate, Some(&schema), row.as_bytes());
    }
}
