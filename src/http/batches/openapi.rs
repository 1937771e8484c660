//! The batch API for machines. The types here are only described, never made: answers are written as text.
#![expect(dead_code, reason = "they are shapes of documents that others write")]

use serde::Deserialize;
use serde_json::{Map, Value};
use utoipa::{OpenApi, ToSchema};

use super::routes;

/// The description of every call of the batch API.
#[derive(OpenApi)]
#[openapi(
    paths(
        routes::list,
        routes::create,
        routes::one,
        routes::change,
        routes::delete,
        routes::insert,
        routes::read,
        routes::erase,
        routes::erasures,
        super::retention::show,
        super::retention::set
    ),
    components(schemas(BatchError))
)]
pub struct BatchesApi;

/// A stream. The document has the control API's view of one as well.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase", as = BatchStreamView)]
pub struct StreamView {
    id: String,
    name: String,
    state: String,
    created_at: String,
    cursor: Option<String>,
    entry_count: i64,
    validator: Option<String>,
    validator_version: u64,
    schema: Option<Map<String, Value>>,
}

/// A page of streams.
#[derive(ToSchema)]
pub struct StreamList {
    streams: Vec<StreamView>,
    next: Option<String>,
}

/// A stream to be created.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewStream {
    #[schema(pattern = r"^[A-Za-z0-9][A-Za-z0-9_.\-]{0,127}$")]
    name: String,
    validator: Option<String>,
    schema: Option<Map<String, Value>>,
}

/// What is to change about a stream.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StreamChange {
    #[schema(required = true)]
    validator: Option<String>,
}

/// A stream that is being deleted.
#[derive(ToSchema)]
pub struct DeletedStream {
    id: String,
    name: String,
    state: String,
}

/// Entries to be inserted.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(rename_all = "camelCase")]
pub struct NewBatch {
    #[schema(min_length = 1, max_length = 256)]
    idempotency_key: Option<String>,
    #[schema(min_items = 1, max_items = 100_000)]
    entries: Vec<Map<String, Value>>,
    #[schema(nullable = false)]
    return_entry_ids: Option<bool>,
}

/// A batch that is committed.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct BatchView {
    batch_id: String,
    committed_at: String,
    inserted: u32,
    duplicate: bool,
    start_cursor: String,
    committed_cursor: String,
    offset: i64,
    #[schema(nullable = false)]
    entries: Option<Vec<EntryId>>,
}

/// An entry of a committed batch.
#[derive(ToSchema)]
pub struct EntryId {
    id: String,
    cursor: String,
    offset: i64,
}

/// A page of entries.
#[derive(ToSchema)]
pub struct EntryPage {
    entries: Vec<EntryView>,
    cursor: Option<String>,
    head: Option<String>,
}

/// An entry.
#[derive(ToSchema)]
pub struct EntryView {
    id: String,
    cursor: String,
    offset: i64,
    ts: i64,
    entry: Map<String, Value>,
}

/// What is to be erased: either entries or whatever matches.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(rename_all = "camelCase")]
pub struct NewErasure {
    #[schema(min_length = 1, max_length = 256)]
    idempotency_key: Option<String>,
    #[schema(nullable = false, min_items = 1, max_items = 100_000)]
    entry_ids: Option<Vec<String>>,
    #[schema(nullable = false)]
    r#where: Option<Map<String, Value>>,
}

/// An erasure.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct ErasureView {
    batch_id: String,
    committed_at: String,
    erased: u32,
    duplicate: bool,
    cursor: String,
    purged_at: Option<String>,
}

/// The latest erasures.
#[derive(ToSchema)]
pub struct ErasureList {
    erasures: Vec<ErasureView>,
}

/// A refusal.
#[derive(ToSchema)]
pub struct BatchError {
    error: BatchErrorBody,
}

/// What is refused, and why.
#[derive(ToSchema)]
pub struct BatchErrorBody {
    code: String,
    message: String,
    #[schema(nullable = false)]
    details: Option<Map<String, Value>>,
}
