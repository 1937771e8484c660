//! What the registry decides, done to the streams of a running broker.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::FutureExt as _;

use super::error::BrokerError;
use super::streams::Streams;
use super::succession;
use crate::config::{self, Config, Limits, StreamConfig};
use crate::journal::StreamRecord;
use crate::lake::documents::Documents;
use crate::registry::{
    Admission, Definition, HistoryGuard, Profile, Registry, RegistrySettings, RuntimeError, Serve, Started,
    StreamRuntime,
};
use crate::schema::Schema;
use crate::schema::json::{self, Json};

/// How long the peers of a stream that stops may take to leave.
const STOP_PATIENCE: Duration = Duration::from_secs(10);

/// Opens the registry of a data root, if the configuration has one.
pub(super) fn open(config: &Config, root: &Path) -> Result<Registry, BrokerError> {
    let mut settings = RegistrySettings::new(config.transport_max_bytes);
    settings.static_names = config.streams.iter().map(|stream| stream.name.clone()).collect::<BTreeSet<_>>();
    let Some(chosen) = &config.registry else { return Ok(Registry::none(settings)) };
    settings.broker_id = chosen.broker_id.clone();
    settings.control_max_bytes = chosen.control_max_bytes as usize;
    settings.max_pending = chosen.max_pending as usize;
    for profile in &chosen.profiles {
        let place = Profile { revision: profile.revision.clone(), published: profile.published.clone() };
        settings.rules.profiles.insert(profile.name.clone(), place);
    }
    for guard in &chosen.history_guards {
        settings.history_guards.insert(guard.name.clone(), history_guard(guard));
    }
    Ok(Registry::open(root, settings)?)
}

fn history_guard(guard: &config::HistoryGuard) -> HistoryGuard {
    // What serde writes is JSON; a row that could not be read would match nothing.
    let known_row = json::parse(guard.known_row.to_string().as_bytes()).unwrap_or(Json::Null);
    HistoryGuard { stream_id: guard.stream_id.clone(), known_offset: guard.known_offset, known_row }
}

/// Brings the streams of the registry into service, and starts its worker, which calls `settle` first.
pub(super) fn recover(
    registry: &Registry,
    streams: &Arc<Streams>,
    settle: impl FnOnce() + Send + 'static,
) -> Result<(), BrokerError> {
    if registry.is_managed() {
        streams.managed_by(registry);
        registry.recover(Arc::new(Managed { streams: Arc::clone(streams) }), settle)?;
    }
    Ok(())
}

struct Managed {
    streams: Arc<Streams>,
}

impl Managed {
    /// The record of a stream, which must be the one it is bound to.
    fn record(&self, stream: &Serve) -> Result<Option<StreamRecord>, RuntimeError> {
        let record = self.streams.record(&stream.name).map_err(RuntimeError::new)?;
        match (&record, &stream.stream_id) {
            (Some(record), Some(bound)) if record.stream_id != *bound => Err(RuntimeError(format!(
                "the stream {:?} is bound to {bound} and the journal has {}; restore the journal that belongs to it",
                stream.name, record.stream_id
            ))),
            (None, Some(bound)) => Err(RuntimeError(format!(
                "the stream {:?} is bound to {bound} and the journal does not have it; restore the journal",
                stream.name
            ))),
            _ => Ok(record),
        }
    }

    /// Checks that the history of a guarded stream is the known one and is kept so.
    fn check_history(&self, stream: &Serve, record: &StreamRecord, guard: &HistoryGuard) -> Result<(), RuntimeError> {
        let fail = |why: &str| Err(RuntimeError(format!("the guarded stream {:?} {why}", stream.name)));
        if record.stream_id != guard.stream_id {
            return fail("is another one than its guard says");
        }
        let definition = &stream.definition;
        if !definition.exactly_once || !definition.replay_published || definition.max_replay.is_some() {
            return fail("needs exactly_once, replay_published and max_replay = null");
        }
        if record.first_offset != 1 || record.floor.is_some_and(|floor| floor > 1) {
            return fail("does not begin at offset 1");
        }
        let documents = Documents::new(self.streams.root(), &stream.name, None);
        // Only the disk is asked, so there is nothing to wait for.
        let current = documents.current().now_or_never().transpose().map_err(RuntimeError::new)?.flatten();
        let kept = current.is_some_and(|current| {
            let document = current.document;
            document.stream_id == guard.stream_id
                && document.sealed_logs.is_empty()
                && document.live_log.start_offset == 1
                && document.retention.is_none()
                && document.pending.is_none()
        });
        if !kept {
            return fail("was migrated, trimmed, or has no documents");
        }
        let row = self.streams.row(record.id, guard.known_offset).map_err(RuntimeError::new)?;
        match row.and_then(|row| json::parse(row.as_bytes()).ok()) {
            Some(row) if same_row(&row, &guard.known_row) => Ok(()),
            _ => fail("does not have the known row"),
        }
    }
}

impl StreamRuntime for Managed {
    fn hold(&self, names: &[String]) {
        self.streams.hold(names);
    }

    fn release(&self, name: &str) {
        self.streams.release(name);
    }

    fn start(&self, stream: &Serve) -> Result<Started, RuntimeError> {
        let record = self.record(stream)?;
        match &record {
            None if !stream.create => {
                return Err(RuntimeError(format!(
                    "there is no stream {:?} to open; declare it with initialization create_if_absent",
                    stream.name
                )));
            }
            Some(record) if record.exactly_once != stream.definition.exactly_once => {
                let (id, exactly_once) = (record.id, stream.definition.exactly_once);
                self.streams
                    .errand(move |office| office.choose_exactly_once(id, exactly_once))
                    .map_err(RuntimeError::new)?
                    .map_err(RuntimeError::new)?;
            }
            _ => {}
        }
        if let Some(guard) = &stream.guard {
            let record = record.as_ref().ok_or_else(|| RuntimeError("a guarded stream is never created".to_owned()))?;
            self.check_history(stream, record, guard)?;
        }
        let served = self.streams.start(&declared(stream)).map_err(RuntimeError::new)?;
        let stream_id = served.stream_id.clone().ok_or_else(|| RuntimeError("the stream has no log".to_owned()))?;
        Ok(Started { stream_id, generation: self.streams.started() })
    }

    fn stop(&self, name: &str) -> Result<(), RuntimeError> {
        if self.streams.find(name).is_none() {
            return Ok(());
        }
        self.streams.stop(name, STOP_PATIENCE).map_err(RuntimeError::new)
    }

    fn verify(&self, stream: &Serve) -> Result<(), RuntimeError> {
        self.record(stream).map(drop)
    }

    fn retire(&self, stream: &Serve) -> Result<(), RuntimeError> {
        self.record(stream)?;
        succession::retire(&self.streams, &stream.name).map_err(RuntimeError::new)
    }

    fn migrate(&self, stream: &Serve, target: &Definition) -> Result<(), RuntimeError> {
        self.record(stream)?;
        let schema = Schema::compile(&target.schema_value(), true).map_err(RuntimeError::new)?;
        succession::migrate(&self.streams, &stream.name, &schema, &target.sort_by).map_err(RuntimeError::new)
    }

    fn admission(&self, name: &str) -> Option<Admission> {
        self.streams.find(name).map(|stream| Admission { read: true, write: stream.retired.is_none() })
    }

    fn maintenance_ready(&self) -> bool {
        true
    }
}

/// A managed stream as the broker declares streams.
fn declared(stream: &Serve) -> StreamConfig {
    let definition = &stream.definition;
    StreamConfig {
        exactly_once: definition.exactly_once,
        group_commit: definition.group_commit,
        sort_by: definition.sort_by.clone(),
        max_replay: definition.max_replay,
        published: stream.profile.published.clone(),
        replay_published: definition.replay_published,
        limits: Limits {
            max_backlog_frames: definition.limits.max_backlog,
            max_inbound_rows: definition.limits.max_inbound,
            max_in_flight_frames: definition.limits.max_in_flight,
            max_message_bytes: Some(definition.limits.max_message_bytes),
        },
        ..StreamConfig::new(stream.name.clone(), Some(definition.schema_value()))
    }
}

/// Whether two rows have the same columns with the same values, in any order.
fn same_row(a: &Json, b: &Json) -> bool {
    let (Json::Object(a), Json::Object(b)) = (a, b) else { return a == b };
    a.len() == b.len() && a.iter().all(|(key, value)| b.iter().any(|(other, known)| other == key && known == value))
}
