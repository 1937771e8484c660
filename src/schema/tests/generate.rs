//! Random schemas, rows and filters for the property tests.

use proptest::prelude::*;

use crate::schema::Schema;
use crate::schema::json::Json;

/// The names that columns, fields and keys have.
const NAMES: [&str; 6] = ["a", "b", "cc", "\u{e9}", "q\"", ""];

/// A schema document's spec of one value, and whether it takes null.
fn spec() -> impl Strategy<Value = String> {
    let scalar = prop_oneof![
        Just(("boolean", "")),
        Just(("integer", "")),
        Just(("integer", ",\"format\":\"int32\"")),
        Just(("number", "")),
        Just(("number", ",\"format\":\"float\"")),
        Just(("string", "")),
        Just(("string", ",\"contentEncoding\":\"base16\"")),
        Just(("string", ",\"contentEncoding\":\"base64\",\"format\":\"bytes2\"")),
    ];
    let leaf = (scalar, any::<bool>()).prop_map(|((word, more), nullable)| typed(word, more, nullable));
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            (inner.clone(), any::<bool>()).prop_map(|(items, nullable)| typed(
                "array",
                &format!(",\"items\":{items}"),
                nullable
            )),
            (inner.clone(), any::<bool>()).prop_map(|(values, nullable)| typed(
                "object",
                &format!(",\"additionalProperties\":{values}"),
                nullable
            )),
            (properties(inner), any::<bool>()).prop_map(|(members, nullable)| typed(
                "object",
                &format!(",{members}"),
                nullable
            )),
        ]
    })
}

fn typed(word: &str, more: &str, nullable: bool) -> String {
    if nullable {
        format!("{{\"type\":[\"{word}\",\"null\"]{more}}}")
    } else {
        format!("{{\"type\":\"{word}\"{more}}}")
    }
}

/// `"properties":{…},"required":[…]`.
fn properties(inner: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    (proptest::sample::subsequence(&NAMES[..], 1..4), proptest::collection::vec(inner, 4)).prop_map(|(names, specs)| {
        let quoted: Vec<String> = names.iter().map(|name| Json::String((*name).to_owned()).to_text()).collect();
        let members: Vec<String> = quoted.iter().zip(&specs).map(|(name, spec)| format!("{name}:{spec}")).collect();
        let required: Vec<&str> = quoted
            .iter()
            .zip(&specs)
            .filter(|(_, spec)| !spec.contains("\"null\"]") || !spec.starts_with("{\"type\":["))
            .map(|(name, _)| name.as_str())
            .collect();
        format!("\"properties\":{{{}}},\"required\":[{}]", members.join(","), required.join(","))
    })
}

/// A compiled schema.
pub fn schema() -> impl Strategy<Value = Schema> {
    properties(spec()).prop_map(|members| Schema::compile_text(&format!("{{{members}}}"), false).unwrap())
}

/// Scalars around every limit.
pub fn scalar() -> impl Strategy<Value = String> {
    const FIXED: [&str; 31] = [
        "null",
        "true",
        "false",
        "0",
        "1",
        "-0",
        "-1",
        "2147483647",
        "2147483648",
        "-2147483648",
        "16777216",
        "16777217",
        "9007199254740992",
        "9007199254740993",
        "9223372036854775807",
        "9223372036854775808",
        "-9223372036854775808",
        "18446744073709551616",
        "1e400",
        "0.0",
        "-0.0",
        "1.0",
        "0.1",
        "1e3",
        "3.4028235e38",
        "3.4028236e38",
        "1e-50",
        "9007199254740992.0",
        "1e22",
        "1e23",
        "100000000000000000000000",
    ];
    prop_oneof![
        3 => proptest::sample::select(&FIXED[..]).prop_map(str::to_owned),
        2 => string(),
        1 => any::<f64>().prop_filter("finite", |value| value.is_finite()).prop_map(|value| format!("{value:?}")),
        1 => any::<i64>().prop_map(|value| value.to_string()),
    ]
}

/// String literals with and without escapes.
fn string() -> impl Strategy<Value = String> {
    const FIXED: [&str; 13] = [
        "\"\"",
        "\"01ff\"",
        "\"01 FF\"",
        "\"AQI=\"",
        "\"AQJ=\"",
        "\"zz\"",
        "\"\\u00e9\"",
        "\"\u{e9}\"",
        "\"a\\\"b\"",
        "\"\\ud83d\\ude00\"",
        "\"\\ud83d\"",
        "\"\\u0000\"",
        "\"1\"",
    ];
    prop_oneof![proptest::sample::select(&FIXED[..]).prop_map(str::to_owned), "\"[a-z ,:{}]{0,20}\""]
}

/// Any value.
pub fn value() -> impl Strategy<Value = String> {
    scalar().prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(|items| format!("[{}]", items.join(","))),
            object(inner),
        ]
    })
}

/// Objects, sometimes with a key twice.
fn object(inner: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    proptest::collection::vec((proptest::sample::select(&NAMES[..]), inner), 0..5).prop_map(|entries| {
        let members: Vec<String> = entries
            .iter()
            .map(|(key, value)| format!("{}:{value}", Json::String((*key).to_owned()).to_text()))
            .collect();
        format!("{{{}}}", members.join(","))
    })
}

/// Objects.
pub fn row() -> impl Strategy<Value = String> {
    object(value())
}

/// A row that mostly fits a schema.
pub fn row_for(schema: &Schema) -> BoxedStrategy<String> {
    use crate::schema::{Column, ColumnKind};
    fn fitting(kind: &ColumnKind, nullable: bool) -> BoxedStrategy<String> {
        let usual = match kind {
            ColumnKind::Bool => prop_oneof![Just("true"), Just("false"), Just("1")].prop_map(str::to_owned).boxed(),
            ColumnKind::Int32 => any::<i32>().prop_map(|value| value.to_string()).boxed(),
            ColumnKind::Int64 => any::<i64>().prop_map(|value| value.to_string()).boxed(),
            ColumnKind::Float32 => (-1e30f32..1e30).prop_map(|value| format!("{value:?}")).boxed(),
            ColumnKind::Float64 => (-1e300..1e300).prop_map(|value| format!("{value:?}")).boxed(),
            ColumnKind::String => string().boxed(),
            ColumnKind::Binary { .. } => Just("\"AQI=\"".to_owned()).boxed(),
            ColumnKind::Struct(fields) => members(fields.as_slice()),
            ColumnKind::Map(values) => object(fitting(&values.kind, values.nullable)).boxed(),
            ColumnKind::List(items) => proptest::collection::vec(fitting(&items.kind, items.nullable), 0..3)
                .prop_map(|items| format!("[{}]", items.join(",")))
                .boxed(),
        };
        let null = if nullable { 2 } else { 0 };
        prop_oneof![12 => usual, null => Just("null".to_owned()), 1 => scalar()].boxed()
    }
    fn members(columns: &[Column]) -> BoxedStrategy<String> {
        columns
            .iter()
            .map(|column| {
                let name = Json::String(column.name.clone()).to_text();
                let omitted = u32::from(column.nullable);
                prop_oneof![
                    9 => fitting(&column.kind, column.nullable).prop_map(move |value| Some(format!("{name}:{value}"))),
                    omitted => Just(None),
                ]
            })
            .collect::<Vec<_>>()
            .prop_flat_map(|members| {
                let present: Vec<String> = members.into_iter().flatten().collect();
                Just(present).prop_shuffle()
            })
            .prop_map(|members| format!("{{{}}}", members.join(",")))
            .boxed()
    }
    members(schema.columns())
}
