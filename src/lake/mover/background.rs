//! The threads of background work: on the background cores, and behind everything that somebody waits for.

use std::io;

use streamcast_shards::cores::{Distance, pin_to, stand_back};
use streamcast_shards::manner::keep_core;
use tokio::runtime::{Builder, Runtime};

/// Threads for work that blocks: sealing, merging, files.
const MAX_BLOCKING_THREADS: usize = 8;

/// Starts the runtime on `cores`, anywhere if empty; `shared` says whether rows on their way need one of them, too.
///
/// # Errors
/// When its threads cannot start.
pub(super) fn start(cores: &[usize], shared: bool) -> io::Result<Runtime> {
    let cores = cores.to_vec();
    Builder::new_multi_thread()
        .worker_threads(1)
        .max_blocking_threads(MAX_BLOCKING_THREADS)
        .thread_name("sc-lake")
        .on_thread_start(move || settle(&cores, shared))
        .enable_all()
        .build()
}

fn settle(cores: &[usize], shared: bool) {
    pin_to(cores);
    stand_back(Distance::Near);
    if !shared {
        keep_core();
    }
}
