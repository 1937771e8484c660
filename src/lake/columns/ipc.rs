//! Rows as an Arrow IPC stream, for readers that ask for one.

use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::error::ArrowError;
use arrow::ipc::writer::StreamWriter;

use super::error::ColumnsError;
use super::layout::Layout;
use super::rows::Rows;

/// Writes lines as an Arrow IPC stream that is taken piece by piece.
pub struct IpcLines {
    rows: Rows,
    writer: StreamWriter<Shared>,
    written: Shared,
}

impl std::fmt::Debug for IpcLines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IpcLines").field("rows", &self.rows.len()).finish_non_exhaustive()
    }
}

/// Bytes that the writer has written and nobody has taken.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Shared {
    fn take(&self) -> Vec<u8> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl IpcLines {
    /// A stream of this layout.
    ///
    /// # Errors
    /// [`ColumnsError::Layout`] if Arrow cannot describe it.
    pub fn new(layout: &Layout) -> Result<Self, ColumnsError> {
        let written = Shared::default();
        let writer = StreamWriter::try_new(written.clone(), layout.arrow()).map_err(refused)?;
        Ok(Self { rows: Rows::new(layout.clone()), writer, written })
    }

    /// Takes the row at `offset`, stamped `ts_us` (microseconds): its canonical text without a line feed.
    ///
    /// # Errors
    /// [`ColumnsError::Line`] if the line is damaged.
    pub fn push(&mut self, offset: i64, ts_us: i64, line: &[u8]) -> Result<(), ColumnsError> {
        self.rows.push(offset, ts_us, line)
    }

    /// Makes a record batch of the rows so far; the bytes that are written by now.
    ///
    /// # Errors
    /// When the rows make no batch.
    pub fn piece(&mut self) -> Result<Vec<u8>, ColumnsError> {
        if self.rows.len() > 0 {
            let batch = self.rows.finish()?;
            self.writer.write(&batch).map_err(refused)?;
        }
        Ok(self.written.take())
    }

    /// Ends the stream; the rest of its bytes.
    ///
    /// # Errors
    /// As [`IpcLines::piece`].
    pub fn finish(mut self) -> Result<Vec<u8>, ColumnsError> {
        let mut bytes = self.piece()?;
        self.writer.finish().map_err(refused)?;
        bytes.append(&mut self.written.take());
        Ok(bytes)
    }
}

fn refused(error: ArrowError) -> ColumnsError {
    ColumnsError::Layout(error.to_string())
}

#[cfg(test)]
mod tests {
    use arrow::array::AsArray as _;
    use arrow::datatypes::Int64Type;
    use arrow::ipc::reader::StreamReader;

    use super::*;
    use crate::schema::Schema;

    #[test]
    fn what_is_written_is_a_stream_of_the_layout() {
        let schema = Schema::compile_text(r#"{"properties":{"a":{"type":["string","null"]}}}"#, true).expect("valid");
        for (schema, lines, texts) in [
            (schema, [r#"{"a":"x"}"#, r#"{"a":null}"#], [Some("x"), None]),
            (Schema::any_object(), [r#"{"b":[1,"é"]}"#, "{}"], [Some(r#"{"b":[1,"é"]}"#), Some("{}")]),
        ] {
            let mut ipc = IpcLines::new(&Layout::new(&schema).expect("a layout")).expect("a stream");
            let mut bytes = ipc.piece().expect("the schema");
            ipc.push(5, 70, lines[0].as_bytes()).expect("taken");
            bytes.append(&mut ipc.piece().expect("a batch"));
            ipc.push(6, 71, lines[1].as_bytes()).expect("taken");
            bytes.append(&mut ipc.finish().expect("the end"));
            let batches: Vec<_> = StreamReader::try_new(bytes.as_slice(), None)
                .expect("a stream")
                .map(|batch| batch.expect("valid"))
                .collect();
            assert_eq!(batches.len(), 2);
            for (place, batch) in batches.iter().enumerate() {
                assert_eq!(batch.column(0).as_primitive::<Int64Type>().value(0), 5 + place as i64);
                let texts_read = batch.column(1).as_string::<i32>();
                assert_eq!(texts_read.iter().next().flatten(), texts[place]);
            }
        }
    }
}
