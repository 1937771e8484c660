//! Entries as record batches.

use super::error::ApiError;
use super::render;
use super::service::Stream;
use crate::lake::columns::{ColumnsError, IpcLines, Layout};
use crate::schema::Schema;

/// An Arrow IPC stream in the making.
#[derive(Debug)]
pub struct Table(IpcLines);

impl Table {
    /// A stream with the columns of `stream`'s table.
    ///
    /// # Errors
    /// 503 if its columns have no form as a table; a stream with a log is not served then.
    pub fn new(stream: &Stream) -> Result<Self, ApiError> {
        let any = Schema::any_object();
        let layout = Layout::new(stream.served.schema.as_ref().unwrap_or(&any));
        let lines = layout.and_then(|layout| IpcLines::new(&layout));
        lines.map(Self).map_err(|error| damaged(&error))
    }

    /// Takes a page of row frames; the bytes so far.
    ///
    /// # Errors
    /// When a row is damaged.
    pub fn page(&mut self, frames: &[Vec<u8>]) -> Result<Vec<u8>, ApiError> {
        let mut pushed = Ok(());
        for page in frames {
            render::rows(page, |offset, ts_us, row| {
                pushed = self.0.push(offset, ts_us, row);
                pushed.is_ok()
            });
        }
        pushed.and_then(|()| self.0.piece()).map_err(|error| damaged(&error))
    }

    /// Ends the stream; the rest of its bytes.
    ///
    /// # Errors
    /// When the last rows make no batch.
    pub fn finish(self) -> Result<Vec<u8>, ApiError> {
        self.0.finish().map_err(|error| damaged(&error))
    }
}

fn damaged(error: &ColumnsError) -> ApiError {
    tracing::error!(%error, "rows cannot be written as record batches");
    ApiError::unavailable(error.to_string())
}
