//! Why a control call is refused (wire.md section 11): one status and one code each.

/// A refusal. The message for people is the code with spaces; nothing else of the inside is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// Nobody is asking.
    AuthenticationRequired,
    /// The principal may not.
    Forbidden,
    /// Starting or ending.
    BrokerUnavailable,
    /// A mutation without a key.
    IdempotencyKeyRequired,
    /// A key outside 1 to 128 visible ASCII characters.
    InvalidIdempotencyKey,
    /// Another media type.
    JsonRequired,
    /// A compressed body, or one that is coded otherwise.
    IdentityEncodingRequired,
    /// More bytes than `control_max_bytes`.
    BodyTooLarge,
    /// Not JSON, or JSON that says something twice.
    InvalidJson,
    /// As many calls under way as allowed.
    ControlBusy,
    /// No more calls, because the broker ends.
    ControlEnded,
    /// The name is that of a stream of the configuration.
    StaticStream,
    /// There is no registry.
    ManagementDisabled,
    /// The key was used for another request.
    IdempotencyMismatch,
    /// The broker ends.
    BrokerStopping,
    /// The name is outside the grammar of managed names.
    InvalidName,
    /// No such declaration.
    UnknownStream,
    /// No such operation.
    UnknownOperation,
    /// The call has to say which state it is meant for.
    PreconditionRequired,
    /// The state is another one.
    PreconditionFailed,
    /// An operation is under way, or has failed and waits for its retry.
    TransitionPending,
    /// A declaration that breaks section 11.6.
    InvalidDeclaration,
    /// The stream's history may not be begun anew, migrated or ended.
    HistoryPrefixProtected,
    /// Only a stopped stream can be changed so.
    MustBeStopped,
    /// The change is one of the columns.
    MigrationRequired,
    /// A stream keeps the storage it began on.
    ImmutableStorage,
    /// Not a wish for a state.
    InvalidDesired,
    /// A retired stream stays retired.
    RetiredStream,
    /// The stream was never served.
    UnboundStream,
    /// Not a migration.
    InvalidMigration,
    /// The stream is another one.
    IdentityMismatch,
    /// As many operations pending as allowed.
    OperationQueueFull,
    /// Unknown parameter, or one out of range.
    InvalidPagination,
    /// The list is another one since the cursor was made.
    CollectionChanged,
    /// The host gave the storage profile another revision.
    ProfileRevisionChanged,
    /// A defect, or a disk that fails.
    InternalError,
}

impl Fault {
    /// Every refusal.
    pub const ALL: [Self; 36] = [
        Self::AuthenticationRequired,
        Self::Forbidden,
        Self::BrokerUnavailable,
        Self::IdempotencyKeyRequired,
        Self::InvalidIdempotencyKey,
        Self::JsonRequired,
        Self::IdentityEncodingRequired,
        Self::BodyTooLarge,
        Self::InvalidJson,
        Self::ControlBusy,
        Self::ControlEnded,
        Self::StaticStream,
        Self::ManagementDisabled,
        Self::IdempotencyMismatch,
        Self::BrokerStopping,
        Self::InvalidName,
        Self::UnknownStream,
        Self::UnknownOperation,
        Self::PreconditionRequired,
        Self::PreconditionFailed,
        Self::TransitionPending,
        Self::InvalidDeclaration,
        Self::HistoryPrefixProtected,
        Self::MustBeStopped,
        Self::MigrationRequired,
        Self::ImmutableStorage,
        Self::InvalidDesired,
        Self::RetiredStream,
        Self::UnboundStream,
        Self::InvalidMigration,
        Self::IdentityMismatch,
        Self::OperationQueueFull,
        Self::InvalidPagination,
        Self::CollectionChanged,
        Self::ProfileRevisionChanged,
        Self::InternalError,
    ];

    /// The HTTP status and the code of the envelope.
    #[must_use]
    pub fn answer(self) -> (u16, &'static str) {
        match self {
            Self::AuthenticationRequired => (401, "authentication_required"),
            Self::Forbidden => (403, "forbidden"),
            Self::BrokerUnavailable => (503, "broker_unavailable"),
            Self::IdempotencyKeyRequired => (428, "idempotency_key_required"),
            Self::InvalidIdempotencyKey => (400, "invalid_idempotency_key"),
            Self::JsonRequired => (415, "json_required"),
            Self::IdentityEncodingRequired => (415, "identity_encoding_required"),
            Self::BodyTooLarge => (413, "body_too_large"),
            Self::InvalidJson => (400, "invalid_json"),
            Self::ControlBusy => (429, "control_unavailable"),
            Self::ControlEnded => (503, "control_unavailable"),
            Self::StaticStream => (409, "static_stream"),
            Self::ManagementDisabled => (403, "management_disabled"),
            Self::IdempotencyMismatch => (409, "idempotency_mismatch"),
            Self::BrokerStopping => (503, "broker_stopping"),
            Self::InvalidName => (422, "invalid_name"),
            Self::UnknownStream => (404, "unknown_stream"),
            Self::UnknownOperation => (404, "unknown_operation"),
            Self::PreconditionRequired => (428, "precondition_required"),
            Self::PreconditionFailed => (412, "precondition_failed"),
            Self::TransitionPending => (409, "transition_pending"),
            Self::InvalidDeclaration => (422, "invalid_declaration"),
            Self::HistoryPrefixProtected => (403, "history_prefix_protected"),
            Self::MustBeStopped => (409, "must_be_stopped"),
            Self::MigrationRequired => (409, "migration_required"),
            Self::ImmutableStorage => (409, "immutable_storage"),
            Self::InvalidDesired => (422, "invalid_desired"),
            Self::RetiredStream => (409, "retired_stream"),
            Self::UnboundStream => (409, "unbound_stream"),
            Self::InvalidMigration => (422, "invalid_migration"),
            Self::IdentityMismatch => (409, "identity_mismatch"),
            Self::OperationQueueFull => (429, "operation_queue_full"),
            Self::InvalidPagination => (400, "invalid_pagination"),
            Self::CollectionChanged => (409, "collection_changed"),
            Self::ProfileRevisionChanged => (409, "profile_revision_changed"),
            Self::InternalError => (500, "internal_error"),
        }
    }

    /// The HTTP status.
    #[must_use]
    pub fn status(self) -> u16 {
        self.answer().0
    }

    /// The code of the envelope.
    #[must_use]
    pub fn code(self) -> &'static str {
        self.answer().1
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.code().replace('_', " "))
    }
}

impl std::error::Error for Fault {}
