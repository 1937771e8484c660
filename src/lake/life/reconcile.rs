//! The journal follows the document: what a crash between the two left is done when the data root is opened.

use std::path::Path;

use futures_util::future::FutureExt as _;

use super::error::LifeError;
use super::ledger::Ledger;
use crate::journal::Journal;
use crate::lake::catalog::Catalog;
use crate::lake::documents::{Document, Documents};
use crate::schema::Schema;
use crate::stream::record::StreamRecord;

/// Brings the journal of a data root to what the documents of its streams say. To be called when it is opened, before
/// streams are declared.
///
/// # Errors
/// When documents cannot be read or the journal cannot be written.
pub fn reconcile(root: &Path, journal: &mut Journal) -> Result<(), LifeError> {
    for record in journal.streams() {
        let documents = Documents::new(root, &record.name, None);
        // Only the disk is asked, so there is nothing to wait for.
        let Some(current) = documents.current().now_or_never().transpose()?.flatten() else { continue };
        if current.document.stream_id == record.stream_id {
            follow(journal, &record, &current.document)?;
        }
    }
    Ok(())
}

/// Moves the ends of streams behind their files: those of a bulk load were never in the journal.
///
/// # Errors
/// When documents cannot be read or the journal cannot be written.
pub fn follow_files(root: &Path, catalog: &Catalog, journal: &mut Journal) -> Result<(), LifeError> {
    for record in journal.streams() {
        for over in catalog.logs(&record.name).iter().filter(|log| log.name != record.log) {
            // A finished log is read from its table.
            let starts: Vec<i64> = over.files.iter().filter(|file| file.local).map(|file| file.start).collect();
            if !starts.is_empty() {
                catalog.leave_local(over.id, &starts, super::time::now_us())?;
            }
        }
        let Ok(log) = catalog.find(&record.name, &record.log) else { continue };
        let Some(last) = log.files.last().filter(|last| last.end > record.end_offset) else { continue };
        let documents = Documents::new(root, &record.name, None);
        let current = documents.current().now_or_never().transpose()?.flatten();
        if current.is_some_and(|current| current.document.stream_id == record.stream_id) {
            tracing::info!(stream = record.name, end = last.end, "the journal goes on behind files that were loaded");
            journal.advance(record.id, last.end, last.ts_us.1)?;
        }
    }
    Ok(())
}

/// Brings one stream's record to what its document says. Rows of a log that is finished are in its table.
pub(super) fn follow(ledger: &mut dyn Ledger, record: &StreamRecord, document: &Document) -> Result<(), LifeError> {
    let live = &document.live_log;
    if let Some(retirement) = &document.retirement {
        ledger.evict(record.id, retirement.end_offset)?;
        ledger.forget_marks(record.id)?;
    }
    if record.log == live.name {
        return Ok(());
    }
    let refused = |why: String| LifeError::Schema { stream: record.name.clone(), why };
    let schema = Schema::compile(&live.schema, true).map_err(|error| refused(error.to_string()))?;
    tracing::info!(stream = record.name, log = live.name, "the journal goes on in another log");
    ledger.evict(record.id, live.start_offset)?;
    let sort_by = live.sort_by.clone().unwrap_or_default();
    ledger.begin_log(record.id, &live.name, schema.canonical(), &sort_by, document.floor())?;
    Ok(())
}
