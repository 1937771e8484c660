//! Answers of the batch API: its envelope of errors, and who may do what.

use axum::body::Body;
use axum::http::header::{HeaderValue, RETRY_AFTER};
use axum::http::{Response, StatusCode};

use crate::auth::{Action, Resource};
use crate::batches::ApiError;
use crate::http::caller::Caller;
use crate::http::errors::{json, with_header};

/// An answer, or why there is none.
pub type Answer = Result<Response<Body>, ApiError>;

/// The response of an answer.
pub fn respond(answer: Answer) -> Response<Body> {
    let error = match answer {
        Ok(response) => return response,
        Err(error) => error,
    };
    let status = StatusCode::from_u16(error.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let response = json(status, error.body());
    match status {
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
            with_header(response, RETRY_AFTER, HeaderValue::from_static("1"))
        }
        _ => response,
    }
}

/// The answer to a body over the limit.
pub fn too_large(max_bytes: usize) -> ApiError {
    ApiError::too_large(format!("a request body has at most {max_bytes} bytes; send several batches"))
}

/// Refuses a caller that may not do this to the stream, whether there is such a stream or not.
pub fn allow(caller: &Caller, action: Action, stream: &str) -> Result<(), ApiError> {
    if caller.allows(action, Resource::Stream(stream)) { Ok(()) } else { Err(forbidden()) }
}

fn forbidden() -> ApiError {
    ApiError::new(403, "forbidden", "the caller may not do this")
}
