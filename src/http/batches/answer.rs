//! Answers of the batch API: its envelope of errors, and who may do what.

use axum::body::Body;
use axum::http::header::{HeaderMap, HeaderValue, ORIGIN, RETRY_AFTER};
use axum::http::{Response, StatusCode};
use axum::response::IntoResponse;

use crate::auth::{Action, Resource};
use crate::batches::{ApiError, Service};
use crate::http::caller::Caller;
use crate::http::coding::only_plain;
use crate::http::errors::{challenged, json, with_header};

/// An answer, or why there is none.
pub type Answer = Result<Response<Body>, ApiError>;

impl IntoResponse for ApiError {
    fn into_response(self) -> Response<Body> {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let response = json(status, self.body());
        match status {
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                with_header(response, RETRY_AFTER, HeaderValue::from_static("1"))
            }
            StatusCode::UNSUPPORTED_MEDIA_TYPE => only_plain(response),
            StatusCode::UNAUTHORIZED => challenged(response),
            _ => response,
        }
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

/// Refuses a caller that may not create, change or delete this stream. A broker that only this host can reach, and
/// that has no policy, lets everybody who reaches it, but no page of another site.
pub fn allow_managing(service: &Service, caller: &Caller, headers: &HeaderMap, stream: &str) -> Result<(), ApiError> {
    let local = service.is_open_to_this_host()
        && caller.name() == "public"
        && caller.peer().is_some_and(|peer| peer.is_loopback())
        && !headers.contains_key(ORIGIN);
    if local || caller.allows(Action::ControlMutate, Resource::Stream(stream)) { Ok(()) } else { Err(forbidden()) }
}

fn forbidden() -> ApiError {
    ApiError::new(403, "forbidden", "the caller may not do this")
}
