//! The life of a stream on a small data root, without a broker.

use std::fs;
use std::path::{Path, PathBuf};

use futures_util::FutureExt as _;
use serde_json::{Value, json};

use super::*;
use crate::journal::{self, JournalSettings, StreamSpec};
use crate::lake::documents::{Change, Declared, Documents, Order, ensure};
use crate::lake::mover::{LakeSettings, MoverSettings};
use crate::schema::Schema;
use crate::stream::record::StreamRecord;

fn schema(properties: Value) -> Schema {
    let required: Vec<String> = properties
        .as_object()
        .expect("an object")
        .iter()
        .filter(|(_, property)| property["type"].is_string())
        .map(|(name, _)| name.clone())
        .collect();
    Schema::compile(&json!({"type": "object", "properties": properties, "required": required}), true).expect("fine")
}

fn first() -> Schema {
    schema(json!({"id": {"type": "integer"}, "name": {"type": ["string", "null"]}}))
}

fn second() -> Schema {
    schema(json!({"id": {"type": "integer"}, "more": {"type": ["number", "null"]}}))
}

/// A data root with a stream that has no row.
fn made() -> (tempfile::TempDir, PathBuf) {
    let (dir, root, record) = declared();
    ensure(&root, &record, &Declared::default()).expect("documents");
    (dir, root)
}

/// A data root with a stream that was made and never served.
fn declared() -> (tempfile::TempDir, PathBuf, StreamRecord) {
    let dir = tempfile::tempdir().expect("a directory");
    let mut journal = journal::open(&dir.path().join("root"), JournalSettings::default()).expect("opened");
    let spec = StreamSpec {
        name: "r".to_owned(),
        schema_canonical: first().canonical().to_owned(),
        sort_by: vec![],
        exactly_once: false,
        group_commit: true,
    };
    let record = journal.declare(&spec).expect("declared");
    (dir, journal.root().to_owned(), record)
}

fn open(root: &Path) -> Root {
    Root::open(root, &LakeSettings::default()).expect("opened")
}

fn load(root: &mut Root, path: &Path, rows: std::ops::Range<i64>) -> Result<Loaded, LoadError> {
    let lines: String = rows.map(|id| format!("{{\"id\":{id}}}\n")).collect();
    fs::write(path, lines).expect("written");
    let sources = [path.to_owned()];
    root.ingest(&Load { stream: "r", sources: &sources, format: None, skip_rows: 0 }, &mut |_| {})
}

#[test]
fn a_stream_is_loaded_migrated_retired_and_revived() {
    let (dir, path) = made();
    let file = dir.path().join("rows.ndjson");
    let mut root = open(&path);
    let loaded = load(&mut root, &file, 1..11).expect("loaded");
    assert_eq!((loaded.start, loaded.end, loaded.source), (1, 11, 1));
    let same = root.migrate("r", &first(), None).expect("nothing to do");
    assert!(!same.changed);
    let migrated = root.migrate("r", &second(), None).expect("migrated");
    assert_eq!((migrated.log.as_str(), migrated.start_offset, migrated.changed), ("r-v2", 11, true));
    assert!(matches!(root.revive("r"), Err(LifeError::NotRetired { .. })));
    let wrong = schema(json!({"id": {"type": "string"}}));
    assert!(matches!(root.migrate("r", &wrong, None), Err(LifeError::TypeChange { .. })));
    load(&mut root, &file, 11..14).expect("loaded");
    let retirement = root.retire("r").expect("retired");
    assert_eq!((retirement.end_offset, root.retire("r").expect("still").at), (14, retirement.at));
    assert!(matches!(root.migrate("r", &first(), None), Err(LifeError::Retired { .. })));
    let refused = load(&mut root, &file, 14..15).expect_err("retired");
    assert!(refused.loaded.is_none());
    let live = root.revive("r").expect("revived");
    assert_eq!((live.name.as_str(), live.start_offset), ("r-v3", 14));
    drop(root);
    let report = open(&path).report("r").expect("there");
    let logs: Vec<_> = report.logs.iter().map(|log| (log.start_offset, log.end_offset)).collect();
    assert_eq!(logs, [(1, Some(11)), (11, Some(14)), (14, None)]);
    assert_eq!(report.end_offset, 14);
}

#[test]
fn the_journal_follows_the_document_after_a_crash() {
    let (_dir, path) = made();
    let documents = Documents::new(&path, "r", None);
    let current = documents.current().now_or_never().expect("no waiting").expect("read").expect("there");
    // What a migration writes, and then the process ends.
    let mut document = current.document.clone();
    let mut next = document.live_log.clone();
    next.name = document.next_log_name();
    next.schema = serde_json::from_str(second().canonical()).expect("JSON");
    document.sealed_logs.push(document.live_log.clone().seal(1, None, None));
    document.live_log = next;
    let committed = documents.commit(document, Change::Clear, Some(&current), Order::HomeFirst).now_or_never();
    committed.expect("no waiting").expect("committed");
    let mut journal = journal::open(&path, JournalSettings::default()).expect("opened");
    reconcile(&path, &mut journal).expect("followed");
    let record = journal.streams().remove(0);
    assert_eq!((record.log.as_str(), record.floor), ("r-v2", Some(1)));
    assert_eq!(record.schema_canonical, second().canonical());
}

#[test]
fn what_is_loaded_stays_when_a_later_row_is_refused() {
    let (dir, path) = made();
    let (good, bad) = (dir.path().join("a.ndjson"), dir.path().join("b.ndjson"));
    fs::write(&good, "{\"id\":1}\n{\"id\":2}\n").expect("written");
    fs::write(&bad, "{\"id\":3}\n{\"id\":\"x\"}\n").expect("written");
    let mut root = open(&path);
    let sources = [good.clone(), bad];
    let load = Load { stream: "r", sources: &sources, format: None, skip_rows: 0 };
    let error = root.ingest(&load, &mut |_| {}).expect_err("a bad row");
    assert_eq!(error.loaded.map(|loaded| loaded.end - loaded.start), Some(0), "no file of the log was complete");
    assert!(error.to_string().contains("row 2"), "{error}");
    let sources = [good];
    let loaded = root.ingest(&Load { stream: "r", sources: &sources, format: None, skip_rows: 1 }, &mut |_| {});
    assert_eq!(loaded.map(|loaded| (loaded.start, loaded.end)).expect("loaded"), (1, 2));
    // The journal lost the end, as if the process had ended before it was told.
    assert_eq!(root.report("r").expect("there").end_offset, 2);
}

#[test]
fn rows_too_old_are_cut_off_first_and_deleted_later() {
    let (dir, path) = made();
    let mut root = open(&path);
    load(&mut root, &dir.path().join("rows.ndjson"), 1..6).expect("loaded");
    root.migrate("r", &second(), None).expect("migrated");
    assert_eq!(root.retention_pass("r").expect("nothing set"), Passed::Nothing);
    root.retain("r", Some(1)).expect("set");
    let preview = root.preview_retention("r", None).expect("looked");
    let cut = Passed::CutOff { floor: 6, dropped: vec!["r".to_owned()] };
    assert_eq!(preview, cut);
    assert_eq!(root.retention_pass("r").expect("cut off"), cut);
    assert_eq!(root.retention_pass("r").expect("too early"), Passed::Nothing);
    assert!(path.join("r/r").exists());
    let report = root.report("r").expect("there");
    assert_eq!((report.pending_floor, report.logs.len()), (Some(6), 1));
    root.retain("r", None).expect("for ever");
    assert_eq!(root.report("r").expect("there").retention_us, None);
}

#[test]
fn a_lost_stream_comes_back_behind_a_fence() {
    let (dir, path) = made();
    let mut root = open(&path);
    load(&mut root, &dir.path().join("rows.ndjson"), 1..6).expect("loaded");
    drop(root);
    let other = dir.path().join("other");
    let mut root = open(&other);
    let published = format!("file://{}", path.display());
    let wanted =
        Wanted { stream: "r", published: &published, revive: false, exactly_once: true, ignore_replica: false };
    let restored = root.restore(&wanted).expect("restored");
    assert_eq!((restored.rows, restored.published_end, restored.next_offset), (5, 6, 6 + FENCE));
    let report = root.report("r").expect("there");
    assert_eq!(report.logs[0].files.map(|files| (files.files, files.local_files)), Some((1, 1)));
    assert!(matches!(root.restore(&wanted), Err(LifeError::Exists { .. })));
    let nowhere = Wanted { published: "file:///nowhere", stream: "x", ..wanted };
    assert!(matches!(root.restore(&nowhere), Err(LifeError::NothingThere { .. })));
    // Rows that were never published may be in a replica, which nobody reads here.
    let replica = path.join("r/r/published/r/_wal/buffer.db/0000");
    fs::create_dir_all(&replica).expect("made");
    fs::write(replica.join("1.ltx"), "x").expect("written");
    let mut third = open(&dir.path().join("third"));
    assert!(matches!(third.restore(&wanted), Err(LifeError::Replica { .. })));
    third.restore(&Wanted { ignore_replica: true, ..wanted }).expect("restored");
}

#[test]
fn a_stream_that_was_never_served_can_be_loaded_and_has_its_table_where_it_was_declared() {
    let (dir, root, _) = declared();
    let mut opened = open(&root);
    assert_eq!(load(&mut opened, &dir.path().join("a"), 0..3).expect("loaded").end, 4);
    assert!(root.join("r/r/published/r/metadata/version-hint.text").exists());
    drop(opened);

    let (dir, root, _) = declared();
    let elsewhere = dir.path().join("elsewhere");
    let published = Some(format!("file://{}", elsewhere.display()));
    let chosen = Chosen { published, moving: MoverSettings { target_seal_rows: Some(2), ..MoverSettings::default() } };
    let mut opened = open(&root).choosing([("r".to_owned(), chosen)].into(), MoverSettings::default());
    load(&mut opened, &dir.path().join("a"), 0..3).expect("loaded");
    assert!(elsewhere.join("r/r/metadata/version-hint.text").exists());
}
