//! A measured window: what the server used and how busy the generator was while it lasted.

use crate::clock;
use crate::load::{Load, LoadError};
use crate::server::Usage;

/// What was seen of a window.
#[derive(Debug, Clone, Copy)]
pub(super) struct Observed {
    pub seconds: f64,
    pub usage: Usage,
    pub generator_busy: f64,
}

impl Observed {
    /// Server CPU time per event, in nanoseconds.
    pub fn cpu_ns_per(&self, events: u64) -> f64 {
        self.usage.process_ns as f64 / events as f64
    }

    /// As [`Observed::cpu_ns_per`], of all that the server's cores did.
    pub fn cores_ns_per(&self, events: u64) -> f64 {
        self.usage.cores_ns as f64 / events as f64
    }

    /// Share of one core that the server's processes used.
    pub fn server_busy(&self) -> f64 {
        self.usage.process_ns as f64 / 1e9 / self.seconds
    }
}

/// Runs `load` to `start_ns`, then to `end_ns`, and observes what is between. Ends early when `stop` holds.
pub(super) fn observe(
    load: &mut Load,
    usage: impl Fn() -> Usage,
    (start_ns, end_ns): (u64, u64),
    stop: impl Fn(&Load) -> bool,
) -> Result<Observed, LoadError> {
    load.run_until(start_ns, &stop)?;
    let (before, idle, began) = (usage(), load.idle_ns, clock::now_ns());
    load.run_until(end_ns, &stop)?;
    let (after, ended) = (usage(), clock::now_ns());
    let length = ended.saturating_sub(began).max(1) as f64;
    Ok(Observed {
        seconds: length / 1e9,
        usage: after.since(before),
        generator_busy: 1.0 - ((load.idle_ns - idle) as f64 / length).min(1.0),
    })
}
