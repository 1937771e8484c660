//! Erasing entries, by their ids or by a filter.

use std::sync::Arc;
use std::sync::atomic::Ordering::Release;
use std::time::Instant;

use bytes::Bytes;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::body::{broken, members, read, read_key};
use super::error::ApiError;
use super::follow::Follower;
use super::limits::{MAX_ERASED, MAX_PAGE_ROWS};
use super::read::Wanted;
use super::render;
use super::scan::Scanner;
use super::service::{Service, Stream};
use super::signature::Signature;
use super::time::iso_millis;
use crate::journal::reader::RowFilter;
use crate::journal::{Erased, Keyed, Marker, Operation};
use crate::schema::json::Json;
use crate::session::now_us;

/// What is to be erased.
enum Erasure {
    /// The entries with these offsets, ascending.
    Entries(Vec<i64>),
    /// Every entry that matches.
    Matching(RowFilter),
}

/// A request for an erasure.
struct ErasureBody {
    key: Option<String>,
    erasure: Erasure,
}

impl ErasureBody {
    /// Reads a request: 400 for what is none, 413 for too many entries.
    fn read(stream: &Stream, body: &[u8]) -> Result<Self, ApiError> {
        let (mut key, mut erasure) = (None, None);
        members(body, &mut Scanner::new(body), |member, scanner| {
            let found = match member {
                "idempotencyKey" => {
                    key = read_key(body, scanner)?;
                    return Ok(());
                }
                "entryIds" => Erasure::Entries(offsets(stream, &read(body, scanner.value().map_err(broken)?)?)?),
                "where" => Erasure::Matching(stream.filter(&read(body, scanner.value().map_err(broken)?)?.to_text())?),
                _ => return Err(ApiError::invalid(format!("unknown member {member:?}"))),
            };
            match erasure.replace(found) {
                None => Ok(()),
                Some(_) => Err(ApiError::invalid("give either entryIds or where, once")),
            }
        })?;
        let erasure = erasure.ok_or_else(|| ApiError::invalid("entryIds or where is missing"))?;
        Ok(Self { key, erasure })
    }
}

/// The offsets of entries, ascending.
fn offsets(stream: &Stream, ids: &Json) -> Result<Vec<i64>, ApiError> {
    let Json::Array(ids) = ids else { return Err(ApiError::invalid("entryIds has to be an array")) };
    if ids.is_empty() {
        return Err(ApiError::invalid("entryIds is empty; name at least one entry"));
    }
    if ids.len() > MAX_ERASED {
        return Err(too_many());
    }
    let end = stream.end();
    let offset = |(index, id): (usize, &Json)| {
        match id {
            Json::String(id) => stream.tokens.read_entry(id).filter(|offset| *offset < end),
            _ => None,
        }
        .ok_or_else(|| {
            ApiError::new(400, "invalid_entry_id", "this is not the id of an entry of this stream")
                .with(json!({"index": index}))
        })
    };
    let mut offsets = ids.iter().enumerate().map(offset).collect::<Result<Vec<_>, _>>()?;
    offsets.sort_unstable();
    offsets.dedup();
    Ok(offsets)
}

fn too_many() -> ApiError {
    ApiError::too_large(format!("one erasure takes at most {MAX_ERASED} entries; erase them in several"))
}

impl Service {
    /// Erases entries. From the answer on nobody reads them; their bytes go in the background.
    ///
    /// # Errors
    /// 409 for a key that was used for another body, 413 for too many entries.
    pub async fn erase(self: &Arc<Self>, stream: &Arc<Stream>, body: Bytes) -> Result<Marker, ApiError> {
        let (service, stream) = (Arc::clone(self), Arc::clone(stream));
        Self::to_the_end(async move { service.carry_out_erasure(&stream, body).await }).await
    }

    /// What the same erasure did that is refused now: the stream may have lost a column of its filter since then.
    async fn erased_before(&self, stream: &Stream, body: Bytes, refusal: ApiError) -> Result<Marker, ApiError> {
        if refusal.code != "invalid_where" {
            return Err(refusal);
        }
        let Some(Signature { keyed, .. }) = self.sign(Operation::Erase, body).await? else { return Err(refusal) };
        let id = stream.journal_id;
        match self.errand(move |office| office.erased_before(id, &keyed, now_us())).await? {
            Some(Erased::Marked(marker)) => Ok(marker),
            Some(Erased::KeyReused) => Err(ApiError::key_reused()),
            _ => Err(refusal),
        }
    }

    async fn carry_out_erasure(self: &Arc<Self>, stream: &Arc<Stream>, body: Bytes) -> Result<Marker, ApiError> {
        let ErasureBody { key, erasure } = match ErasureBody::read(stream, &body) {
            Ok(read) => read,
            Err(refusal) => return self.erased_before(stream, body, refusal).await,
        };
        let keyed = key.map(|key| Keyed { operation: Operation::Erase, key, body_hash: Sha256::digest(&body).into() });
        let offsets = match erasure {
            Erasure::Entries(offsets) => offsets,
            Erasure::Matching(filter) => self.matching(stream, filter).await?,
        };
        let id = stream.journal_id;
        match self.errand(move |office| office.erase(id, &offsets, keyed.as_ref(), now_us())).await? {
            Erased::Marked(marker) => {
                if !marker.duplicate {
                    // The marker takes an offset as well.
                    stream.left_out.fetch_add(i64::from(marker.records) + 1, Release);
                    self.purge(id);
                }
                Ok(marker)
            }
            Erased::KeyReused => Err(ApiError::key_reused()),
            Erased::NotServed => Err(ApiError::unavailable("the stream is not served any more")),
            Erased::Exhausted => Err(ApiError::unavailable("the stream has no offsets left")),
        }
    }

    /// The offsets of all entries that match, up to the present head, wherever they are.
    async fn matching(self: &Arc<Self>, stream: &Arc<Stream>, filter: RowFilter) -> Result<Vec<i64>, ApiError> {
        let mut offsets = self.matching_replayed(stream, Arc::clone(&filter)).await?;
        // Afterwards: what leaves this machine meanwhile is then there.
        let (directory, id) = (self.directory(), stream.journal_id);
        let others = self.changing(move || directory.find_unreplayed(id, filter, MAX_ERASED + 1)).await?;
        offsets.extend(others);
        offsets.sort_unstable();
        offsets.dedup();
        if offsets.len() > MAX_ERASED {
            return Err(too_many());
        }
        Ok(offsets)
    }

    /// Those that replays give.
    async fn matching_replayed(
        self: &Arc<Self>,
        stream: &Arc<Stream>,
        filter: RowFilter,
    ) -> Result<Vec<i64>, ApiError> {
        let wanted = Wanted { after: None, limit: MAX_PAGE_ROWS, filter: Some(filter) };
        let mut follower = Follower::to_head(Arc::clone(self), Arc::clone(stream), wanted).await?;
        let mut offsets = Vec::new();
        while let Some(found) = follower.next(Instant::now()).await? {
            for frames in &found.frames {
                render::rows(frames, |offset, _, _| {
                    offsets.push(offset);
                    true
                });
            }
            if offsets.len() > MAX_ERASED {
                return Err(too_many());
            }
        }
        Ok(offsets)
    }

    /// The latest erasures of a stream, newest first.
    ///
    /// # Errors
    /// 503 when the journal refuses.
    pub async fn erasures(&self, stream: &Stream, limit: usize) -> Result<Vec<Value>, ApiError> {
        let (id, limit) = (stream.journal_id, u32::try_from(limit).unwrap_or(u32::MAX));
        let markers = self.errand(move |office| office.erasures(id, limit)).await?;
        Ok(markers.iter().map(|marker| view(stream, marker)).collect())
    }
}

/// An erasure as it is shown.
#[must_use]
pub fn view(stream: &Stream, marker: &Marker) -> Value {
    json!({
        "batchId": stream.tokens.batch(marker.ts_us, marker.offset),
        "committedAt": iso_millis(marker.ts_us),
        "erased": marker.records,
        "duplicate": marker.duplicate,
        "cursor": stream.tokens.cursor(marker.offset + 1),
        "purgedAt": marker.purged_us.map(iso_millis),
    })
}
