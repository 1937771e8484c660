//! Gathering: sealed files that wait for the table become one file before it is told of them.
//!
//! What a table has replaced stays as long as readers may be using it, and every change of a table is a version. A busy
//! stream seals many files between two commits: gathered, it leaves as many files behind as it makes commits, however
//! many rows there are. No table has ever had the parts, so they go as soon as no replay can be about to open them. A
//! crash in between leaves a noted file, which the next start deletes, or the gathered one.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::compact::write;
use super::error::MoverError;
use super::evict::{LOCAL_GRACE, due_us};
use super::plan::MAX_INPUTS;
use super::seal::view_numbers;
use super::shared::Shared;
use super::stream::Moved;
use crate::lake::catalog::{SealedFile, Tier};
use crate::lake::steps::step;

/// Merges sealed files that wait with their neighbours that wait, each row once. Returns how many files were merged.
pub(super) async fn gather(shared: &Arc<Shared>, stream: &Arc<Moved>) -> Result<usize, MoverError> {
    // Nothing is published meanwhile, so that no part gets into the table.
    let _table = stream.table.lock().await;
    let mut gathered = 0;
    while !stream.stopped.load(Relaxed) {
        let view = stream.view(&shared.catalog)?;
        let told_end = stream.told_end.load(Relaxed);
        let Some(run) = next_run(&view.files, told_end, stream.settings.target_compact_bytes) else { break };
        let inputs = &view.files[run];
        // panics: never, the semaphore is not closed
        let _permit = shared.gathers.acquire().await.expect("the semaphore is open");
        let new = write(shared, stream, &view, inputs).await?;
        let range = (new.file.start, new.file.end);
        let after = shared.catalog.replace(stream.log, range, &[new], due_us(LOCAL_GRACE))?;
        step("gather: the catalog has the file");
        stream.counters.lake.saw(&view_numbers(&after));
        stream.counters.lake.merged_files_total.fetch_add(inputs.len() as u64, Relaxed);
        gathered += inputs.len();
    }
    Ok(gathered)
}

/// The first neighbours to gather, by place. Files before `told_end` may be in the table, and what is merged already is
/// left as it is.
fn next_run(files: &[Arc<SealedFile>], told_end: i64, full_bytes: u64) -> Option<Range<usize>> {
    let waits = |file: &SealedFile| {
        !file.published && file.start >= told_end && file.tier == Tier::Sealed && file.local && file.path.is_some()
    };
    let mut start = 0;
    while start < files.len() {
        let mut bytes = 0;
        let fits = |file: &&Arc<SealedFile>| {
            bytes += file.size_bytes;
            waits(file) && bytes <= full_bytes
        };
        let length = files[start..].iter().take(MAX_INPUTS).take_while(fits).count();
        if length > 1 {
            return Some(start..start + length);
        }
        start += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(start: i64, tier: Tier, published: bool) -> Arc<SealedFile> {
        Arc::new(SealedFile {
            start,
            end: start + 10,
            rows: 10,
            size_bytes: 100,
            ts_us: (0, 0),
            uri: String::new(),
            path: Some(std::path::PathBuf::new()),
            local: true,
            published,
            tier,
            created_us: 0,
        })
    }

    #[test]
    fn neighbours_that_wait_are_gathered_once() {
        let mut files: Vec<_> = (0..4).map(|at| file(at * 10, Tier::Sealed, at == 0)).collect();
        assert_eq!(next_run(&files, 0, 10_000), Some(1..4));
        // The table may have been told of the first of them.
        assert_eq!(next_run(&files, 20, 10_000), Some(2..4));
        assert_eq!(next_run(&files, 30, 10_000), None);
        assert_eq!(next_run(&files, 0, 200), Some(1..3));
        files[2] = file(20, Tier::Compacted, false);
        assert_eq!(next_run(&files, 0, 10_000), None);
        files.extend((4..200).map(|at| file(at * 10, Tier::Sealed, false)));
        assert_eq!(next_run(&files, 0, 1 << 20), Some(3..3 + MAX_INPUTS));
    }
}
