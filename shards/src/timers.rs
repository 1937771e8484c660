//! Deadlines of connections, looked at by the second: request heads, pings and pongs, closing handshakes.

use crate::conn::{ConnId, Ended, Phase};
use crate::engine::Engine;
use crate::frame::opcode;

/// The reason sent to a peer that answers no ping (wire.md section 9.1).
const PING_TIMEOUT_REASON: &str = "keepalive ping timeout";

/// Closing timeouts without progress after which a peer that has bytes to take is let go.
const STALLED_LOOKS: u8 = 4;

impl<S> Engine<S> {
    /// The clock's second.
    pub(crate) fn now_s(&self) -> u32 {
        self.wheel.now_s()
    }

    /// Moves the clock on and acts on what is due.
    pub(crate) fn tick(&mut self, now_s: u32) {
        for id in self.wheel.advance(now_s) {
            self.due(id, now_s);
        }
    }

    fn due(&mut self, id: ConnId, now_s: u32) {
        let (timeout_s, close_timeout_s) = (self.settings.pong_timeout_s, self.settings.close_timeout_s);
        let Some(conn) = self.conn_mut(id) else { return };
        if now_s < conn.deadline_s {
            let deadline_s = conn.deadline_s;
            return self.wheel.set(id, deadline_s);
        }
        match conn.phase {
            // It has said everything, and nobody has decided about it yet.
            Phase::Head if conn.paused => self.undecided.push(id),
            Phase::Head => self.remove(id, Ended::TimedOut),
            Phase::Closing if !conn.is_idle() && conn.looks < STALLED_LOOKS => {
                // A dropped subscriber may still drain what was accepted for it; one that takes nothing is let go.
                let left_bytes = conn.left_bytes();
                conn.looks = if left_bytes == conn.looked_bytes { conn.looks + 1 } else { 0 };
                conn.looked_bytes = left_bytes;
                conn.deadline_s = now_s + close_timeout_s;
                self.wheel.set(id, now_s + close_timeout_s);
            }
            Phase::Closing => self.abort(id),
            Phase::Open if conn.awaiting_pong => {
                // The frames before the close will hardly be taken: what matters is that the peer is let go.
                conn.discard_queued(false);
                self.close(id, 1011, PING_TIMEOUT_REASON);
            }
            Phase::Open => {
                conn.awaiting_pong = true;
                conn.deadline_s = now_s + timeout_s;
                self.wheel.set(id, now_s + timeout_s);
                self.push_control(id, opcode::PING, b"");
            }
        }
    }

    /// The peer has answered: the next ping is a period away.
    pub(crate) fn pong(&mut self, id: ConnId) {
        let next_s = self.wheel.now_s() + self.settings.ping_s;
        if let Some(conn) = self.conn_mut(id)
            && conn.phase == Phase::Open
        {
            conn.awaiting_pong = false;
            conn.deadline_s = next_s;
        }
    }

    /// The connection is upgraded: keepalive begins.
    pub(crate) fn start_keepalive(&mut self, id: ConnId) {
        // The wheel's look at the request head's deadline goes on as the look at this one.
        self.pong(id);
    }
}
