//! Inserts of the batch API in a plan: frames that may have a receipt (docs/batches.md, "Idempotency").

use super::job::Append;
use super::plan::{Fate, Place, Plan, StreamState};
use super::receipts::{Keyed, Pending, Receipt};

/// What an insert is more than a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Insert {
    /// Its idempotency key, if it has one.
    pub keyed: Option<Keyed>,
    /// The version of the validator that its rows passed.
    pub validator_version: u64,
}

/// What an insert is judged by besides the plan.
pub(super) struct Desk<F> {
    /// The wall clock, in microseconds.
    pub now_us: i64,
    /// Whether one more receipt may be written.
    pub has_room: bool,
    /// Looks up a receipt on disk.
    pub find: F,
}

impl Plan {
    /// Judges an insert and takes its rows in, unless it was done before. The rows get the stamp of now, or the
    /// stream's last one if that is later.
    pub(super) fn insert<E: std::fmt::Display>(
        &mut self,
        stream: usize,
        state: &mut StreamState,
        (append, insert): (Append, Insert),
        desk: Desk<impl FnOnce(&Keyed) -> Result<Option<Receipt>, E>>,
    ) {
        let token = append.token;
        let fate = self.judge_insert(stream, state, (append, insert), desk);
        self.foresee(token, state.id, fate);
    }

    fn judge_insert<E: std::fmt::Display>(
        &mut self,
        stream: usize,
        state: &mut StreamState,
        (append, insert): (Append, Insert),
        desk: Desk<impl FnOnce(&Keyed) -> Result<Option<Receipt>, E>>,
    ) -> Fate {
        if let Some(keyed) = &insert.keyed {
            match self.repeated(state.id, keyed, desk.find) {
                Ok(Some(fate)) => return fate,
                Ok(None) if !desk.has_room => return Fate::ReceiptsFull,
                Ok(None) => {}
                Err(error) => return Fate::Failed(format!("cannot read the receipts: {error}")),
            }
        }
        if insert.validator_version != state.validator_version {
            return Fate::Stale;
        }
        let count = append.rows.ends.len() as u32;
        let (first, ts_us) = match self.take(stream, state, append.rows, 0, desk.now_us) {
            Ok(Some(taken)) => taken,
            Ok(None) => return Fate::Failed("a batch has at least one row".to_owned()),
            Err(detail) => return Fate::Failed(detail),
        };
        if let Some(Keyed { operation, key, body_hash }) = insert.keyed {
            self.receipts.insert((state.id, operation, key), Pending { body_hash, first, count, ts_us });
        }
        Fate::Inserted { first: Place::Now(first), count, ts_us, duplicate: false }
    }

    /// What becomes of a request whose key was used before, in this transaction or an earlier one.
    fn repeated<E>(
        &self,
        stream: u32,
        keyed: &Keyed,
        find: impl FnOnce(&Keyed) -> Result<Option<Receipt>, E>,
    ) -> Result<Option<Fate>, E> {
        // Most transactions have no receipt yet, and then the key need not be copied to look for it.
        let pending = match self.receipts.is_empty() {
            true => None,
            false => self.receipts.get(&(stream, keyed.operation, keyed.key.clone())),
        };
        let earlier = match pending {
            Some(pending) => Some((pending.body_hash, Place::Now(pending.first), pending.count, pending.ts_us)),
            None => {
                find(keyed)?.map(|found| (found.body_hash, Place::Before(found.first_offset), found.count, found.ts_us))
            }
        };
        Ok(earlier.map(|(body_hash, first, count, ts_us)| {
            if body_hash == keyed.body_hash {
                Fate::Inserted { first, count, ts_us, duplicate: true }
            } else {
                Fate::KeyReused
            }
        }))
    }
}
