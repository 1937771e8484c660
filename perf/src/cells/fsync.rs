//! The yardstick of durability: what one synced write costs on the filesystem of the data root.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;

use super::bench::{Bench, CellError};
use crate::record::Recorder;
use crate::results::Outcome;
use crate::scenario::Fsync;
use crate::{affinity, clock};

/// Bytes that overwriting goes round in.
const RING_BYTES: u64 = 4 << 20;

/// Writes and syncs as fast as the disk lets, on the server's cores.
pub(super) fn measure(bench: &Bench<'_>, case: &Fsync, peer: &str) -> Result<Outcome, CellError> {
    let cores = bench.options.run.server_cores.clone();
    let path = bench.options.data.join(format!("{}-fdatasync", std::process::id()));
    let length_ns = clock::seconds_ns(bench.seconds(case.measure_s));
    fs::create_dir_all(&bench.options.data).map_err(|error| CellError::Io("cannot create the data folder", error))?;
    // A thread of its own, so that this one stays on the generator's cores.
    let job = || -> std::io::Result<(Recorder, f64)> {
        affinity::pin(&cores)?;
        let file = OpenOptions::new().create(true).truncate(true).write(true).open(&path)?;
        let block = vec![0x5a; case.bytes as usize];
        if case.overwrite {
            file.write_all_at(&vec![0; RING_BYTES as usize + block.len()], 0)?;
            file.sync_all()?;
        }
        let mut recorder = Recorder::default();
        recorder.open(0..u64::MAX);
        let begin = clock::now_ns();
        let mut at = 0;
        let mut before = begin;
        while before - begin < length_ns {
            file.write_all_at(&block, at)?;
            file.sync_data()?;
            at += block.len() as u64;
            if case.overwrite {
                at %= RING_BYTES;
            }
            let now = clock::now_ns();
            recorder.record(before, now);
            before = now;
        }
        Ok((recorder, (before - begin) as f64 / 1e9))
    };
    let result = std::thread::scope(|scope| scope.spawn(job).join());
    let _ = fs::remove_file(&path);
    let result = result.map_err(|_| CellError::Failed("the writing thread ended early".into()))?;
    let (recorder, seconds) = result.map_err(|error| CellError::Io("cannot write to the data folder", error))?;
    let mut outcome = Outcome::new(&case.name, peer);
    outcome.set("syncs_per_s", recorder.count() as f64 / seconds);
    outcome.set_distribution("", recorder.distribution("fdatasync"));
    Ok(outcome)
}
