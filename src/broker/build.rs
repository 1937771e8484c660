//! From a configuration to the streams in service: schemas compiled, logs declared, documents written.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

use super::error::BrokerError;
use super::tables::{Place, StreamDocuments};
use crate::config::{Config, Slow, StreamConfig};
use crate::http::console;
use crate::journal::{Journal, StreamRecord, StreamSpec};
use crate::lake::columns::Layout;
use crate::lake::mover::Lake;
use crate::schema::Schema;
use crate::session::{Catalog, CatalogBounds, ServedStream, StreamSettings};
use crate::stream::offsets::FIRST_OFFSET;
use crate::telemetry::{StreamCounters, Telemetry};

/// Bytes of backlog that the console's own stream may hold.
const CONSOLE_BACKLOG_BYTES: u64 = 4 << 20;

/// The streams in service and the place of the console's.
pub(super) struct Built {
    pub(super) catalog: Catalog,
    pub(super) console: u32,
}

/// Declares every stream of the configuration, and the console's own. The streams `managed`, if there is a registry, come
/// and go as it says.
pub(super) fn build(
    config: &Config,
    managed: Option<&[String]>,
    journal: &mut Journal,
    lake: &Lake,
    telemetry: &Arc<Telemetry>,
    shards: usize,
) -> Result<Built, BrokerError> {
    let mut names = HashSet::new();
    let counters = Arc::clone(telemetry);
    let queued_bytes = move || counters.writer.queued_bytes.load(std::sync::atomic::Ordering::Relaxed);
    let mut bounds = CatalogBounds::new(
        config.transport_max_bytes,
        config.max_inbound_bytes,
        Box::new(queued_bytes),
        console::is_internal,
    );
    bounds.tells_names = managed.is_none();
    let mut catalog = Catalog::new(bounds);
    let undeclared = undeclared(config, managed.unwrap_or_default(), journal)?;
    for declared in config.streams.iter().chain(&undeclared) {
        check_name(declared)?;
        if !names.insert(declared.name.as_str()) {
            return Err(BrokerError::Twice { name: declared.name.clone() });
        }
        let schema = compile(declared)?;
        let record = match spec(declared, schema.as_ref()) {
            Some(spec) => Some(recorded(journal, spec)?),
            None => None,
        };
        let counters = counters_of(declared, record.as_ref());
        let documents = match (&record, &schema) {
            (Some(record), Some(schema)) => {
                let place = Place { config, declared, root: journal.root() };
                Some(place.settle(lake, record, schema, &counters)?)
            }
            _ => None,
        };
        if let Some(record) = &record {
            journal.attach_counters(record.id, Arc::clone(&counters));
        }
        telemetry.add_stream(Arc::clone(&counters));
        let parts = Parts { schema, record, documents, counters };
        let settings = settings(config, declared);
        catalog = catalog.with(Arc::new(served(declared, settings, catalog.next_place(), shards, parts)));
    }
    let console = catalog.next_place();
    let catalog = catalog.with(Arc::new(console_stream(console, config)));
    Ok(Built { catalog, console })
}

/// Creates a stream or opens it. Whether its rows may be numbered is chosen at every start; an order that is not given is
/// the recorded one, which a `migrate` may have chosen since the configuration was written.
fn recorded(journal: &mut Journal, mut spec: StreamSpec) -> Result<StreamRecord, BrokerError> {
    let numbered = spec.exactly_once;
    if let Some(there) = journal.record(&spec.name) {
        spec.exactly_once = there.exactly_once;
        if spec.sort_by.is_empty() {
            spec.sort_by.clone_from(&there.sort_by);
        }
    }
    let record = journal.declare(&spec)?;
    // Only now: a declaration that is refused changes nothing.
    if record.exactly_once != numbered {
        journal.choose_exactly_once(record.id, numbered)?;
    }
    Ok(StreamRecord { exactly_once: numbered, ..record })
}

/// Streams that the journal has and neither the configuration nor the registry names, such as those of the `create`
/// command: they are served with what is recorded of them and the usual limits.
fn undeclared(config: &Config, managed: &[String], journal: &Journal) -> Result<Vec<StreamConfig>, BrokerError> {
    let mut named: HashSet<&str> = config.streams.iter().map(|stream| stream.name.as_str()).collect();
    named.extend(managed.iter().map(String::as_str));
    let recorded = journal.streams().into_iter().filter(|record| !named.contains(record.name.as_str()));
    recorded
        .map(|record| {
            let schema = serde_json::from_str(&record.schema_canonical)
                .map_err(|error| BrokerError::Recorded { name: record.name.clone(), detail: error.to_string() })?;
            Ok(StreamConfig {
                exactly_once: record.exactly_once,
                sort_by: record.sort_by,
                ..StreamConfig::new(record.name, Some(schema))
            })
        })
        .collect()
}

/// Refuses names that the broker keeps for itself.
pub(super) fn check_name(declared: &StreamConfig) -> Result<(), BrokerError> {
    if console::is_internal(&declared.name) {
        return Err(BrokerError::Reserved { name: declared.name.clone() });
    }
    Ok(())
}

/// The columns of a stream, if it has any.
pub(super) fn compile(declared: &StreamConfig) -> Result<Option<Schema>, BrokerError> {
    let fail = |source| BrokerError::Schema { name: declared.name.clone(), source };
    let compile = |document| Schema::compile(document, declared.durable).map_err(fail);
    let schema = match &declared.schema {
        Some(document) => Some(compile(document)?),
        // A log without columns keeps any objects (docs/batches.md).
        None => declared.durable.then(Schema::any_object),
    };
    if let Some(schema) = schema.as_ref().filter(|_| declared.durable) {
        // Before anything is recorded: a log without a table would never move its rows.
        Layout::new(schema).map_err(|source| BrokerError::Table { name: declared.name.clone(), source })?;
    }
    Ok(schema)
}

/// What is recorded of a stream with a log; `None` without one.
pub(super) fn spec(declared: &StreamConfig, schema: Option<&Schema>) -> Option<StreamSpec> {
    let schema = schema.filter(|_| declared.durable)?;
    Some(StreamSpec {
        name: declared.name.clone(),
        schema_canonical: schema.canonical().to_owned(),
        sort_by: declared.sort_by.clone(),
        exactly_once: declared.exactly_once,
        group_commit: declared.group_commit,
    })
}

/// Counters for a stream that comes into service.
pub(super) fn counters_of(declared: &StreamConfig, record: Option<&StreamRecord>) -> Arc<StreamCounters> {
    Arc::new(StreamCounters::new(&declared.name, record.is_some(), record.map(|record| record.end_offset)))
}

/// What a served stream is put together from.
pub(super) struct Parts {
    pub(super) schema: Option<Schema>,
    pub(super) record: Option<StreamRecord>,
    pub(super) documents: Option<StreamDocuments>,
    pub(super) counters: Arc<StreamCounters>,
}

/// A stream for the catalog.
pub(super) fn served(
    declared: &StreamConfig,
    settings: StreamSettings,
    place: u32,
    shards: usize,
    parts: Parts,
) -> ServedStream {
    let record = parts.record.as_ref();
    ServedStream {
        index: place,
        name: declared.name.clone(),
        schema: parts.schema.filter(|schema| !schema.is_any_object()),
        journal_id: record.map(|record| record.id),
        stream_id: record.map(|record| record.stream_id.clone()),
        first_offset: record.map_or(FIRST_OFFSET, |record| record.first_offset),
        created_us: record.map_or(0, |record| record.created_us),
        floor: record.and_then(|record| record.floor),
        retired: parts.documents.as_ref().and_then(|documents| documents.retired),
        metadata: parts.documents.map(|documents| documents.uris),
        settings,
        home_shard: place as usize % shards,
        counters: parts.counters,
        waiting_shards: [const { AtomicU64::new(0) }; 4],
        sleepers: AtomicUsize::new(0),
        is_over: AtomicBool::new(false),
    }
}

/// What is chosen for a stream.
pub(super) fn settings(config: &Config, declared: &StreamConfig) -> StreamSettings {
    StreamSettings {
        exactly_once: declared.exactly_once,
        group_commit: declared.group_commit,
        max_replay: declared.max_replay,
        replay_when_slow: declared.slow == Slow::Replay,
        max_backlog_frames: declared.limits.max_backlog_frames,
        max_backlog_bytes: config.max_backlog_bytes,
        max_inbound_rows: declared.limits.max_inbound_rows,
        max_in_flight_frames: declared.limits.max_in_flight_frames,
        max_message_bytes: declared.limits.max_message_bytes.unwrap_or(u32::MAX),
    }
}

/// The live-only stream that feeds the console page.
fn console_stream(place: u32, config: &Config) -> ServedStream {
    let declared = StreamConfig::new(console::STREAM, None);
    let settings = StreamSettings {
        max_backlog_bytes: CONSOLE_BACKLOG_BYTES,
        // Only the broker itself writes here: a publisher's first frame is too big.
        max_message_bytes: 0,
        ..settings(config, &declared)
    };
    let counters = Arc::new(StreamCounters::new(console::STREAM, false, None));
    let parts = Parts { schema: None, record: None, documents: None, counters };
    ServedStream { home_shard: 0, ..served(&declared, settings, place, 1, parts) }
}
