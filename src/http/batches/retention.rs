//! How long the rows of a stream are kept: `/v1/streams/{stream}/retention`.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Response, StatusCode};
use axum::routing::get;
use serde::Deserialize;
use serde_json::{Number, Value, json};
use utoipa::ToSchema;

use super::answer::Answer;
use super::call::Call;
use super::entries::collect;
use super::streams::{find, find_managed, refuse_rest};
use crate::auth::Action;
use crate::batches::body::object;
use crate::batches::retention::Retention;
use crate::batches::time::iso_millis;
use crate::batches::{ApiError, Service};
use crate::http::errors::{json, method_not_allowed};

/// Bytes of a body that says how long rows are kept.
const MAX_BYTES: usize = 4_096;

/// The longest time, in seconds: a hundred years. Whoever wants more wants rows to be kept for ever.
const MAX_AGE_S: u64 = 3_155_760_000;

/// How long rows are kept.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(dead_code, reason = "only its shape is of use")]
pub struct RetentionView {
    /// Seconds since a row came; null keeps rows for ever.
    #[schema(required = true)]
    max_age_s: Option<f64>,
    /// The first offset that is kept.
    first_offset: i64,
    /// Files below this offset are going to be deleted.
    #[schema(required = true)]
    pending_floor: Option<i64>,
    /// Since when.
    #[schema(required = true)]
    pending_since: Option<String>,
}

/// How long rows shall be kept.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(rename_all = "camelCase")]
#[expect(dead_code, reason = "only its shape is of use")]
pub struct RetentionChange {
    /// Seconds since a row came; null keeps rows for ever.
    #[schema(required = true, minimum = 1, maximum = 3_155_760_000_u64)]
    max_age_s: Option<u64>,
}

/// The routes.
pub fn router() -> Router<Arc<Service>> {
    let routes = get(show).put(set).fallback(|| async { method_not_allowed("GET, HEAD, PUT") });
    Router::new().route("/v1/streams/{stream}/retention", routes)
}

#[utoipa::path(get, path = "/v1/streams/{stream}/retention", operation_id = "get_retention", tag = "batches",
    params(("stream" = String, Path, description = "A name or an id")),
    responses((status = 200, description = "How long rows are kept", body = RetentionView), super::refusals::Retention))]
pub async fn show(call: Call) -> Answer {
    let stream = find(&call, Action::DataRead)?;
    Ok(view(&call.service.retention(&stream).await?))
}

#[utoipa::path(put, path = "/v1/streams/{stream}/retention", operation_id = "set_retention", tag = "batches",
    params(("stream" = String, Path, description = "A name or an id")), request_body = RetentionChange,
    responses((status = 200, description = "How long rows are kept", body = RetentionView), super::refusals::Retain))]
pub async fn set(call: Call, body: Body) -> Answer {
    change(&call, body).await
}

async fn change(call: &Call, body: Body) -> Answer {
    let stream = find_managed(call)?;
    let body = collect(call, body, MAX_BYTES).await?;
    let mut members = object(&body)?;
    let max_age = match members.shift_remove("maxAgeS") {
        Some(Value::Null) => None,
        Some(seconds) => {
            let seconds = seconds.as_number().and_then(whole).filter(|seconds| (1..=MAX_AGE_S).contains(seconds));
            let wrong =
                || ApiError::invalid(format!("maxAgeS has to be a whole number from 1 to {MAX_AGE_S}, or null"));
            Some(Duration::from_secs(seconds.ok_or_else(wrong)?))
        }
        None => return Err(ApiError::invalid("maxAgeS is missing: give seconds, or null to keep rows for ever")),
    };
    refuse_rest(&members)?;
    Ok(view(&call.service.retain(&stream, max_age).await?))
}

/// A number without a fraction; JSON Schema counts 60.0 among the integers.
fn whole(number: &Number) -> Option<u64> {
    let written = || number.as_f64().filter(|real| real.fract() == 0.0 && *real >= 0.0 && *real < 2_f64.powi(53));
    number.as_u64().or_else(|| written().map(|real| real as u64))
}

/// Microseconds in seconds: a whole number where it is one, as it was given.
fn seconds(us: i64) -> Value {
    if us % 1_000_000 == 0 { json!(us / 1_000_000) } else { json!(us as f64 / 1e6) }
}

fn view(retention: &Retention) -> Response<Body> {
    let text = json!({
        "maxAgeS": retention.max_age_us.map(seconds),
        "firstOffset": retention.first_offset,
        "pendingFloor": retention.pending.map(|(floor, _)| floor),
        "pendingSince": retention.pending.map(|(_, at_us)| iso_millis(at_us)),
    });
    json(StatusCode::OK, text.to_string())
}
