//! What is not kept here any more: files of the local tier that the table has elsewhere.

use std::sync::Arc;
use std::time::Duration;

use super::error::MoverError;
use super::shared::{Shared, now_us};
use super::stream::Moved;
use crate::lake::catalog::SealedFile;

/// How long a file that left the local tier stays for replays that are about to open it.
pub(super) const LOCAL_GRACE: Duration = Duration::from_secs(60);

/// Lets go of local copies beyond the bounds of the settings, the oldest first.
pub(super) async fn evict_by_policy(shared: &Arc<Shared>, stream: &Arc<Moved>) -> Result<usize, MoverError> {
    if stream.is_local() {
        // The table's own files: deleting them here would free nothing.
        return Ok(0);
    }
    // A merge that is under way reads them.
    let Ok(_rewriting) = stream.rewriting.try_lock() else { return Ok(0) };
    let view = stream.view(&shared.catalog)?;
    let settings = &stream.settings;
    let oldest_us = settings.local_retention.map(|kept| now_us() - kept.as_micros() as i64);
    let starts = leaving(&view.files, settings.local_max_bytes, oldest_us);
    if !starts.is_empty() {
        shared.catalog.leave_local(stream.log, &starts, due_us(LOCAL_GRACE))?;
    }
    Ok(starts.len())
}

/// Takes everything that is published out of the local tier, whatever the settings say.
pub(super) async fn evict_all(shared: &Arc<Shared>, stream: &Arc<Moved>) -> Result<usize, MoverError> {
    let _rewriting = stream.rewriting.lock().await;
    let view = stream.view(&shared.catalog)?;
    let published = view.files.iter().take_while(|file| file.published);
    let starts: Vec<i64> = published.filter(|file| file.local).map(|file| file.start).collect();
    shared.catalog.leave_local(stream.log, &starts, due_us(LOCAL_GRACE))?;
    Ok(starts.len())
}

/// The files at the front that leave: the local tier is always the end of the log.
fn leaving(files: &[Arc<SealedFile>], max_bytes: Option<u64>, oldest_us: Option<i64>) -> Vec<i64> {
    let local = || files.iter().filter(|file| file.local);
    let mut bytes: u64 = local().map(|file| file.size_bytes).sum();
    let mut starts = Vec::new();
    for file in local() {
        let too_much = max_bytes.is_some_and(|max_bytes| bytes > max_bytes);
        let too_old = oldest_us.is_some_and(|oldest_us| file.ts_us.1 < oldest_us);
        if !(too_much || too_old) || !file.published {
            break;
        }
        bytes -= file.size_bytes;
        starts.push(file.start);
    }
    starts
}

/// The time in microseconds that is `grace` from now.
pub(super) fn due_us(grace: Duration) -> i64 {
    now_us().saturating_add(i64::try_from(grace.as_micros()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lake::catalog::Tier;

    fn file(start: i64, published: bool) -> Arc<SealedFile> {
        Arc::new(SealedFile {
            start,
            end: start + 10,
            rows: 10,
            size_bytes: 100,
            ts_us: (start, start + 9),
            uri: String::new(),
            path: None,
            local: true,
            published,
            tier: Tier::Sealed,
            created_us: 0,
        })
    }

    #[test]
    fn the_oldest_files_leave_and_none_that_is_only_here() {
        let files = [file(1, true), file(11, true), file(21, false), file(31, true)];
        assert_eq!(leaving(&files, None, None), [0; 0]);
        assert_eq!(leaving(&files, Some(400), None), [0; 0]);
        assert_eq!(leaving(&files, Some(399), None), [1]);
        assert_eq!(leaving(&files, Some(0), None), [1, 11]);
        assert_eq!(leaving(&files, None, Some(11)), [1]);
        assert_eq!(leaving(&files, None, Some(i64::MAX)), [1, 11]);
    }
}
