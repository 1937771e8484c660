//! From committed rows to the block of frames that every subscriber gets.

use streamcast_shards::Block;

use super::stamps::Run;
use crate::stream::offsets::DurableOffset;
use crate::wire::batch::RowBatch;
use crate::wire::row::build_block;

/// The frames of `rows`, whose first has the offset `first` and whose stamps are `runs`. It takes a
/// [`DurableOffset`], so there is no block of rows that are not on disk.
pub(super) fn block(first: DurableOffset, rows: &RowBatch, runs: &[Run]) -> Block {
    let stamps: Vec<(u32, i64)> = runs.iter().map(|run| (run.rows, run.ts_us)).collect();
    build_block(Some(first.get()), &stamps, rows.iter(), rows.body.len())
}
