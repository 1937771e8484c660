//! Codings of request bodies: none is undone here, so that a body is what its bytes say and its limits are limits.

use axum::body::Body;
use axum::http::header::{ACCEPT_ENCODING, CONTENT_ENCODING};
use axum::http::{HeaderMap, HeaderValue, Response};

use super::errors::with_header;

/// The codings that a body was sent in, if it is not just as it is.
pub fn of_body(headers: &HeaderMap) -> Option<String> {
    let fields = headers.get_all(CONTENT_ENCODING).iter().map(|field| String::from_utf8_lossy(field.as_bytes()));
    let codings = fields.collect::<Vec<_>>().join(", ");
    let plain = |coding: &str| coding.trim().is_empty() || coding.trim().eq_ignore_ascii_case("identity");
    (!codings.split(',').all(plain)).then_some(codings)
}

/// The refusal of a coded body, with the coding that would do (RFC 9110 section 15.5.16).
pub fn only_plain(refusal: Response<Body>) -> Response<Body> {
    with_header(refusal, ACCEPT_ENCODING, HeaderValue::from_static("identity"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_plain_unless_a_coding_is_named() {
        for (fields, coded) in [
            (&[][..], None),
            (&[""], None),
            (&["identity"], None),
            (&["Identity, ,identity"], None),
            (&["gzip"], Some("gzip")),
            (&["identity", "br"], Some("identity, br")),
            (&["identity;q=1"], Some("identity;q=1")),
        ] {
            let mut headers = HeaderMap::new();
            for field in fields {
                headers.append(CONTENT_ENCODING, HeaderValue::from_static(field));
            }
            assert_eq!(of_body(&headers).as_deref(), coded, "{fields:?}");
        }
    }
}
