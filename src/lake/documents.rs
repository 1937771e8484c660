//! The metadata documents of a stream (docs/storage.md; wire.md section 14.8): what they say, and keeping
//! them there.
//!
//! A version is written under a new name and never changed; then the hint is pointed at it; then the plain
//! copy, which old readers open, is replaced. A crash between the steps leaves the hint on a complete
//! version, and the next start does the rest.

use std::fs::OpenOptions;
use std::path::Path;

use serde_json::{Value, json};

use super::error::LakeError;
use super::files::{self, Places};
use crate::stream::record::StreamRecord;

/// Makes sure that the documents of a stream below `root` (an absolute path) are there and complete: writes
/// them if the stream is new, and repairs what a crash or a moved root left behind.
///
/// # Errors
/// When the file system refuses, the root cannot be named in a document, or documents of another stream are
/// in the way.
pub fn ensure(root: &Path, stream: &StreamRecord) -> Result<(), LakeError> {
    let published = published(root, stream)?;
    let places = Places::new(root, &stream.name);
    files::make_directory(&places.versions)?;
    let lock = OpenOptions::new().write(true).create(true).truncate(false).open(&places.lock);
    // Released when the file is closed at the end.
    let lock = lock.and_then(|lock| lock.lock().map(|()| lock)).map_err(|source| LakeError::Io {
        action: "lock",
        path: places.lock.clone(),
        source,
    })?;
    let outcome = ensure_locked(&places, stream, &published);
    drop(lock);
    outcome
}

fn ensure_locked(places: &Places, stream: &StreamRecord, published: &str) -> Result<(), LakeError> {
    match current(places)? {
        None => write_version(places, stream, 1, &document(places, stream, published)?),
        Some(mut found) => {
            check_same(&found, stream)?;
            let moved = found.document["live_log"]["published"] != published;
            if moved {
                found.document["live_log"]["published"] = published.into();
            }
            if moved || found.version.is_none() {
                let number = found.version.as_deref().and_then(files::version_number).map_or(1, |number| number + 1);
                return write_version(places, stream, number, &found.document);
            }
            let text = plain_text(&found.document, stream);
            if files::read(&places.plain)?.as_deref() != Some(&text) {
                files::write(&places.plain, &text)?;
            }
            Ok(())
        }
    }
}

/// The current document as it was found.
struct Found {
    /// The file it was read from.
    path: std::path::PathBuf,
    /// The name of its version; `None` if only the plain copy is there.
    version: Option<String>,
    document: Value,
}

fn current(places: &Places) -> Result<Option<Found>, LakeError> {
    if let Some(hint) = files::read(&places.hint)? {
        let version = hint.trim().to_owned();
        let damaged = |what: String| LakeError::Damaged { path: places.hint.clone(), what };
        if version.is_empty() || version.contains('/') {
            return Err(damaged("it names no version".to_owned()));
        }
        let path = places.versions.join(&version);
        let Some(text) = files::read(&path)? else {
            return Err(damaged(format!("the version {version:?} that it names is missing")));
        };
        return Ok(Some(Found { document: parse(&path, &text)?, path, version: Some(version) }));
    }
    let Some(text) = files::read(&places.plain)? else { return Ok(None) };
    Ok(Some(Found { document: parse(&places.plain, &text)?, path: places.plain.clone(), version: None }))
}

fn parse(path: &Path, text: &str) -> Result<Value, LakeError> {
    let damaged = |what| LakeError::Damaged { path: path.to_owned(), what };
    let document: Value = serde_json::from_str(text).map_err(|error| damaged(error.to_string()))?;
    match document["streamcast_metadata"].as_u64() {
        Some(1..=3) if document["live_log"].is_object() => Ok(document),
        _ => Err(damaged("it is no stream metadata of format 1 to 3".to_owned())),
    }
}

fn check_same(found: &Found, stream: &StreamRecord) -> Result<(), LakeError> {
    for (what, recorded) in [("stream", &stream.name), ("stream_id", &stream.stream_id)] {
        if found.document[what] != **recorded {
            return Err(LakeError::Foreign {
                path: found.path.clone(),
                what,
                found: found.document[what].to_string(),
                recorded: format!("{recorded:?}"),
            });
        }
    }
    Ok(())
}

/// The location of the stream's tables. Readers open it as it stands, so it is not percent-encoded.
fn published(root: &Path, stream: &StreamRecord) -> Result<String, LakeError> {
    let fail = |why| LakeError::Root { root: root.to_owned(), why };
    let root_text = root.to_str().ok_or_else(|| fail("is not UTF-8"))?;
    if !root.is_absolute() {
        return Err(fail("is not absolute"));
    }
    if root_text.contains('%') {
        return Err(fail("contains a percent sign"));
    }
    Ok(format!("file://{}/{name}/{name}/published", root_text.trim_end_matches('/'), name = stream.name))
}

fn document(places: &Places, stream: &StreamRecord, published: &str) -> Result<Value, LakeError> {
    let schema: Value = serde_json::from_str(&stream.schema_canonical).map_err(|error| LakeError::Damaged {
        path: places.home.clone(),
        what: format!("the recorded schema is not JSON: {error}"),
    })?;
    Ok(json!({
        "streamcast_metadata": 2,
        "stream": stream.name,
        "stream_id": stream.stream_id,
        "sealed_logs": [],
        "live_log": {
            "name": stream.name,
            "published": published,
            "start_offset": stream.floor.unwrap_or(stream.first_offset),
            "start_ts": null,
            "schema": schema,
            "system_schema": {
                "type": "object",
                "properties": {"streamcast_ts": {"type": "integer", "format": "int64"}},
                "required": ["streamcast_ts"],
            },
            "sort_by": stream.sort_by,
        },
        "manifest": null,
    }))
}

fn write_version(places: &Places, stream: &StreamRecord, number: u64, document: &Value) -> Result<(), LakeError> {
    let version = format!("{number:05}-{}.metadata.json", uuid::Uuid::new_v4().simple());
    files::write(&places.versions.join(&version), &text(document))?;
    files::write(&places.hint, &version)?;
    files::write(&places.plain, &plain_text(document, stream))?;
    files::prune(&places.versions, &version)
}

fn text(document: &Value) -> String {
    format!("{document:#}")
}

/// The plain copy names the plain copy of the manifest, which lies beside it.
fn plain_text(document: &Value, stream: &StreamRecord) -> String {
    if document["manifest"].is_null() {
        return text(document);
    }
    let mut plain = document.clone();
    plain["manifest"] = format!("{}.manifest.parquet", stream.name).into();
    text(&plain)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn record(name: &str) -> StreamRecord {
        StreamRecord {
            id: 1,
            name: name.to_owned(),
            stream_id: "79c6ab49-7ea5-482d-8bb0-9eef7a4b4b14".to_owned(),
            schema_canonical:
                r#"{"type":"object","properties":{"z":{"type":"integer","format":"int64"},"a":{"type":"string"}},"required":["z","a"]}"#
                    .to_owned(),
            sort_by: vec!["z".to_owned()],
            exactly_once: false,
            first_offset: 1,
            floor: None,
            end_offset: 1,
            created_us: 1,
        }
    }

    fn open(root: &Path) -> (String, Value) {
        let places = Places::new(root, "trades");
        let version = fs::read_to_string(&places.hint).expect("a hint");
        let text = fs::read_to_string(places.versions.join(&version)).expect("the version");
        assert_eq!(fs::read_to_string(&places.plain).expect("a plain copy"), text);
        (version, serde_json::from_str(&text).expect("JSON"))
    }

    #[test]
    fn a_new_stream_gets_its_first_version_and_keeps_it() {
        let dir = tempfile::tempdir().expect("a directory");
        ensure(dir.path(), &record("trades")).expect("written");
        let (version, document) = open(dir.path());
        assert!(version.starts_with("00001-"), "{version}");
        let published = format!("file://{}/trades/trades/published", dir.path().display());
        assert_eq!(document["streamcast_metadata"], 2);
        assert_eq!(document["stream_id"], record("trades").stream_id);
        assert_eq!(document["live_log"]["published"], published);
        assert_eq!(document["live_log"]["start_offset"], 1);
        assert_eq!(document["live_log"]["schema"].to_string(), record("trades").schema_canonical);
        ensure(dir.path(), &record("trades")).expect("still there");
        assert_eq!(open(dir.path()).0, version);
    }

    #[test]
    fn what_a_crash_left_half_is_completed() {
        let dir = tempfile::tempdir().expect("a directory");
        let places = Places::new(dir.path(), "trades");
        // After the version, before the hint: the version does not count.
        files::make_directory(&places.versions).expect("made");
        let orphan = places.versions.join("00001-064c4fa9037e4d19bba4e06189ccb04a.metadata.json");
        fs::write(&orphan, "{}").expect("written");
        ensure(dir.path(), &record("trades")).expect("written");
        let (version, _) = open(dir.path());
        // After the hint, before the plain copy.
        fs::remove_file(&places.plain).expect("removed");
        ensure(dir.path(), &record("trades")).expect("repaired");
        assert_eq!(open(dir.path()).0, version);
        fs::write(&places.plain, "{").expect("written");
        ensure(dir.path(), &record("trades")).expect("repaired");
        assert_eq!(open(dir.path()).0, version);
        // A plain copy alone, as old versions had it.
        fs::remove_file(&places.hint).expect("removed");
        ensure(dir.path(), &record("trades")).expect("adopted");
        assert!(open(dir.path()).0.starts_with("00001-"));
    }

    #[test]
    fn a_moved_root_is_written_down() {
        let dir = tempfile::tempdir().expect("a directory");
        let (old, new) = (dir.path().join("old"), dir.path().join("new"));
        ensure(&old, &record("trades")).expect("written");
        fs::rename(&old, &new).expect("moved");
        ensure(&new, &record("trades")).expect("written again");
        let (version, document) = open(&new);
        assert!(version.starts_with("00002-"), "{version}");
        assert_eq!(document["live_log"]["published"], format!("file://{}/trades/trades/published", new.display()));
    }

    #[test]
    fn documents_of_another_stream_and_damaged_ones_are_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        ensure(dir.path(), &record("trades")).expect("written");
        let other = StreamRecord { stream_id: "00000000-0000-4000-8000-000000000000".to_owned(), ..record("trades") };
        let error = ensure(dir.path(), &other).expect_err("another stream").to_string();
        assert!(error.contains("stream_id \"79c6ab49") && error.contains("00000000-0000"), "{error}");
        let places = Places::new(dir.path(), "trades");
        for (hint, complaint) in [("", "names no version"), ("../x", "names no version"), ("gone.json", "is missing")] {
            fs::write(&places.hint, hint).expect("written");
            let error = ensure(dir.path(), &record("trades")).expect_err("damaged").to_string();
            assert!(error.contains(complaint), "{error}");
        }
        let error = ensure(Path::new("/srv/100%"), &record("trades")).expect_err("a percent sign").to_string();
        assert!(error.contains("/srv/100%") && error.contains("percent"), "{error}");
    }
}
