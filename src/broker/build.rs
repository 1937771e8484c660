//! From a configuration to the streams in service: schemas compiled, logs declared, documents written.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::error::BrokerError;
use crate::config::{Config, Slow, StreamConfig};
use crate::http::console;
use crate::journal::{Journal, StreamRecord, StreamSpec};
use crate::lake;
use crate::schema::Schema;
use crate::session::{Catalog, ServedStream, StreamSettings};
use crate::telemetry::{StreamCounters, Telemetry};

/// Bytes of backlog that the console's own stream may hold.
const CONSOLE_BACKLOG_BYTES: u64 = 4 << 20;

/// The streams in service and where their logs end.
pub(super) struct Built {
    pub(super) catalog: Arc<Catalog>,
    pub(super) ends: Vec<Option<i64>>,
    pub(super) console: u32,
}

/// Declares every stream of the configuration, and the console's own.
pub(super) fn build(
    config: &Config,
    journal: &mut Journal,
    telemetry: &Arc<Telemetry>,
    shards: usize,
) -> Result<Built, BrokerError> {
    let mut names = HashSet::new();
    let mut streams = Vec::new();
    let mut ends = Vec::new();
    let undeclared = undeclared(config, journal)?;
    for (place, declared) in config.streams.iter().chain(&undeclared).enumerate() {
        if console::is_internal(&declared.name) {
            return Err(BrokerError::Reserved { name: declared.name.clone() });
        }
        if !names.insert(declared.name.as_str()) {
            return Err(BrokerError::Twice { name: declared.name.clone() });
        }
        let (stream, end) = serve(config, declared, place as u32, journal, shards)?;
        telemetry.add_stream(Arc::clone(&stream.counters));
        streams.push(Arc::new(stream));
        ends.push(end);
    }
    let console = streams.len() as u32;
    streams.push(Arc::new(console_stream(console, config)));
    ends.push(None);
    let counters = Arc::clone(telemetry);
    let queued = move || counters.writer.queued_bytes.load(std::sync::atomic::Ordering::Relaxed);
    let catalog = Catalog::new(
        streams,
        config.transport_max_bytes,
        config.max_inbound_bytes,
        Arc::new(queued),
        console::is_internal,
    );
    Ok(Built { catalog: Arc::new(catalog), ends, console })
}

/// Streams that the journal has and the configuration does not name, such as those of the `create` command: they
/// are served with what is recorded of them and the usual limits.
fn undeclared(config: &Config, journal: &Journal) -> Result<Vec<StreamConfig>, BrokerError> {
    let named: HashSet<&str> = config.streams.iter().map(|stream| stream.name.as_str()).collect();
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

fn serve(
    config: &Config,
    declared: &StreamConfig,
    place: u32,
    journal: &mut Journal,
    shards: usize,
) -> Result<(ServedStream, Option<i64>), BrokerError> {
    let schema = match &declared.schema {
        Some(document) => Some(
            Schema::compile(document, declared.durable)
                .map_err(|source| BrokerError::Schema { name: declared.name.clone(), source })?,
        ),
        None => None,
    };
    let record = match &schema {
        Some(schema) if declared.durable => Some(journal.declare(&StreamSpec {
            name: declared.name.clone(),
            schema_canonical: schema.canonical().to_owned(),
            sort_by: declared.sort_by.clone(),
            exactly_once: declared.exactly_once,
            group_commit: declared.group_commit,
        })?),
        _ => None,
    };
    let metadata = match &record {
        Some(record) => Some(documents(journal.root(), record)?),
        None => None,
    };
    let end = record.as_ref().map(|record| record.end_offset);
    let counters = Arc::new(StreamCounters::new(&declared.name, record.is_some(), end));
    if let Some(record) = &record {
        journal.attach_counters(record.id, Arc::clone(&counters));
    }
    let stream = ServedStream {
        index: place,
        name: declared.name.clone(),
        schema,
        journal_id: record.as_ref().map(|record| record.id),
        stream_id: record.as_ref().map(|record| record.stream_id.clone()),
        floor: record.as_ref().and_then(|record| record.floor),
        metadata,
        settings: settings(config, declared),
        home_shard: place as usize % shards,
        counters,
        waiting_shards: [const { AtomicU64::new(0) }; 4],
    };
    Ok((stream, end))
}

fn documents(root: &Path, record: &StreamRecord) -> Result<(String, String), BrokerError> {
    let document = lake::documents::ensure(root, record, &lake::documents::Declared::default())?;
    Ok(lake::documents::uris(root, &document))
}

fn settings(config: &Config, declared: &StreamConfig) -> StreamSettings {
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
    ServedStream {
        index: place,
        name: console::STREAM.to_owned(),
        schema: None,
        journal_id: None,
        stream_id: None,
        floor: None,
        metadata: None,
        settings,
        home_shard: 0,
        counters: Arc::new(StreamCounters::new(console::STREAM, false, None)),
        waiting_shards: [const { AtomicU64::new(0) }; 4],
    }
}
