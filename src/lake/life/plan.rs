//! What a migration may change: a function of the document and the new columns.

use serde_json::Value;

use super::error::LifeError;
use crate::lake::documents::{Document, LiveLog, system_schema};
use crate::schema::Schema;

/// A migration that changes something.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Migration {
    /// The log to come, but for where its tables will be.
    pub live_log: LiveLog,
}

/// Decides what comes of a migration to `schema`, sorted by `sort_by` or as before, from `start` on. `None` if the
/// stream is like that already.
///
/// # Errors
/// When the stream is retired, a column would change its type, or a column to sort by is gone.
pub(super) fn migration(
    document: &Document,
    schema: &Schema,
    sort_by: Option<&[String]>,
    start: i64,
) -> Result<Option<Migration>, LifeError> {
    let stream = document.stream.clone();
    if document.retirement.is_some() {
        return Err(LifeError::Retired { stream });
    }
    let wanted: Value = serde_json::from_str(schema.canonical())
        .map_err(|error| LifeError::Schema { stream: stream.clone(), why: error.to_string() })?;
    check_types(document, &wanted)?;
    let live = &document.live_log;
    let present = live.sort_by.clone().unwrap_or_default();
    let sort_by = sort_by.map_or_else(|| present.clone(), <[String]>::to_vec);
    for (place, column) in sort_by.iter().enumerate() {
        let why = if schema.find(column).is_none() {
            "is none of the columns"
        } else if sort_by[..place].contains(column) {
            "is there twice"
        } else {
            continue;
        };
        return Err(LifeError::SortBy { stream, column: column.clone(), why });
    }
    // As texts, because the order of columns is part of a schema.
    let (before, after) = (live.schema.to_string(), wanted.to_string());
    if before == after && sort_by == present {
        return Ok(None);
    }
    let live_log = LiveLog {
        name: document.next_log_name(),
        published: None,
        start_offset: start,
        start_ts: None,
        schema: wanted,
        system_schema: system_schema(),
        sort_by: Some(sort_by),
    };
    Ok(Some(Migration { live_log }))
}

/// A column keeps its type for the life of the stream, in every log: readers put the logs together by name.
fn check_types(document: &Document, wanted: &Value) -> Result<(), LifeError> {
    let Some(columns) = wanted["properties"].as_object() else { return Ok(()) };
    for (log, schema) in document.schemas() {
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let Some(new) = columns.get(name) else { continue };
            let (before, after) = (bare(property), bare(new));
            if before != after {
                return Err(LifeError::TypeChange {
                    stream: document.stream.clone(),
                    column: name.clone(),
                    log: log.to_owned(),
                    before: before.to_string(),
                    after: after.to_string(),
                });
            }
        }
    }
    Ok(())
}

/// A column's type, whether or not it may be null: that may change.
fn bare(property: &Value) -> Value {
    let mut bare = property.clone();
    if let Some(Value::Array(names)) = bare.get("type")
        && let Some(name) = names.iter().find(|name| *name != "null")
    {
        bare["type"] = name.clone();
    }
    bare
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::lake::documents::Retirement;

    fn schema(properties: Value) -> Schema {
        let required: Vec<&String> = properties
            .as_object()
            .expect("an object")
            .iter()
            .filter(|(_, property)| property["type"].is_string())
            .map(|(name, _)| name)
            .collect();
        Schema::compile(&json!({"type": "object", "properties": properties, "required": required}), true).expect("fine")
    }

    fn document(properties: Value) -> Document {
        let schema = serde_json::from_str(schema(properties).canonical()).expect("JSON");
        let live = LiveLog {
            name: "t".to_owned(),
            published: None,
            start_offset: 1,
            start_ts: None,
            schema,
            system_schema: system_schema(),
            sort_by: Some(vec!["id".to_owned()]),
        };
        Document::new("t", "id", live)
    }

    #[test]
    fn columns_come_and_go_and_change_whether_they_may_be_null() {
        let now = document(json!({"id": {"type": "integer"}, "old": {"type": "string"}}));
        for wanted in [
            json!({"id": {"type": "integer"}, "new": {"type": ["number", "null"]}}),
            json!({"id": {"type": ["integer", "null"]}, "old": {"type": "string"}}),
            json!({"old": {"type": "string"}, "id": {"type": "integer"}}),
        ] {
            let plan = migration(&now, &schema(wanted), None, 7).expect("may be").expect("changes");
            assert_eq!((plan.live_log.name.as_str(), plan.live_log.start_offset), ("t-v2", 7));
            assert_eq!(plan.live_log.sort_by, Some(vec!["id".to_owned()]));
        }
        let same = schema(json!({"id": {"type": "integer"}, "old": {"type": "string"}}));
        assert_eq!(migration(&now, &same, None, 7).expect("may be"), None);
        assert_eq!(migration(&now, &same, Some(&["id".to_owned()]), 7).expect("may be"), None);
        assert!(migration(&now, &same, Some(&[]), 7).expect("may be").is_some());
    }

    #[test]
    fn types_are_for_life() {
        let mut now = document(json!({"id": {"type": "integer"}, "old": {"type": "string"}}));
        let narrower = schema(json!({"id": {"type": "integer", "format": "int32"}}));
        let error = migration(&now, &narrower, None, 7).expect_err("refused").to_string();
        assert!(error.contains("\"id\"") && error.contains("int32") && error.contains("int64"), "{error}");
        // Of a log that is long over, too.
        let old = now.live_log.clone().seal(7, None, None);
        now.sealed_logs.push(old);
        now.live_log = LiveLog {
            name: "t-v2".to_owned(),
            start_offset: 7,
            schema: serde_json::from_str(schema(json!({"id": {"type": "integer"}})).canonical()).expect("JSON"),
            ..now.live_log
        };
        let back = schema(json!({"id": {"type": "integer"}, "old": {"type": ["integer", "null"]}}));
        assert!(migration(&now, &back, None, 9).expect_err("refused").to_string().contains("log \"t\""));
        let back = schema(json!({"id": {"type": "integer"}, "old": {"type": ["string", "null"]}}));
        assert_eq!(migration(&now, &back, None, 9).expect("may be").expect("changes").live_log.name, "t-v3");
    }

    #[test]
    fn what_is_sorted_by_has_to_be_there() {
        let now = document(json!({"id": {"type": "integer"}, "old": {"type": "string"}}));
        let without = schema(json!({"old": {"type": "string"}}));
        assert!(migration(&now, &without, None, 7).expect_err("refused").to_string().contains("\"id\""));
        assert!(migration(&now, &without, Some(&["old".to_owned()]), 7).expect("may be").is_some());
        let twice = ["old".to_owned(), "old".to_owned()];
        assert!(migration(&now, &without, Some(&twice), 7).expect_err("refused").to_string().contains("twice"));
        let retirement = Retirement { at: 1, end_offset: 7, sort_by: None, start_ts: None, end_ts: None };
        let retired = Document { retirement: Some(retirement), ..now };
        assert!(matches!(migration(&retired, &without, None, 7), Err(LifeError::Retired { .. })));
    }
}
