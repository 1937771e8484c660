//! A version of the metadata as the JSON that it is written as, for changes that iceberg's builder cannot make: it takes
//! the time from the clock, and then refuses its own result when the clock was set back, and it knows a greatest number
//! of old versions but no age. Reading the result as metadata again checks it.

use std::collections::BTreeMap;

use iceberg::spec::TableMetadata;
use serde_json::{Map, Value, json};

use super::error::TableError;
use super::spec::{KEEP_VERSIONS, RECENT};

pub(super) struct Document {
    uri: String,
    fields: Map<String, Value>,
}

impl Document {
    /// The version `metadata`, which is at `uri`.
    pub(super) fn of(uri: String, metadata: &TableMetadata) -> Result<Self, TableError> {
        match serde_json::to_value(metadata) {
            Ok(Value::Object(fields)) => Ok(Self { uri, fields }),
            Ok(_) => Err(TableError::Damaged { uri, what: "it is no JSON object".to_owned() }),
            Err(error) => Err(TableError::Damaged { uri, what: error.to_string() }),
        }
    }

    /// Makes it the version that follows at `now_ms`: it has the one it was made from in its log.
    pub(super) fn follow(&mut self, now_ms: i64) {
        let before = self.time("last-updated-ms");
        let uri = self.uri.clone();
        let log = self.list("metadata-log");
        log.push(json!({"metadata-file": uri, "timestamp-ms": before}));
        log.drain(..log.len().saturating_sub(RECENT));
        self.fields.insert("last-updated-ms".to_owned(), json!(now_ms.max(before)));
        let keep = KEEP_VERSIONS.iter().map(|(key, value)| ((*key).to_owned(), Some((*value).to_owned())));
        self.set_properties(&keep.collect());
    }

    pub(super) fn set_properties(&mut self, changes: &BTreeMap<String, Option<String>>) {
        let properties = self.fields.entry("properties").or_insert_with(|| json!({}));
        let Some(properties) = properties.as_object_mut() else { return };
        for (key, value) in changes {
            match value {
                Some(value) => properties.insert(key.clone(), json!(value)),
                None => properties.remove(key),
            };
        }
    }

    pub(super) fn remove_snapshots(&mut self, ids: &[i64]) {
        let gone = |entry: &Value| entry.get("snapshot-id").and_then(Value::as_i64).is_some_and(|id| ids.contains(&id));
        for field in ["snapshots", "snapshot-log", "statistics", "partition-statistics"] {
            if self.fields.contains_key(field) {
                self.list(field).retain(|entry| !gone(entry));
            }
        }
    }

    /// Takes versions out of the log that were superseded before `cutoff_ms`, and returns their URIs.
    pub(super) fn forget_versions(&mut self, cutoff_ms: i64) -> Vec<String> {
        let current_ms = self.time("last-updated-ms");
        let log = self.list("metadata-log");
        let time = |entry: &Value| entry.get("timestamp-ms").and_then(Value::as_i64).unwrap_or(i64::MAX);
        // An entry was superseded when the next one was made, the last one when the current version was.
        let superseded: Vec<i64> = log.iter().skip(1).map(time).chain([current_ms]).collect();
        let mut at = superseded.into_iter();
        let mut gone = Vec::new();
        log.retain(|entry| {
            let stays = at.next().is_none_or(|superseded_ms| superseded_ms >= cutoff_ms);
            if !stays {
                gone.extend(entry.get("metadata-file").and_then(Value::as_str).map(str::to_owned));
            }
            stays
        });
        gone
    }

    /// Whether there are branches or tags besides the main one.
    pub(super) fn has_branches(&self) -> bool {
        self.fields.get("refs").and_then(Value::as_object).is_some_and(|refs| refs.keys().any(|name| name != "main"))
    }

    pub(super) fn into_metadata(self) -> Result<TableMetadata, TableError> {
        let uri = self.uri;
        serde_json::from_value(Value::Object(self.fields))
            .map_err(|error| TableError::Damaged { uri, what: format!("no version can follow it ({error})") })
    }

    fn time(&self, field: &str) -> i64 {
        self.fields.get(field).and_then(Value::as_i64).unwrap_or(0)
    }

    fn list(&mut self, field: &str) -> &mut Vec<Value> {
        let list = self.fields.entry(field).or_insert_with(|| json!([]));
        if !list.is_array() {
            *list = json!([]);
        }
        // panics: never, it was made an array just above.
        list.as_array_mut().expect("an array")
    }
}
