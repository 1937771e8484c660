use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;

use futures_util::future::{BoxFuture, ready};

use super::*;
use crate::lake::documents::files;
use crate::lake::documents::model::Retirement;
use crate::lake::store::StoreError;

/// A bucket in memory.
#[derive(Debug, Default)]
struct Bucket(Mutex<BTreeMap<String, Vec<u8>>>);

impl Bucket {
    fn text(&self, uri: &str) -> Option<String> {
        let objects = self.0.lock().expect("unlocked");
        objects.get(uri).map(|bytes| String::from_utf8(bytes.clone()).expect("text"))
    }
}

impl Objects for Bucket {
    fn get<'a>(&'a self, uri: &'a str) -> BoxFuture<'a, Result<Option<Vec<u8>>, LakeError>> {
        ready(Ok(self.0.lock().expect("unlocked").get(uri).cloned())).boxed()
    }

    fn put<'a>(&'a self, uri: &'a str, bytes: Vec<u8>) -> BoxFuture<'a, Result<(), LakeError>> {
        self.0.lock().expect("unlocked").insert(uri.to_owned(), bytes);
        ready(Ok(())).boxed()
    }

    fn delete<'a>(&'a self, uri: &'a str) -> BoxFuture<'a, Result<(), LakeError>> {
        self.0.lock().expect("unlocked").remove(uri);
        ready(Ok(())).boxed()
    }

    fn names<'a>(&'a self, directory: &'a str) -> BoxFuture<'a, Result<Vec<String>, LakeError>> {
        let prefix = format!("{directory}/");
        let objects = self.0.lock().expect("unlocked");
        let names = objects.keys().filter_map(|uri| uri.strip_prefix(&prefix)).map(str::to_owned).collect();
        ready(Ok(names)).boxed()
    }
}

/// A bucket that cannot be reached.
#[derive(Debug)]
struct Away;

fn away<T: Send + 'static>(uri: &str) -> BoxFuture<'static, Result<T, LakeError>> {
    let why = "connection refused".to_owned();
    ready(Err(LakeError::Store(StoreError::Unavailable { action: "read", uri: uri.to_owned(), why }))).boxed()
}

impl Objects for Away {
    fn get<'a>(&'a self, uri: &'a str) -> BoxFuture<'a, Result<Option<Vec<u8>>, LakeError>> {
        away(uri)
    }

    fn put<'a>(&'a self, uri: &'a str, _: Vec<u8>) -> BoxFuture<'a, Result<(), LakeError>> {
        away(uri)
    }

    fn delete<'a>(&'a self, uri: &'a str) -> BoxFuture<'a, Result<(), LakeError>> {
        away(uri)
    }

    fn names<'a>(&'a self, directory: &'a str) -> BoxFuture<'a, Result<Vec<String>, LakeError>> {
        away(directory)
    }
}

fn record(name: &str) -> StreamRecord {
    StreamRecord {
        id: 1,
        name: name.to_owned(),
        log: name.to_owned(),
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

fn ensure_local(root: &Path) -> Result<Document, LakeError> {
    ensure(root, &record("trades"), &Declared::default())
}

fn versions(root: &Path) -> PathBuf {
    root.join("trades/trades.metadata")
}

fn hint(root: &Path) -> String {
    fs::read_to_string(versions(root).join(files::HINT)).expect("a hint")
}

/// The current version's name and text; its plain copy has to say the same.
fn open(root: &Path) -> (String, String) {
    let version = hint(root);
    let text = fs::read_to_string(versions(root).join(&version)).expect("the version");
    let document = Document::parse(&text).expect("a document");
    let plain = fs::read_to_string(root.join("trades/trades.metadata.json")).expect("a plain copy");
    assert_eq!(plain, document.plain_text());
    (version, text)
}

#[test]
fn a_new_stream_gets_its_first_version_and_keeps_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let document = ensure_local(dir.path()).expect("written");
    let (version, _) = open(dir.path());
    assert!(version.starts_with("00001-"), "{version}");
    let published = format!("file://{}/trades/trades/published", dir.path().display());
    assert_eq!(document.streamcast_metadata, 2);
    assert_eq!(document.stream_id, record("trades").stream_id);
    assert_eq!(document.live_log.published, Some(published));
    assert_eq!((document.live_log.start_offset, document.live_log.start_ts), (1, None));
    assert_eq!(document.live_log.schema.to_string(), record("trades").schema_canonical);
    assert_eq!(ensure_local(dir.path()).expect("still there"), document);
    assert_eq!(open(dir.path()).0, version);
}

#[test]
fn the_first_stamp_is_written_down_once() {
    let dir = tempfile::tempdir().expect("a directory");
    ensure_local(dir.path()).expect("written");
    let stamped = Declared { first_ts_us: Some(7), ..Declared::default() };
    assert_eq!(ensure(dir.path(), &record("trades"), &stamped).expect("written").live_log.start_ts, Some(7));
    let later = Declared { first_ts_us: Some(9), ..Declared::default() };
    assert_eq!(ensure(dir.path(), &record("trades"), &later).expect("written").live_log.start_ts, Some(7));
    assert!(open(dir.path()).0.starts_with("00002-"));
}

#[test]
fn what_a_crash_left_half_is_completed() {
    let dir = tempfile::tempdir().expect("a directory");
    // After the version, before the hint: the version does not count.
    files::make_directory(&versions(dir.path())).expect("made");
    let orphan = versions(dir.path()).join("00001-064c4fa9037e4d19bba4e06189ccb04a.metadata.json");
    fs::write(&orphan, "{}").expect("written");
    ensure_local(dir.path()).expect("written");
    let (version, _) = open(dir.path());
    // After the hint, before the plain copy.
    let plain = dir.path().join("trades/trades.metadata.json");
    fs::remove_file(&plain).expect("removed");
    ensure_local(dir.path()).expect("repaired");
    assert_eq!(open(dir.path()).0, version);
    fs::write(&plain, "{").expect("written");
    ensure_local(dir.path()).expect("repaired");
    assert_eq!(open(dir.path()).0, version);
    // A plain copy alone, as old versions had it.
    fs::remove_file(versions(dir.path()).join(files::HINT)).expect("removed");
    ensure_local(dir.path()).expect("adopted");
    assert!(open(dir.path()).0.starts_with("00001-"));
}

#[test]
fn a_moved_root_is_written_down_until_it_has_tables() {
    let dir = tempfile::tempdir().expect("a directory");
    let (old, new) = (dir.path().join("old"), dir.path().join("new"));
    ensure_local(&old).expect("written");
    fs::rename(&old, &new).expect("moved");
    let document = ensure_local(&new).expect("written again");
    assert!(open(&new).0.starts_with("00002-"));
    assert_eq!(document.live_log.published, Some(format!("file://{}/trades/trades/published", new.display())));
    files::write(&new.join("trades/trades/published/trades/metadata/version-hint.text"), b"1").expect("written");
    fs::rename(&new, &old).expect("moved back");
    let error = ensure_local(&old).expect_err("it has tables").to_string();
    assert!(error.contains(&new.display().to_string()) && error.contains("absolute"), "{error}");
    // Tables that are still where they were, below another root, are read there.
    let table = new.join("trades/trades/published/trades/metadata");
    files::write(&table.join("version-hint.text"), b"1").expect("written");
    let kept = ensure_local(&old).expect("they are there").live_log.published;
    assert_eq!(kept, Some(format!("file://{}/trades/trades/published", new.display())));
}

#[test]
fn documents_of_another_stream_and_damaged_ones_are_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    ensure_local(dir.path()).expect("written");
    let other = StreamRecord { stream_id: "00000000-0000-4000-8000-000000000000".to_owned(), ..record("trades") };
    let error = ensure(dir.path(), &other, &Declared::default()).expect_err("another stream").to_string();
    assert!(error.contains("stream_id \"79c6ab49") && error.contains("00000000-0000"), "{error}");
    for (text, complaint) in [("", "names no version"), ("../x", "names no version"), ("gone.json", "is missing")] {
        fs::write(versions(dir.path()).join(files::HINT), text).expect("written");
        let error = ensure_local(dir.path()).expect_err("damaged").to_string();
        assert!(error.contains(complaint), "{error}");
    }
    let error = ensure_local(Path::new("/srv/100%")).expect_err("a percent sign").to_string();
    assert!(error.contains("/srv/100%") && error.contains("percent"), "{error}");
}

#[test]
fn tables_stay_where_they_were_declared_first() {
    let dir = tempfile::tempdir().expect("a directory");
    let declared = |published| Declared { published: Some(published), ..Declared::default() };
    let document = ensure(dir.path(), &record("trades"), &declared("file:///pub/")).expect("written");
    assert_eq!(document.live_log.published.as_deref(), Some("file:///pub/trades"));
    ensure_local(dir.path()).expect("nothing declared");
    let error = ensure(dir.path(), &record("trades"), &declared("file:///bup")).expect_err("elsewhere").to_string();
    assert!(error.contains("file:///bup/trades") && error.contains("file:///pub/trades"), "{error}");
    for prefix in ["/pub", "file://pub", "file:///a%20b", "gs://b/p"] {
        let error = ensure(&dir.path().join("x"), &record("trades"), &declared(prefix)).expect_err("refused");
        assert!(error.to_string().contains(prefix), "{error}");
    }
}

#[test]
fn a_bucket_has_the_same_documents_and_gives_them_back() {
    let dir = tempfile::tempdir().expect("a directory");
    let bucket = Arc::new(Bucket::default());
    let declared =
        Declared { published: Some("s3://b/pre"), first_ts_us: None, bucket: Some(Arc::clone(&bucket) as _) };
    let document = ensure(dir.path(), &record("trades"), &declared).expect("written");
    let there = "s3://b/pre/trades/trades.metadata";
    assert_eq!(bucket.text(&format!("{there}/version-hint.text")), Some(hint(dir.path())));
    assert_eq!(bucket.text(&format!("{there}.json")), Some(document.text()));
    // What a crash between the two places left out.
    bucket.0.lock().expect("unlocked").clear();
    ensure(dir.path(), &record("trades"), &declared).expect("written again");
    assert_eq!(bucket.text(&format!("{there}/version-hint.text")), Some(hint(dir.path())));
    // A data root without documents.
    fs::remove_dir_all(dir.path().join("trades")).expect("removed");
    assert_eq!(ensure(dir.path(), &record("trades"), &declared).expect("adopted"), document);
    let other = StreamRecord { stream_id: "00000000-0000-4000-8000-000000000000".to_owned(), ..record("trades") };
    fs::remove_dir_all(dir.path().join("trades")).expect("removed");
    ensure(dir.path(), &other, &declared).expect_err("another stream is there");
}

#[test]
fn a_known_stream_is_served_while_its_bucket_is_away_and_a_new_one_is_not_made() {
    let dir = tempfile::tempdir().expect("a directory");
    let bucket = Arc::new(Bucket::default());
    let to = |bucket: Arc<dyn Objects>, first_ts_us| Declared {
        published: Some("s3://b/pre"),
        first_ts_us,
        bucket: Some(bucket),
    };
    let (there, gone): (Arc<dyn Objects>, Arc<dyn Objects>) = (Arc::clone(&bucket) as _, Arc::new(Away));
    let error = ensure(dir.path(), &record("trades"), &to(Arc::clone(&gone), None)).expect_err("it is not known");
    assert!(error.is_transient(), "{error}");
    let document = ensure(dir.path(), &record("trades"), &to(Arc::clone(&there), None)).expect("written");
    bucket.0.lock().expect("unlocked").clear();
    // With nothing to change, and with something.
    assert_eq!(ensure(dir.path(), &record("trades"), &to(Arc::clone(&gone), None)).expect("served"), document);
    assert_eq!(ensure(dir.path(), &record("trades"), &to(gone, Some(7))).expect("served"), document);
    // What it lacks is written when it is back.
    let documents = Documents::new(dir.path(), "trades", Some(Arc::clone(&there)));
    documents.complete_current().now_or_never().expect("no waiting").expect("written");
    let hinted = bucket.text("s3://b/pre/trades/trades.metadata/version-hint.text");
    assert_eq!(hinted, Some(hint(dir.path())));
    assert_eq!(ensure(dir.path(), &record("trades"), &to(there, Some(7))).expect("changed").live_log.start_ts, Some(7));
}

#[test]
fn commits_are_compared_numbered_and_pruned() {
    let dir = tempfile::tempdir().expect("a directory");
    ensure_local(dir.path()).expect("written");
    let documents = Documents::new(dir.path(), "trades", None);
    let run = |work: BoxFuture<'_, Result<Current, LakeError>>| work.now_or_never().expect("no waiting");
    let first = documents.current().now_or_never().expect("no waiting").expect("read").expect("there");
    let mut current = first.clone();
    for number in 0..14_i64 {
        let document = Document { retention: Some(number), ..current.document.clone() };
        let manifest = if number == 3 { Change::Replace(b"PAR1".to_vec()) } else { Change::Keep };
        current = run(documents.commit(document, manifest, Some(&current), Order::HomeFirst).boxed()).expect("written");
    }
    assert!(current.version.as_deref().expect("a version").starts_with("00015-"));
    assert!(current.document.manifest.as_deref().expect("a manifest").starts_with("00005-"));
    let manifest = documents.manifest(&current).now_or_never().expect("no waiting").expect("read");
    assert_eq!(manifest, Some(b"PAR1".to_vec()));
    assert_eq!(fs::read(dir.path().join("trades/trades.manifest.parquet")).expect("a copy"), b"PAR1");
    let names = files::names(&versions(dir.path())).expect("listed");
    assert_eq!(names.iter().filter(|name| files::version_number(name).is_some()).count(), 10);
    assert_eq!(names.iter().filter(|name| files::manifest_number(name).is_some()).count(), 1);
    let retired = Document {
        retirement: Some(Retirement { at: 1, end_offset: 1, sort_by: None, start_ts: None, end_ts: None }),
        ..first.document.clone()
    };
    let late = run(documents.commit(retired.clone(), Change::Clear, Some(&first), Order::HomeFirst).boxed());
    assert!(matches!(late, Err(LakeError::Changed { .. })), "{late:?}");
    let last =
        run(documents.commit(retired, Change::Clear, Some(&current), Order::HomeFirst).boxed()).expect("written");
    assert_eq!(last.document.manifest, None);
    assert!(open(dir.path()).1.contains("\"streamcast_metadata\": 3"));
    // The manifest goes when no kept version names it any more.
    let mut current = last;
    for number in 0..10 {
        let document = Document { retention: Some(number), ..current.document.clone() };
        current = run(documents.commit(document, Change::Keep, None, Order::HomeFirst).boxed()).expect("written");
    }
    let names = files::names(&versions(dir.path())).expect("listed");
    assert_eq!(names.iter().filter(|name| files::manifest_number(name).is_some()).count(), 0);
}
