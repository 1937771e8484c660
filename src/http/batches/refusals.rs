//! What each call of the batch API may answer instead of a result, for its description: every status with its codes.
//! tests/answers shows each of them, and that there are no others.

use std::collections::BTreeMap;

use utoipa::IntoResponses;
use utoipa::openapi::{RefOr, Response};

use crate::http::openapi::{AT_THE_GATE, refusals};

type Codes = (u16, &'static str);

const BODY: &[Codes] = &[
    (400, "invalid_json"),
    (400, "invalid_request"),
    (413, "request_too_large"),
    (415, "identity_encoding_required"),
    (503, "unavailable"),
];
const LARGE_BODY: &[Codes] = &[(409, "idempotency_key_reused"), (429, "too_many_requests")];
const STREAM: &[Codes] =
    &[(400, "invalid_request"), (404, "stream_not_found"), (409, "stream_not_durable"), (410, "stream_deleted")];

macro_rules! refusals {
    ($(#[$about:meta] $name:ident: $($codes:expr),+;)+) => {$(
        #[$about]
        pub struct $name;

        impl IntoResponses for $name {
            fn responses() -> BTreeMap<String, RefOr<Response>> {
                refusals("BatchError", &[AT_THE_GATE, $($codes),+].concat())
            }
        }
    )+};
}

refusals! {
    /// Of a look at how long rows are kept.
    Retention: STREAM, &[(503, "unavailable")];
    /// Of a change of how long rows are kept.
    Retain: STREAM, BODY, &[(409, "history_is_guarded")];
    /// Of listing streams.
    List: &[(400, "invalid_request")];
    /// Of creating a stream.
    Create: BODY, &[(400, "invalid_name"), (400, "invalid_validator"), (409, "stream_exists"), (422, "invalid_schema")];
    /// Of asking after a stream.
    One: STREAM;
    /// Of changing a stream.
    Change: STREAM, BODY, &[(400, "invalid_validator")];
    /// Of deleting a stream.
    Delete: STREAM, &[(409, "stream_is_configured"), (409, "stream_is_declared"), (503, "unavailable")];
    /// Of inserting entries.
    Insert: STREAM, BODY, LARGE_BODY, &[(409, "stream_retired"), (422, "validation_failed")];
    /// Of reading entries.
    Read: STREAM, &[
        (400, "invalid_cursor"),
        (400, "invalid_where"),
        (410, "cursor_expired"),
        (429, "too_many_requests"),
        (503, "unavailable"),
    ];
    /// Of erasing entries.
    Erase: STREAM, BODY, LARGE_BODY, &[(400, "invalid_entry_id"), (400, "invalid_where")];
    /// Of listing erasures.
    Erasures: STREAM;
}
