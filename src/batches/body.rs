//! The body of an insert: from its bytes to canonical rows, in pieces that stay in the cache.
//!
//! The scanner finds the entries; runs of them are read by the parser that reads publish frames, so that a row is
//! checked and written the same way through both doors. Only a piece that does not pass is looked at entry by entry.

use std::collections::HashSet;

use serde_json::Value;

use super::error::ApiError;
use super::limits::{MAX_ENTRIES, MAX_ENTRY_BYTES, MAX_ENTRY_LEVELS, MAX_FAILURES, MAX_KEY_CHARS, MAX_STORED_BYTES};
use super::scan::{Broken, Scanner, Span};
use crate::schema::Schema;
use crate::schema::json::{self, Json};
use crate::wire::{FrameParser, Numbering, Refusal, RowBatch};

/// Bytes of entries that are read at once.
const PIECE_BYTES: usize = 48 << 10;

/// An insert that can be committed.
#[derive(Debug, PartialEq, Eq)]
pub struct InsertBody {
    /// The idempotency key.
    pub key: Option<String>,
    /// Whether the answer lists every entry.
    pub return_entry_ids: bool,
    /// The entries as they will be stored.
    pub rows: RowBatch,
}

/// Reads the body of an insert into a stream with these columns.
///
/// # Errors
/// 400 for what is no insert, 413 for one that is too large, 422 with the entries that do not fit.
pub fn parse(body: &[u8], schema: Option<&Schema>, parser: &mut FrameParser) -> Result<InsertBody, ApiError> {
    let mut scanner = Scanner::new(body);
    let mut insert = InsertBody { key: None, return_entry_ids: true, rows: RowBatch::default() };
    let mut entries = None;
    members(body, &mut scanner, |key, scanner| {
        match key {
            "idempotencyKey" => insert.key = read_key(body, scanner)?,
            "returnEntryIds" => {
                insert.return_entry_ids = match read(body, scanner.value().map_err(broken)?)? {
                    Json::Bool(value) => value,
                    _ => return Err(ApiError::invalid("returnEntryIds has to be true or false")),
                }
            }
            "entries" => {
                if scanner.peek() != Some(b'[') {
                    return Err(ApiError::invalid("entries has to be an array"));
                }
                let mut pieces = Pieces::new(body, schema, parser);
                pieces.read(scanner)?;
                entries = Some(pieces.finish()?);
            }
            _ => return Err(ApiError::invalid(format!("unknown member {key:?}"))),
        }
        Ok(())
    })?;
    insert.rows = entries.ok_or_else(|| ApiError::invalid("entries is missing"))?;
    Ok(insert)
}

/// Calls `each` with the key of every member of the object that fills `body`; it has to take the value. A key that is
/// there twice is refused: it does not say which of the two is meant.
pub(super) fn members<'a>(
    body: &[u8],
    scanner: &mut Scanner<'a>,
    mut each: impl FnMut(&str, &mut Scanner<'a>) -> Result<(), ApiError>,
) -> Result<(), ApiError> {
    if scanner.peek() != Some(b'{') {
        // Whether it is another value or none at all.
        read(body, Span { start: 0, end: body.len(), levels: 0 })?;
        return Err(ApiError::invalid("the body has to be an object"));
    }
    scanner.eat(b'{');
    let mut seen = HashSet::new();
    if !scanner.eat(b'}') {
        loop {
            let key = read(body, scanner.string().map_err(broken)?)?;
            scanner.need(b':', "a colon has to be here").map_err(broken)?;
            if let Json::String(key) = key {
                if seen.contains(&key) {
                    return Err(ApiError::invalid(format!("the member {key:?} is given twice")));
                }
                each(&key, scanner)?;
                seen.insert(key);
            }
            if scanner.eat(b'}') {
                break;
            }
            scanner.need(b',', "a comma or } has to be here").map_err(broken)?;
        }
    }
    scanner.end().map_err(broken)
}

/// Reads an idempotency key, or null for none.
pub(super) fn read_key(body: &[u8], scanner: &mut Scanner<'_>) -> Result<Option<String>, ApiError> {
    match read(body, scanner.value().map_err(broken)?)? {
        Json::Null => Ok(None),
        Json::String(key) if (1..=MAX_KEY_CHARS).contains(&key.chars().count()) => Ok(Some(key)),
        _ => Err(ApiError::invalid(format!("idempotencyKey has to be a string of 1 to {MAX_KEY_CHARS} characters"))),
    }
}

/// Reads a value that the scanner has found.
pub(super) fn read(body: &[u8], span: Span) -> Result<Json, ApiError> {
    json::parse(&body[span.start..span.end])
        .map_err(|error| ApiError::not_json(format!("byte {}: {}", span.start + error.at, error.what)))
}

pub(super) fn broken(broken: Broken) -> ApiError {
    ApiError::not_json(format!("byte {}: {}", broken.at, broken.what))
}

/// The entries on their way to rows.
struct Pieces<'a> {
    body: &'a [u8],
    schema: Option<&'a Schema>,
    parser: &'a mut FrameParser,
    rows: RowBatch,
    /// Entries that were found and not read yet, and the index of the first.
    found: Vec<Span>,
    first: usize,
    piece: Vec<u8>,
    failures: Vec<(usize, String)>,
}

impl<'a> Pieces<'a> {
    fn new(body: &'a [u8], schema: Option<&'a Schema>, parser: &'a mut FrameParser) -> Self {
        Self {
            body,
            schema,
            parser,
            rows: RowBatch::default(),
            found: Vec::new(),
            first: 0,
            piece: Vec::new(),
            failures: Vec::new(),
        }
    }

    /// Takes the array that the scanner stands before.
    fn read(&mut self, scanner: &mut Scanner<'_>) -> Result<(), ApiError> {
        scanner.eat(b'[');
        if scanner.eat(b']') {
            return Err(ApiError::invalid("entries is empty; a batch has at least one"));
        }
        loop {
            let span = scanner.value().map_err(broken)?;
            let index = self.first + self.found.len();
            if index == MAX_ENTRIES {
                return Err(ApiError::too_large(format!("a batch has at most {MAX_ENTRIES} entries; send several")));
            }
            if span.end - span.start > MAX_ENTRY_BYTES {
                return Err(ApiError::too_large(format!(
                    "entry {index} has over {MAX_ENTRY_BYTES} bytes, which is the most that one may have"
                )));
            }
            self.found.push(span);
            if span.end - self.found[0].start >= PIECE_BYTES || span.levels > MAX_ENTRY_LEVELS {
                self.take()?;
            }
            if scanner.eat(b']') {
                break;
            }
            scanner.need(b',', "a comma or ] has to be here").map_err(broken)?;
        }
        self.take()
    }

    /// Reads what was found.
    fn take(&mut self) -> Result<(), ApiError> {
        let (Some(first), Some(last)) = (self.found.first(), self.found.last()) else { return Ok(()) };
        let deep = self.found.iter().any(|span| span.levels > MAX_ENTRY_LEVELS);
        self.piece.clear();
        self.piece.push(b'[');
        self.piece.extend_from_slice(&self.body[first.start..last.end]);
        self.piece.push(b']');
        let parsed = if deep { None } else { self.parser.parse(self.schema, Numbering::Plain, &self.piece).ok() };
        match parsed {
            Some(frame) if frame.rows.count() == self.found.len() => {
                let base = self.rows.body.len() as u32;
                self.rows.body.extend_from_slice(&frame.rows.body);
                self.rows.ends.extend(frame.rows.ends.iter().map(|end| end + base));
            }
            _ => self.one_by_one()?,
        }
        if self.rows.body.len() > MAX_STORED_BYTES {
            return Err(ApiError::too_large(format!(
                "the entries take over {MAX_STORED_BYTES} bytes with all their columns written out; send fewer"
            )));
        }
        self.first += self.found.len();
        self.found.clear();
        if self.failures.len() >= MAX_FAILURES {
            return Err(ApiError::failures(&self.failures[..MAX_FAILURES], true));
        }
        Ok(())
    }

    /// Finds the entries that do not fit. The rows of the others are dropped: nothing will be inserted.
    fn one_by_one(&mut self) -> Result<(), ApiError> {
        for (place, span) in self.found.iter().enumerate() {
            let text = &self.body[span.start..span.end];
            let reason = if span.levels > MAX_ENTRY_LEVELS {
                format!("is nested over {MAX_ENTRY_LEVELS} levels deep")
            } else {
                match read(self.body, *span)? {
                    Json::Object(_) => match self.parser.parse(self.schema, Numbering::Plain, text) {
                        Ok(_) => continue,
                        Err(Refusal::BadFrame(why) | Refusal::Rejected(why)) => why,
                    },
                    other => format!("is {} and no object", other.kind()),
                }
            };
            self.failures.push((self.first + place, reason));
        }
        Ok(())
    }

    fn finish(self) -> Result<RowBatch, ApiError> {
        if !self.failures.is_empty() {
            return Err(ApiError::failures(&self.failures, false));
        }
        if self.rows.count() != self.first {
            // A piece that is no array of so many objects, whose entries nevertheless are: cannot be by construction.
            return Err(ApiError::not_json("the entries are not separated as they seem to be"));
        }
        Ok(self.rows)
    }
}

/// A document that is small enough to be read at once, as a tree.
///
/// # Errors
/// 400 if it is no JSON object or has a key twice.
pub fn object(body: &[u8]) -> Result<serde_json::Map<String, Value>, ApiError> {
    let parsed = json::parse(body).map_err(|error| ApiError::not_json(error.to_string()))?;
    members(body, &mut Scanner::new(body), |_, scanner| scanner.value().map(|_| ()).map_err(broken))?;
    // Read twice, because the first reader knows what JSON is and the second has the tree that others want.
    match (parsed, serde_json::from_slice(body)) {
        (Json::Object(_), Ok(Value::Object(members))) => Ok(members),
        _ => Err(ApiError::invalid("the body has to be an object")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn schema() -> Schema {
        Schema::compile_text(
            r#"{"properties":{"id":{"type":"integer"},"name":{"type":["string","null"]}},"required":["id"]}"#,
            true,
        )
        .expect("a schema")
    }

    fn insert(body: &str) -> Result<InsertBody, ApiError> {
        parse(body.as_bytes(), Some(&schema()), &mut FrameParser::new())
    }

    fn code(body: &str) -> (u16, &'static str) {
        insert(body).map_or_else(|error| (error.status, error.code), |_| (200, "ok"))
    }

    #[test]
    fn members_may_come_in_any_order() {
        let one = insert(r#"{"entries":[{"id":1},{"name":"a","id":2}],"idempotencyKey":"k","returnEntryIds":false}"#);
        let other = insert(
            r#" { "returnEntryIds" : false , "idempotencyKey":"k","entries":[ {"id":1} , {"id":2,"name":"a"} ] } "#,
        );
        let one = one.expect("valid");
        assert_eq!(other.as_ref(), Ok(&one));
        assert_eq!(one.rows.body, b"{\"id\":1,\"name\":null}\n{\"id\":2,\"name\":\"a\"}\n");
        assert_eq!((one.key.as_deref(), one.return_entry_ids), (Some("k"), false));
        assert_eq!(one.rows.ends, [21, 41]);
    }

    #[test]
    fn what_is_no_insert_is_told_so() {
        for (body, answer) in [
            ("", (400, "invalid_json")),
            ("{", (400, "invalid_json")),
            ("[]", (400, "invalid_request")),
            ("{}", (400, "invalid_request")),
            (r#"{"entries":[]}"#, (400, "invalid_request")),
            (r#"{"entries":{}}"#, (400, "invalid_request")),
            (r#"{"entries":[{"id":1}],"x":1}"#, (400, "invalid_request")),
            (r#"{"entries":[{"id":1}],"entries":[{"id":1}]}"#, (400, "invalid_request")),
            (r#"{"idempotencyKey":"a","idempotency\u004bey":"b","entries":[{"id":1}]}"#, (400, "invalid_request")),
            (r#"{"entries":[{"id":1}],"idempotencyKey":5}"#, (400, "invalid_request")),
            (r#"{"entries":[{"id":1}],"idempotencyKey":""}"#, (400, "invalid_request")),
            (r#"{"entries":[{"id":1}],"idempotencyKey":null}"#, (200, "ok")),
            (r#"{"entries":[{"id":1}],"returnEntryIds":1}"#, (400, "invalid_request")),
            (r#"{"entries":[{"id":1}]} x"#, (400, "invalid_json")),
            (r#"{"entries":[{"id":1} {"id":2}]}"#, (400, "invalid_json")),
            (r#"{"entries":[{"id":1},]}"#, (400, "invalid_json")),
            (r#"{"entries":[{"id":1]]}"#, (400, "invalid_json")),
            (r#"{"entries":[{"id":1},{"id":nul}]}"#, (400, "invalid_json")),
            ("{\"entries\":[{\"id\":1,\"name\":\"\u{1}\"}]}", (400, "invalid_json")),
            (r#"{"entries":[{"id":1},{"id":"x"}]}"#, (422, "validation_failed")),
            (r#"{"entries":[{"id":1},7]}"#, (422, "validation_failed")),
            (r#"{"entries":[{"id":1},{"id":1,"z":1}]}"#, (422, "validation_failed")),
        ] {
            assert_eq!(code(body), answer, "{body}");
        }
    }

    #[test]
    fn every_failing_entry_is_named_up_to_the_bound() {
        let entries: Vec<String> =
            (0..5000).map(|index| format!(r#"{{"id":{}}}"#, if index % 40 == 7 { "\"x\"" } else { "1" })).collect();
        let error = insert(&format!(r#"{{"entries":[{}]}}"#, entries.join(","))).expect_err("refused");
        let details = error.details.expect("details");
        let failures = details["failures"].as_array().expect("a list");
        assert_eq!((failures.len(), &details["truncated"]), (100, &Value::Bool(true)));
        assert!(failures.iter().zip(0..).all(|(failure, place)| failure["index"] == 7 + 40 * place), "{failures:?}");
        let deep = format!(r#"{{"entries":[{{"id":1}},{}1{}]}}"#, r#"{"a":"#.repeat(33), "}".repeat(33));
        let error = parse(deep.as_bytes(), None, &mut FrameParser::new()).expect_err("refused");
        assert_eq!(error.details.expect("details")["failures"][0]["index"], 1);
        let fits = format!(r#"{{"entries":[{}1{}]}}"#, r#"{"a":"#.repeat(32), "}".repeat(32));
        assert!(parse(fits.as_bytes(), None, &mut FrameParser::new()).is_ok());
    }

    #[test]
    fn more_than_the_limits_is_too_large() {
        let many = format!(r#"{{"entries":[{}{{}}]}}"#, "{},".repeat(MAX_ENTRIES));
        let long = format!(r#"{{"entries":[{{"a":"{}"}}]}}"#, "x".repeat(MAX_ENTRY_BYTES));
        for body in [&many, &long] {
            let error = parse(body.as_bytes(), None, &mut FrameParser::new()).expect_err("refused");
            assert_eq!((error.status, error.code), (413, "request_too_large"));
        }
        let just = format!(r#"{{"entries":[{}{{}}]}}"#, "{},".repeat(MAX_ENTRIES - 1));
        let insert = parse(just.as_bytes(), None, &mut FrameParser::new()).expect("fits");
        assert_eq!(insert.rows.count(), MAX_ENTRIES);
    }

    #[test]
    fn a_member_that_is_given_twice_is_refused() {
        for (body, answer) in [
            (r#"{"name":"a","validator":null}"#, None),
            (r#"{"schema":{"a":1,"a":2}}"#, None),
            (r#"{"validator":"true","validator":null}"#, Some("invalid_request")),
            (r#"["validator"]"#, Some("invalid_request")),
            (r#"{"validator":nul}"#, Some("invalid_json")),
        ] {
            assert_eq!(object(body.as_bytes()).err().map(|error| error.code), answer, "{body}");
        }
    }

    proptest! {
        #[test]
        fn pieces_give_what_one_frame_gives(lengths in prop::collection::vec(0_usize..30_000, 1..12)) {
            let entries: Vec<String> = lengths
                .iter()
                .enumerate()
                .map(|(id, length)| format!(r#"{{"id":{id},"name":"{}"}}"#, "é\\n".repeat(*length / 4)))
                .collect();
            let frame = format!("[{}]", entries.join(","));
            let whole = FrameParser::new().parse(Some(&schema()), Numbering::Plain, frame.as_bytes()).expect("valid");
            let body = format!(r#"{{"entries":{frame}}}"#);
            prop_assert_eq!(insert(&body).expect("valid").rows, whole.rows);
        }

        #[test]
        fn no_bytes_are_a_problem(body in prop::collection::vec(prop::sample::select(
            &b"{}[]\",:\\ 1aentriesidnull"[..]), 0..60)) {
            let _ = parse(&body, None, &mut FrameParser::new());
            let mut inside = b"{\"entries\":[".to_vec();
            inside.extend(&body);
            inside.extend(b"]}");
            let _ = parse(&inside, None, &mut FrameParser::new());
        }
    }
}
