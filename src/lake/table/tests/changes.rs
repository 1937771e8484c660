//! Creating, adding, replacing, and what is refused.

use std::collections::BTreeMap;

use super::fixture::{file, named, names, spec, table};
use crate::lake::store::Store;
use crate::lake::table::manifests;
use crate::lake::table::{Commit, Retired, Table, TableError, TableSpec, delete_all};

fn ranges(files: &[crate::lake::DataFile]) -> Vec<(i64, i64)> {
    files.iter().map(|file| (file.start, file.end)).collect()
}

async fn reopened(table: &Table) -> Table {
    Table::open(&Store::default(), table.location()).await.expect("read").expect("a table")
}

#[tokio::test]
async fn a_new_table_is_empty_and_made_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = Store::default();
    assert!(Table::open(&store, &spec(dir.path()).location).await.expect("read").is_none());
    let mut made = table(dir.path()).await;
    assert_eq!((made.extent().await.expect("read"), made.version_number()), (None, 0));
    assert!(matches!(Table::create(&store, &spec(dir.path())).await, Err(TableError::Exists { .. })));
    let mut again = Table::open_or_create(&store, &spec(dir.path())).await.expect("opened");
    assert_eq!(again.metadata_uri(), made.metadata_uri());
    assert_eq!(again.files().await.expect("read"), []);
    assert_eq!(again.sort_by(), Some(vec!["name".to_owned()]));
    assert_eq!(again.sort_order(), ["name"]);
    assert_eq!(again.arrow_schema(), Some("ffffffff"));
    let mapping: serde_json::Value =
        serde_json::from_str(&again.properties()["schema.name-mapping.default"]).expect("a mapping");
    assert_eq!(mapping[2]["fields"][0], serde_json::json!({"names": ["element"], "field-id": 5}));
}

#[tokio::test]
async fn descriptions_that_readers_could_not_follow_are_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let good = spec(dir.path());
    let fields = good.schema.as_struct().fields().to_vec();
    let with = |fields: Vec<_>| TableSpec {
        schema: iceberg::spec::Schema::builder().with_fields(fields).build().expect("a schema"),
        ..good.clone()
    };
    for wrong in [
        with(fields[1..].to_vec()),
        with(fields[..3].to_vec()),
        with(vec![fields[0].clone(), fields[2].clone(), fields[3].clone()]),
        TableSpec { sort_by: vec!["absent".to_owned()], ..good.clone() },
    ] {
        let made = Table::create(&Store::default(), &wrong).await;
        assert!(matches!(made, Err(TableError::Spec { .. })), "{made:?}");
    }
    assert!(names(dir.path()).is_empty(), "nothing is written for them");
}

#[tokio::test]
async fn files_are_added_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut table = table(dir.path()).await;
    let files = [file(&table, 1, 10), file(&table, 10, 20), file(&table, 25, 30)];
    let commit = Commit { issued_through: Some(29), writer_epoch: Some(3), ..Commit::default() };
    let first = table.append(&files, &commit).await.expect("added");
    assert_eq!((first.version, first.added, first.extent), (1, 3, Some((1, 30))));
    let again = table.append(&files, &commit).await.expect("nothing to add");
    assert_eq!((again.version, again.added, again.snapshot_id), (1, 0, None));
    let mut other = reopened(&table).await;
    assert_eq!(ranges(&other.files().await.expect("read")), [(1, 10), (10, 20), (25, 30)]);
    assert_eq!(other.row_count().await.expect("read"), 24);
    assert_eq!((other.issued_through(), other.writer_epoch()), (Some(29), Some(3)));
    // Another name for offsets that are there, as after a seal that was repeated.
    let repeated = named(&table, "sealed/1-10-other", 1, 10);
    assert_eq!(other.append(&[repeated, file(&table, 30, 31)], &commit).await.expect("added").added, 1);
    let full = other.files_with_columns().await.expect("read");
    assert_eq!(full.len(), 4);
    let mut expected = files[0].columns.clone();
    for (column, bounds) in [(0, (1, 9)), (2, (1000, 10_000))] {
        expected[column].lower = Some(i64::to_le_bytes(bounds.0).to_vec());
        expected[column].upper = Some(i64::to_le_bytes(bounds.1).to_vec());
    }
    assert_eq!(full[0].columns, expected);
    assert_eq!(full[0].ts_us, files[0].ts_us);
    // The first handle learns of it.
    assert!(table.refresh().await.expect("read"));
    assert_eq!(table.extent().await.expect("read"), Some((1, 31)));
    let snapshots = table.snapshots();
    assert_eq!(snapshots.iter().map(|it| it.offsets).collect::<Vec<_>>(), [Some((1, 30)), Some((30, 31))]);
    assert_eq!(ranges(&table.files_at(snapshots[0].snapshot_id).await.expect("read")).len(), 3);
}

#[tokio::test]
async fn files_that_do_not_fit_are_refused_and_change_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut table = table(dir.path()).await;
    table.append(&[file(&table, 10, 20), file(&table, 30, 40)], &Commit::default()).await.expect("added");
    let mut dense = file(&table, 50, 52);
    dense.rows = 3;
    for wrong in [
        vec![file(&table, 1, 5)],
        vec![file(&table, 15, 25)],
        vec![file(&table, 22, 25)],
        vec![file(&table, 35, 45)],
        vec![file(&table, 50, 60), file(&table, 55, 65)],
        vec![file(&table, 60, 70), file(&table, 50, 60)],
        vec![file(&table, 50, 50)],
        vec![dense],
    ] {
        let added = table.append(&wrong, &Commit::default()).await;
        assert!(matches!(added, Err(TableError::Misfit { .. })), "{added:?}");
    }
    assert_eq!((table.version_number(), table.extent().await.expect("read")), (1, Some((10, 40))));
}

#[tokio::test]
async fn manifests_stay_few() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut table = table(dir.path()).await;
    let mut next = 1;
    for many in [300, 300, 1, 1, 1200, 1, 1, 1] {
        let files: Vec<_> = (next..next + many).map(|start| file(&table, start, start + 1)).collect();
        next += many;
        table.append(&files, &Commit::default()).await.expect("added");
        let listed = table.index().await.expect("read").manifests.len() as i64;
        assert!(listed <= next / 256 + 1, "{listed} manifests for {next} files");
    }
    let mut other = reopened(&table).await;
    assert_eq!(other.files().await.expect("read"), table.files().await.expect("read"));
    assert_eq!(other.index().await.expect("read").manifests, table.index().await.expect("read").manifests);
}

#[tokio::test]
async fn manifests_of_tables_with_many_columns_stay_small() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut table = table(dir.path()).await;
    let mut files: Vec<_> = (1..40).map(|start| file(&table, start, start + 1)).collect();
    // As large as an entry of some thousand columns, without a schema of as many.
    let long = "z".repeat(100_000);
    for file in &mut files {
        file.uri.insert_str(file.uri.len() - ".parquet".len(), &long);
    }
    table.append(&files[..30], &Commit::default()).await.expect("added");
    table.append(&files[30..], &Commit::default()).await.expect("added");
    let index = table.index().await.expect("read");
    assert!(index.manifests.iter().all(|it| it.manifest_length < 2 << 20), "{:?}", index.manifests);
    assert_eq!((index.manifests.len(), reopened(&table).await.files().await.expect("read").len()), (4, 39));
}

#[tokio::test]
async fn a_replacement_is_one_snapshot() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut table = table(dir.path()).await;
    let files: Vec<_> = (0..700).map(|at| file(&table, at * 10 + 1, at * 10 + 11)).collect();
    table.append(&files[..600], &Commit::default()).await.expect("added");
    table.append(&files[600..], &Commit::default()).await.expect("added");
    let before = table.snapshots();
    let merged = [named(&table, "compacted/1", 5001, 5501), named(&table, "compacted/2", 5501, 6001)];
    let done = table.replace(5001..6001, &merged, &Commit::default()).await.expect("replaced");
    assert_eq!((done.added, done.removed, done.extent), (2, 100, Some((1, 7001))));
    assert_eq!(table.snapshots().len(), before.len() + 1);
    let again = table.replace(5001..6001, &merged, &Commit::default()).await.expect("nothing to do");
    assert_eq!((again.snapshot_id, again.version), (None, done.version));
    let mut other = reopened(&table).await;
    let now = other.files().await.expect("read");
    assert_eq!((now.len(), other.row_count().await.expect("read")), (602, 7000));
    assert!(now.windows(2).all(|pair| pair[0].end == pair[1].start));
    // The state before is still there as it was.
    let old = before.last().expect("a snapshot").snapshot_id;
    assert_eq!(ranges(&table.files_at(old).await.expect("read")), ranges(&files));
    // Everything replaced by one file: the manifests do not pile up.
    let one = [named(&table, "compacted/all", 1, 7001)];
    table.replace(1..7001, &one, &Commit::default()).await.expect("replaced");
    table.append(&[file(&table, 7001, 7002)], &Commit::default()).await.expect("added");
    assert_eq!(reopened(&table).await.index().await.expect("read").manifests.len(), 1);
}

#[tokio::test]
async fn replacements_that_would_lose_or_add_rows_are_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut table = table(dir.path()).await;
    let files = [file(&table, 1, 10), file(&table, 10, 20), file(&table, 20, 30)];
    table.append(&files, &Commit::default()).await.expect("added");
    let mut short = named(&table, "m", 1, 20);
    short.rows = 18;
    for (range, new) in [
        (1..15, vec![named(&table, "m", 1, 15)]),
        (1..20, vec![named(&table, "m", 1, 19)]),
        (1..20, vec![named(&table, "m", 2, 20)]),
        (1..20, vec![short]),
        (1..20, vec![]),
        (1..20, vec![files[0].clone(), named(&table, "m", 10, 20)]),
        (40..50, vec![named(&table, "m", 40, 50)]),
    ] {
        let done = table.replace(range.clone(), &new, &Commit::default()).await;
        assert!(matches!(done, Err(TableError::Misfit { .. })), "{range:?} {done:?}");
    }
    assert_eq!(table.version_number(), 1);
}

#[tokio::test]
async fn the_oldest_files_are_taken_away_whole() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut table = table(dir.path()).await;
    let files = [file(&table, 1, 10), file(&table, 10, 20), file(&table, 20, 30)];
    table.append(&files, &Commit::default()).await.expect("added");
    assert_eq!(table.truncate(9, &Commit::default()).await.expect("nothing").removed, 0);
    let done = table.truncate(25, &Commit::default()).await.expect("truncated");
    assert_eq!((done.removed, done.extent), (2, Some((20, 30))));
    assert_eq!(table.truncate(30, &Commit::default()).await.expect("truncated").extent, None);
    let mut other = reopened(&table).await;
    assert_eq!(other.files().await.expect("read"), []);
    // Offsets go on where they were; the table does not know, its writer does.
    other.append(&[file(&table, 30, 40)], &Commit::default()).await.expect("added");
    assert_eq!(other.extent().await.expect("read"), Some((30, 40)));
}

#[tokio::test]
async fn an_older_server_is_kept_out() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut table = table(dir.path()).await;
    let epoch = |epoch| Commit { writer_epoch: Some(epoch), ..Commit::default() };
    table.append(&[file(&table, 1, 2)], &epoch(5)).await.expect("added");
    let mut older = reopened(&table).await;
    let added = older.append(&[file(&table, 2, 3)], &epoch(4)).await;
    assert!(matches!(added, Err(TableError::Fenced { found: 5, ours: 4, .. })), "{added:?}");
    table.append(&[file(&table, 2, 3)], &epoch(6)).await.expect("added");
}

#[tokio::test]
async fn writers_at_the_same_time_lose_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut one = table(dir.path()).await;
    let mut two = reopened(&one).await;
    let (a, b) = (file(&one, 1, 10), file(&one, 10, 20));
    // Both start from version 0.
    one.append(std::slice::from_ref(&a), &Commit::default()).await.expect("added");
    let done = two.append(&[a, b], &Commit::default()).await.expect("added");
    assert_eq!((done.version, done.added, done.extent), (2, 1, Some((1, 20))));
    assert_eq!(ranges(&reopened(&one).await.files().await.expect("read")), [(1, 10), (10, 20)]);
}

#[tokio::test]
async fn a_commit_whose_hint_was_not_written_counts() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut table = table(dir.path()).await;
    let hint = dir.path().join("log/metadata/version-hint.text");
    let before = std::fs::read(&hint).expect("a hint");
    table.append(&[file(&table, 1, 10)], &Commit::default()).await.expect("added");
    let after = std::fs::read(&hint).expect("a hint");
    std::fs::write(&hint, &before).expect("put back");
    let mut other = reopened(&table).await;
    assert_eq!(other.extent().await.expect("read"), Some((1, 10)));
    assert_eq!(std::fs::read(&hint).expect("a hint"), before, "opening writes nothing");
    let again = other.append(&[file(&table, 1, 10)], &Commit::default()).await.expect("nothing to add");
    assert_eq!(again.snapshot_id, None);
    assert_eq!(std::fs::read(&hint).expect("a hint"), after, "and a change repairs the hint");
    assert!(!other.repair().await.expect("read"));
}

#[tokio::test]
async fn properties_are_set_and_removed() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut table = table(dir.path()).await;
    let set = |value: Option<&str>| BTreeMap::from([("a.b".to_owned(), value.map(str::to_owned))]);
    table.set_properties(&set(Some("c"))).await.expect("set");
    table.set_properties(&set(Some("c"))).await.expect("nothing to do");
    assert_eq!(table.version_number(), 1);
    assert_eq!(reopened(&table).await.properties()["a.b"], "c");
    table.set_properties(&set(None)).await.expect("removed");
    assert!(!reopened(&table).await.properties().contains_key("a.b"));
    // What the log has given out never falls.
    let through = |through| Commit { issued_through: Some(through), ..Commit::default() };
    table.append(&[], &through(7)).await.expect("set");
    table.append(&[], &through(5)).await.expect("nothing to do");
    assert_eq!((table.issued_through(), table.version_number()), (Some(7), 3));
}

#[tokio::test]
async fn only_a_finished_log_is_deleted_and_a_broken_off_deletion_goes_on() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut table = table(dir.path()).await;
    let store = Store::default();
    table.append(&[file(&table, 1, 10), file(&table, 10, 20)], &Commit::default()).await.expect("added");
    let location = table.location().to_owned();
    assert!(matches!(delete_all(&store, &location, false).await, Err(TableError::NotRetired { .. })));
    let mark = Retired { through: Some(19), at: "2026-11-29T19:17:55+00:00".to_owned() };
    table.retire(&mark).await.expect("marked");
    table.retire(&Retired { through: None, at: String::new() }).await.expect("kept");
    assert_eq!(reopened(&table).await.retired(), Some(mark));
    let all = names(dir.path());
    let dry = delete_all(&store, &location, true).await.expect("counted");
    assert_eq!((dry.files, names(dir.path())), (all.len() as u64, all));
    // As if it had been killed after the hint.
    let metadata = dir.path().join("log/metadata");
    std::fs::remove_dir_all(dir.path().join("log/data")).expect("removed");
    std::fs::remove_file(metadata.join("version-hint.text")).expect("removed");
    let done = delete_all(&store, &location, false).await.expect("deleted");
    assert!(done.files > 0);
    assert!(!dir.path().join("log").exists());
    assert_eq!(delete_all(&store, &location, false).await.expect("nothing there").files, 0);
}

#[tokio::test]
async fn manifests_stay_few_and_an_entry_is_seldom_written_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut table = table(dir.path()).await;
    let (files, mut written) = (150, 0);
    for each in 1..=files {
        table.append(&[file(&table, each, each + 1)], &Commit::default()).await.expect("added");
        let index = table.index().await.expect("read");
        let newest = index.manifests.last().expect("one");
        written += manifests::live_files(newest);
        assert!(index.manifests.len() <= 9, "{} manifests of {each} files", index.manifests.len());
        assert_eq!(index.manifests.iter().map(manifests::live_files).sum::<u64>(), each as u64);
    }
    // Once for every doubling: 8 times, and not 75.
    assert!(written <= 8 * files as u64, "{written} entries for {files} files");
    // Merged files in between leave no small manifests behind either.
    for each in (1..=files - 4).step_by(10) {
        let merged = named(&table, &format!("compacted/{each}"), each, each + 4);
        table.replace(each..each + 4, &[merged], &Commit::default()).await.expect("replaced");
        let index = table.index().await.expect("read");
        assert!(index.manifests.len() <= 9, "{} manifests", index.manifests.len());
    }
    let mut other = Table::open(&Store::default(), table.location()).await.expect("read").expect("a table");
    assert_eq!(other.files().await.expect("read"), table.files().await.expect("read"));
}
