//! What stays and what goes, by age.

use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

use super::fixture::{at, file, named, names, table};
use crate::lake::store::Store;
use crate::lake::table::spec::RECENT;
use crate::lake::table::version::{Version, decode};
use crate::lake::table::{Expire, Sweep, Table};

const HOUR_MS: i64 = 3_600_000;

fn expire(now_ms: i64) -> Expire {
    Expire { now_ms: Some(now_ms), ..Expire::default() }
}

/// A time after the table was made; changes never go back before it.
fn later() -> i64 {
    crate::lake::table::commit::now_ms() + HOUR_MS
}

#[tokio::test]
async fn a_state_stays_an_hour_after_it_was_superseded() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut table = table(dir.path()).await;
    let start = later();
    table.append(&[file(&table, 1, 10), file(&table, 10, 20)], &at(start)).await.expect("added");
    // Much later: the state is old, and superseded only now.
    let now = start + 100 * HOUR_MS;
    let pinned = names(dir.path());
    table.replace(1..20, &[named(&table, "compacted/1", 1, 20)], &at(now)).await.expect("replaced");
    let gone = table.expire(&expire(now + HOUR_MS)).await.expect("looked");
    assert_eq!(gone.data_files.len(), 0, "{gone:?}");
    let there: HashSet<_> = names(dir.path()).into_iter().collect();
    let missing: Vec<_> = pinned.iter().filter(|name| !there.contains(*name)).collect();
    assert!(missing.iter().all(|name| name.starts_with("00000-")), "{missing:?}");
    let gone = table.expire(&expire(now + HOUR_MS + 1)).await.expect("expired");
    assert_eq!((gone.snapshots, gone.data_files.len()), (1, 2), "{gone:?}");
    let data = names(&dir.path().join("log/data"));
    assert_eq!(data, ["1.parquet"]);
    let mut other = Table::open(&Store::default(), table.location()).await.expect("read").expect("a table");
    assert_eq!(other.extent().await.expect("read"), Some((1, 20)));
    assert_eq!(other.snapshots().len(), 1);
}

#[tokio::test]
async fn files_that_are_kept_for_others_stay() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut table = table(dir.path()).await;
    let now = later();
    let files = [file(&table, 1, 10), file(&table, 10, 20)];
    table.append(&files, &at(now)).await.expect("added");
    table.replace(1..20, &[named(&table, "compacted/1", 1, 20)], &at(now)).await.expect("replaced");
    let keep = HashSet::from([files[0].uri.clone()]);
    let gone = table.expire(&Expire { keep, ..expire(now + HOUR_MS + 1) }).await.expect("expired");
    assert_eq!(gone.data_files, [files[1].uri.clone()]);
}

#[tokio::test]
async fn metadata_is_bounded_by_age_and_not_by_number() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut table = table(dir.path()).await;
    let start = later();
    let mut most = 0;
    for commit in 0..70 {
        let now = start + commit * 120_000;
        table.append(&[file(&table, commit + 1, commit + 2)], &at(now)).await.expect("added");
        table.expire(&expire(now)).await.expect("expired");
        let there = names(&dir.path().join("log/metadata")).len();
        most = most.max(there);
    }
    assert_eq!(table.snapshots().len(), 32);
    // An hour of commits, each with a version, a list and a manifest, and a version for each expiry.
    assert!(most < 32 * 4 + 20, "{most} files of metadata");
    assert_eq!(table.files().await.expect("read").len(), 70);
    let mut other = Table::open(&Store::default(), table.location()).await.expect("read").expect("a table");
    assert_eq!(other.files().await.expect("read").len(), 70);
    let oldest = other.snapshots()[0].snapshot_id;
    assert!(!other.files_at(oldest).await.expect("still readable").is_empty());
}

#[tokio::test]
async fn orphans_go_when_they_are_old_and_nobody_keeps_them() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut table = table(dir.path()).await;
    table.append(&[file(&table, 1, 10)], &at(0)).await.expect("added");
    table.append(&[file(&table, 10, 20)], &at(0)).await.expect("added");
    let all = names(dir.path());
    let orphan = named(&table, "sealed/lost", 50, 60);
    let waiting = named(&table, "sealed/waiting", 20, 30);
    let metadata = dir.path().join("log/metadata");
    for name in ["00009-11111111-1111-4111-8111-111111111111.metadata.json", "x-m0.avro", ".y.tmp"] {
        std::fs::write(metadata.join(name), "{}").expect("written");
    }
    let keep = HashSet::from([waiting.uri.clone()]);
    let young = Sweep { keep: keep.clone(), ..Sweep::default() };
    assert_eq!(table.sweep(&young).await.expect("looked").orphans, []);
    let now_ms = Some(later() + 10_000);
    let dry = Sweep { keep: keep.clone(), now_ms, ..Sweep::default() };
    let found = table.sweep(&dry).await.expect("looked");
    assert_eq!((found.orphans.len(), found.more), (4, false), "{found:?}");
    assert!(Path::new(orphan.uri.trim_start_matches("file://")).exists(), "a dry run deletes nothing");
    let some = table.sweep(&Sweep { max_files: 1, dry_run: false, ..dry.clone() }).await.expect("swept");
    assert_eq!((some.orphans.len(), some.more), (1, true));
    let rest = table.sweep(&Sweep { dry_run: false, min_age: Duration::ZERO, ..dry }).await.expect("swept");
    assert_eq!(rest.orphans.len(), 3);
    let mut left = names(dir.path());
    left.retain(|name| name != "waiting.parquet");
    assert_eq!(left, all);
    assert_eq!(table.files().await.expect("read").len(), 2);
}

/// Many changes of a table, one a second from `start` on: a file is added, and every eighth time eight become one.
async fn busy(directory: &Path, start: i64, changes: i64) -> Table {
    let mut table = table(directory).await;
    for change in 0..changes {
        let (first, now) = (change + 1, at(start + change * 1000));
        table.append(&[file(&table, first, first + 1)], &now).await.expect("added");
        if change % 8 == 7 {
            let merged = named(&table, &format!("compacted/{first}"), first - 7, first + 1);
            table.replace(first - 7..first + 1, &[merged], &now).await.expect("replaced");
        }
    }
    table
}

/// The names of all files that the versions on the disk have, each of which must be whole.
async fn named_by_versions(directory: &Path) -> HashSet<String> {
    let (store, location) = (Store::default(), format!("file://{}/log", directory.display()));
    let mut all = HashSet::new();
    let file_name = |uri: &str| uri.rsplit('/').next().expect("a name").to_owned();
    for name in names(&directory.join("log/metadata")) {
        let Some(stem) = name.strip_suffix(".metadata.json") else { continue };
        let uri = format!("{location}/metadata/{name}");
        let bytes = store.get(&uri).await.expect("read").expect("there");
        let version = Version { stem: stem.to_owned(), metadata: decode(&location, &uri, bytes).await.expect("good") };
        let list = version.metadata.current_snapshot().map(|snapshot| file_name(snapshot.manifest_list()));
        let mut pinned =
            Table { store: store.clone(), location: location.clone(), version, hint_is_behind: false, index: None };
        let index = pinned.index().await.expect("whole");
        all.extend(index.files.iter().map(|file| file_name(&file.uri)));
        all.extend(index.manifests.iter().map(|manifest| file_name(&manifest.manifest_path)));
        all.extend(list);
        all.insert(name);
    }
    all.insert("version-hint.text".to_owned());
    all
}

/// What lies below a table.
fn lying(directory: &Path) -> HashSet<String> {
    names(directory).into_iter().filter(|name| name != ".lock").collect()
}

#[tokio::test]
async fn versions_do_not_grow_and_all_of_the_last_hour_are_whole() {
    let dir = tempfile::tempdir().expect("a directory");
    let (start, changes) = (later(), 2 * RECENT as i64 + 16);
    let mut table = busy(dir.path(), start, changes).await;
    let size = |name: &String| std::fs::metadata(dir.path().join("log/metadata").join(name)).expect("there").len();
    let mut versions = names(&dir.path().join("log/metadata"));
    versions.retain(|name| name.ends_with(".json"));
    assert_eq!(versions.len() as i64, 1 + changes + changes / 8);
    let largest = versions.iter().map(size).max().expect("some");
    assert!(largest < size(&versions[RECENT]) * 11 / 10, "{largest} bytes");
    // Nothing is an hour old: everything is there, and no file is nobody's.
    let end = start + changes * 1000;
    table.expire(&expire(end)).await.expect("looked");
    assert_eq!(named_by_versions(dir.path()).await, lying(dir.path()));
    let all = Sweep { now_ms: Some(end + 2 * HOUR_MS), min_age: Duration::ZERO, ..Sweep::default() };
    assert_eq!(table.sweep(&all).await.expect("looked").orphans, []);
    // The first third is: just that goes, and what is left has all it needs and nothing else.
    let gone = table.expire(&expire(start + 65_500 + HOUR_MS)).await.expect("expired");
    assert_eq!(gone.snapshots as i64, 65 + 8, "{gone:?}");
    assert_eq!(gone.data_files.len(), 64);
    assert_eq!(named_by_versions(dir.path()).await, lying(dir.path()));
    assert_eq!(table.sweep(&all).await.expect("looked").orphans, []);
    // In the end the newest state is left, and the version before it, which was current until just now.
    table.expire(&expire(end + HOUR_MS)).await.expect("expired");
    assert_eq!(named_by_versions(dir.path()).await, lying(dir.path()));
    let mut left = names(&dir.path().join("log/metadata"));
    left.retain(|name| name.ends_with(".json"));
    assert_eq!((left.len(), table.files().await.expect("read").len() as i64), (2, changes / 8));
}

#[tokio::test]
async fn an_expiry_that_was_cut_off_is_completed() {
    for cut in 0..4 {
        let dir = tempfile::tempdir().expect("a directory");
        let (start, changes) = (later(), RECENT as i64 + 16);
        let mut table = busy(dir.path(), start, changes).await;
        // What a call that was cut off has deleted: data, then manifests and lists, then versions from the first on.
        let metadata = dir.path().join("log/metadata");
        let data = dir.path().join("log/data/sealed");
        let gone: Vec<_> = match cut {
            0 => names(&data)[..5].iter().map(|name| data.join(name)).collect(),
            1 => names(&metadata)
                .iter()
                .filter(|name| name.starts_with("snap-"))
                .take(1)
                .map(|it| metadata.join(it))
                .collect(),
            2 => {
                let first = &table.pages().await.expect("read")[1];
                let list = first.current_snapshot().expect("a snapshot").manifest_list().to_owned();
                vec![list.trim_start_matches("file://").into()]
            }
            _ => names(&metadata)
                .iter()
                .filter(|name| name.ends_with(".json"))
                .take(3)
                .map(|it| metadata.join(it))
                .collect(),
        };
        if cut == 1 {
            // Of the current state nothing is ever deleted.
            let current =
                table.current_snapshot().expect("one").manifest_list().trim_start_matches("file://").to_owned();
            if gone.iter().any(|path| path.display().to_string() == current) {
                continue;
            }
        }
        for path in gone {
            std::fs::remove_file(path).expect("deleted");
        }
        let end = start + changes * 1000;
        table.expire(&expire(end + HOUR_MS)).await.expect("expired");
        let rest =
            Sweep { now_ms: Some(end + 3 * HOUR_MS), dry_run: false, min_age: Duration::ZERO, ..Sweep::default() };
        table.sweep(&rest).await.expect("swept");
        assert_eq!(named_by_versions(dir.path()).await, lying(dir.path()), "cut {cut}");
        assert_eq!(table.row_count().await.expect("read") as i64, changes);
    }
}
