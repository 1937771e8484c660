//! What the batch API answers instead of a result (docs/batches.md, "Errors").

use serde_json::{Value, json};

/// A refusal with its status.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct ApiError {
    /// The HTTP status.
    pub status: u16,
    /// One word for programs.
    pub code: &'static str,
    /// A sentence for people.
    pub message: String,
    /// What else is to be known.
    pub details: Option<Value>,
}

impl ApiError {
    /// A refusal without details.
    pub fn new(status: u16, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), details: None }
    }

    /// The same with details.
    #[must_use]
    pub fn with(self, details: Value) -> Self {
        Self { details: Some(details), ..self }
    }

    /// 400: the request is not what it has to be.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(400, "invalid_request", message)
    }

    /// 400: the body is not JSON.
    pub fn not_json(message: impl Into<String>) -> Self {
        Self::new(400, "invalid_json", message)
    }

    /// 400: a cursor of another stream, or none at all.
    #[must_use]
    pub fn cursor() -> Self {
        Self::new(400, "invalid_cursor", "this is not a cursor of this stream")
    }

    /// 404: no such stream.
    #[must_use]
    pub fn no_stream(name: &str) -> Self {
        Self::new(404, "stream_not_found", format!("there is no stream {name:?}"))
    }

    /// 409: a key that was used for another body.
    #[must_use]
    pub fn key_reused() -> Self {
        Self::new(
            409,
            "idempotency_key_reused",
            "the idempotency key was used for another body; take a new one for a new request",
        )
    }

    /// 409: a stream that is readable only.
    #[must_use]
    pub fn retired() -> Self {
        Self::new(409, "stream_retired", "the stream is retired: it can be read and takes no more entries")
    }

    /// 410: there was such a stream.
    #[must_use]
    pub fn deleted(id: &str) -> Self {
        Self::new(410, "stream_deleted", format!("the stream {id} has been deleted"))
    }

    /// 413: more than one request may carry.
    pub fn too_large(message: impl Into<String>) -> Self {
        Self::new(413, "request_too_large", message)
    }

    /// 415: a body in a coding that is not undone here.
    #[must_use]
    pub fn coded(codings: &str) -> Self {
        let message =
            format!("a body with Content-Encoding {codings:?} is not read; send it as it is, without that field");
        Self::new(415, "identity_encoding_required", message)
    }

    /// 422: entries that do not fit, by index and reason.
    #[must_use]
    pub fn failures(failures: &[(usize, String)], more: bool) -> Self {
        let list: Vec<Value> =
            failures.iter().map(|(index, reason)| json!({"index": index, "reason": reason})).collect();
        let count = if more { format!("at least {}", list.len()) } else { list.len().to_string() };
        let message = format!("{count} of the entries do not fit the stream; nothing was inserted");
        Self::new(422, "validation_failed", message).with(json!({"failures": list, "truncated": more}))
    }

    /// 429: too much at once.
    pub fn busy(message: impl Into<String>) -> Self {
        Self::new(429, "too_many_requests", message)
    }

    /// 503: nothing that the client did.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(503, "unavailable", message)
    }

    /// The body of the answer.
    #[must_use]
    pub fn body(&self) -> String {
        let mut error = json!({"code": self.code, "message": self.message});
        if let (Some(details), Value::Object(error)) = (&self.details, &mut error) {
            error.insert("details".to_owned(), details.clone());
        }
        json!({ "error": error }).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_envelope_has_details_only_where_there_are_some() {
        assert_eq!(
            ApiError::cursor().body(),
            r#"{"error":{"code":"invalid_cursor","message":"this is not a cursor of this stream"}}"#
        );
        let failed = ApiError::failures(&[(3, "no".to_owned())], false);
        assert_eq!(failed.status, 422);
        assert!(failed.body().contains(r#""details":{"failures":[{"index":3,"reason":"no"}],"truncated":false}"#));
    }
}
