//! The parts of a control request: names, query parameters, header fields, and the body with its limits.

use std::borrow::Cow;

use axum::body::Body;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderName};
use axum::http::{HeaderMap, Request};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};

use crate::http::coding;
use crate::registry::{Cursor, Fault};
use crate::schema::json::{self, Json};

/// The longest idempotency key, in characters.
const MAX_KEY_CHARS: usize = 128;
/// The most streams of one page, and how many there are when nobody says.
const MAX_LIMIT: usize = 1_000;
const DEFAULT_LIMIT: usize = 100;

/// The part of a path that follows `/control/v1/<collection>/`, decoded.
pub(super) fn name_in(path: &str) -> String {
    decode(path.split('/').nth(4).unwrap_or_default(), false)
}

/// Percent-decoding as UTF-8; what is no UTF-8 is replaced, and what is no escape stays.
fn decode(text: &str, plus_is_space: bool) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let escaped = bytes.get(at + 1..at + 3).filter(|_| byte == b'%').and_then(|digits| {
            let digit = |index: usize| char::from(digits[index]).to_digit(16);
            u8::try_from(digit(0)? * 16 + digit(1)?).ok()
        });
        match escaped {
            Some(decoded) => {
                out.push(decoded);
                at += 3;
            }
            None => {
                out.push(if byte == b'+' && plus_is_space { b' ' } else { byte });
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Which page of a listing is asked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PageRequest {
    pub(super) limit: usize,
    pub(super) cursor: Option<Cursor>,
}

/// The parameters of a query, decoded.
pub(in crate::http) fn pairs(query: &str) -> impl Iterator<Item = (String, String)> {
    query.split('&').filter(|segment| !segment.is_empty()).map(|segment| {
        let (key, value) = segment.split_once('=').unwrap_or((segment, ""));
        (decode(key, true), decode(value, true))
    })
}

/// Reads the query of a listing. Of equal keys the last one counts.
pub(super) fn page_request(query: Option<&str>) -> Result<PageRequest, Fault> {
    let mut page = PageRequest { limit: DEFAULT_LIMIT, cursor: None };
    for (key, value) in pairs(query.unwrap_or_default()) {
        match key.as_str() {
            "limit" => {
                let limit = value.parse().ok().filter(|limit| (1..=MAX_LIMIT).contains(limit));
                page.limit = limit.ok_or(Fault::InvalidPagination)?;
            }
            "cursor" => page.cursor = Some(Cursor::parse(&value).ok_or(Fault::InvalidPagination)?),
            _ => return Err(Fault::InvalidPagination),
        }
    }
    Ok(page)
}

/// The idempotency key of a mutation.
pub(super) fn idempotency_key(headers: &HeaderMap) -> Result<String, Fault> {
    let key = headers.get("idempotency-key").map(|key| key.as_bytes().trim_ascii()).unwrap_or_default();
    if key.is_empty() {
        return Err(Fault::IdempotencyKeyRequired);
    }
    match std::str::from_utf8(key) {
        Ok(text) if key.len() <= MAX_KEY_CHARS && key.iter().all(u8::is_ascii_graphic) => Ok(text.to_owned()),
        _ => Err(Fault::InvalidIdempotencyKey),
    }
}

/// A field as one text; several of one name are joined as RFC 9110 has it.
pub(super) fn field(headers: &HeaderMap, name: HeaderName) -> Option<String> {
    let mut values = headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes()));
    let first = values.next()?;
    Some(values.fold(first, |joined, value| Cow::Owned(format!("{joined}, {value}"))).into_owned())
}

/// The body as JSON: its media type and coding, its size before it is read, and its text, in this order.
pub(super) async fn json_body(request: Request<Body>, max_bytes: usize) -> Result<Json, Fault> {
    let media_type = field(request.headers(), CONTENT_TYPE).unwrap_or_default();
    let media_type = media_type.split(';').next().unwrap_or_default().trim();
    if !media_type.eq_ignore_ascii_case("application/json") {
        return Err(Fault::JsonRequired);
    }
    if coding::of_body(request.headers()).is_some() {
        return Err(Fault::IdentityEncodingRequired);
    }
    let announced = request.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|length| length > max_bytes as u64) {
        return Err(Fault::BodyTooLarge);
    }
    match Limited::new(request.into_body(), max_bytes).collect().await {
        Ok(body) => json::parse_unique(&body.to_bytes()).map_err(|_| Fault::InvalidJson),
        Err(error) if error.downcast_ref::<LengthLimitError>().is_some() => Err(Fault::BodyTooLarge),
        // The peer broke off in the middle, or its chunks are none.
        Err(_) => Err(Fault::InvalidJson),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_decoded_once() {
        for (path, name) in [
            ("/control/v1/streams/a", "a"),
            ("/control/v1/streams/a%20b/desired", "a b"),
            ("/control/v1/streams/%2525", "%25"),
            ("/control/v1/streams/a%2Fb", "a/b"),
            ("/control/v1/streams/%C3%A9%ff%", "é\u{fffd}%"),
            ("/control/v1/streams/a+b", "a+b"),
        ] {
            assert_eq!(name_in(path), name, "{path}");
        }
    }

    #[test]
    fn pages_have_limits_and_no_other_parameters() {
        let limit = |query| page_request(query).map(|page| page.limit);
        assert_eq!(limit(None), Ok(100));
        assert_eq!(limit(Some("limit=1&limit=1000&")), Ok(1_000));
        for bad in ["limit=0", "limit=1001", "limit=x", "limit", "limit=-1", "x=1", "cursor=zz", "cursor="] {
            assert_eq!(page_request(Some(bad)), Err(Fault::InvalidPagination), "{bad}");
        }
        let cursor = Cursor { collection: 3, after: "z".to_owned() };
        let query = format!("cursor={}", cursor.to_text().replace('=', "%3D"));
        assert_eq!(page_request(Some(&query)).map(|page| page.cursor), Ok(Some(cursor)));
    }

    #[test]
    fn keys_are_visible_ascii() {
        let key = |value: &[u8]| {
            let mut headers = HeaderMap::new();
            headers.insert("idempotency-key", axum::http::HeaderValue::from_bytes(value).expect("a value"));
            idempotency_key(&headers)
        };
        assert_eq!(key(b"!~"), Ok("!~".to_owned()));
        assert_eq!(key(&[b'k'; 128]).map(|key| key.len()), Ok(128));
        for bad in [&b"has space"[..], &[b'x'; 129], "é".as_bytes(), b"\xff"] {
            assert_eq!(key(bad), Err(Fault::InvalidIdempotencyKey));
        }
        assert_eq!(key(b""), Err(Fault::IdempotencyKeyRequired));
        assert_eq!(idempotency_key(&HeaderMap::new()), Err(Fault::IdempotencyKeyRequired));
    }

    #[test]
    fn repeated_preconditions_are_one_that_never_holds() {
        let mut headers = HeaderMap::new();
        assert_eq!(field(&headers, axum::http::header::IF_MATCH), None);
        headers.append("if-match", "\"1\"".parse().expect("a value"));
        assert_eq!(field(&headers, axum::http::header::IF_MATCH).as_deref(), Some("\"1\""));
        headers.append("if-match", "\"1\"".parse().expect("a value"));
        assert_eq!(field(&headers, axum::http::header::IF_MATCH).as_deref(), Some("\"1\", \"1\""));
    }
}
