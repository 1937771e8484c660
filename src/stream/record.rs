//! What is declared and what is recorded of a durable stream.

/// A durable stream as the configuration declares it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamSpec {
    /// The name it is served under; see [`crate::stream::name::check_durable_name`].
    pub name: String,
    /// Its columns in the canonical form of wire.md section 12.4.
    pub schema_canonical: String,
    /// Columns that sealed files are sorted by; empty for offset order.
    pub sort_by: Vec<String>,
    /// Whether publishers may name themselves (wire.md section 5).
    pub exactly_once: bool,
    /// Whether its frames may share a transaction with others (wire.md section 4.5). Not recorded.
    pub group_commit: bool,
}

/// A durable stream as the journal records it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamRecord {
    /// The number it has in this journal; names its table.
    pub id: u32,
    /// The name it is served under.
    pub name: String,
    /// The UUID minted when it was created, lower case with dashes.
    pub stream_id: String,
    /// The log that it is written to now: the stream's name, or a successor's after a migration (docs/storage.md).
    pub log: String,
    /// Its columns in the canonical form of wire.md section 12.4.
    pub schema_canonical: String,
    /// Columns that sealed files are sorted by.
    pub sort_by: Vec<String>,
    /// Whether publishers may name themselves.
    pub exactly_once: bool,
    /// The offset of the first row it ever gave or will give.
    pub first_offset: i64,
    /// The first offset of the log of a migrated stream (wire.md section 7.2); `None` if never migrated.
    pub floor: Option<i64>,
    /// The offset its next row gets.
    pub end_offset: i64,
    /// The wall clock at its creation, in microseconds.
    pub created_us: i64,
}
