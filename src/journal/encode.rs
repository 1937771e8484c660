//! From committed rows to the block of frames that every subscriber gets.

use streamcast_shards::Block;

use super::stamps::Run;
use crate::stream::offsets::DurableOffset;
use crate::wire::batch::RowBatch;
use crate::wire::row::{build_block, row_frame_bytes};

/// The frames of `rows`, whose first has the offset `first` and whose stamps are `runs`, and how many bytes they take. It
/// takes a [`DurableOffset`], so there is no block of rows that are not on disk.
pub(super) fn block(first: DurableOffset, rows: &RowBatch, runs: &[Run]) -> (Block, u64) {
    let stamps: Vec<(u32, i64)> = runs.iter().map(|run| (run.rows, run.ts_us)).collect();
    let block = build_block(Some(first.get()), &stamps, rows.iter(), rows.body.len());
    let bytes = block.frames.len() as u64;
    (block, bytes)
}

/// What [`block`] comes to where nobody gets the frames: where the stream ends, and how many bytes they would take.
pub(super) fn unsent(first: DurableOffset, rows: &RowBatch, runs: &[Run]) -> (Block, u64) {
    let stamps = runs.iter().flat_map(|run| std::iter::repeat_n(run.ts_us, run.rows as usize));
    let frames = rows.iter().zip(stamps).zip(first.get()..);
    let bytes = frames.map(|((row, ts_us), offset)| row_frame_bytes(Some(offset), ts_us, row.len()) as u64).sum();
    (Block { end_offset: Some(first.get() + rows.count() as i64), ..Block::default() }, bytes)
}
