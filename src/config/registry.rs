//! `[registry]` of the configuration file: streams that are declared at run time (wire.md section 11).

use serde_json::Value;
use toml::Spanned;
use toml::de::DeValue;

use super::error::ConfigError;
use super::schema::object_from_toml;
use super::table::{At, Table, short};

/// The host's side of the control API.
#[derive(Debug, Clone, PartialEq)]
pub struct Registry {
    /// What the broker calls itself. The registry of a data root belongs to one broker.
    pub broker_id: String,
    /// The largest body of a control call, in bytes.
    pub control_max_bytes: u32,
    /// Control calls under way, and streams with a pending operation.
    pub max_pending: u32,
    /// Where streams may lie, by the names that declarations use; never empty.
    pub profiles: Vec<StorageProfile>,
    /// Streams whose history has to stay whole.
    pub history_guards: Vec<HistoryGuard>,
}

impl Default for Registry {
    fn default() -> Self {
        Self {
            broker_id: "primary".to_owned(),
            control_max_bytes: 262_144,
            max_pending: 32,
            profiles: vec![StorageProfile::default()],
            history_guards: Vec::new(),
        }
    }
}

/// A place for streams. Callers see its name and its revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageProfile {
    pub name: String,
    /// What this state of the profile is called; streams declared under another one are refused.
    pub revision: String,
    /// URI below which tables are published; `None` is in the data root.
    pub published: Option<String>,
}

impl Default for StorageProfile {
    fn default() -> Self {
        Self { name: "local".to_owned(), revision: "1".to_owned(), published: None }
    }
}

/// A stream that must be served with its whole history, and a row that proves it.
#[derive(Debug, Clone, PartialEq)]
pub struct HistoryGuard {
    pub name: String,
    /// Its UUID.
    pub stream_id: String,
    /// An offset, at least 1.
    pub known_offset: i64,
    /// The row there.
    pub known_row: Value,
}

/// Reads the table, if it is there: without it nothing is declared at run time.
pub(super) fn read(
    top: &mut Table<'_>,
    published: impl Fn(&mut Table<'_>) -> Result<Option<String>, ConfigError>,
) -> Result<Option<Registry>, ConfigError> {
    let Some(entry) = top.take("registry") else { return Ok(None) };
    let mut table = inner(top, "registry", "[registry]", entry)?;
    let mut registry = Registry::default();
    if let Some(At { value, span }) = table.text("broker_id")? {
        if value.is_empty() || value.len() > 128 || value.chars().any(char::is_control) {
            return Err(table.source.error(span, "`broker_id` must have 1 to 128 bytes and no control characters"));
        }
        registry.broker_id = value;
    }
    if let Some(bytes) = table.whole("control_max_bytes", 1_024..=16 << 20, "bytes")? {
        registry.control_max_bytes = bytes;
    }
    if let Some(pending) = table.whole("max_pending", 1..=10_000, "operations")? {
        registry.max_pending = pending;
    }
    if let Some(entry) = table.take("profiles") {
        registry.profiles.clear();
        each(&table, "profiles", entry, |name, mut profile| {
            let revision = profile.text("revision")?;
            let published = published(&mut profile)?;
            profile.finish()?;
            let Some(At { value: revision, .. }) = revision else {
                return Err(profile.error(format!("the profile `{}` has no `revision`", short(&name))));
            };
            registry.profiles.push(StorageProfile { name, revision, published });
            Ok(())
        })?;
        if registry.profiles.is_empty() {
            return Err(table.error("[registry.profiles] names no profile; leave it out for one called `local`"));
        }
    }
    if let Some(entry) = table.take("history_guards") {
        each(&table, "history_guards", entry, |name, guard| {
            registry.history_guards.push(read_guard(name, guard)?);
            Ok(())
        })?;
    }
    table.finish()?;
    Ok(Some(registry))
}

fn read_guard(name: String, mut table: Table<'_>) -> Result<HistoryGuard, ConfigError> {
    let stream_id = table.text("stream_id")?;
    let known_offset = table.whole("known_offset", 1..=i64::MAX as u64, "rows")?;
    let known_row = table.take("known_row");
    table.finish()?;
    let (Some(stream_id), Some(known_offset), Some(known_row)) = (stream_id, known_offset, known_row) else {
        let message = format!("the guard of `{}` needs `stream_id`, `known_offset` and `known_row`", short(&name));
        return Err(table.error(message));
    };
    let DeValue::Table(row) = known_row.get_ref() else {
        return Err(table.mismatch("known_row", "a table with the row's columns", &known_row));
    };
    let known_row = object_from_toml(table.source, row)?;
    let known_offset = i64::try_from(known_offset).unwrap_or(i64::MAX);
    Ok(HistoryGuard { name, stream_id: stream_id.value, known_offset, known_row })
}

/// Reads each table of a table of tables.
fn each<'s>(
    outer: &Table<'s>,
    key: &'static str,
    entry: Spanned<DeValue<'s>>,
    mut read: impl FnMut(String, Table<'s>) -> Result<(), ConfigError>,
) -> Result<(), ConfigError> {
    let mismatch = outer.mismatch(key, "a table of tables", &entry);
    let DeValue::Table(entries) = entry.into_inner() else { return Err(mismatch) };
    for (name, entry) in entries {
        let what = if key == "profiles" { "a storage profile" } else { "a history guard" };
        read(name.into_inner().into_owned(), inner(outer, key, what, entry)?)?;
    }
    Ok(())
}

fn inner<'s>(
    outer: &Table<'s>,
    key: &'static str,
    what: &'static str,
    entry: Spanned<DeValue<'s>>,
) -> Result<Table<'s>, ConfigError> {
    let mismatch = outer.mismatch(key, "a table", &entry);
    let span = entry.span();
    match entry.into_inner() {
        DeValue::Table(entries) => Ok(Table::new(outer.source, what, span, entries)),
        _ => Err(mismatch),
    }
}
