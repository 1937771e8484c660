//! A request as the handlers of the batch API see it.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::Response;
use axum::http::header::HeaderMap;
use axum::http::request::Parts;
use axum::response::IntoResponse as _;

use crate::batches::{ApiError, Service};
use crate::http::caller::Caller;

/// Everything of a request but its body.
pub struct Call {
    /// The batch API.
    pub service: Arc<Service>,
    /// Who asks.
    pub caller: Caller,
    /// The fields of the request.
    pub headers: HeaderMap,
    /// The query as it was sent.
    pub query: Option<String>,
    /// The name or id of a stream in the path, decoded; empty for the calls that are about no single one.
    pub stream: String,
}

impl FromRequestParts<Arc<Service>> for Call {
    type Rejection = Response<Body>;

    async fn from_request_parts(parts: &mut Parts, service: &Arc<Service>) -> Result<Self, Response<Body>> {
        let stream = match RawPathParams::from_request_parts(parts, service).await {
            Ok(params) => params.iter().next().map(|(_, stream)| stream.to_owned()).unwrap_or_default(),
            Err(RawPathParamsRejection::InvalidUtf8InPathParam(_)) => {
                return Err(ApiError::invalid("the path is not percent-encoded UTF-8").into_response());
            }
            Err(_) => String::new(),
        };
        let Ok(caller) = Caller::from_request_parts(parts, service).await;
        Ok(Self {
            service: Arc::clone(service),
            caller,
            headers: std::mem::take(&mut parts.headers),
            query: parts.uri.query().map(str::to_owned),
            stream,
        })
    }
}
