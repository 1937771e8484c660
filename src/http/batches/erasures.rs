//! Erasing entries, and what was erased.

use axum::body::Body;
use axum::http::StatusCode;
use serde_json::json;

use super::answer::Answer;
use super::call::Call;
use super::entries::collect_large;
use super::query::Query;
use super::streams::{find, find_managed};
use crate::auth::Action;
use crate::batches::limits::MAX_LISTED;
use crate::batches::view_erasure;
use crate::http::errors;

/// Erases entries.
pub async fn erase(call: Call, body: Body) -> Answer {
    let stream = find_managed(&call)?;
    let (_room, body) = collect_large(&call, body).await?;
    let marker = call.service.erase(&stream, body).await?;
    Ok(errors::json(StatusCode::OK, view_erasure(&stream, &marker).to_string()))
}

/// The latest erasures.
pub async fn list(call: Call) -> Answer {
    let stream = find(&call, Action::DataRead)?;
    let query = Query::read(call.query.as_deref(), &["limit"])?;
    let erasures = call.service.erasures(&stream, query.count("limit", 100, MAX_LISTED)?).await?;
    Ok(errors::json(StatusCode::OK, json!({ "erasures": erasures }).to_string()))
}
