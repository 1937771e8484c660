//! Rows as JSON objects, one a line: read, checked and explained exactly as if they were published.

use std::io::{BufRead as _, BufReader};

use arrow::array::ArrayRef;

use super::super::error::ColumnsError;
use super::super::layout::Layout;
use super::super::rows;
use super::source::{CHUNK_BYTES, CHUNK_ROWS, Counted, ReadRows, Refused, Rows};
use crate::wire::{FrameParser, Numbering};

/// The longest line, in bytes.
pub(super) const MAX_LINE_BYTES: usize = 64 << 20;

pub(super) fn open(file: Counted, layout: &Layout) -> Box<dyn ReadRows> {
    Box::new(Lines {
        input: BufReader::with_capacity(1 << 20, file),
        layout: layout.clone(),
        parser: FrameParser::new(),
        rows: rows::Rows::new(layout.clone()),
        line: Vec::new(),
    })
}

struct Lines {
    input: BufReader<Counted>,
    layout: Layout,
    parser: FrameParser,
    rows: rows::Rows,
    line: Vec<u8>,
}

impl ReadRows for Lines {
    fn next(&mut self) -> Rows {
        loop {
            let row = self.rows.len() as u64;
            let more = read_until_newline(&mut self.input, &mut self.line).map_err(|why| Refused::Row(row, why))?;
            if more && !self.line.trim_ascii().is_empty() {
                self.take(row)?;
            }
            if !more || self.rows.len() >= CHUNK_ROWS || self.rows.bytes() >= CHUNK_BYTES {
                break;
            }
        }
        let count = self.rows.len();
        if count == 0 {
            return Ok(None);
        }
        Ok(Some((declared(&mut self.rows).map_err(|error| Refused::Damaged(error.to_string()))?, count)))
    }
}

impl Lines {
    fn take(&mut self, row: u64) -> Result<(), Refused> {
        let line = self.line.trim_ascii();
        if !line.starts_with(b"{") {
            return Err(Refused::Row(row, "a line must be one object".to_owned()));
        }
        let parsed = self.parser.parse(Some(self.layout.schema()), Numbering::Plain, line);
        let parsed = parsed.map_err(|refusal| Refused::Row(row, refusal.to_string()))?;
        for canonical in parsed.rows.iter() {
            self.rows.push(0, 0, canonical).map_err(|error| Refused::Row(row, error.to_string()))?;
        }
        Ok(())
    }
}

/// The declared columns of the rows so far.
fn declared(rows: &mut rows::Rows) -> Result<Vec<ArrayRef>, ColumnsError> {
    let batch = rows.finish()?;
    Ok(batch.columns()[1..batch.num_columns() - 1].to_vec())
}

/// Reads a line with its line feed; false at the end.
pub(super) fn read_until_newline(input: &mut BufReader<Counted>, line: &mut Vec<u8>) -> Result<bool, String> {
    line.clear();
    append_until_newline(input, line)
}

/// Appends a line with its line feed; false at the end.
pub(super) fn append_until_newline(input: &mut BufReader<Counted>, line: &mut Vec<u8>) -> Result<bool, String> {
    let before = line.len();
    loop {
        let available = match input.fill_buf() {
            Ok(available) => available,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error.to_string()),
        };
        let found = memchr::memchr(b'\n', available);
        let length = found.map_or(available.len(), |at| at + 1);
        line.extend_from_slice(&available[..length]);
        input.consume(length);
        if line.len() - before > MAX_LINE_BYTES {
            return Err(format!("its line is longer than {MAX_LINE_BYTES} bytes"));
        }
        if found.is_some() || length == 0 {
            return Ok(line.len() > before);
        }
    }
}
