//! Random changes against a list of ranges.

use proptest::prelude::*;

use super::fixture::{at, file, named, table};
use crate::lake::store::Store;
use crate::lake::table::{Expire, Table};

#[derive(Debug, Clone)]
enum Step {
    /// Sizes of new files, and how many offsets are left out ahead of them.
    Append(Vec<u8>, u8),
    /// The last append once more.
    Repeat,
    /// Merge the files at these positions into one.
    Merge(u8, u8),
    Truncate(u8),
    Expire(u8),
    Reopen,
    /// The hint falls back, as when its write was lost.
    LoseHint,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (prop::collection::vec(1..5u8, 1..4), 0..3u8).prop_map(|(sizes, hole)| Step::Append(sizes, hole)),
        1 => Just(Step::Repeat),
        2 => (any::<u8>(), 1..6u8).prop_map(|(at, many)| Step::Merge(at, many)),
        1 => any::<u8>().prop_map(Step::Truncate),
        1 => any::<u8>().prop_map(Step::Expire),
        1 => Just(Step::Reopen),
        1 => Just(Step::LoseHint),
    ];
    prop::collection::vec(step, 1..25)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn a_table_has_what_was_put_into_it(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(run(steps))?;
    }
}

async fn run(steps: Vec<Step>) -> Result<(), TestCaseError> {
    let dir = tempfile::tempdir().expect("a directory");
    let store = Store::default();
    let hint = dir.path().join("log/metadata/version-hint.text");
    let mut table = table(dir.path()).await;
    let mut model: Vec<(i64, i64, u64)> = Vec::new();
    let mut earlier_hint = None;
    let (mut end, mut last) = (1, Vec::new());
    let mut now_ms = super::super::commit::now_ms();
    for (number, step) in steps.into_iter().enumerate() {
        now_ms += 600_000;
        let hinted = std::fs::read(&hint).expect("a hint");
        let expires = matches!(step, Step::Expire(_));
        match step {
            Step::Append(sizes, hole) => {
                end += i64::from(hole);
                last.clear();
                for size in sizes {
                    last.push(file(&table, end, end + i64::from(size)));
                    model.push((end, end + i64::from(size), u64::from(size)));
                    end += i64::from(size);
                }
                table.append(&last, &at(now_ms)).await.expect("added");
            }
            Step::Repeat => {
                // Only what was not merged or taken away since can be found again.
                if last.iter().all(|file| model.contains(&(file.start, file.end, file.rows))) {
                    prop_assert_eq!(table.append(&last, &at(now_ms)).await.expect("nothing to add").added, 0);
                }
            }
            Step::Merge(from, many) => {
                let from = usize::from(from) % model.len().max(1);
                let to = (from + usize::from(many)).min(model.len());
                if let Some((first, last)) = model[from..to].first().zip(model[from..to].last()) {
                    let range = first.0..last.1;
                    let mut merged = named(&table, &format!("compacted/{number}"), range.start, range.end);
                    merged.rows = model[from..to].iter().map(|(_, _, rows)| rows).sum();
                    model.splice(from..to, [(range.start, range.end, merged.rows)]);
                    table.replace(range, &[merged], &at(now_ms)).await.expect("replaced");
                }
            }
            Step::Truncate(at_file) => {
                let at_file = usize::from(at_file) % (model.len() + 1);
                let floor = model.get(at_file).map_or(end, |file| file.0 + 1);
                table.truncate(floor, &at(now_ms)).await.expect("truncated");
                model.retain(|(_, end, _)| *end > floor);
            }
            Step::Expire(minutes) => {
                let expire = Expire { now_ms: Some(now_ms + i64::from(minutes) * 60_000), ..Expire::default() };
                table.expire(&expire).await.expect("expired");
            }
            Step::Reopen => table = Table::open(&store, table.location()).await.expect("read").expect("a table"),
            Step::LoseHint => {
                if let Some(earlier) = earlier_hint.take() {
                    std::fs::write(&hint, &earlier).expect("put back");
                    table = Table::open(&store, table.location()).await.expect("read").expect("a table");
                }
            }
        }
        // Old versions are deleted only after the hint was written.
        earlier_hint = (!expires).then_some(hinted);
        let files = table.files().await.expect("read");
        let ranges: Vec<_> = files.iter().map(|file| (file.start, file.end, file.rows)).collect();
        prop_assert_eq!(&ranges, &model);
        for file in &files {
            prop_assert!(std::fs::exists(file.uri.trim_start_matches("file://")).expect("asked"), "{}", file.uri);
        }
        for snapshot in table.snapshots() {
            for file in table.files_at(snapshot.snapshot_id).await.expect("an earlier state") {
                prop_assert!(std::fs::exists(file.uri.trim_start_matches("file://")).expect("asked"), "{}", file.uri);
            }
        }
    }
    Ok(())
}
