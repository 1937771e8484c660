//! The file `streamcast.toml`: text to [`Config`].

use std::collections::HashMap;
use std::io::Read;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use streamcast_shards::cores;
use toml::de::{DeTable, DeValue};

use super::access;
use super::error::{ConfigError, Source};
use super::lake::{self, Lake};
use super::model::{Config, CoreRequest, Log, LogLevel, Stats};
use super::table::{At, Table, describe, nearest, short, whole};
use super::{registry, stream};

/// Largest configuration or schema file that is read, in bytes.
pub(super) const MAX_FILE_BYTES: u64 = 4 << 20;

/// Highest core number that can be named: the kernel's own limit on x86-64.
pub const MAX_CORE: usize = 8_191;

/// Reads `path`. Relative paths in the file (`root`, `schema_file`) count from the directory the file is in.
///
/// # Errors
/// The first thing wrong with the file, with its line and column.
pub(super) fn load(path: &Path) -> Result<Config, ConfigError> {
    parse(path, &read_text(path)?)
}

/// Reads a text file of bounded size.
pub(super) fn read_text(path: &Path) -> Result<String, ConfigError> {
    let mut bytes = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes));
    read.map_err(|error| ConfigError::file(path, format!("cannot be read: {error}")))?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(ConfigError::file(path, format!("is larger than {MAX_FILE_BYTES} bytes")));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let text = String::from_utf8_lossy(error.as_bytes()).into_owned();
        Source { path, text: &text }.error(at..at + 1, "not UTF-8 text; save the file as UTF-8")
    })
}

/// Parses the text of the file `path`, which is only opened to read the schema files it names.
pub(super) fn parse(path: &Path, text: &str) -> Result<Config, ConfigError> {
    let source = Source { path, text };
    let document = DeTable::parse(text).map_err(|error| {
        let span = error.span().unwrap_or(text.len()..text.len());
        source.error(span, format!("not valid TOML: {}", error.message()))
    })?;
    let directory = path.parent().unwrap_or_else(|| Path::new(""));
    let mut top = Table::new(source, "the file", 0..0, document.into_inner());
    let mut config = server(&mut top, directory)?;
    let streams = top.take("stream");
    top.finish()?;

    let Some(streams) = streams else { return Ok(config) };
    let not_a_table =
        |span| source.error(span, "each stream is a table of its own: begin it with [[stream]], in double brackets");
    let span = streams.span();
    let DeValue::Array(streams) = streams.into_inner() else { return Err(not_a_table(span)) };
    let mut seen: HashMap<String, Range<usize>> = HashMap::new();
    for entry in streams {
        let span = entry.span();
        let DeValue::Table(entries) = entry.into_inner() else { return Err(not_a_table(span)) };
        let table = Table::new(source, "a [[stream]]", span, entries);
        let stream = stream::read(table, directory, config.transport_max_bytes, &config.lake)?;
        if let Some(first) = seen.get(&stream.value.name) {
            let line = text[..first.start].matches('\n').count() + 1;
            let name = short(&stream.value.name);
            let message = format!("the stream `{name}` is already declared in line {line}; names are distinct");
            return Err(source.error(stream.span, message));
        }
        seen.insert(stream.value.name.clone(), stream.span);
        config.streams.push(stream.value);
    }
    Ok(config)
}

/// Everything but the streams.
fn server(top: &mut Table<'_>, directory: &Path) -> Result<Config, ConfigError> {
    let mut config = Config::default();
    if let Some(At { value, span }) = top.text("listen")? {
        config.listen = parse_listen(&value).map_err(|message| top.source.error(span, message))?;
    }
    if let Some(At { value, span }) = top.text("root")? {
        config.root = path_in(directory, &value).map_err(|message| top.source.error(span, message))?;
    }
    config.cores = CoreRequest {
        cores: core_list(top, "cores")?,
        writer_core: top.whole("writer_core", 0..=MAX_CORE, "")?,
        background_cores: core_list(top, "background_cores")?,
    };
    set(&mut config.transport_max_bytes, top.whole("transport_max_bytes", 1_024..=1 << 30, "bytes")?);
    set(&mut config.keepalive.ping, top.whole("keepalive_ping_s", 1..=86_400, "seconds")?.map(Duration::from_secs));
    set(
        &mut config.keepalive.timeout,
        top.whole("keepalive_timeout_s", 1..=86_400, "seconds")?.map(Duration::from_secs),
    );
    set(&mut config.stats, stats(top)?);
    set(&mut config.group_rows, top.whole("group_rows", 1..=1_000_000, "rows")?);
    set(&mut config.keep_awake, top.boolean("keep_awake")?);
    set(&mut config.max_connections, top.whole("max_connections", 1..=16_777_216, "connections")?);
    set(&mut config.max_backlog_bytes, top.whole("max_backlog_bytes", 1 << 20..=1 << 40, "bytes")?);
    set(&mut config.max_inbound_bytes, top.whole("max_inbound_bytes", 1 << 20..=1 << 40, "bytes")?);
    set(&mut config.reader_threads, top.whole("reader_threads", 1..=64, "threads")?.map(Some));
    set(&mut config.stop_timeout, top.whole("stop_timeout_s", 1..=3_600, "seconds")?.map(Duration::from_secs));
    set(&mut config.insecure, top.boolean("insecure")?);
    (config.auth, config.tls) = access::read(top, directory)?;
    set(&mut config.log, log(top)?);
    config.registry = registry::read(top, lake::published)?;
    if let Some(At { value, span }) = top.text("control_listen")? {
        let address = parse_listen(&value).map_err(|message| top.source.error(span, message))?;
        config.control_listen = Some(address);
    }
    config.s3 = lake::s3(top)?;
    set(&mut config.lake, lake::lake(top, "[lake]", &Lake::default())?);
    Ok(config)
}

fn set<T>(field: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *field = value;
    }
}

/// A list of cores: text, or the number of one core. Whether there are such cores is found out at start.
fn core_list(top: &mut Table<'_>, key: &'static str) -> Result<Option<String>, ConfigError> {
    let Some(entry) = top.take(key) else { return Ok(None) };
    let text = match entry.get_ref() {
        DeValue::String(text) => Some(text.clone().into_owned()),
        other => whole(other).map(|core| core.to_string()),
    };
    let Some(text) = text else {
        return Err(top.mismatch(key, "a list of cores such as \"0-3,6\", or \"all\"", &entry));
    };
    parse_cores(&text).map(Some).map_err(|message| top.source.error(entry.span(), message))
}

/// A list of cores such as `0-3,6` or `all`, checked for its form only.
///
/// # Errors
/// The message for somebody who wrote something else.
pub fn parse_cores(text: &str) -> Result<String, String> {
    match cores::parse_list(text, &[]) {
        Ok(_) => Ok(text.trim().to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn stats(top: &mut Table<'_>) -> Result<Option<Stats>, ConfigError> {
    const WANTED: &str = "true, false, or an absolute path other than \"/\", such as \"/stats\"";
    let Some(entry) = top.take("stats") else { return Ok(None) };
    match entry.get_ref() {
        DeValue::Boolean(true) => Ok(Some(Stats::At("/stats".to_owned()))),
        DeValue::Boolean(false) => Ok(Some(Stats::Off)),
        DeValue::String(path) if is_http_path(path) => Ok(Some(Stats::At(path.clone().into_owned()))),
        _ => Err(top.mismatch("stats", WANTED, &entry)),
    }
}

fn is_http_path(path: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'?' | b'#' | b'%');
    path.len() > 1 && path.len() <= 1_024 && path.starts_with('/') && path.bytes().all(plain)
}

fn log(top: &mut Table<'_>) -> Result<Option<Log>, ConfigError> {
    let Some(entry) = top.take("log") else { return Ok(None) };
    let span = entry.span();
    let source = top.source;
    match entry.into_inner() {
        DeValue::String(name) => {
            let level = parse_level(&name).map_err(|message| source.error(span, message))?;
            Ok(Some(Log { level, json: None }))
        }
        DeValue::Table(entries) => {
            let mut table = Table::new(source, "[log]", span, entries);
            let mut log = Log::default();
            if let Some(At { value, span }) = table.text("level")? {
                log.level = parse_level(&value).map_err(|message| source.error(span, message))?;
            }
            log.json = table.boolean("json")?;
            table.finish()?;
            Ok(Some(log))
        }
        other => {
            let message = format!("`log` must be a level or a table {{ level, json }}, not {}", describe(&other));
            Err(source.error(span, message))
        }
    }
}

/// A log level by name.
///
/// # Errors
/// The message for somebody who wrote something else.
pub fn parse_level(text: &str) -> Result<LogLevel, String> {
    let names = LogLevel::ALL.map(|(name, _)| name);
    if let Some((_, level)) = LogLevel::ALL.into_iter().find(|(name, _)| *name == text) {
        return Ok(level);
    }
    let hint = nearest(text, &names).map_or(String::new(), |near| format!("; did you mean `{near}`?"));
    Err(format!("`{}` is no log level: they are {}{hint}", short(text), names.join(", ")))
}

/// The address to listen on: `ADDRESS:PORT` with a numeric address, or `localhost:PORT`.
///
/// # Errors
/// The message for somebody who wrote something else.
pub fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    let numeric = match text.strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}"),
        None => text.to_owned(),
    };
    numeric.parse().map_err(|_| {
        format!(
            "`{}` is no address to listen on; write ADDRESS:PORT, such as 127.0.0.1:8765 or [::1]:8765",
            short(text)
        )
    })
}

/// A path that was written in a file of `directory`.
pub(super) fn path_in(directory: &Path, text: &str) -> Result<PathBuf, String> {
    if text.is_empty() || text.contains('\0') {
        return Err("a path cannot be empty or hold a NUL character".to_owned());
    }
    Ok(directory.join(text))
}
