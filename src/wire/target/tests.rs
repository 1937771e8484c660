use proptest::prelude::*;

use super::*;

fn name(target: &str) -> String {
    match parse(target.as_bytes()) {
        Ok(target) => target.name,
        Err(bad) => bad.name,
    }
}

fn detail(target: &str) -> String {
    parse(target.as_bytes()).unwrap_err().detail
}

/// The offset of a target, or `None` if it is refused.
fn offset_of(value: &str) -> Option<OffsetParam> {
    parse(format!("/d?offset={value}").as_bytes()).ok().and_then(|target| target.offset)
}

#[test]
fn names() {
    for (target, expected) in [
        ("/d", "d"),
        ("/d?offset=1", "d"),
        ("/", ""),
        ("", ""),
        ("/?offset=1", ""),
        ("///d", "d"),
        ("//d", "d"),
        ("/d/", "d/"),
        ("/%2F%2fd", "d"),
        ("/a%20b/c", "a b/c"),
        ("/a%20b%2Fc", "a b/c"),
        ("/a+b", "a+b"),
        ("/%C3%A9", "\u{e9}"),
        ("/\u{e9}", "\u{e9}"),
        ("/%ff", "\u{fffd}"),
        ("/%C3x", "\u{fffd}x"),
        ("/lv%3Foffset=0", "lv?offset=0"),
        ("/a%23b", "a#b"),
        ("/%", "%"),
        ("/%4", "%4"),
        ("/%zz", "%zz"),
        ("/%+1", "%+1"),
        ("/a%00b", "a\0b"),
    ] {
        assert_eq!(name(target), expected, "{target}");
    }
}

#[test]
fn managed_names() {
    let longest = "n".repeat(128);
    for name in ["a", "0", "a_.-Z9", &longest] {
        assert!(is_managed_name(name), "{name}");
    }
    for name in ["", ".a", "_a", "-a", "a b", "a/", "\u{e9}", &"n".repeat(129)] {
        assert!(!is_managed_name(name), "{name}");
    }
}

#[test]
fn queries() {
    let target = parse(b"/d?&&offset=1&%6Fffset=5&where={%22a%22:+%22x=y%22}&&").unwrap();
    assert_eq!(target.offset, Some(OffsetParam::At(5)));
    assert_eq!(target.filter.as_ref().map(Filter::text), Some(r#"{"a":"x=y"}"#));
    assert!(!target.publish);

    for query in ["publish", "publish=0", "publish=", "publish&publish=1"] {
        let target = parse(format!("/d?{query}").as_bytes()).unwrap();
        assert!(target.publish && target.publisher.is_none(), "{query}");
    }
    let target = parse(b"/d?publish&publisher=en%20r%2F1").unwrap();
    assert_eq!(target.publisher.as_deref(), Some("en r/1"));
    assert_eq!(parse(b"/d?").unwrap(), parse(b"/d").unwrap());
    assert_eq!(parse(b"/d?where={}").unwrap().filter.as_ref().map(Filter::text), Some("{}"));
}

#[test]
fn offsets() {
    for (value, expected) in [
        ("0", 0),
        ("-0", 0),
        ("-000", 0),
        ("5", 5),
        ("+5", 5),
        ("%2B5", 5),
        ("0005", 5),
        ("1_000", 1000),
        ("%095%0A", 5),
        ("%C2%A05%E2%80%A8", 5),
        ("9223372036854775807", i64::MAX),
    ] {
        assert_eq!(offset_of(value), Some(OffsetParam::At(expected)), "{value}");
    }
    for digits in ["9223372036854775808", &"9".repeat(60)] {
        assert_eq!(offset_of(digits), Some(OffsetParam::BeyondI64(digits.to_owned())));
        assert_eq!(offset_of(&format!("+00_0{digits}")), Some(OffsetParam::BeyondI64(digits.to_owned())));
    }
    for value in [
        "",
        "+",
        "-",
        "EARLIEST",
        "-1",
        "-9223372036854775809",
        "5.0",
        "1e0",
        "0x5",
        "0__5",
        "_5",
        "5_",
        "5+5",
        "%2B%2B5",
        "5;publish",
        "%1F5",
        "%2B-5",
        "%2B%205",
        &"9".repeat(4301),
    ] {
        assert_eq!(offset_of(value), None, "{value}");
    }
}

#[test]
fn checks_come_in_their_order() {
    let long = "p".repeat(129);
    // Each target fails its own check and all later ones that it can.
    let failures = [
        (format!("/ x?bogus=1&where=nope&publish&offset=x&publisher={long}"), "bogus"),
        (format!("/ x?where=nope&publish&offset=x&publisher={long}"), "where"),
        (format!("/ x?where=[]&publish&offset=x&publisher={long}"), "where"),
        (format!("/ x?publish&where={{}}&offset=x&publisher={long}"), "publish does not go with offset"),
        (format!("/ x?publish&where={{}}&publisher={long}"), "publish does not go with where"),
        (format!("/ x?publish&publisher={long}"), "1 to 128 bytes"),
        ("/ x?publish&publisher=".to_owned(), "1 to 128 bytes"),
        ("/ x?publisher=p&offset=x".to_owned(), "needs publish"),
        ("/ x?offset=x".to_owned(), "offset must be an integer"),
        ("/ x?offset=-1".to_owned(), "offset must not be negative"),
    ];
    for (target, expected) in failures {
        assert!(detail(&target).contains(expected), "{target}: {}", detail(&target));
    }
    assert_eq!(detail("/d?z=1&OFFSET=1&z&a%20b"), "unknown query parameter: OFFSET,a b,z");
}

#[test]
fn ids_are_counted_in_bytes() {
    assert!(parse(format!("/x?publish&publisher={}", "%C3%A9".repeat(64)).as_bytes()).is_ok());
    assert!(parse(format!("/x?publish&publisher={}", "%C3%A9".repeat(65)).as_bytes()).is_err());
}

#[test]
fn no_detail_has_the_reserved_word() {
    for target in [
        "/x?publisher=p",
        "/x?publish&publisher=",
        "/x?publish&publisher=p&offset=1",
        "/x?publish&publisher=p&where={}",
        "/x?publish&publisher=p&publishers=1",
        "/x?publish&publisher=p&where=publisher",
    ] {
        assert!(!detail(target).contains("publisher"), "{target}: {}", detail(target));
    }
}

#[test]
fn a_bad_target_still_tells_its_action() {
    let bad = parse(b"/a%20b?publish&offset=1").unwrap_err();
    assert_eq!((bad.name.as_str(), bad.publish), ("a b", true));
    assert!(!parse(b"/d?publisher=p").unwrap_err().publish);
    assert!(!parse(b"/d?PUBLISH").unwrap_err().publish);
}

/// Form encoding, as a client writes it.
fn encode(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => char::from(byte).to_string(),
            b' ' => "+".to_owned(),
            _ => format!("%{byte:02X}"),
        })
        .collect()
}

/// Percent-decoding by the book: text first, then bytes, then text again.
fn slow_decode(text: &str, plus_is_space: bool) -> String {
    let text = if plus_is_space { text.replace('+', " ") } else { text.to_owned() };
    let mut out = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let escape = text.get(at + 1..at + 3).filter(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()));
        match (&text.as_bytes()[at], escape) {
            (b'%', Some(hex)) => {
                out.push(u8::from_str_radix(hex, 16).unwrap());
                at += 3;
            }
            (&byte, _) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The integer grammar, character by character.
fn slow_offset(text: &str) -> Option<String> {
    let text = text.trim();
    let digits: Vec<char> = text.strip_prefix(['+', '-']).unwrap_or(text).chars().collect();
    let is_digit = |place: usize| digits.get(place).is_some_and(char::is_ascii_digit);
    let legal = !digits.is_empty()
        && (0..digits.len()).all(|place| {
            is_digit(place) || (digits[place] == '_' && place > 0 && is_digit(place - 1) && is_digit(place + 1))
        });
    let value: String = digits.iter().filter(|c| **c != '_').collect::<String>().trim_start_matches('0').to_owned();
    if !legal || (text.starts_with('-') && !value.is_empty()) {
        return None;
    }
    Some(if value.is_empty() { "0".to_owned() } else { value })
}

proptest! {
    #[test]
    fn anything_is_parsed_or_refused(target in proptest::collection::vec(any::<u8>(), 0..80)) {
        let _ = parse(&target);
    }

    #[test]
    fn decoding_equals_the_book(text in "([a-c+%/\u{e9}]|%[0-9a-fA-F]{2}|%[cC]3%[aA]9){0,20}", plus_is_space in any::<bool>()) {
        prop_assert_eq!(decode(text.as_bytes(), plus_is_space), slow_decode(&text, plus_is_space));
    }

    #[test]
    fn what_a_client_encodes_comes_back(name in "[^/][^\u{0}]{0,20}", id in "\\PC{1,20}", key in "\\PC{0,12}") {
        let target = parse(format!("/{}?publish&publisher={}", encode(&name).replace('+', "%20"), encode(&id)).as_bytes());
        let target = target.unwrap();
        prop_assert_eq!(&target.name, &name);
        prop_assert_eq!(target.publisher.as_deref(), Some(id.as_str()));
        let text = crate::schema::json::Json::Object(vec![(key, crate::schema::json::Json::Int(1))]).to_text();
        let target = parse(format!("/{}?where={}", encode(&name).replace('+', "%20"), encode(&text)).as_bytes()).unwrap();
        prop_assert_eq!(target.filter.as_ref().map(Filter::text), Some(text.as_str()));
    }

    #[test]
    fn offsets_equal_the_grammar(text in "[ \t]{0,2}[-+]?[0-9_]{0,24}[ x.]{0,1}") {
        let got = match offset(&text) {
            Ok(OffsetParam::At(value)) => Some(value.to_string()),
            Ok(OffsetParam::BeyondI64(digits)) => Some(digits),
            Err(_) => None,
        };
        prop_assert_eq!(got, slow_offset(&text));
    }
}
