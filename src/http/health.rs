//! Whether the broker takes work: starting, ready, or draining.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// Where the broker is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    /// Streams are being opened.
    Starting,
    /// Connections are served.
    Ready,
    /// No new work is taken; what there is, is finished.
    Draining,
}

impl Readiness {
    /// The word in answers.
    pub fn word(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Draining => "draining",
        }
    }
}

/// The readiness, told by the broker and read by requests.
#[derive(Default)]
pub struct Health(AtomicU8);

impl Health {
    /// What was told last; starting before that.
    pub fn readiness(&self) -> Readiness {
        match self.0.load(Relaxed) {
            0 => Readiness::Starting,
            1 => Readiness::Ready,
            _ => Readiness::Draining,
        }
    }

    /// Tells it.
    pub fn set(&self, readiness: Readiness) {
        self.0.store(readiness as u8, Relaxed);
    }
}
