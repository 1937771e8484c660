use proptest::prelude::*;

use super::*;

const APPENDIX_A: &str = r#"{"type":"object","properties":{"id":{"type":"integer"},"price":{"type":"number"},
    "name":{"type":["string","null"]}},"required":["id","price"]}"#;

fn appendix_a() -> Schema {
    Schema::compile_text(APPENDIX_A, true).unwrap()
}

/// The frame's rows, or the error of the reply.
fn outcome(
    schema: Option<&Schema>,
    numbering: Numbering,
    frame: impl AsRef<[u8]>,
) -> Result<Vec<String>, &'static str> {
    let parsed = FrameParser::new().parse(schema, numbering, frame.as_ref());
    let again = exact(schema, numbering, frame.as_ref());
    assert_eq!(parsed, again, "the fast and the exact path differ on {}", String::from_utf8_lossy(frame.as_ref()));
    match parsed {
        Ok(frame) => Ok(frame.rows.iter().map(|row| String::from_utf8(row.to_vec()).unwrap()).collect()),
        Err(Refusal::BadFrame(_)) => Err("bad_frame"),
        Err(Refusal::Rejected(_)) => Err("rejected"),
    }
}

fn check(schema: Option<&Schema>, numbering: Numbering, table: &[(&str, Result<&[&str], &'static str>)]) {
    for (frame, expected) in table {
        let expected = expected.map(|rows| rows.iter().map(|row| (*row).to_owned()).collect::<Vec<_>>());
        assert_eq!(outcome(schema, numbering, frame), expected, "{frame}");
    }
}

#[test]
fn frames_of_appendix_a() {
    let schema = appendix_a();
    check(
        Some(&schema),
        Numbering::Plain,
        &[
            (r#"{"id":1,"price":1.5,"name":"a"}"#, Ok(&[r#"{"id":1,"price":1.5,"name":"a"}"#])),
            (
                r#"[{"id":2,"price":2},{"price":3,"id":3,"name":null}]"#,
                Ok(&[r#"{"id":2,"price":2.0,"name":null}"#, r#"{"id":3,"price":3.0,"name":null}"#]),
            ),
            (r#"{"id":"x","price":1}"#, Err("rejected")),
            ("nope", Err("bad_frame")),
            ("[]", Err("bad_frame")),
            ("\"s\"", Err("bad_frame")),
            ("1", Err("bad_frame")),
            ("null", Err("bad_frame")),
            ("[1]", Err("bad_frame")),
            (r#"{"id":4}"#, Err("rejected")),
            ("{}", Err("rejected")),
            (r#"{"id":5,"price":1,"zz":1}"#, Err("rejected")),
            (r#"[{"id":7,"price":7},{"id":"bad","price":1}]"#, Err("rejected")),
            (r#"{"id":8,"price":1e400}"#, Err("bad_frame")),
            (r#"{"id":9,"price":NaN}"#, Err("bad_frame")),
            (r#"{"id":10,"price":1,"streamcast_ts":1}"#, Err("rejected")),
            (r#"{"id":10,"price":1,"litelink_offset":1}"#, Err("rejected")),
            (r#"[51,{"id":1,"price":1}]"#, Err("bad_frame")),
            (r#"[{"id":"x","price":1},null]"#, Err("bad_frame")),
            (r#"{"id":"x","id":1,"price":1}"#, Ok(&[r#"{"id":1,"price":1.0,"name":null}"#])),
            (r#"{"id":1,"price":1,"id":"x"}"#, Err("rejected")),
        ],
    );
}

#[test]
fn numbered_frames_of_appendix_a() {
    let row = r#"{"id":1,"price":1.5}"#;
    let schema = appendix_a();
    let first_seq =
        |frame: &str| match FrameParser::new().parse(Some(&schema), Numbering::ExactlyOnce, frame.as_bytes()) {
            Ok(frame) => frame.first_seq,
            Err(_) => None,
        };
    assert_eq!(first_seq(&format!("[1,{row}]")), Some(Seq::Small(1)));
    assert_eq!(first_seq(&format!("[2,[{row},{row}]]")), Some(Seq::Small(2)));
    assert_eq!(first_seq(&format!("[9223372036854775808,{row}]")), Some(Seq::Small(1 << 63)));
    assert_eq!(first_seq(&format!("[18446744073709551616,{row}]")), Some(Seq::Huge("18446744073709551616".to_owned())));
    for seq in ["0", "-1", "true", "1.0", "\"1\"", "null", "-18446744073709551616"] {
        assert_eq!(outcome(Some(&schema), Numbering::ExactlyOnce, format!("[{seq},{row}]")), Err("bad_frame"), "{seq}");
    }
    for frame in [row, "[6]", "[6,[]]", "[6,5]", "[6,[5]]", "[]", "6", &format!("[6,{row},1]"), &format!("[{row}]")] {
        assert_eq!(outcome(Some(&schema), Numbering::ExactlyOnce, frame), Err("bad_frame"), "{frame}");
    }
}

#[test]
fn json_of_a_stream_without_schema() {
    check(
        None,
        Numbering::Plain,
        &[
            (" \t\r\n{\"a\":1}\r\n\t ", Ok(&[r#"{"a":1}"#])),
            (r#"{ "a" : [ 1 , 2 ] }"#, Ok(&[r#"{"a":[1,2]}"#])),
            (r#"{"a":"\/\ud83d\ude00\u0000\u001f\u00e9"}"#, Ok(&["{\"a\":\"/\u{1f600}\\u0000\\u001f\u{e9}\"}"])),
            (r#"{"a":1,"b":2,"a":3}"#, Ok(&[r#"{"a":3,"b":2}"#])),
            (r#"{"m":{"x":1,"y":2,"x":3}}"#, Ok(&[r#"{"m":{"x":3,"y":2}}"#])),
            (
                r#"{"a":123456789012345678901234567890,"b":18446744073709551615}"#,
                Ok(&[r#"{"a":123456789012345678901234567890,"b":18446744073709551615}"#]),
            ),
            (r#"{"a":-0,"b":-0.0,"c":0e10,"d":1e-400}"#, Ok(&[r#"{"a":0,"b":-0.0,"c":0.0,"d":0.0}"#])),
            (r#"{"":1}"#, Ok(&[r#"{"":1}"#])),
            (
                r#"[{"streamcast_ts":1},{"litelink_offset":2},{}]"#,
                Ok(&[r#"{"streamcast_ts":1}"#, r#"{"litelink_offset":2}"#, "{}"]),
            ),
            (r#"{"a":1,}"#, Err("bad_frame")),
            (r#"[[{"a":1}]]"#, Err("bad_frame")),
            ("", Err("bad_frame")),
            ("\u{feff}{}", Err("bad_frame")),
            ("{\"a\":\"\\ud800\"}", Err("bad_frame")),
            ("{\"a\":\"\n\"}", Err("bad_frame")),
            ("\u{b}{}", Err("bad_frame")),
            ("\u{c}{}", Err("bad_frame")),
        ],
    );
    assert_eq!(outcome(None, Numbering::Plain, b"{\"a\":\"\xff\"}"), Err("bad_frame"));
}

#[test]
fn nesting_is_bounded() {
    let nested = |depth: usize| format!("{{\"a\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
    for depth in [MAX_DEPTH - 5, MAX_DEPTH - 4, MAX_DEPTH - 3, MAX_DEPTH - 2, MAX_DEPTH - 1] {
        assert!(outcome(None, Numbering::Plain, nested(depth)).is_ok(), "{depth}");
    }
    for depth in [MAX_DEPTH, MAX_DEPTH + 1, 100_000] {
        assert_eq!(outcome(None, Numbering::Plain, nested(depth)), Err("bad_frame"), "{depth}");
    }
}

#[test]
fn a_frame_cannot_grow_without_bound() {
    let columns: Vec<String> =
        (0..200).map(|index| format!("\"column_{index:040}\":{{\"type\":[\"integer\",\"null\"]}}")).collect();
    let schema = Schema::compile_text(&format!("{{\"properties\":{{{}}}}}", columns.join(",")), true).unwrap();
    let frame = |rows: usize| format!("[{}]", vec!["{}"; rows].join(","));
    assert!(outcome(Some(&schema), Numbering::Plain, frame(100)).is_ok());
    assert_eq!(outcome(Some(&schema), Numbering::Plain, frame(10_000)), Err("rejected"));
}

/// Frames, mostly JSON, with a few bytes changed now and then.
fn damaged_frame() -> impl Strategy<Value = Vec<u8>> {
    let leaf = prop_oneof![
        "[-]?(0|[1-9][0-9]{0,25})([.][0-9]{1,25})?([eE][-+]?[0-9]{1,3})?",
        "\"([a-z\u{e9}\u{1f600}]|\\\\[\"\\\\/bfnrt]|\\\\u[0-9a-fA-F]{4}|\\\\ud83d\\\\ude00){0,8}\"",
        Just("null".to_owned()),
        Just("true".to_owned()),
    ];
    let value = leaf.prop_recursive(4, 24, 4, |inner| {
        let key = proptest::sample::select(vec!["a", "b", "\\u0061", "", "id", "price", "name"]);
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(|items| format!("[ {}]", items.join(" ,"))),
            proptest::collection::vec((key, inner), 0..4).prop_map(|entries| {
                let members: Vec<String> = entries.iter().map(|(key, value)| format!("\"{key}\":{value}")).collect();
                format!("{{{}}}", members.join(","))
            }),
        ]
    });
    let damage = proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..3u8), 0..2);
    (value, damage).prop_map(|(text, damage)| {
        let mut bytes = text.into_bytes();
        for (place, byte, how) in damage {
            let place = place.index(bytes.len() + 1);
            match how {
                0 => bytes.insert(place, byte),
                1 => bytes.truncate(place),
                _ => {
                    if let Some(old) = bytes.get_mut(place) {
                        *old = byte;
                    }
                }
            }
        }
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn the_fast_path_agrees_with_the_exact_one(frame in damaged_frame()) {
        let schema = appendix_a();
        for numbering in [Numbering::Plain, Numbering::ExactlyOnce] {
            let _ = outcome(None, numbering, &frame);
            let _ = outcome(Some(&schema), numbering, &frame);
        }
    }

    #[test]
    fn doubles_are_read_exactly(text in "-?(0|[1-9][0-9]{0,30})([.][0-9]{1,30})?([eE][-+]?[0-9]{1,3})?") {
        let frame = format!("{{\"a\":[{text}]}}");
        if let Ok(rows) = outcome(None, Numbering::Plain, &frame)
            && text.contains(['.', 'e', 'E'])
        {
            let expected = ryu::Buffer::new().format_finite(text.parse::<f64>().unwrap()).to_owned();
            prop_assert_eq!(&rows[0], &format!("{{\"a\":[{expected}]}}"));
        }
    }
}

#[test]
fn buffers_are_given_back_after_a_large_frame() {
    let mut parser = FrameParser::new();
    let frame = format!("{{\"a\":\"{}\"}}", "x".repeat(4 * KEPT_FRAME_BYTES));
    for _ in 0..2 {
        let rows = parser.parse(None, Numbering::Plain, frame.as_bytes()).unwrap().rows;
        assert_eq!(rows.row(0), frame.as_bytes());
        assert!(parser.input.capacity() < 2 * USUAL_FRAME_BYTES);
    }
}

#[test]
fn a_parser_forgets_the_frame_before() {
    let mut parser = FrameParser::new();
    for frame in ["{\"a\":\"\\u0041long enough to leave something behind\"}", "{", "{\"b\":1}", "", "{}"] {
        let fresh = FrameParser::new().parse(None, Numbering::Plain, frame.as_bytes());
        assert_eq!(parser.parse(None, Numbering::Plain, frame.as_bytes()), fresh);
    }
}
