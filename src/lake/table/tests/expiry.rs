//! What stays and what goes, by age.

use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

use super::fixture::{at, file, named, names, table};
use crate::lake::store::Store;
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
