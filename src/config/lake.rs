//! `[lake]`, `[stream.lake]` and `[s3]` of the configuration file.

use std::time::Duration;

use toml::de::DeValue;

use super::error::ConfigError;
use super::table::{At, Table, describe, short};

/// When rows are moved, how large files get, and how long they are kept (docs/storage.md, "Moving rows").
#[derive(Debug, Clone, PartialEq)]
pub struct Lake {
    /// Whether this process moves rows by itself.
    pub maintain: bool,
    /// Every row is sealed and published at least this often; `None` for only when there are enough for a file.
    pub flush_every: Option<Duration>,
    /// How often is looked whether there are enough rows for a file.
    pub seal_every: Duration,
    /// How often sealed files are published.
    pub publish_every: Duration,
    /// How often is looked for files to merge.
    pub compact_every: Duration,
    /// How often what is not needed any more is deleted.
    pub clean_every: Duration,
    /// Size of a sealed file, as its rows take in memory.
    pub target_seal_bytes: u64,
    /// Rows of a sealed file, if they come first.
    pub target_seal_rows: Option<u64>,
    /// Size on disk from which a file is not merged any more.
    pub target_compact_bytes: u64,
    /// Files of about one size that are merged at a time.
    pub compact_min_files: u32,
    /// Bytes of sealed files that are kept here when the table is elsewhere; `None` for all.
    pub local_max_bytes: Option<u64>,
    /// How long sealed files are kept here when the table is elsewhere; `None` for ever.
    pub local_retention: Option<Duration>,
    /// How long a state of a table that was superseded stays readable.
    pub snapshot_retention: Duration,
}

impl Default for Lake {
    fn default() -> Self {
        Self {
            maintain: true,
            flush_every: Some(Duration::from_secs(60)),
            seal_every: Duration::from_millis(250),
            publish_every: Duration::from_secs(10),
            compact_every: Duration::from_secs(10),
            clean_every: Duration::from_secs(10),
            target_seal_bytes: 8 << 20,
            target_seal_rows: None,
            target_compact_bytes: 512 << 20,
            compact_min_files: 8,
            local_max_bytes: Some(4 << 30),
            local_retention: None,
            snapshot_retention: Duration::from_secs(3600),
        }
    }
}

/// How S3 is reached. Keys are never in here: they come from the environment, a profile or the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct S3 {
    /// Such as `https://s3.eu-central-1.amazonaws.com`; `None` for the environment's, else AWS.
    pub endpoint: Option<String>,
    /// `None` for the environment's.
    pub region: Option<String>,
    /// Section of the AWS credentials file.
    pub profile: Option<String>,
    /// The bucket in the path instead of the host's name; `None` for only with an endpoint.
    pub path_style: Option<bool>,
    /// Whether other machines may be reached without encryption.
    pub allow_http: bool,
    /// Whether the store knows `If-None-Match: *` on a PUT.
    pub conditional_put: bool,
}

impl Default for S3 {
    fn default() -> Self {
        Self { endpoint: None, region: None, profile: None, path_style: None, allow_http: false, conditional_put: true }
    }
}

/// Reads `[lake]` or `[stream.lake]`, if it is there; `default` has what it does not say.
pub(super) fn lake(outer: &mut Table<'_>, what: &'static str, default: &Lake) -> Result<Option<Lake>, ConfigError> {
    let Some(mut table) = table(outer, "lake", what)? else { return Ok(None) };
    let mut lake = default.clone();
    set(&mut lake.maintain, table.boolean("maintain")?);
    let day = 86_400.0;
    if let Some(every) = seconds(&mut table, "flush_every_s", 0.0, 30.0 * day)? {
        lake.flush_every = Some(every).filter(|every| !every.is_zero());
    }
    set(&mut lake.seal_every, seconds(&mut table, "seal_every_s", 0.01, day)?);
    set(&mut lake.publish_every, seconds(&mut table, "publish_every_s", 0.01, day)?);
    set(&mut lake.compact_every, seconds(&mut table, "compact_every_s", 0.01, day)?);
    set(&mut lake.clean_every, seconds(&mut table, "clean_every_s", 0.01, day)?);
    set(&mut lake.target_seal_bytes, table.whole("target_seal_bytes", 1_024..=1 << 30, "bytes")?);
    if let Some(rows) = table.whole("target_seal_rows", 0..=1 << 40, "rows")? {
        lake.target_seal_rows = Some(rows).filter(|rows| *rows > 0);
    }
    set(&mut lake.target_compact_bytes, table.whole("target_compact_bytes", 1_024..=1 << 40, "bytes")?);
    set(&mut lake.compact_min_files, table.whole("compact_min_files", 2..=64, "files")?);
    if let Some(bytes) = table.whole("local_max_bytes", 0..=1 << 50, "bytes")? {
        lake.local_max_bytes = Some(bytes).filter(|bytes| *bytes > 0);
    }
    if let Some(kept) = seconds(&mut table, "local_retention_s", 0.0, 36_500.0 * day)? {
        lake.local_retention = Some(kept).filter(|kept| !kept.is_zero());
    }
    set(&mut lake.snapshot_retention, seconds(&mut table, "snapshot_retention_s", 1.0, 3_650.0 * day)?);
    table.finish()?;
    Ok(Some(lake))
}

/// Reads `[s3]`, if it is there.
pub(super) fn s3(top: &mut Table<'_>) -> Result<S3, ConfigError> {
    let mut s3 = S3::default();
    let Some(mut table) = table(top, "s3", "[s3]")? else { return Ok(s3) };
    if let Some(At { value, span }) = table.text("endpoint")? {
        let scheme = value.starts_with("http://") || value.starts_with("https://");
        if !scheme || value.contains('@') {
            let message = "`endpoint` must be a URL such as \"https://s3.example.org\", without keys in it";
            return Err(table.source.error(span, message));
        }
        s3.endpoint = Some(value.trim_end_matches('/').to_owned());
    }
    s3.region = table.text("region")?.map(|at| at.value);
    s3.profile = table.text("profile")?.map(|at| at.value);
    s3.path_style = table.boolean("path_style")?;
    set(&mut s3.allow_http, table.boolean("allow_http")?);
    set(&mut s3.conditional_put, table.boolean("conditional_put")?);
    for key in ["access_key_id", "secret_access_key", "session_token"] {
        if let Some(entry) = table.take(key) {
            let message = format!(
                "`{key}` does not belong in this file; put the keys into the environment (AWS_ACCESS_KEY_ID, \
                 AWS_SECRET_ACCESS_KEY) or into a profile of ~/.aws/credentials, and name that with `profile`"
            );
            return Err(table.source.error(entry.span(), message));
        }
    }
    table.finish()?;
    Ok(s3)
}

/// A place for tables as it was written: `file:///absolute/path` or `s3://bucket/prefix`.
pub(super) fn published(table: &mut Table<'_>) -> Result<Option<String>, ConfigError> {
    let Some(At { value, span }) = table.text("published")? else { return Ok(None) };
    let trimmed = value.trim_end_matches('/');
    let plain = |rest: &str| !rest.contains(['%', '?', '#', '@', '"']) && !rest.chars().any(char::is_control);
    let good = match (trimmed.strip_prefix("file://"), trimmed.strip_prefix("s3://")) {
        (Some(path), _) => path.starts_with('/') && plain(path),
        (_, Some(path)) => !path.is_empty() && !path.starts_with('/') && plain(path),
        _ => false,
    };
    if good {
        return Ok(Some(trimmed.to_owned()));
    }
    let message = format!(
        "`published` must be a place such as \"s3://bucket/prefix\" or \"file:///srv/tables\", without `%`, `?`, `#`, \
         `@` and quotes, not \"{}\"",
        short(&value)
    );
    Err(table.source.error(span, message))
}

fn table<'s>(outer: &mut Table<'s>, key: &'static str, what: &'static str) -> Result<Option<Table<'s>>, ConfigError> {
    let Some(entry) = outer.take(key) else { return Ok(None) };
    let span = entry.span();
    match entry.into_inner() {
        DeValue::Table(entries) => Ok(Some(Table::new(outer.source, what, span, entries))),
        other => {
            let message = format!("`{key}` must be a table, written {what}, not {}", describe(&other));
            Err(outer.source.error(span, message))
        }
    }
}

/// A number of seconds, with or without a fraction.
fn seconds(table: &mut Table<'_>, key: &'static str, least: f64, most: f64) -> Result<Option<Duration>, ConfigError> {
    let Some(entry) = table.take(key) else { return Ok(None) };
    let number = match entry.get_ref() {
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix()).ok().map(|whole| whole as f64),
        DeValue::Float(number) => number.as_str().parse::<f64>().ok(),
        _ => None,
    };
    match number.filter(|seconds| (least..=most).contains(seconds)) {
        Some(seconds) => Ok(Some(Duration::from_secs_f64(seconds))),
        None => Err(table.mismatch(key, &format!("a number of seconds from {least} to {most}"), &entry)),
    }
}

fn set<T>(field: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *field = value;
    }
}
