//! Streams in memory that do what the broker would: they outlive a registry that is dropped, can be made to fail, and
//! can end the caller's thread before or after they have done something.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use super::super::{
    Admission, Definition, HistoryGuard, Profile, Registry, RegistrySettings, RuntimeError, Serve, Started,
    StreamRuntime,
};
use crate::schema::json::{self, Json};

/// One stream as it lies on the disk.
#[derive(Debug, Clone, PartialEq)]
pub struct Stored {
    pub stream_id: String,
    pub schema: String,
    pub logs: u32,
    pub retired: bool,
}

#[derive(Default)]
pub struct State {
    pub stored: BTreeMap<String, Stored>,
    pub running: BTreeMap<String, u64>,
    pub held: Vec<String>,
    /// What was asked, in order.
    pub asked: Vec<String>,
    /// The names whose calls fail.
    pub failing: Vec<String>,
    /// Calls that may still be made before the caller's thread ends, and whether the last one is done before.
    pub dies: Option<(usize, bool)>,
    generation: u64,
    created: u64,
}

/// The fleet; clones are the same one.
#[derive(Clone, Default)]
pub struct Fleet(Arc<Mutex<State>>);

impl Fleet {
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// What a new process finds: nothing runs.
    pub fn reboot(&self) {
        let mut state = self.state();
        state.running.clear();
        state.held.clear();
        state.generation = 0;
        state.dies = None;
    }

    /// Does one call, or ends the thread in its place or right behind it.
    fn call<T>(
        &self,
        what: &str,
        name: &str,
        work: impl FnOnce(&mut State) -> Result<T, RuntimeError>,
    ) -> Result<T, RuntimeError> {
        let mut state = self.state();
        let dies = match &mut state.dies {
            Some((0, after)) => Some(*after),
            Some((left, _)) => {
                *left -= 1;
                None
            }
            None => None,
        };
        if dies == Some(false) {
            drop(state);
            std::panic::resume_unwind(Box::new("the process ends here"));
        }
        state.asked.push(format!("{what} {name}"));
        let outcome = match state.failing.iter().any(|failing| failing == name) {
            true => {
                // A stream whose stop fails is out of service nevertheless.
                state.running.retain(|running, _| what != "stop" || running != name);
                Err(RuntimeError(format!("{what} {name} was made to fail")))
            }
            false => work(&mut state),
        };
        drop(state);
        if dies == Some(true) {
            std::panic::resume_unwind(Box::new("the process ends here"));
        }
        outcome
    }
}

fn same_stream(state: &State, stream: &Serve) -> Result<(), RuntimeError> {
    let stored = state.stored.get(&stream.name).ok_or_else(|| RuntimeError("it is not there".to_owned()))?;
    match &stream.stream_id {
        Some(bound) if *bound != stored.stream_id => Err(RuntimeError("it is another one".to_owned())),
        _ => Ok(()),
    }
}

impl StreamRuntime for Fleet {
    fn hold(&self, names: &[String]) {
        self.state().held.extend_from_slice(names);
    }

    fn release(&self, name: &str) {
        self.state().held.retain(|held| held != name);
    }

    fn start(&self, stream: &Serve) -> Result<Started, RuntimeError> {
        self.call("start", &stream.name, |state| {
            if stream.create && !state.stored.contains_key(&stream.name) {
                state.created += 1;
                let stored = Stored {
                    stream_id: format!("id-{}", state.created),
                    schema: stream.definition.schema.to_text(),
                    logs: 1,
                    retired: false,
                };
                state.stored.insert(stream.name.clone(), stored);
            }
            same_stream(state, stream)?;
            let stored = state.stored[&stream.name].clone();
            if stored.schema != stream.definition.schema.to_text() || stored.retired != stream.retired {
                return Err(RuntimeError("it does not fit".to_owned()));
            }
            if let Some(HistoryGuard { stream_id, .. }) = &stream.guard
                && *stream_id != stored.stream_id
            {
                return Err(RuntimeError("its history is another one".to_owned()));
            }
            state.generation += 1;
            let generation = state.generation;
            state.running.insert(stream.name.clone(), generation);
            state.held.retain(|held| *held != stream.name);
            Ok(Started { stream_id: stored.stream_id, generation })
        })
    }

    fn stop(&self, name: &str) -> Result<(), RuntimeError> {
        self.call("stop", name, |state| {
            state.running.remove(name);
            Ok(())
        })
    }

    fn verify(&self, stream: &Serve) -> Result<(), RuntimeError> {
        self.call("verify", &stream.name, |state| same_stream(state, stream))
    }

    fn retire(&self, stream: &Serve) -> Result<(), RuntimeError> {
        self.call("retire", &stream.name, |state| {
            same_stream(state, stream)?;
            if let Some(stored) = state.stored.get_mut(&stream.name) {
                stored.retired = true;
            }
            Ok(())
        })
    }

    fn migrate(&self, stream: &Serve, target: &Definition) -> Result<(), RuntimeError> {
        self.call("migrate", &stream.name, |state| {
            same_stream(state, stream)?;
            let schema = target.schema.to_text();
            match state.stored.get_mut(&stream.name) {
                Some(stored) if stored.schema != schema => {
                    stored.schema = schema;
                    stored.logs += 1;
                }
                _ => {}
            }
            Ok(())
        })
    }

    fn admission(&self, name: &str) -> Option<Admission> {
        let state = self.state();
        let retired = state.stored.get(name).is_some_and(|stored| stored.retired);
        state.running.get(name).map(|_| Admission { read: true, write: !retired })
    }

    fn maintenance_ready(&self) -> bool {
        true
    }
}

/// The usual host: two profiles, a static stream, a guarded name.
pub fn settings() -> RegistrySettings {
    let mut settings = RegistrySettings::new(1 << 20);
    settings.broker_id = "primary".to_owned();
    settings.max_pending = 3;
    for (name, revision) in [("local", "1"), ("other", "7")] {
        settings.rules.profiles.insert(name.to_owned(), Profile::new(revision));
    }
    settings.static_names.insert("static1".to_owned());
    let guard = HistoryGuard { stream_id: "id-1".to_owned(), known_offset: 1, known_row: json(r#"{"id":1}"#) };
    settings.history_guards.insert("guarded".to_owned(), guard);
    settings
}

/// A registry on `root` whose streams are brought back; its worker is not started.
pub fn open(root: &std::path::Path, fleet: &Fleet) -> Registry {
    fleet.reboot();
    let registry = Registry::open(root, settings()).expect("a registry");
    let runtime: Arc<dyn StreamRuntime> = Arc::new(fleet.clone());
    super::super::worker::recover(&registry.0, &runtime);
    registry
}

/// Does everything that was accepted.
pub fn work(registry: &Registry, fleet: &Fleet) {
    let runtime: Arc<dyn StreamRuntime> = Arc::new(fleet.clone());
    super::super::worker::work_off(&registry.0, &*runtime);
}

pub fn json(text: &str) -> Json {
    json::parse(text.as_bytes()).expect("json")
}

/// A declaration, with more members.
pub fn declaration(more: &str) -> Json {
    json(&format!(
        r#"{{"schema":{{"type":"object","properties":{{"id":{{"type":"integer"}}}},"required":["id"]}},"storage_profile":"local","initialization":"create_if_absent"{more}}}"#
    ))
}
