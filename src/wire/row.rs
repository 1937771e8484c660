//! Row frames, `[offset,ts,row]` (wire.md section 3.1).

use streamcast_shards::Block;
use streamcast_shards::frame::{self, opcode};

/// What a frame adds to a row at most: a header of 10 bytes, two integers of up to 20, brackets and commas.
const OVERHEAD_BYTES: usize = 56;

/// Appends the WebSocket text frame of one row. `offset` is `None` where nothing assigns offsets; `ts_us` are
/// microseconds since the epoch; `row` is canonical JSON.
#[inline]
pub fn push_row_frame(out: &mut Vec<u8>, offset: Option<i64>, ts_us: i64, row: &[u8]) {
    let mut offset_digits = itoa::Buffer::new();
    let mut ts_digits = itoa::Buffer::new();
    let offset = offset.map_or("null", |offset| offset_digits.format(offset));
    let ts = ts_digits.format(ts_us);
    out.reserve(row.len() + OVERHEAD_BYTES);
    frame::push_header(out, opcode::TEXT, offset.len() + ts.len() + row.len() + 4);
    out.push(b'[');
    out.extend_from_slice(offset.as_bytes());
    out.push(b',');
    out.extend_from_slice(ts.as_bytes());
    out.push(b',');
    out.extend_from_slice(row);
    out.push(b']');
}

/// Builds the block of rows that were committed together.
///
/// `stamps` holds one `(rows, ts_us)` per publish frame, in order; `rows` yields as many rows as they say together.
/// `body_bytes` is about the length of all rows and only saves reallocations. All frames of a block must stay below
/// 4 GiB: the caller bounds what it commits at once.
#[must_use]
pub fn build_block<'a>(
    first_offset: Option<i64>,
    stamps: &[(u32, i64)],
    rows: impl Iterator<Item = &'a [u8]>,
    body_bytes: usize,
) -> Block {
    let count: usize = stamps.iter().map(|&(rows, _)| rows as usize).sum();
    let mut block = Block {
        frames: Vec::with_capacity(body_bytes + count * OVERHEAD_BYTES),
        ends: Vec::with_capacity(count),
        end_offset: None,
    };
    let stamps = stamps.iter().flat_map(|&(rows, ts_us)| std::iter::repeat_n(ts_us, rows as usize));
    let mut offset = first_offset;
    for (row, ts_us) in rows.zip(stamps) {
        push_row_frame(&mut block.frames, offset, ts_us, row);
        debug_assert!(u32::try_from(block.frames.len()).is_ok(), "a block stays below 4 GiB");
        block.ends.push(block.frames.len() as u32);
        offset = offset.map(|offset| offset + 1);
    }
    debug_assert_eq!(block.ends.len(), count, "the stamps count the rows");
    block.end_offset = offset;
    block
}

/// The row inside a frame that [`push_row_frame`] built; empty for any other bytes.
#[must_use]
pub fn row_of_frame(frame: &[u8]) -> &[u8] {
    let payload = frame::payload(frame);
    let mut commas = memchr::memchr_iter(b',', payload);
    match (commas.next(), commas.next()) {
        (Some(_), Some(second)) => payload.get(second + 1..payload.len() - 1).unwrap_or_default(),
        _ => &[],
    }
}
