//! Finding rows that no replay gives: those of logs that are over, and those that only the table has (docs/batches.md,
//! "Erasures").

use std::sync::Arc;

use tokio::runtime::Handle;

use super::error::MoverError;
use super::finished;
use super::replay::readable;
use super::shared::{Shared, blocking};
use super::source::source_of;
use super::stream::Moved;
use crate::journal::reader::RowFilter;
use crate::lake::columns::FileRows;

/// The offsets of matching rows of a stream that are not erased and that no replay gives, ascending; no more than `most`
/// of them. A column has one type in all logs, so a filter of the stream compares their rows as well; one that a log
/// lacks is null there.
pub(super) async fn find(
    shared: &Arc<Shared>,
    stream: &Arc<Moved>,
    matches: RowFilter,
    most: usize,
) -> Result<Vec<i64>, MoverError> {
    // Purged or not, all of them are looked at.
    let (mut logs, _) = finished::logs(shared, stream, i64::MAX).await?;
    logs.push(Arc::clone(stream));
    let (shared, current, handle) = (Arc::clone(shared), stream.log, Handle::current());
    blocking(move || {
        let mut found = Vec::new();
        shared.read(|reader| {
            for log in &logs {
                let view = log.view(&shared.catalog)?;
                let replayed = readable(log);
                for file in view.files.iter().filter(|file| log.log != current || !replayed(file)) {
                    let source = source_of(&shared.store, Some(&handle), file)?;
                    let mut rows = FileRows::open(source, &log.layout, view.start_offset, i64::MAX)?;
                    let mut erased = reader.in_hole(log.id);
                    while let Some(row) = rows.peek()? {
                        let offset = row.offset;
                        if matches(row.line) && !erased(offset)? {
                            found.push(offset);
                            if found.len() == most {
                                return Ok(());
                            }
                        }
                        rows.advance();
                    }
                }
            }
            Ok(())
        })?;
        Ok(found)
    })
    .await
}
