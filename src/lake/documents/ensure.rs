//! Making sure, before a stream is served, that its documents are there, complete and those of this stream.

use std::path::Path;
use std::sync::Arc;

use futures_util::future::FutureExt as _;
use serde_json::Value;

use super::commit::{Change, Current, Documents, Order};
use super::model::{Document, LiveLog, SealedLog, system_schema};
use super::remote::Objects;
use super::uri::local_path;
use crate::lake::error::LakeError;
use crate::stream::record::StreamRecord;

/// What is known of a stream besides its record in the journal.
#[derive(Debug, Clone, Default)]
pub struct Declared<'a> {
    /// The URI below which its tables are to be, without the stream's name: `file:///prefix` or
    /// `s3://bucket/prefix`. Counts when the stream is created, and is compared afterwards.
    pub published: Option<&'a str>,
    /// The stamp of its first row, in microseconds, if there is one.
    pub first_ts_us: Option<i64>,
    /// The way to a bucket, if tables are in one.
    pub bucket: Option<Arc<dyn Objects>>,
}

/// Makes sure that the documents of a stream below `root` (an absolute path) are there and complete: writes them if
/// the stream is new, takes those of its bucket if the data root has none, and repairs what a crash left behind.
/// Returns what they say.
///
/// # Errors
/// When a place cannot be read or written, the root cannot be named in a document, documents of another stream are
/// in the way, or the tables are declared to be elsewhere. A bucket that cannot be reached is no error for a stream that
/// the data root has documents of.
pub fn ensure(root: &Path, stream: &StreamRecord, declared: &Declared<'_>) -> Result<Document, LakeError> {
    let work = ensure_there(root, stream, declared);
    let home = Documents::new(root, &stream.name, None).current().now_or_never().transpose()?.flatten();
    let prefixes = [declared.published, home.as_ref().and_then(|home| home.document.live_log.published.as_deref())];
    if !prefixes.into_iter().flatten().any(|prefix| prefix.starts_with("s3://")) {
        // Without a bucket nothing in it waits: it is done when it has been asked once.
        return work.now_or_never().unwrap_or_else(|| Err(LakeError::NoStore { stream: stream.name.clone() }));
    }
    let failed = |source| LakeError::Io { action: "start a runtime for", path: root.to_owned(), source };
    std::thread::scope(|scope| {
        let wait =
            || tokio::runtime::Builder::new_current_thread().enable_all().build().map(|runtime| runtime.block_on(work));
        match scope.spawn(wait).join() {
            Ok(outcome) => outcome.map_err(failed)?,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// The same, for those who can wait for a bucket.
async fn ensure_there(root: &Path, stream: &StreamRecord, declared: &Declared<'_>) -> Result<Document, LakeError> {
    let documents = Documents::new(root, &stream.name, declared.bucket.clone());
    let prefix = declared.published.map(|prefix| format!("{}/{}", prefix.trim_end_matches('/'), stream.name));
    let mut found = documents.current().await?;
    if found.is_none()
        && let Some(prefix) = prefix.as_deref().filter(|prefix| prefix.starts_with("s3://"))
    {
        found = documents.current_below(prefix).await?;
        if let Some(there) = &found {
            check_same(there, stream)?;
            let manifest = documents.manifest(there).await?.map_or(Change::Clear, Change::Replace);
            found = Some(documents.commit(there.document.clone(), manifest, None, Order::HomeFirst).await?);
        }
    }
    let Some(found) = found else {
        let published = match prefix {
            Some(prefix) => check_prefix(&prefix)?,
            None => default_prefix(root, &stream.name, &stream.name)?,
        };
        let live = live_log(stream, published, declared.first_ts_us)?;
        let document = Document::new(&stream.name, &stream.stream_id, live);
        return Ok(documents.commit(document, Change::Clear, None, Order::HomeFirst).await?.document);
    };
    check_same(&found, stream)?;
    let mut document = found.document.clone();
    fill(&mut document, root, stream, declared)?;
    if let Some(wanted) = prefix.filter(|wanted| document.live_log.published.as_deref() != Some(wanted)) {
        return Err(LakeError::Elsewhere {
            stream: stream.name.clone(),
            declared: wanted,
            recorded: document.live_log.published.unwrap_or_default(),
        });
    }
    let outcome = if document != found.document || found.version.is_none() {
        documents.commit(document, Change::Keep, Some(&found), Order::HomeFirst).await.map(|now| now.document)
    } else {
        documents.complete(&found).await.map(|()| document)
    };
    match outcome {
        // The data root knows the stream. What its bucket lacks, if anything, follows when it can be reached.
        Err(error) if error.is_transient() && found.version.is_some() => {
            tracing::warn!(stream = stream.name, %error, "the bucket cannot be reached; its documents are looked at later");
            Ok(found.document)
        }
        outcome => outcome,
    }
}

/// Fills in what older documents lack, and follows a data root that was moved.
fn fill(document: &mut Document, root: &Path, stream: &StreamRecord, declared: &Declared<'_>) -> Result<(), LakeError> {
    let live = &mut document.live_log;
    let default = default_prefix(root, &stream.name, &live.name)?;
    let recorded = live.published.get_or_insert_with(|| default.clone());
    let tail = format!("/{}/{}/published", stream.name, live.name);
    // A restored stream may keep its tables below another root; a root that was moved has taken them along.
    if recorded.starts_with("file://")
        && recorded.ends_with(&tail)
        && *recorded != default
        && !has_table(recorded, &live.name)
    {
        let gone = |log: &SealedLog| log.published.as_deref().is_none_or(|prefix| !has_table(prefix, &log.name));
        if has_table(&default, &live.name) || document.sealed_logs.iter().any(gone) {
            return Err(LakeError::Moved {
                stream: stream.name.clone(),
                was: recorded.trim_start_matches("file://").trim_end_matches(&tail).into(),
                is: root.to_owned(),
            });
        }
        *recorded = default;
    }
    live.sort_by.get_or_insert_with(|| stream.sort_by.clone());
    if live.start_ts.is_none() {
        live.start_ts = declared.first_ts_us;
    }
    Ok(())
}

/// Whether there is a table of `log` below the local prefix `published`. What is in a bucket does not move.
fn has_table(published: &str, log: &str) -> bool {
    local_path(published).is_none_or(|path| path.join(log).join("metadata/version-hint.text").exists())
}

fn check_same(found: &Current, stream: &StreamRecord) -> Result<(), LakeError> {
    let document = &found.document;
    for (what, found_there, recorded) in
        [("stream", &document.stream, &stream.name), ("stream_id", &document.stream_id, &stream.stream_id)]
    {
        if found_there != recorded {
            return Err(LakeError::Foreign {
                path: found.source.clone().into(),
                what,
                found: format!("{found_there:?}"),
                recorded: format!("{recorded:?}"),
            });
        }
    }
    Ok(())
}

/// Where the tables of a log are if nothing was declared: below its own directory. Readers open it as it stands, so
/// it is not percent-encoded.
///
/// # Errors
/// When the root cannot be written so.
pub(crate) fn default_prefix(root: &Path, stream: &str, log: &str) -> Result<String, LakeError> {
    let fail = |why| LakeError::Root { root: root.to_owned(), why };
    let root_text = root.to_str().ok_or_else(|| fail("is not UTF-8"))?;
    if !root.is_absolute() {
        return Err(fail("is not absolute"));
    }
    if root_text.contains('%') {
        return Err(fail("contains a percent sign"));
    }
    Ok(format!("file://{}/{stream}/{log}/published", root_text.trim_end_matches('/')))
}

/// A declared prefix that readers can open as it stands.
fn check_prefix(prefix: &str) -> Result<String, LakeError> {
    let local = prefix.strip_prefix("file://");
    let why = match local {
        Some(path) if !path.starts_with('/') => "has no absolute path after file://",
        Some(path) if path.contains('%') => "contains a percent sign; write the path as it is, not percent-encoded",
        None if !prefix.starts_with("s3://") => "is neither file:///path nor s3://bucket/prefix",
        _ => return Ok(prefix.to_owned()),
    };
    Err(LakeError::Prefix { prefix: prefix.to_owned(), why })
}

fn live_log(stream: &StreamRecord, published: String, start_ts: Option<i64>) -> Result<LiveLog, LakeError> {
    let schema: Value = serde_json::from_str(&stream.schema_canonical).map_err(|error| LakeError::Damaged {
        path: "journal.db".into(),
        what: format!("the recorded schema of stream {:?} is not JSON: {error}", stream.name),
    })?;
    Ok(LiveLog {
        name: stream.name.clone(),
        published: Some(published),
        start_offset: stream.floor.unwrap_or(stream.first_offset),
        start_ts,
        schema,
        system_schema: system_schema(),
        sort_by: Some(stream.sort_by.clone()),
    })
}

#[cfg(test)]
mod tests;
