//! Streams: listing them and telling what they are.

use std::sync::Arc;

use axum::body::Body;
use axum::http::header::LOCATION;
use axum::http::{HeaderValue, StatusCode};
use serde_json::{Map, Value, json};

use super::answer::{Answer, allow, allow_managing};
use super::call::Call;
use super::entries::collect;
use super::query::Query;
use super::routes::PREFIX;
use crate::auth::{Action, Resource};
use crate::batches::body::object;
use crate::batches::limits::MAX_LISTED;
use crate::batches::time::iso_millis;
use crate::batches::{ApiError, Stream};
use crate::http::errors;

/// Bytes of a body that declares or changes a stream.
const MAX_SMALL_BYTES: usize = 1 << 20;

/// Streams on a page of the list that does not say how many.
const DEFAULT_LISTED: usize = 100;

/// A page of the list of streams, by name.
pub fn list(call: Call) -> Answer {
    let query = Query::read(call.query.as_deref(), &["limit", "after"])?;
    let limit = query.count("limit", DEFAULT_LISTED, MAX_LISTED)?;
    let after = query.get("after").unwrap_or_default();
    let streams = call.service.list();
    let mut visible = streams.iter().filter(|stream| {
        let name = stream.served.name.as_str();
        name > after && call.caller.allows(Action::DataRead, Resource::Stream(name))
    });
    let page: Vec<Value> = visible.by_ref().take(limit).map(|stream| view(stream)).collect();
    // The name to go on after, if there is more.
    let next = visible.next().and_then(|_| page.last()).map_or(Value::Null, |last| last["name"].clone());
    Ok(errors::json(StatusCode::OK, json!({"streams": page, "next": next}).to_string()))
}

/// Creates a stream.
pub async fn create(call: Call, body: Body) -> Answer {
    let body = collect(&call, body, MAX_SMALL_BYTES).await?;
    let mut members = object(&body)?;
    let name = match members.shift_remove("name") {
        Some(Value::String(name)) => name,
        _ => return Err(ApiError::invalid("name has to be a string")),
    };
    allow_managing(&call.service, &call.caller, &call.headers, &name)?;
    let validator = match members.shift_remove("validator") {
        None => None,
        Some(value) => validator(value)?,
    };
    let schema = match members.shift_remove("schema") {
        None | Some(Value::Null) => None,
        Some(schema @ Value::Object(_)) => Some(schema),
        Some(_) => return Err(ApiError::new(422, "invalid_schema", "schema has to be a JSON Schema object or null")),
    };
    refuse_rest(&members)?;
    let stream = call.service.create(&name, validator, schema).await?;
    let location = HeaderValue::from_str(&format!("{PREFIX}/{}", stream.id));
    let response = errors::json(StatusCode::CREATED, view(&stream).to_string());
    Ok(match location {
        Ok(location) => errors::with_header(response, LOCATION, location),
        Err(_) => response,
    })
}

/// Gives a stream another validator.
pub async fn change(call: Call, body: Body) -> Answer {
    let stream = find_managed(&call)?;
    let body = collect(&call, body, MAX_SMALL_BYTES).await?;
    let mut members = object(&body)?;
    let Some(value) = members.shift_remove("validator") else {
        return Err(ApiError::invalid("validator is missing: give an expression, or null for none"));
    };
    refuse_rest(&members)?;
    call.service.set_validator(&stream, validator(value)?).await?;
    Ok(errors::json(StatusCode::OK, view(&stream).to_string()))
}

/// Deletes a stream.
pub async fn delete(call: Call) -> Answer {
    let stream = find_managed(&call)?;
    call.service.delete(&stream).await?;
    let answer = json!({"id": stream.id, "name": stream.served.name, "state": "deleting"});
    Ok(errors::json(StatusCode::ACCEPTED, answer.to_string()))
}

fn validator(value: Value) -> Result<Option<String>, ApiError> {
    match value {
        Value::Null => Ok(None),
        Value::String(source) => Ok(Some(source)),
        _ => Err(ApiError::new(400, "invalid_validator", "validator has to be a string or null")),
    }
}

/// Refuses members that mean nothing.
pub fn refuse_rest(members: &Map<String, Value>) -> Result<(), ApiError> {
    match members.keys().next() {
        None => Ok(()),
        Some(key) => Err(ApiError::invalid(format!("unknown member {key:?}"))),
    }
}

/// The stream of a name or id, if the caller may manage it.
pub fn find_managed(call: &Call) -> Result<Arc<Stream>, ApiError> {
    let name = call.stream.as_str();
    let manage = |name: &str| allow_managing(&call.service, &call.caller, &call.headers, name);
    if crate::batches::name::uuid_of(name).is_none() {
        manage(name)?;
        return call.service.find(name);
    }
    let found = call.service.find(name);
    match &found {
        Ok(stream) => manage(&stream.served.name)?,
        Err(_) => manage(name)?,
    }
    found
}

/// One stream.
pub fn one(call: Call) -> Answer {
    let stream = find(&call, Action::DataRead)?;
    Ok(errors::json(StatusCode::OK, view(&stream).to_string()))
}

/// The stream of a name or id, if the caller may do this to it. Who may not is told so before it is looked for.
pub fn find(call: &Call, action: Action) -> Result<Arc<Stream>, ApiError> {
    let name = call.stream.as_str();
    if crate::batches::name::uuid_of(name).is_none() {
        allow(&call.caller, action, name)?;
        return call.service.find(name);
    }
    // An id stands for a name that only the stream itself knows.
    let found = call.service.find(name);
    match &found {
        Ok(stream) => allow(&call.caller, action, &stream.served.name)?,
        Err(_) if call.caller.allows(action, Resource::Collection) => {}
        Err(_) => allow(&call.caller, action, name)?,
    }
    found
}

/// A stream as it is shown.
pub fn view(stream: &Stream) -> Value {
    let check = stream.check();
    let served = &stream.served;
    json!({
        "id": stream.id,
        "name": served.name,
        "state": if served.retired.is_some() { "retired" } else { "active" },
        "createdAt": iso_millis(served.created_us),
        "cursor": stream.head().map(|head| stream.tokens.cursor(head)),
        "entryCount": stream.entry_count(),
        "validator": check.source,
        "validatorVersion": check.version,
        "schema": stream.schema_document(),
    })
}
