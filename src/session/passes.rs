//! Who is let in on a shard, and for how long.

use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::SystemTime;

use streamcast_shards::{Admission, Command, ConnId, Engine, Pass as Attached, UpgradeHead};

use super::app::{Session, SessionApp};
use super::remote::Remote;
use crate::auth::{Action, Gate, Glance, Pass, RequestHead, Resource, without_ticket};
use crate::wire::{CloseReason, target};

/// The passes of a shard's open connections; none where no policy is.
#[derive(Default)]
pub(super) struct Passes {
    held: HashMap<ConnId, Arc<Pass>>,
    /// Those that end by themselves, in the order they do.
    expiring: BTreeMap<(SystemTime, u64), ConnId>,
    /// The policy under which all of them were looked at last.
    generation: u64,
}

impl Passes {
    /// Remembers the pass that came with an upgrade.
    pub(super) fn keep(&mut self, id: ConnId, head: &UpgradeHead) {
        let attached = head.pass.as_ref().and_then(|pass| Arc::clone(&pass.0).downcast::<Pass>().ok());
        let Some(pass) = attached else { return };
        if let Some(expires) = pass.principal.expires() {
            self.expiring.insert((expires, id.to_word()), id);
        }
        self.held.insert(id, pass);
    }

    /// Forgets the pass of a connection that is gone.
    pub(super) fn forget(&mut self, id: ConnId) {
        if let Some(expires) = self.held.remove(&id).and_then(|pass| pass.principal.expires()) {
            self.expiring.remove(&(expires, id.to_word()));
        }
    }

    /// The connections whose passes have ended: in time, or with the policy they were given under.
    pub(super) fn ended(&mut self, gate: &Gate, now: SystemTime) -> Vec<ConnId> {
        let mut ended = Vec::new();
        while let Some(entry) = self.expiring.first_entry() {
            if entry.key().0 > now {
                break;
            }
            ended.push(entry.remove());
        }
        let generation = gate.generation();
        if generation != self.generation {
            self.generation = generation;
            ended.extend(self.held.iter().filter(|(_, pass)| !gate.still_holds(pass)).map(|(id, _)| *id));
        }
        ended
    }
}

/// A pass as it is attached to an upgrade.
#[must_use]
pub fn attach(pass: Pass) -> Attached {
    let pass: Arc<dyn Any + Send + Sync> = Arc::new(pass);
    Attached(pass)
}

impl SessionApp {
    /// Decides about an upgrade without waiting: what takes longer is done elsewhere and asked for again.
    pub(super) fn judge(&self, engine: &Engine<Session>, id: ConnId, head: &mut UpgradeHead) -> Admission {
        let gate = &self.links.gate;
        if !gate.has_policy() {
            return Admission::Open;
        }
        let fields = head.headers.iter().map(|(name, value)| (name.as_str(), value.as_slice()));
        let peer = engine.peer_address(id).map(|address| address.ip());
        match gate.glance(&RequestHead::new("GET", &head.target, fields, peer)) {
            Glance::Known(principal) => {
                let (stream, publish) = target::wanted(&head.target);
                let action = if publish { Action::DataPublish } else { Action::DataRead };
                if !principal.allows(action, Resource::Stream(&stream)) {
                    return Admission::HandOver;
                }
                head.target = without_ticket(&head.target);
                head.pass = Some(attach(Pass { principal, action, stream }));
                Admission::Open
            }
            Glance::Check(check) => {
                let inbox = self.links.inboxes[self.links.shard].clone();
                let told = move || inbox.send(Command::App(Remote::Checked { conn: id }), 0);
                if gate.check(check, told) { Admission::Wait } else { Admission::HandOver }
            }
            Glance::Elsewhere => Admission::HandOver,
        }
    }

    /// Sends home those whose passes have ended.
    pub(super) fn end_passes(&mut self, engine: &mut Engine<Session>) {
        for id in self.passes.ended(&self.links.gate, SystemTime::now()) {
            match engine.session(id) {
                Some(Session::Publisher(_)) => self.end_publisher(engine, id, CloseReason::CredentialsExpired),
                _ => self.close(engine, id, &CloseReason::CredentialsExpired),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::auth::{Grants, Principal};

    fn head(expires: Option<SystemTime>) -> UpgradeHead {
        let principal = Principal::new("p", Grants::all(), expires);
        let pass = attach(Pass { principal, action: Action::DataRead, stream: "r".to_owned() });
        UpgradeHead { target: b"/r".to_vec(), headers: Vec::new(), pass: Some(pass) }
    }

    #[test]
    fn passes_end_at_their_time_unless_their_connection_is_gone() {
        let (mut passes, gate, now) = (Passes::default(), Gate::public(), SystemTime::now());
        let id = |index| ConnId { index, generation: 1 };
        let later = now + Duration::from_secs(5);
        passes.keep(id(0), &head(None));
        passes.keep(id(1), &head(Some(later)));
        passes.keep(id(2), &head(Some(later)));
        passes.keep(id(3), &UpgradeHead { pass: None, ..head(None) });
        passes.forget(id(2));
        assert_eq!(passes.held.len(), 2);
        assert!(passes.ended(&gate, later - Duration::from_secs(1)).is_empty());
        assert_eq!(passes.ended(&gate, later), [id(1)]);
        assert!(passes.ended(&gate, later).is_empty());
        passes.forget(id(1));
        passes.forget(id(0));
        assert!(passes.held.is_empty() && passes.expiring.is_empty());
    }
}
