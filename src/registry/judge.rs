//! Whether a change is accepted (wire.md section 11.4, checks 10 to 15): a function of the call and of what is known.

use super::definition::{Definition, Rules, member};
use super::fault::Fault;
use super::record::{Desired, Kind, Operation, Record, State, Status};
use crate::schema::json::Json;
use crate::stream::name::check_durable_name;
use crate::wire::target;

/// A call that is well-formed and comes from somebody who may.
#[derive(Debug, Clone, Copy)]
pub struct Change<'a> {
    /// The stream.
    pub name: &'a str,
    /// What is to be changed.
    pub kind: Kind,
    /// The body.
    pub body: &'a Json,
    /// The field `If-Match`, if sent.
    pub if_match: Option<&'a str>,
    /// The field `If-None-Match`, if sent.
    pub if_none_match: Option<&'a str>,
}

/// Everything that is known when a call is judged.
#[derive(Debug, Clone, Copy)]
pub struct Known<'a> {
    /// The host's side of declarations.
    pub rules: &'a Rules,
    /// Whether the stream's history may not be begun anew, migrated or ended.
    pub guarded: bool,
    /// The stream, if it is declared.
    pub record: Option<&'a Record>,
    /// Its pending operation.
    pub pending: Option<&'a Operation>,
    /// What it was last seen to be.
    pub state: State,
    /// Other streams with a pending operation.
    pub others_pending: usize,
    /// How many may have one.
    pub max_pending: usize,
    /// Whether no more changes are taken.
    pub closing: bool,
}

/// An accepted change.
#[derive(Debug, Clone, PartialEq)]
pub struct Accepted {
    /// The stream with it.
    pub record: Record,
    /// The operation.
    pub operation: Operation,
    /// Whether nothing changes: the stream is already what it shall be.
    pub no_op: bool,
}

/// Judges a change; `operation_id` names the operation that comes of it.
///
/// # Errors
/// The first check that fails.
pub fn judge(change: Change<'_>, known: Known<'_>, operation_id: String) -> Result<Accepted, Fault> {
    if known.closing {
        return Err(Fault::BrokerStopping);
    }
    if !is_managed_name(change.name) {
        return Err(Fault::InvalidName);
    }
    let mut record = match known.record {
        None => create(change, known)?,
        Some(record) => alter(change, known, record.clone())?,
    };
    if known.others_pending >= known.max_pending {
        return Err(Fault::OperationQueueFull);
    }
    let no_op = change.kind != Kind::Migration
        && known.state.is(record.desired)
        && known.record.is_some_and(|before| {
            before.desired == record.desired && same(&before.definition.to_json(), &record.definition.to_json())
        });
    if let (true, Some(before)) = (no_op, known.record) {
        record.revision = before.revision;
    }
    record.pending = (!no_op).then(|| operation_id.clone());
    let operation = Operation {
        id: operation_id,
        name: record.name.clone(),
        kind: change.kind,
        revision: record.revision,
        target: change.body.clone(),
        status: if no_op { Status::Succeeded } else { Status::Accepted },
    };
    Ok(Accepted { record, operation, no_op })
}

fn create(change: Change<'_>, known: Known<'_>) -> Result<Record, Fault> {
    if change.kind != Kind::Definition {
        return Err(Fault::UnknownStream);
    }
    match (change.if_none_match, change.if_match) {
        (None, _) => return Err(Fault::PreconditionRequired),
        (Some("*"), None) => {}
        _ => return Err(Fault::PreconditionFailed),
    }
    let definition = read_definition(change, known)?;
    Ok(Record {
        name: change.name.to_owned(),
        profile_revision: profile_revision(&definition, known)?,
        definition,
        desired: Desired::Stopped,
        revision: 1,
        stream_id: None,
        pending: None,
    })
}

fn alter(change: Change<'_>, known: Known<'_>, mut record: Record) -> Result<Record, Fault> {
    match (change.if_match, change.if_none_match) {
        (None, _) => return Err(Fault::PreconditionRequired),
        (Some(tag), None) if tag == etag(record.revision) => {}
        _ => return Err(Fault::PreconditionFailed),
    }
    if let Some(pending) = known.pending {
        // What failed may have been done by half. Only the same again brings it to an end.
        let again =
            pending.status == Status::Failed && pending.kind == change.kind && same(&pending.target, change.body);
        if !again {
            return Err(Fault::TransitionPending);
        }
    }
    match change.kind {
        Kind::Definition => define(change, known, &mut record)?,
        Kind::Desired => record.desired = wish(change, known, &record)?,
        Kind::Migration => migrate(change, known, &record)?,
    }
    record.revision += 1;
    Ok(record)
}

fn define(change: Change<'_>, known: Known<'_>, record: &mut Record) -> Result<(), Fault> {
    let definition = read_definition(change, known)?;
    let before = &record.definition;
    if !same(&definition.to_json(), &before.to_json()) {
        if known.state != State::Stopped {
            return Err(Fault::MustBeStopped);
        }
        if definition.sort_by != before.sort_by || !same(&definition.schema, &before.schema) {
            return Err(Fault::MigrationRequired);
        }
        if definition.storage_profile != before.storage_profile && record.stream_id.is_some() {
            return Err(Fault::ImmutableStorage);
        }
    }
    record.profile_revision = profile_revision(&definition, known)?;
    record.definition = definition;
    Ok(())
}

fn wish(change: Change<'_>, known: Known<'_>, record: &Record) -> Result<Desired, Fault> {
    let desired = match change.body {
        Json::Object(members) if members.len() == 1 => match member(change.body, "state") {
            Some(Json::String(word)) => Desired::parse(word),
            _ => None,
        },
        _ => None,
    };
    let desired = desired.ok_or(Fault::InvalidDesired)?;
    if record.desired == Desired::Retired && desired != Desired::Retired {
        return Err(Fault::RetiredStream);
    }
    if desired == Desired::Retired && known.guarded {
        return Err(Fault::HistoryPrefixProtected);
    }
    if desired == Desired::Retired && record.stream_id.is_none() {
        return Err(Fault::UnboundStream);
    }
    Ok(desired)
}

fn migrate(change: Change<'_>, known: Known<'_>, record: &Record) -> Result<(), Fault> {
    if known.guarded {
        return Err(Fault::HistoryPrefixProtected);
    }
    let parts = ["stream_id", "schema", "sort_by"].map(|key| member(change.body, key));
    let ([Some(stream_id), Some(schema), Some(sort_by)], Json::Object(members)) = (parts, change.body) else {
        return Err(Fault::InvalidMigration);
    };
    if members.len() != parts.len() {
        return Err(Fault::InvalidMigration);
    }
    match (stream_id, &record.stream_id) {
        (Json::String(asked), Some(bound)) if asked == bound => {}
        _ => return Err(Fault::IdentityMismatch),
    }
    let idle = matches!(known.state, State::Stopped | State::TransitionFailed | State::RecoveryFailed);
    if !idle || record.desired != Desired::Stopped {
        return Err(Fault::MustBeStopped);
    }
    record.definition.migrated(schema, sort_by, known.rules).map(drop)
}

fn read_definition(change: Change<'_>, known: Known<'_>) -> Result<Definition, Fault> {
    let definition = Definition::read(change.body, known.rules)?;
    if known.guarded && definition.initialization != super::definition::Initialization::OpenExisting {
        return Err(Fault::HistoryPrefixProtected);
    }
    Ok(definition)
}

fn profile_revision(definition: &Definition, known: Known<'_>) -> Result<String, Fault> {
    let profile = known.rules.profiles.get(&definition.storage_profile).ok_or(Fault::InvalidDeclaration)?;
    Ok(profile.revision.clone())
}

/// A revision as an entity tag.
#[must_use]
pub fn etag(revision: u64) -> String {
    format!("\"{revision}\"")
}

/// Whether two values are the same text: key order counts, and `1` is not `1.0`.
fn same(a: &Json, b: &Json) -> bool {
    a.to_text() == b.to_text()
}

/// Whether a stream that is declared at run time may be called so (wire.md section 1.3). Its directory must not take the
/// place of a file of the broker either.
fn is_managed_name(name: &str) -> bool {
    target::is_managed_name(name) && check_durable_name(name).is_ok()
}
