//! Streams: listing them and telling what they are.

use std::sync::Arc;

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::answer::{Answer, allow};
use super::query::Query;
use super::routes::Call;
use crate::auth::{Action, Resource};
use crate::batches::limits::MAX_LISTED;
use crate::batches::time::iso_millis;
use crate::batches::{ApiError, Stream};
use crate::http::errors;

/// Streams on a page of the list that does not say how many.
const DEFAULT_LISTED: usize = 100;

/// A page of the list of streams, by name.
pub fn list(call: &Call) -> Answer {
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

/// One stream.
pub fn one(call: &Call, name: &str) -> Answer {
    let stream = find(call, Action::DataRead, name)?;
    Ok(errors::json(StatusCode::OK, view(&stream).to_string()))
}

/// The stream of a name or id, if the caller may do this to it. Who may not is told so before it is looked for.
pub fn find(call: &Call, action: Action, name: &str) -> Result<Arc<Stream>, ApiError> {
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
