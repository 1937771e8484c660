//! Rows: the encoder against the rules of wire.md section 13 and against a slow way to the same text.

use proptest::prelude::*;
use proptest::strategy::ValueTree;

use super::generate;
use crate::schema::json::{self, Json};
use crate::schema::{ColumnKind, Columns, Encoding, Schema, explain, push_any, push_row};

/// The stored text of a valid row, built value by value.
fn slow_text(columns: &Columns, row: &[(String, Json)]) -> String {
    let members: Vec<String> = columns
        .as_slice()
        .iter()
        .map(|column| {
            let value = row.iter().find(|(key, _)| *key == column.name).map_or(&Json::Null, |(_, value)| value);
            format!("{}:{}", Json::String(column.name.clone()).to_text(), slow_value(&column.kind, value))
        })
        .collect();
    format!("{{{}}}", members.join(","))
}

fn slow_value(kind: &ColumnKind, value: &Json) -> String {
    match (kind, value) {
        (_, Json::Null) => "null".to_owned(),
        (ColumnKind::Bool, Json::Int(value)) => (*value == 1).to_string(),
        (ColumnKind::Int32 | ColumnKind::Int64, Json::Bool(value)) => i64::from(*value).to_string(),
        (ColumnKind::Float32, value) => Json::Float(f64::from(number(value) as f32)).to_text(),
        (ColumnKind::Float64, value) => Json::Float(number(value)).to_text(),
        (ColumnKind::Binary { encoding, .. }, Json::String(text)) => {
            let mut bytes = Vec::new();
            encoding.decode(text, &mut bytes).unwrap();
            match encoding {
                Encoding::Base16 => {
                    format!("\"{}\"", bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
                }
                Encoding::Base64 => {
                    let mut out = Vec::new();
                    encoding.encode(&bytes, &mut out);
                    format!("\"{}\"", String::from_utf8(out).unwrap())
                }
            }
        }
        (ColumnKind::Struct(fields), Json::Object(entries)) => slow_text(fields, entries),
        (ColumnKind::Map(values), Json::Object(entries)) => {
            let entry = |(key, value): &(String, Json)| {
                format!("{}:{}", Json::String(key.clone()).to_text(), slow_value(&values.kind, value))
            };
            format!("{{{}}}", entries.iter().map(entry).collect::<Vec<_>>().join(","))
        }
        (ColumnKind::List(items), Json::Array(list)) => {
            format!("[{}]", list.iter().map(|item| slow_value(&items.kind, item)).collect::<Vec<_>>().join(","))
        }
        (_, value) => value.to_text(),
    }
}

fn number(value: &Json) -> f64 {
    match value {
        Json::Bool(value) => f64::from(*value),
        Json::Int(value) => *value as f64,
        Json::Float(value) => *value,
        other => panic!("{other:?} is no number"),
    }
}

/// The encoder agrees with the explainer, and its text with the slow one.
fn check(schema: &Schema, text: &str) -> Result<bool, TestCaseError> {
    let Ok(Json::Object(row)) = json::parse(text.as_bytes()) else { return Ok(false) };
    let document = Json::Object(row.clone());
    let crate::schema::View::Object(entries) = crate::schema::Node::view(&document) else { unreachable!() };
    let mut out = Vec::new();
    let encoded = push_row::<&Json>(&mut out, schema, entries, false);
    match explain(schema, &[row.as_slice()]) {
        None => {
            prop_assert!(encoded.is_ok(), "refused without a reason: {text} for {}", schema.canonical());
            prop_assert_eq!(String::from_utf8(out).unwrap(), slow_text(&schema.columns, &row));
        }
        Some(why) => prop_assert!(encoded.is_err(), "accepted although {why}: {text} for {}", schema.canonical()),
    }
    Ok(encoded.is_ok())
}

proptest! {
    #[test]
    fn the_encoder_keeps_the_rules_on_fitting_rows(
        (schema, row) in generate::schema().prop_flat_map(|schema| {
            let row = generate::row_for(&schema);
            (Just(schema), row)
        })
    ) {
        check(&schema, &row)?;
    }

    #[test]
    fn the_encoder_keeps_the_rules_on_any_row(schema in generate::schema(), row in generate::row()) {
        check(&schema, &row)?;
    }

    #[test]
    fn values_without_a_schema_keep_their_meaning(text in generate::value()) {
        if let Ok(value) = json::parse(text.as_bytes()) {
            let mut out = Vec::new();
            push_any(&mut out, &value, false);
            prop_assert_eq!(&String::from_utf8(out.clone()).unwrap(), &value.to_text());
            prop_assert_eq!(json::parse(&out).unwrap(), value);
        }
    }
}

#[test]
fn the_generator_makes_rows_of_both_kinds() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let strategy = generate::schema().prop_flat_map(|schema| {
        let row = generate::row_for(&schema);
        (Just(schema), row)
    });
    let accepted = (0..200)
        .filter(|_| {
            let (schema, row) = strategy.new_tree(&mut runner).unwrap().current();
            check(&schema, &row).unwrap()
        })
        .count();
    assert!((40..180).contains(&accepted), "{accepted} of 200 rows fit");
}

fn schema(columns: &str) -> Schema {
    Schema::compile_text(columns, true).unwrap()
}

/// Why the rows of a frame are refused.
fn why(schema: &Schema, rows: &[&str]) -> Option<String> {
    let rows: Vec<Vec<(String, Json)>> = rows
        .iter()
        .map(|row| match json::parse(row.as_bytes()) {
            Ok(Json::Object(entries)) => entries,
            other => panic!("{other:?}"),
        })
        .collect();
    explain(schema, &rows)
}

#[test]
fn reasons_come_in_the_order_of_the_rules() {
    let schema = schema(
        r#"{"properties":{"h":{"type":["string","null"],"contentEncoding":"base16"},"i":{"type":"integer"},"j":{"type":"integer"},
        "m":{"type":["object","null"],"additionalProperties":{"type":"integer"}},
        "l":{"type":["array","null"],"items":{"type":"object","properties":{"k":{"type":"integer"}},"required":["k"]}}},
        "required":["i","j"]}"#,
    );
    let ok = r#"{"i":1,"j":2}"#;
    assert_eq!(why(&schema, &[ok, ok]), None);
    let mut worse = vec![r#"{"i":"x","j":1}"#];
    let mut check = |row: &'static str, expected: &str| {
        worse.push(row);
        assert_eq!(why(&schema, &[row]).as_deref(), Some(expected));
        let rows: Vec<&str> = worse.clone();
        let placed = why(&schema, &rows).unwrap();
        assert!(placed.starts_with("row "), "{placed}");
        placed
    };
    // Row by row: the first row decides, whatever the later ones have.
    assert!(check(r#"{"i":null}"#, "column i, j must not be null or absent").starts_with("row 0: column i takes"));
    assert!(
        check(r#"{"i":1,"l":[{"k":1},{"k":true}]}"#, "column l[1].k takes an integer of 64 bits, not a boolean")
            .starts_with("row 0")
    );
    assert!(check(r#"{"zz":1}"#, "column zz is not declared").starts_with("row 0"));
    assert!(
        check(r#"{"litelink_offset":1,"zz":1}"#, "column litelink_offset is written by the log; leave it out")
            .starts_with("row 0")
    );
    // Over the whole frame: these come before anything in row 0.
    assert!(
        check(
            r#"{"streamcast_ts":1,"litelink_offset":1}"#,
            "column streamcast_ts is written by the server; leave it out"
        )
        .starts_with("row 5: column streamcast_ts")
    );
    assert!(
        check(r#"{"m":[],"streamcast_ts":1}"#, "column m takes an object, not an array")
            .starts_with("row 6: column m takes")
    );
    assert!(
        check(r#"{"h":"zz","m":[]}"#, "column h holds text that is not base16").starts_with("row 7: column h holds")
    );
}

#[test]
fn wide_rows_find_their_columns_by_hash() {
    let names: Vec<String> = (0..100).map(|index| format!("column_{index}")).collect();
    let members: Vec<String> =
        names.iter().map(|name| format!("\"{name}\":{{\"type\":[\"integer\",\"null\"]}}")).collect();
    let schema = schema(&format!("{{\"properties\":{{{}}}}}", members.join(",")));
    for text in ["{\"column_99\":1,\"column_0\":2,\"column_50\":3}", "{\"column_100\":1}", "{}"] {
        assert_eq!(check(&schema, text).unwrap(), !text.contains("column_100"), "{text}");
    }
}
