//! Answers that say no, in the two forms of wire.md section 11.2, and the one error of the start.

use axum::body::Body;
use axum::http::header::{ALLOW, CONTENT_TYPE, WWW_AUTHENTICATE};
use axum::http::{HeaderName, HeaderValue, Response, StatusCode};

/// Why the HTTP side did not start.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The thread or its runtime could not be made.
    #[error("the http thread did not start: {0}; check the limits on threads and open files")]
    Start(#[from] std::io::Error),
}

/// The envelope of a refusal: `code` is one word or several joined by `_`.
pub fn envelope(status: StatusCode, code: &str) -> Response<Body> {
    let retryable = matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
    let error = serde_json::json!({"error": {
        "code": code,
        "message": code.replace('_', " "),
        "retryable": retryable,
        "operation_id": null,
    }});
    let mut response = json(status, error.to_string());
    if retryable {
        response.headers_mut().insert("retry-after", HeaderValue::from_static("1"));
    }
    response
}

/// The caller has to show who it is.
pub fn authentication_required() -> Response<Body> {
    challenged(envelope(StatusCode::UNAUTHORIZED, "authentication_required"))
}

/// A 401 with what would do.
pub fn challenged(response: Response<Body>) -> Response<Body> {
    let challenge = HeaderValue::from_static("Basic realm=\"streamcast\", charset=\"UTF-8\"");
    with_header(response, WWW_AUTHENTICATE, challenge)
}

/// The caller is known and may not do this, whether there is such a stream or not.
pub fn forbidden() -> Response<Body> {
    envelope(StatusCode::FORBIDDEN, "forbidden")
}

/// A defect: told to the log, and not to the caller.
pub fn internal(error: &dyn std::error::Error) -> Response<Body> {
    tracing::error!(%error, "an answer could not be made");
    json(StatusCode::INTERNAL_SERVER_ERROR, r#"{"detail":"Internal Server Error"}"#)
}

/// Nothing is served at this path.
pub fn not_found() -> Response<Body> {
    json(StatusCode::NOT_FOUND, r#"{"detail":"Not Found"}"#)
}

/// The path is served, but not for this method.
pub fn method_not_allowed(allow: &'static str) -> Response<Body> {
    with_header(
        json(StatusCode::METHOD_NOT_ALLOWED, r#"{"detail":"Method Not Allowed"}"#),
        ALLOW,
        HeaderValue::from_static(allow),
    )
}

/// A JSON body.
pub fn json(status: StatusCode, body: impl Into<Body>) -> Response<Body> {
    typed(status, "application/json", body)
}

/// A plain text body.
pub fn text(status: StatusCode, body: impl Into<Body>) -> Response<Body> {
    typed(status, "text/plain; charset=utf-8", body)
}

/// A body of the given media type.
pub fn typed(status: StatusCode, media_type: &'static str, body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    with_header(response, CONTENT_TYPE, HeaderValue::from_static(media_type))
}

/// The same response with one more header field.
pub fn with_header(mut response: Response<Body>, name: HeaderName, value: HeaderValue) -> Response<Body> {
    response.headers_mut().insert(name, value);
    response
}
