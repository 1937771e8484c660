//! A row frame, `[offset,ts,row]` (wire.md section 3.1). The row stays the text it came as.

use std::ops::Range;

use serde_json::value::RawValue;
use tokio_tungstenite::tungstenite::Utf8Bytes;

use super::error::ClientError;

/// One row as it was received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Position in the stream; `None` on a stream without a log.
    pub offset: Option<u64>,
    /// When the broker checked the frame it came in, in UTC microseconds.
    pub ts: Option<i64>,
    frame: Utf8Bytes,
    row: Range<usize>,
}

impl Row {
    /// Reads a row frame.
    ///
    /// # Errors
    /// [`ClientError::Protocol`] when it has not the form.
    pub fn parse(frame: Utf8Bytes) -> Result<Self, ClientError> {
        let text = frame.as_str();
        let (offset, ts, row): (Option<u64>, Option<i64>, &RawValue) =
            serde_json::from_str(text).map_err(|error| ClientError::Protocol(format!("no row frame ({error})")))?;
        let row = row.get();
        if !row.starts_with('{') {
            return Err(ClientError::Protocol("a row that is no object".to_owned()));
        }
        // The raw value is a part of the frame, which lets the row share it.
        let start = row.as_ptr().addr() - text.as_ptr().addr();
        let row = start..start + row.len();
        Ok(Self { offset, ts, frame, row })
    }

    /// The frame as received, `[offset,ts,row]`.
    #[must_use]
    pub fn frame(&self) -> &str {
        self.frame.as_str()
    }

    /// The row's JSON object.
    #[must_use]
    pub fn json(&self) -> &str {
        &self.frame.as_str()[self.row.clone()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_a_frame_without_touching_the_row() {
        for (frame, offset, ts, json) in [
            ("[1,2,{\"a\":1.0}]", Some(1), Some(2), "{\"a\":1.0}"),
            ("[null,-5,{}]", None, Some(-5), "{}"),
            ("[7,null,{\"é\":[{}]}]", Some(7), None, "{\"é\":[{}]}"),
            (" [ 9 , 1 , { } ] ", Some(9), Some(1), "{ }"),
        ] {
            let row = Row::parse(frame.into()).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!((row.offset, row.ts, row.json(), row.frame()), (offset, ts, json, frame));
        }
        for bad in [
            "",
            "{}",
            "[1,2]",
            "[1,2,[]]",
            "[1,2,{},3]",
            "[1.0,2,{}]",
            "[1,2.0,{}]",
            "[-1,2,{}]",
            "[1,2,{}",
            "[\"1\",2,{}]",
        ] {
            assert!(Row::parse(bad.into()).is_err(), "{bad}");
        }
    }
}
