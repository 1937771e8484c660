//! The threads of background work: on the background cores, and behind everything that somebody waits for.

use std::io;

use streamcast_shards::cores::Distance;
use tokio::runtime::{Builder, Runtime};

/// Threads for work that blocks: sealing, merging, files.
const MAX_BLOCKING_THREADS: usize = 8;

/// Starts the runtime.
///
/// # Errors
/// When its threads cannot start.
pub(super) fn start(cores: &[usize]) -> io::Result<Runtime> {
    let cores = cores.to_vec();
    Builder::new_multi_thread()
        .worker_threads(1)
        .max_blocking_threads(MAX_BLOCKING_THREADS)
        .thread_name("sc-lake")
        .on_thread_start(move || stand_back(&cores))
        .enable_all()
        .build()
}

fn stand_back(cores: &[usize]) {
    streamcast_shards::cores::pin_to(cores);
    streamcast_shards::cores::stand_back(Distance::Near);
}
