//! What the console page shows: one sample of the telemetry a second, as a row of the built-in stream `_console`.

mod history;
mod percentile;
mod sample;

pub use history::{HISTORY_PATH, History};
pub use sample::{MAX_LISTED_STREAMS, PrevSample, sample};

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::MissedTickBehavior;

use crate::telemetry::Telemetry;

/// The built-in stream that carries the samples. It has no log, and it is listed nowhere.
pub const STREAM: &str = "_console";

/// Between two samples.
const PERIOD: Duration = Duration::from_secs(1);

/// Whether a stream is one of our own, hidden from `/stats` and from the list of a 4404.
#[must_use]
pub fn is_internal(name: &str) -> bool {
    name == STREAM
}

/// Takes a sample a second for as long as the runtime lives, keeps it in `history` and hands its row to `publish`.
pub fn spawn_sampler(
    runtime: &Handle,
    telemetry: Arc<Telemetry>,
    history: Arc<History>,
    publish: impl Fn(Vec<u8>) + Send + 'static,
) {
    runtime.spawn(async move {
        let mut previous = PrevSample::default();
        let mut ticks = tokio::time::interval(PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let row = sample(&telemetry, &mut previous).to_string();
            history.push(row.clone());
            publish(row.into_bytes());
        }
    });
}
