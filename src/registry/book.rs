//! What is known of all streams, in memory: the declarations, their pending operations, and the last look at each.

use std::collections::{BTreeMap, HashMap};

use super::judge::Accepted;
use super::record::{Observed, Operation, Record, State, Status, now_s};
use super::runtime::Admission;
use super::store::Loaded;

/// The streams and what is pending of them.
#[derive(Default)]
pub(super) struct Book {
    pub(super) records: BTreeMap<String, Record>,
    pub(super) observed: HashMap<String, Observed>,
    /// Pending operations by id.
    pub(super) pending: HashMap<String, Operation>,
    /// The number of the last accepted change of any stream.
    pub(super) collection: u64,
}

impl Book {
    /// The book of a registry that was just opened: nothing has been looked at.
    pub(super) fn new(loaded: Loaded) -> Self {
        let mut book = Self { collection: loaded.collection, ..Self::default() };
        for operation in loaded.pending {
            book.pending.insert(operation.id.clone(), operation);
        }
        for record in loaded.records {
            let name = record.name.clone();
            book.records.insert(name.clone(), record);
            book.observe(&name, State::Unknown, None, None, false);
        }
        book
    }

    pub(super) fn state(&self, name: &str) -> State {
        self.observed.get(name).map_or(State::Unknown, |observed| observed.state)
    }

    pub(super) fn pending_of(&self, record: &Record) -> Option<&Operation> {
        self.pending.get(record.pending.as_deref()?)
    }

    /// Streams other than `name` with a pending operation.
    pub(super) fn others_pending(&self, name: &str) -> usize {
        let of_name = self.records.get(name).is_some_and(|record| record.pending.is_some());
        self.pending.len() - usize::from(of_name)
    }

    /// Takes an accepted change over.
    pub(super) fn accept(&mut self, accepted: Accepted) {
        let Accepted { record, operation, no_op } = accepted;
        let name = record.name.clone();
        let before = self.records.insert(name.clone(), record);
        if let Some(replaced) = before.and_then(|before| before.pending) {
            self.pending.remove(&replaced);
        }
        if no_op {
            return;
        }
        self.pending.insert(operation.id.clone(), operation);
        self.collection += 1;
        // Looked at again, because the revision is another one.
        match self.observed.get(&name).cloned() {
            Some(seen) => {
                let admission = Admission { read: seen.read_admission, write: seen.write_admission };
                self.observe(&name, seen.state, seen.generation, Some(admission), seen.children_ready);
            }
            None => self.observe(&name, State::Unknown, None, None, false),
        }
    }

    /// Takes over what has become of a stream, and of its operation.
    pub(super) fn update(&mut self, record: Record, operation: Option<Operation>) {
        self.records.insert(record.name.clone(), record);
        if let Some(operation) = operation {
            match operation.status {
                Status::Succeeded => {
                    self.pending.remove(&operation.id);
                }
                _ => {
                    self.pending.insert(operation.id.clone(), operation);
                }
            }
        }
    }

    /// Notes what a stream is seen to be now.
    pub(super) fn observe(
        &mut self,
        name: &str,
        state: State,
        generation: Option<u64>,
        admission: Option<Admission>,
        children_ready: bool,
    ) {
        let revision = self.records.get(name).map_or(0, |record| record.revision);
        let admission = admission.unwrap_or(Admission { read: false, write: false });
        let observed = Observed {
            state,
            generation,
            revision,
            at_s: now_s(),
            read_admission: admission.read,
            write_admission: admission.write,
            children_ready,
        };
        self.observed.insert(name.to_owned(), observed);
    }
}
