//! Operations are done one at a time, in the order they were accepted, on a thread of their own.
//!
//! Every step can be the last one before the process dies. What is pending is done again from its beginning after the
//! next start, and all that the broker is asked for may be asked again.

use std::sync::Arc;
use std::time::Duration;

use super::definition::member;
use super::error::RegistryError;
use super::owner::Inner;
use super::record::{Desired, Kind, Operation, Record, State, Status};
use super::runtime::{RuntimeError, Serve, StreamRuntime};

/// How long after a failed write of the registry it is tried again.
const WRITE_AGAIN: Duration = Duration::from_millis(500);

/// Brings every stream to what it shall be: first what was pending, then the rest.
pub(super) fn recover(inner: &Arc<Inner>, runtime: &Arc<dyn StreamRuntime>) {
    let pending: Vec<String> = inner.queue().waiting.drain(..).collect();
    for id in pending {
        Step { inner, runtime: &**runtime, booting: true }.operation(&id);
    }
    let records: Vec<Record> = inner.book().records.values().cloned().collect();
    for mut record in records {
        if inner.book().state(&record.name) != State::Unknown {
            continue;
        }
        let step = Step { inner, runtime: &**runtime, booting: true };
        if let Err(error) = step.reconcile(&mut record) {
            tracing::error!(stream = record.name, %error, "a stream could not be brought back");
            step.observe(&record.name, State::RecoveryFailed, None);
        }
        runtime.release_unless_served(&record.name);
    }
    inner.queue().open = true;
}

/// Starts the thread, which calls `settle` first.
pub(super) fn start(
    inner: Arc<Inner>,
    runtime: Arc<dyn StreamRuntime>,
    settle: impl FnOnce() + Send + 'static,
) -> Result<(), RegistryError> {
    inner.queue().idle = false;
    let work = inner.clone();
    let started = std::thread::Builder::new().name("registry".to_owned()).spawn(move || {
        let _ended = Ended(&work);
        settle();
        while let Some(id) = next(&work) {
            Step { inner: &work, runtime: &*runtime, booting: false }.operation(&id);
        }
    });
    if let Err(error) = started {
        inner.queue().idle = true;
        return Err(RegistryError::Thread(error));
    }
    Ok(())
}

/// Does what waits, on the caller's thread.
#[cfg(test)]
pub(super) fn work_off(inner: &Inner, runtime: &dyn StreamRuntime) {
    loop {
        let Some(id) = inner.queue().waiting.pop_front() else { return };
        Step { inner, runtime, booting: false }.operation(&id);
    }
}

/// Says that the worker has ended, even by a panic.
struct Ended<'a>(&'a Inner);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        let mut queue = self.0.queue();
        queue.idle = true;
        queue.closing = true;
        self.0.queued.notify_all();
    }
}

/// The next operation; `None` when the broker ends.
fn next(inner: &Inner) -> Option<String> {
    let mut queue = inner.queue();
    loop {
        if queue.closing {
            return None;
        }
        if let Some(id) = queue.waiting.pop_front() {
            return Some(id);
        }
        queue = inner.queued.wait(queue).unwrap_or_else(|poisoned| poisoned.into_inner());
    }
}

/// One thing at a time.
struct Step<'a> {
    inner: &'a Inner,
    runtime: &'a dyn StreamRuntime,
    /// Whether the broker is being started: the background work on tables comes later then.
    booting: bool,
}

impl Step<'_> {
    fn operation(&self, id: &str) {
        let found = {
            let book = self.inner.book();
            book.pending.get(id).cloned().and_then(|operation| {
                let record = book.records.get(&operation.name)?.clone();
                Some((operation, record))
            })
        };
        let Some((mut operation, mut record)) = found else { return };
        // Nothing on the disk tells an operation that has begun from one that has not: both are done after a crash.
        operation.status = Status::Running;
        self.inner.book().update(record.clone(), Some(operation.clone()));
        self.runtime.hold(std::slice::from_ref(&record.name));
        let outcome = match operation.kind {
            Kind::Migration => self.migrate(&mut record, &operation),
            Kind::Definition | Kind::Desired => self.reconcile(&mut record),
        };
        match outcome {
            Ok(()) => {
                operation.status = Status::Succeeded;
                record.pending = None;
            }
            Err(error) => {
                tracing::error!(stream = record.name, operation = operation.id, %error, "an operation failed");
                operation.status = Status::Failed;
                if let Err(error) = self.runtime.stop(&record.name) {
                    tracing::warn!(stream = record.name, %error, "a stream did not stop in order");
                }
                self.observe(&record.name, State::TransitionFailed, None);
            }
        }
        self.runtime.release_unless_served(&record.name);
        self.keep(&record, Some(&operation));
    }

    fn migrate(&self, record: &mut Record, operation: &Operation) -> Result<(), RuntimeError> {
        self.offline(record)?;
        self.observe(&record.name, State::Migrating, None);
        let parts = ["schema", "sort_by"].map(|key| member(&operation.target, key));
        let [Some(schema), Some(sort_by)] = parts else {
            return Err(RuntimeError("the kept target is no migration".to_owned()));
        };
        let target =
            record.definition.migrated(schema, sort_by, &self.inner.settings.rules).map_err(RuntimeError::new)?;
        self.runtime.migrate(&self.serve(record)?, &target)?;
        record.definition = target;
        self.observe(&record.name, State::Stopped, None);
        Ok(())
    }

    fn reconcile(&self, record: &mut Record) -> Result<(), RuntimeError> {
        self.offline(record)?;
        match record.desired {
            Desired::Stopped => {
                // A bound stream must be there even while it is stopped: what is lost is never made anew.
                if record.stream_id.is_some() {
                    self.runtime.verify(&self.serve(record)?)?;
                }
                self.observe(&record.name, State::Stopped, None);
                return Ok(());
            }
            Desired::Serving => self.observe(&record.name, State::Starting, None),
            Desired::Retired => {
                self.observe(&record.name, State::Retiring, None);
                self.runtime.retire(&self.serve(record)?)?;
            }
        }
        let started = self.runtime.start(&self.serve(record)?)?;
        if record.stream_id.as_ref() != Some(&started.stream_id) {
            record.stream_id = Some(started.stream_id);
            if !self.keep(record, None) {
                return Err(RuntimeError("the broker ends".to_owned()));
            }
        }
        self.inner.queue().maintained = true;
        let state = if record.desired == Desired::Serving { State::Serving } else { State::Retired };
        self.observe(&record.name, state, Some(started.generation));
        Ok(())
    }

    fn offline(&self, record: &Record) -> Result<(), RuntimeError> {
        if self.runtime.admission(&record.name).is_some() {
            self.observe(&record.name, State::Stopping, None);
        }
        self.runtime.stop(&record.name)
    }

    fn serve(&self, record: &Record) -> Result<Serve, RuntimeError> {
        let profile = self.inner.profile(record).map_err(RuntimeError::new)?;
        Ok(Serve {
            name: record.name.clone(),
            definition: record.definition.clone(),
            profile: profile.clone(),
            stream_id: record.stream_id.clone(),
            create: record.stream_id.is_none()
                && record.definition.initialization == super::definition::Initialization::CreateIfAbsent,
            retired: record.desired == Desired::Retired,
            guard: self.inner.settings.history_guards.get(&record.name).cloned(),
        })
    }

    fn observe(&self, name: &str, state: State, generation: Option<u64>) {
        let maintained = !self.booting || self.inner.queue().maintained;
        let children_ready = maintained && self.runtime.maintenance_ready();
        let admission = generation.and_then(|_| self.runtime.admission(name));
        self.inner.book().observe(name, state, generation, admission, children_ready);
    }

    /// Keeps a step, and tries again until it is kept. False when the broker ends before.
    fn keep(&self, record: &Record, operation: Option<&Operation>) -> bool {
        loop {
            // There is a worker only where there is a store.
            let Some(mut store) = self.inner.store() else { return false };
            match store.update(record, operation) {
                Ok(()) => {
                    self.inner.book().update(record.clone(), operation.cloned());
                    return true;
                }
                Err(error) => {
                    drop(store);
                    tracing::error!(%error, "a step of an operation cannot be kept; trying again");
                    let queue = self.inner.queue();
                    if queue.closing && !self.booting {
                        return false;
                    }
                    let waited = self.inner.queued.wait_timeout(queue, WRITE_AGAIN);
                    drop(waited);
                }
            }
        }
    }
}
