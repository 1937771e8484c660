//! One `[[stream]]` of the configuration file.

use std::ops::Range;
use std::path::{Path, PathBuf};

use serde_json::Value;
use toml::Spanned;
use toml::de::DeValue;

use super::error::ConfigError;
use super::file::{path_in, read_text};
use super::lake::{self, Lake};
use super::model::{Limits, Slow, StreamConfig};
use super::schema::{object_from_toml, parse_json, parse_json_file, without_position};
use super::table::{At, Table, describe, short, whole};
use crate::schema::Schema;
use crate::stream::name::check_durable_name;

/// Longest stream name, in bytes.
const MAX_NAME_BYTES: usize = 255;

/// A schema and where it came from.
struct Written {
    schema: Value,
    /// The bytes of the value in the configuration file.
    span: Range<usize>,
    /// The file it was read from, if it was one of its own.
    file: Option<PathBuf>,
}

/// Reads one stream; the place in the result is that of its name. Schema files are looked for from `directory`.
pub(super) fn read(
    mut table: Table<'_>,
    directory: &Path,
    transport_max_bytes: u32,
    lake_default: &Lake,
) -> Result<At<StreamConfig>, ConfigError> {
    let name = table.text("name")?;
    let written = schema(&mut table, directory)?;
    let durable = table.take("durable");
    let exactly_once = table.take("exactly_once");
    let group_commit = table.boolean("group_commit")?;
    let sort_by = table.take("sort_by");
    let migrate = table.take("migrate");
    let max_replay = max_replay(&mut table)?;
    let slow = table.take("slow");
    let limits = limits(&mut table, transport_max_bytes)?;
    let published = lake::published(&mut table)?;
    let replay_published = table.boolean("replay_published")?;
    let lake = lake::lake(&mut table, "[stream.lake]", lake_default)?;
    table.finish()?;

    let Some(name) = name else {
        return Err(table.error("this stream has no name; add `name = \"…\"` below its [[stream]]"));
    };
    check_name(&name.value).map_err(|message| table.source.error(name.span.clone(), message))?;
    let mut stream = StreamConfig::new(name.value, None);
    stream.durable = match &durable {
        Some(entry) => flag(&table, "durable", entry)?,
        None => written.is_some(),
    };
    if stream.durable {
        check_durable_name(&stream.name).map_err(|error| table.source.error(name.span.clone(), error.to_string()))?;
    }
    if let Some(written) = &written {
        check_schema(&table, written, stream.durable)?;
    }
    if let (true, None, Some(entry)) = (stream.durable, &written, &durable) {
        let message = "a durable stream needs a schema: add `schema` or `schema_file`, or say `durable = false`";
        return Err(table.source.error(entry.span(), message));
    }
    stream.schema = written.map(|written| written.schema);
    if let Some(entry) = &exactly_once {
        stream.exactly_once = flag(&table, "exactly_once", entry)?;
        needs_log(&table, "exactly_once", entry, stream.exactly_once, stream.durable)?;
    }
    if let Some(group_commit) = group_commit {
        stream.group_commit = group_commit;
    }
    if let Some(entry) = &sort_by {
        stream.sort_by = columns(&table, entry, stream.schema.as_ref())?;
        needs_log(&table, "sort_by", entry, !stream.sort_by.is_empty(), stream.durable)?;
    }
    if let Some(entry) = &migrate {
        stream.migrate = flag(&table, "migrate", entry)?;
        needs_log(&table, "migrate", entry, stream.migrate, stream.durable)?;
    }
    if let Some(max_replay) = max_replay {
        stream.max_replay = max_replay;
    }
    if let Some(entry) = &slow {
        stream.slow = match entry.get_ref() {
            DeValue::String(text) if text == "drop" => Slow::Drop,
            DeValue::String(text) if text == "replay" => Slow::Replay,
            _ => return Err(table.mismatch("slow", "\"drop\" or \"replay\"", entry)),
        };
        needs_log(&table, "slow = \"replay\"", entry, stream.slow == Slow::Replay, stream.durable)?;
    }
    stream.limits = limits;
    if !stream.durable && (published.is_some() || replay_published == Some(true) || lake.is_some()) {
        let message = "`published`, `replay_published` and [stream.lake] need a durable stream; give this one a schema \
                       and `durable = true`, or drop them";
        return Err(table.error(message));
    }
    stream.published = published;
    stream.replay_published = replay_published.unwrap_or(false);
    stream.lake = lake;
    Ok(At { value: stream, span: name.span })
}

/// Refuses a name no request can reach.
fn check_name(name: &str) -> Result<(), String> {
    if name.len() > MAX_NAME_BYTES {
        return Err(format!("the stream name `{}` is longer than {MAX_NAME_BYTES} bytes; choose another", short(name)));
    }
    if name.starts_with('/') {
        let bare = short(name.trim_start_matches('/'));
        return Err(format!("requests lose the slashes in front of a name; call the stream `{bare}`"));
    }
    Ok(())
}

fn schema(table: &mut Table<'_>, directory: &Path) -> Result<Option<Written>, ConfigError> {
    let inline = table.take("schema");
    let file = table.text("schema_file")?;
    let source = table.source;
    match (inline, file) {
        (Some(_), Some(file)) => {
            Err(source.error(file.span, "there is a `schema` and a `schema_file`; keep one of them"))
        }
        (None, None) => Ok(None),
        (None, Some(At { value, span })) => {
            let path = path_in(directory, &value).map_err(|message| source.error(span.clone(), message))?;
            let text = read_text(&path).map_err(|error| source.error(span.clone(), format!("schema file {error}")))?;
            Ok(Some(Written { schema: parse_json_file(&path, &text)?, span, file: Some(path) }))
        }
        (Some(entry), None) => {
            let span = entry.span();
            let schema = match entry.get_ref() {
                DeValue::Table(object) => object_from_toml(source, object)?,
                DeValue::String(text) => parse_json(text).map_err(|error| {
                    let (line, column) = (error.line(), error.column());
                    let message = without_position(&error);
                    let message =
                        format!("this schema is not valid JSON (its line {line}, column {column}): {message}");
                    source.error(span.clone(), message)
                })?,
                other => {
                    let message = format!("`schema` must be a table, or JSON in quotes, not {}", describe(other));
                    return Err(source.error(span, message));
                }
            };
            Ok(Some(Written { schema, span, file: None }))
        }
    }
}

fn check_schema(table: &Table<'_>, written: &Written, durable: bool) -> Result<(), ConfigError> {
    let Err(error) = Schema::compile(&written.schema, durable) else { return Ok(()) };
    let message = match &written.file {
        Some(path) => format!("the schema in {} is refused: {error}", path.display()),
        None => format!("this schema is refused: {error}"),
    };
    Err(table.source.error(written.span.clone(), message))
}

fn flag(table: &Table<'_>, key: &str, entry: &Spanned<DeValue<'_>>) -> Result<bool, ConfigError> {
    match entry.get_ref() {
        DeValue::Boolean(value) => Ok(*value),
        _ => Err(table.mismatch(key, "true or false", entry)),
    }
}

fn needs_log(
    table: &Table<'_>,
    what: &str,
    entry: &Spanned<DeValue<'_>>,
    wanted: bool,
    durable: bool,
) -> Result<(), ConfigError> {
    if !wanted || durable {
        return Ok(());
    }
    let message =
        format!("`{what}` needs a durable stream; give this one a schema and `durable = true`, or drop the key");
    Err(table.source.error(entry.span(), message))
}

fn columns(
    table: &Table<'_>,
    entry: &Spanned<DeValue<'_>>,
    schema: Option<&Value>,
) -> Result<Vec<String>, ConfigError> {
    const WANTED: &str = "an array of column names, such as [\"symbol\", \"at\"]";
    let DeValue::Array(items) = entry.get_ref() else { return Err(table.mismatch("sort_by", WANTED, entry)) };
    let properties = schema.and_then(|schema| schema.get("properties")).and_then(Value::as_object);
    let mut columns: Vec<String> = Vec::new();
    for item in items {
        let DeValue::String(name) = item.get_ref() else { return Err(table.mismatch("sort_by", WANTED, item)) };
        let problem = if !properties.is_some_and(|properties| properties.contains_key(name.as_ref())) {
            "is no column of the schema"
        } else if columns.iter().any(|column| column == name) {
            "is there twice"
        } else {
            columns.push(name.clone().into_owned());
            continue;
        };
        return Err(table.source.error(item.span(), format!("`{}` in `sort_by` {problem}", short(name))));
    }
    Ok(columns)
}

/// `Some(None)` is unbounded, as `false` or `"unbounded"`.
fn max_replay(table: &mut Table<'_>) -> Result<Option<Option<u64>>, ConfigError> {
    const WANTED: &str = "a whole number of rows, or \"unbounded\"";
    let Some(entry) = table.take("max_replay") else { return Ok(None) };
    match entry.get_ref() {
        DeValue::Boolean(false) => Ok(Some(None)),
        DeValue::String(text) if text == "unbounded" => Ok(Some(None)),
        value => match whole(value).filter(|rows| i64::try_from(*rows).is_ok()) {
            Some(rows) => Ok(Some(Some(rows))),
            None => Err(table.mismatch("max_replay", WANTED, &entry)),
        },
    }
}

fn limits(table: &mut Table<'_>, transport_max_bytes: u32) -> Result<Limits, ConfigError> {
    let mut limits = Limits::default();
    let Some(entry) = table.take("limits") else { return Ok(limits) };
    let span = entry.span();
    let entries = match entry.into_inner() {
        DeValue::Table(entries) => entries,
        other => {
            let message = format!("`limits` must be a table, written [stream.limits], not {}", describe(&other));
            return Err(table.source.error(span, message));
        }
    };
    let mut table = Table::new(table.source, "[stream.limits]", span, entries);
    let backlog = table.whole("max_backlog", 1..=u32::MAX, "frames")?;
    let inbound = table.whole("max_inbound", 1..=u32::MAX, "rows")?;
    let in_flight = table.whole("max_in_flight", 1..=1 << 20, "frames")?;
    let message_bytes = table.whole_at("max_message_bytes", 1..=u32::MAX, "bytes")?;
    table.finish()?;
    if let Some(At { value, span }) = &message_bytes
        && *value > transport_max_bytes
    {
        let message = format!(
            "{value} bytes are more than any frame may have; lower it to {transport_max_bytes}, or raise transport_max_bytes"
        );
        return Err(table.source.error(span.clone(), message));
    }
    limits.max_backlog_frames = backlog.unwrap_or(limits.max_backlog_frames);
    limits.max_inbound_rows = inbound.unwrap_or(limits.max_inbound_rows);
    limits.max_in_flight_frames = in_flight.unwrap_or(limits.max_in_flight_frames);
    limits.max_message_bytes = message_bytes.map(|at| at.value);
    Ok(limits)
}
