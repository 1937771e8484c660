//! How the control API is described to machines: the shapes of bodies, and every status with its codes.

use std::collections::BTreeMap;

use serde::Deserialize;
use utoipa::openapi::header::HeaderBuilder;
use utoipa::openapi::path::{Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::{Object, ObjectBuilder, Type};
use utoipa::openapi::{ContentBuilder, Ref, RefOr, Required, Response, ResponseBuilder, Schema as ApiSchema};
use utoipa::{IntoParams, IntoResponses, OpenApi, ToSchema};

use crate::http::openapi::{AT_THE_GATE, refusals};
use crate::registry::Fault;

/// The control API's part of the document.
#[derive(OpenApi)]
#[openapi(
    paths(
        super::routes::capabilities,
        super::routes::list,
        super::routes::view,
        super::routes::define,
        super::routes::desire,
        super::routes::migrate,
        super::routes::operation
    ),
    components(schemas(ErrorEnvelope, Receipt)),
    tags((name = "control", description = "Streams that are declared, served, stopped, migrated and retired at run time"))
)]
pub struct ControlApi;

/// What a stream's rows are and how it is kept (wire.md section 11.6).
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only its shape is of use")]
pub struct Declaration {
    /// The columns: a JSON Schema without keywords that would have no effect (wire.md sections 12 and 12.5).
    #[schema(schema_with = row_schema)]
    schema: serde_json::Value,
    /// One of the broker's storage profiles.
    storage_profile: String,
    /// Columns that the tables are sorted by: distinct, and declared.
    #[schema(required = false)]
    sort_by: Vec<String>,
    /// Whether serving it may create it.
    #[schema(required = false, default = "open_existing", schema_with = initialization)]
    initialization: String,
    /// Whether publishers may number their rows.
    #[schema(required = false, default = false)]
    exactly_once: bool,
    /// Whether a replay may read published tables.
    #[schema(required = false, default = false)]
    replay_published: bool,
    /// Whether frames of several publishers may share a transaction.
    #[schema(required = false, default = true)]
    group_commit: bool,
    /// The most rows a replay may reach back; null for any number.
    #[schema(required = false, default = 100_000, minimum = 0, nullable)]
    max_replay: Option<i64>,
    /// Bounds.
    #[schema(required = false, inline)]
    limits: Limits,
}

/// Bounds of one stream.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only its shape is of use")]
pub struct Limits {
    /// Frames a subscriber may be behind.
    #[schema(required = false, default = 8_192, minimum = 1, maximum = 4_294_967_295_u32)]
    max_backlog: u32,
    /// Rows of all publishers that may wait for the writer.
    #[schema(required = false, default = 65_536, minimum = 1, maximum = 4_294_967_295_u32)]
    max_inbound: u32,
    /// Replies one publisher may be owed.
    #[schema(required = false, default = 64, minimum = 1, maximum = 4_294_967_295_u32)]
    max_in_flight: u32,
    /// Bytes of a publish frame; at most, and unless given, the ceiling of the transport.
    #[schema(required = false, minimum = 1, maximum = 1_048_576_u32)]
    max_message_bytes: u32,
}

/// What a stream shall be.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only its shape is of use")]
pub struct DesiredState {
    #[schema(schema_with = desired)]
    state: String,
}

/// A new log under another schema or order.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only its shape is of use")]
pub struct Migration {
    /// The UUID of the stream as it is, so that no other one is migrated.
    stream_id: String,
    /// The columns from now on.
    #[schema(schema_with = row_schema)]
    schema: serde_json::Value,
    /// The order from now on.
    sort_by: Vec<String>,
}

/// The answer to an accepted change.
#[derive(ToSchema)]
#[expect(dead_code, reason = "only its shape is of use")]
pub struct Receipt {
    /// 202, or 200 if the stream is what was asked for already.
    status: u16,
    operation_id: String,
    /// The stream's revision with the change.
    revision: u64,
}

/// An accepted change.
#[derive(ToSchema)]
#[expect(dead_code, reason = "only its shape is of use")]
pub struct OperationView {
    id: String,
    /// The stream.
    name: String,
    /// `definition`, `desired` or `migration`.
    kind: String,
    /// The stream's revision with the change.
    revision: u64,
    /// The body of the call.
    #[schema(value_type = Object)]
    target: serde_json::Value,
    /// `accepted`, `running`, `succeeded` or `failed`.
    status: String,
    /// `transition_failed`, if it failed.
    #[schema(required = true)]
    error: Option<String>,
}

/// A declared stream.
#[derive(ToSchema)]
#[expect(dead_code, reason = "only its shape is of use")]
pub struct StreamView {
    name: String,
    /// The declaration with its defaults filled in; the schema as it was submitted.
    #[schema(value_type = Object)]
    definition: serde_json::Value,
    /// `serving`, `stopped` or `retired`.
    desired: String,
    /// The ETag for `If-Match`, without its quotes.
    revision: u64,
    /// Its UUID, from the first time it was served.
    #[schema(required = true)]
    stream_id: Option<String>,
    /// The operation that is under way, or failed and waits for the same call again.
    #[schema(required = true)]
    pending: Option<String>,
    /// The profile's revision when the declaration was accepted.
    profile_revision: String,
    #[schema(value_type = Object)]
    profile: serde_json::Value,
    /// What was last seen of it.
    #[schema(inline)]
    observed: ObservedView,
}

/// What was last seen of a stream.
#[derive(ToSchema)]
#[expect(dead_code, reason = "only its shape is of use")]
pub struct ObservedView {
    /// `unknown`, `stopped`, `starting`, `serving`, `stopping`, `migrating`, `retiring`, `retired` or `error`.
    state: String,
    /// The process that looked.
    boot_id: String,
    /// The count of streams that came into service, up to this one; null while it is not in service.
    #[schema(required = true)]
    generation: Option<u64>,
    revision: u64,
    /// Seconds since 1970.
    at: f64,
    read_admission: bool,
    write_admission: bool,
    children_ready: bool,
    /// With the state `error`: `transition_failed` or `recovery_failed`.
    #[schema(required = false)]
    error: String,
}

/// A page of declared streams.
#[derive(ToSchema)]
#[expect(dead_code, reason = "only its shape is of use")]
pub struct StreamPage {
    /// The number of the last accepted change of any stream.
    revision: u64,
    streams: Vec<StreamView>,
    /// For the next page; null on the last one.
    #[schema(required = true)]
    next_cursor: Option<String>,
}

/// What a broker is and can do.
#[derive(ToSchema)]
#[expect(dead_code, reason = "only its shape is of use")]
pub struct Capabilities {
    version: u32,
    broker_id: String,
    boot_id: String,
    /// Bytes of the largest message of any connection.
    transport_max_bytes: u64,
    /// Bytes of the largest body of a control call.
    control_max_bytes: u64,
    max_pending: u64,
    #[schema(value_type = Object)]
    storage_profiles: serde_json::Value,
    /// Streams that can be neither begun anew nor migrated nor retired.
    history_prefix_protected: Vec<String>,
    #[schema(value_type = Object)]
    wire_versions: serde_json::Value,
}

/// Why a call was refused.
#[derive(ToSchema)]
#[expect(dead_code, reason = "only its shape is of use")]
pub struct ErrorEnvelope {
    #[schema(inline)]
    error: ErrorBody,
}

/// The inside of the envelope.
#[derive(ToSchema)]
#[expect(dead_code, reason = "only its shape is of use")]
pub struct ErrorBody {
    code: String,
    /// The code with spaces.
    message: String,
    /// Whether the same call may succeed later.
    retryable: bool,
    #[schema(required = true)]
    operation_id: Option<String>,
}

fn words(list: &[&str]) -> Object {
    ObjectBuilder::new().schema_type(Type::String).enum_values(Some(list.iter().copied())).build()
}

fn initialization() -> Object {
    words(&["open_existing", "create_if_absent"])
}

fn desired() -> Object {
    words(&["serving", "stopped", "retired"])
}

/// A JSON Schema is told only in outline: its rules depend on each other in ways that no schema of it could say.
fn row_schema() -> ApiSchema {
    let properties = ObjectBuilder::new()
        .schema_type(Type::Object)
        .description(Some("The columns in their order, each with the JSON Schema of its values"));
    let required = utoipa::openapi::ArrayBuilder::new().items(Object::with_type(Type::String));
    ObjectBuilder::new()
        .schema_type(Type::Object)
        .property("type", words(&["object"]))
        .property("properties", properties)
        .property("required", required)
        .required("properties")
        .into()
}

/// The header field that makes a change repeatable.
pub struct IdempotencyKey;

impl IntoParams for IdempotencyKey {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        let text = ObjectBuilder::new()
            .schema_type(Type::String)
            .min_length(Some(1))
            .max_length(Some(128))
            .pattern(Some("^[!-~]+$"));
        let key = ParameterBuilder::new()
            .name("Idempotency-Key")
            .parameter_in(ParameterIn::Header)
            .required(Required::True)
            .description(Some("The same call under the same key is answered again and done once"))
            .schema(Some(text));
        vec![key.build()]
    }
}

/// The header fields that say which state a change is meant for.
pub struct Preconditions;

impl IntoParams for Preconditions {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        let about = [
            ("If-Match", "The ETag of the stream as it is to be changed"),
            ("If-None-Match", "`*`, for a stream that is to be declared for the first time"),
        ];
        let field = |(name, description)| {
            let field = ParameterBuilder::new().name(name).parameter_in(ParameterIn::Header);
            let field = field.required(Required::False).description(Some(description));
            field.schema(Some(Object::with_type(Type::String))).build()
        };
        about.map(field).into()
    }
}

/// The two answers to an accepted change.
pub struct Accepted;

/// The answer to an accepted migration, which always changes something.
pub struct AcceptedMigration;

impl IntoResponses for AcceptedMigration {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        Accepted::responses().into_iter().filter(|(status, _)| status == "202").collect()
    }
}

impl IntoResponses for Accepted {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        let about = [("200", "It is so already; nothing was changed"), ("202", "Kept, and being done")];
        let answer = |(status, description): (&str, &str)| {
            let header = || HeaderBuilder::new().schema(Object::with_type(Type::String)).build();
            let response = ResponseBuilder::new()
                .description(description)
                .content("application/json", json_content("Receipt"))
                .header("ETag", header())
                .header("Location", header());
            (status.to_owned(), RefOr::T(response.build()))
        };
        about.map(answer).into()
    }
}

macro_rules! refusals {
    ($(#[$about:meta] $name:ident: [$($list:expr),*], $($fault:ident),+;)+) => {$(
        #[$about]
        pub struct $name;

        impl IntoResponses for $name {
            fn responses() -> BTreeMap<String, RefOr<Response>> {
                let lists: &[&[Fault]] = &[$($list,)* &[$(Fault::$fault),+]];
                let faults = lists.concat();
                let codes: Vec<_> = faults.into_iter().map(Fault::answer).collect();
                refusals("ErrorEnvelope", &[AT_THE_GATE, codes.as_slice()].concat())
            }
        }
    )+};
}

/// What every change can be refused with.
const CHANGE: &[Fault] = &[
    Fault::IdempotencyKeyRequired,
    Fault::InvalidIdempotencyKey,
    Fault::JsonRequired,
    Fault::IdentityEncodingRequired,
    Fault::BodyTooLarge,
    Fault::InvalidJson,
    Fault::ControlBusy,
    Fault::ControlEnded,
    Fault::StaticStream,
    Fault::ManagementDisabled,
    Fault::IdempotencyMismatch,
    Fault::BrokerStopping,
    Fault::InvalidName,
    Fault::PreconditionRequired,
    Fault::PreconditionFailed,
    Fault::TransitionPending,
    Fault::HistoryPrefixProtected,
    Fault::OperationQueueFull,
    Fault::InternalError,
];

refusals! {
    /// Of asking what the broker is, and who the caller is.
    Asked: [], Forbidden, BrokerUnavailable;
    /// Of listing streams.
    Listed: [], InvalidPagination, CollectionChanged, ProfileRevisionChanged, BrokerUnavailable;
    /// Of listing principals and keys.
    Overseen: [], InvalidPagination;
    /// Of asking after a stream.
    Viewed: [], UnknownStream, ProfileRevisionChanged, BrokerUnavailable;
    /// Of asking after an operation.
    Followed: [], UnknownOperation, BrokerUnavailable;
    /// Of declaring.
    Defined: [CHANGE], InvalidDeclaration, MustBeStopped, MigrationRequired, ImmutableStorage;
    /// Of wishing for a state.
    Desired: [CHANGE], UnknownStream, InvalidDesired, RetiredStream, UnboundStream;
    /// Of migrating.
    Migrated: [CHANGE], UnknownStream, InvalidMigration, InvalidDeclaration, IdentityMismatch, MustBeStopped;
}

fn json_content(schema: &str) -> utoipa::openapi::Content {
    ContentBuilder::new().schema(Some(Ref::from_schema_name(schema))).build()
}
