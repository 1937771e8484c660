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

/// The bytes of the frame that [`push_row_frame`] appends for a row of `row_bytes` bytes.
#[must_use]
#[inline]
pub fn row_frame_bytes(offset: Option<i64>, ts_us: i64, row_bytes: usize) -> usize {
    let payload = offset.map_or("null".len(), printed_bytes) + printed_bytes(ts_us) + row_bytes + 4;
    frame::header_bytes(payload) + payload
}

/// How many bytes a number takes in decimal.
#[inline]
fn printed_bytes(number: i64) -> usize {
    let digits = number.unsigned_abs().checked_ilog10().unwrap_or(0) as usize + 1;
    digits + usize::from(number < 0)
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

/// The row inside a frame that [`push_row_frame`] built.
#[must_use]
pub fn row_of_frame(frame: &[u8]) -> &[u8] {
    let payload = frame::payload(frame);
    let mut commas = memchr::memchr_iter(b',', payload);
    match (commas.next(), commas.next()) {
        (Some(_), Some(second)) => payload.get(second + 1..payload.len() - 1).unwrap_or_default(),
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(offset: Option<i64>, ts_us: i64, row: &str) -> String {
        let mut out = Vec::new();
        push_row_frame(&mut out, offset, ts_us, row.as_bytes());
        assert_eq!(out[0], 0x81, "one unfragmented text frame");
        assert_eq!(out[1] & 0x80, 0, "unmasked");
        assert_eq!(row_of_frame(&out), row.as_bytes());
        String::from_utf8(frame::payload(&out).to_vec()).unwrap()
    }

    #[test]
    fn frames() {
        assert_eq!(payload(Some(1), 1_700_000_000_000_000, "{}"), "[1,1700000000000000,{}]");
        assert_eq!(payload(None, -1, "{\"a\":[1,2]}"), "[null,-1,{\"a\":[1,2]}]");
        assert_eq!(payload(Some(i64::MAX), i64::MIN, "{}"), "[9223372036854775807,-9223372036854775808,{}]");
    }

    #[test]
    fn headers_of_every_length() {
        for length in [100, 120, 121, 122, 123, 65_529, 65_530, 65_531, 70_000] {
            let row = format!("{{\"a\":\"{}\"}}", "x".repeat(length - 8));
            let text = payload(Some(1), 2, &row);
            assert_eq!(text, format!("[1,2,{row}]"));
        }
    }

    #[test]
    fn the_length_of_a_frame_is_known_without_it() {
        let rows = [2, 99, 100, 101, 120, 65_509, 65_510, 65_511, 70_000].map(|length| "x".repeat(length));
        for offset in [None, Some(0), Some(9), Some(10), Some(999_999), Some(1_000_000), Some(i64::MAX)] {
            for ts_us in [0, -1, 1, 1_700_000_000_000_000, i64::MIN, i64::MAX] {
                for row in &rows {
                    let mut out = Vec::new();
                    push_row_frame(&mut out, offset, ts_us, row.as_bytes());
                    assert_eq!(
                        row_frame_bytes(offset, ts_us, row.len()),
                        out.len(),
                        "{offset:?} {ts_us} {}",
                        row.len()
                    );
                }
            }
        }
    }

    #[test]
    fn blocks_number_their_rows_and_share_stamps() {
        let rows: [&[u8]; 3] = [b"{}", b"{\"a\":1}", b"{}"];
        let block = build_block(Some(5), &[(2, 70), (1, 80)], rows.into_iter(), 20);
        let payloads: Vec<&[u8]> = (0..block.count()).map(|index| frame::payload(block.frame(index))).collect();
        assert_eq!(payloads, [&b"[5,70,{}]"[..], b"[6,70,{\"a\":1}]", b"[7,80,{}]"]);
        assert_eq!(block.end_offset, Some(8));
        let block = build_block(None, &[(1, 70)], rows[..1].iter().copied(), 0);
        assert_eq!(frame::payload(block.frame(0)), b"[null,70,{}]");
        assert_eq!(block.end_offset, None);
    }
}
