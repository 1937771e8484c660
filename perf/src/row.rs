//! The rows a load is made of: columns with a way to fill each, written as JSON text.

use memchr::memmem::Finder;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// One column of a row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "fill", rename_all = "snake_case", deny_unknown_fields)]
pub enum Column {
    /// When the row was due, in nanoseconds of `CLOCK_MONOTONIC`: what latency is counted from.
    Stamp { name: String },
    /// The row's number within the run.
    Index { name: String },
    /// An integer that goes round: `(index * step / every) % of`.
    Cycle {
        name: String,
        of: u64,
        #[serde(default = "one")]
        every: u64,
        #[serde(default = "one")]
        step: u64,
    },
    /// A string that goes round, such as `S007`.
    Label { name: String, prefix: String, of: u64 },
    /// A price with two digits after the point, between 50 and 150.
    Price { name: String },
    /// A constant string of so many bytes.
    Text { name: String, bytes: usize },
}

fn one() -> u64 {
    1
}

impl Column {
    fn name(&self) -> &str {
        match self {
            Self::Stamp { name }
            | Self::Index { name }
            | Self::Cycle { name, .. }
            | Self::Label { name, .. }
            | Self::Price { name }
            | Self::Text { name, .. } => name,
        }
    }

    fn json_type(&self) -> &'static str {
        match self {
            Self::Stamp { .. } | Self::Index { .. } | Self::Cycle { .. } => "integer",
            Self::Price { .. } => "number",
            Self::Label { .. } | Self::Text { .. } => "string",
        }
    }
}

/// The default row: a trade whose frame on the wire is about 120 bytes.
#[must_use]
pub fn trade() -> Vec<Column> {
    vec![
        Column::Stamp { name: "event_ts".into() },
        Column::Label { name: "symbol".into(), prefix: "S".into(), of: 100 },
        Column::Label { name: "venue".into(), prefix: "X".into(), of: 4 },
        Column::Price { name: "price".into() },
        Column::Cycle { name: "size".into(), of: 1000, every: 1, step: 7 },
        Column::Index { name: "id".into() },
    ]
}

/// What is wrong with a row's columns.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum RowError {
    #[error("a row needs exactly one column with fill = \"stamp\", not {0}")]
    Stamps(usize),
    #[error("column `{0}` is there twice")]
    Twice(String),
    #[error("column `{0}`: `of` and `every` must be at least 1")]
    Zero(String),
    #[error("column name `{0}` must be letters, digits and `_`")]
    Name(String),
    #[error("column `{0}`: a prefix must be letters, digits and `_`")]
    Prefix(String),
}

/// Writes rows. Everything that never changes is prepared text.
#[derive(Debug, Clone)]
pub struct RowWriter {
    parts: Vec<(Vec<u8>, Column)>,
    close: Vec<u8>,
    stamp_key: String,
    columns: Vec<Column>,
}

impl RowWriter {
    /// A writer for rows of `columns`, in this order.
    ///
    /// # Errors
    /// When the columns do not make a row that can carry a load; see [`RowError`].
    pub fn new(columns: &[Column]) -> Result<Self, RowError> {
        let stamps: Vec<_> = columns.iter().filter(|column| matches!(column, Column::Stamp { .. })).collect();
        let [stamp] = stamps[..] else { return Err(RowError::Stamps(stamps.len())) };
        let mut parts = Vec::new();
        let mut text = b"{".to_vec();
        for (at, column) in columns.iter().enumerate() {
            check(column, &columns[..at])?;
            if at > 0 {
                text.push(b',');
            }
            text.extend_from_slice(format!("\"{}\":", column.name()).as_bytes());
            match column {
                Column::Text { bytes, .. } => {
                    text.push(b'"');
                    text.extend((0..*bytes).map(|at| b'a' + (at % 26) as u8));
                    text.push(b'"');
                }
                other => parts.push((std::mem::take(&mut text), other.clone())),
            }
        }
        text.push(b'}');
        let stamp_key = format!("\"{}\":", stamp.name());
        Ok(Self { parts, close: text, stamp_key, columns: columns.to_vec() })
    }

    /// Appends the row with number `index`, due at `stamp_ns`.
    pub fn write(&self, out: &mut Vec<u8>, index: u64, stamp_ns: u64) {
        let mut digits = itoa::Buffer::new();
        for (text, column) in &self.parts {
            out.extend_from_slice(text);
            match column {
                Column::Stamp { .. } => out.extend_from_slice(digits.format(stamp_ns).as_bytes()),
                Column::Index { .. } => out.extend_from_slice(digits.format(index).as_bytes()),
                Column::Cycle { of, every, step, .. } => {
                    let value = index.wrapping_mul(*step) / every % of;
                    out.extend_from_slice(digits.format(value).as_bytes());
                }
                Column::Label { prefix, of, .. } => {
                    out.push(b'"');
                    out.extend_from_slice(prefix.as_bytes());
                    let value = index % of;
                    for bound in [100, 10] {
                        if value < bound {
                            out.push(b'0');
                        }
                    }
                    out.extend_from_slice(digits.format(value).as_bytes());
                    out.push(b'"');
                }
                Column::Price { .. } => push_price(out, index, &mut digits),
                Column::Text { .. } => {}
            }
        }
        out.extend_from_slice(&self.close);
    }

    /// The JSON Schema of a stream of these rows (wire.md section 12).
    #[must_use]
    pub fn schema(&self) -> Value {
        let properties: Map<String, Value> = self
            .columns
            .iter()
            .map(|column| (column.name().to_owned(), json!({ "type": column.json_type() })))
            .collect();
        let required: Vec<&str> = self.columns.iter().map(Column::name).collect();
        json!({ "type": "object", "properties": properties, "required": required })
    }

    /// A reader of the stamps that this writer writes.
    #[must_use]
    pub fn stamps(&self) -> StampReader {
        StampReader { finder: Finder::new(self.stamp_key.as_bytes()).into_owned() }
    }
}

fn check(column: &Column, before: &[Column]) -> Result<(), RowError> {
    let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let name = column.name();
    if name.is_empty() || !plain(name) {
        return Err(RowError::Name(name.to_owned()));
    }
    if before.iter().any(|other| other.name() == name) {
        return Err(RowError::Twice(name.to_owned()));
    }
    match column {
        Column::Cycle { of, every, .. } if *of == 0 || *every == 0 => Err(RowError::Zero(name.to_owned())),
        Column::Label { of: 0, .. } => Err(RowError::Zero(name.to_owned())),
        Column::Label { prefix, .. } if !plain(prefix) => Err(RowError::Prefix(name.to_owned())),
        _ => Ok(()),
    }
}

/// 50.01 to 149.99, never a whole number, so that the text is the same in every JSON dialect.
fn push_price(out: &mut Vec<u8>, index: u64, digits: &mut itoa::Buffer) {
    let cents = 5_000 + index.wrapping_mul(37) % 10_000;
    let tail = cents % 100;
    // A last digit of zero would be dropped by a server that prints the shortest form.
    let tail = if tail.is_multiple_of(10) { tail + 1 } else { tail };
    out.extend_from_slice(digits.format(cents / 100).as_bytes());
    out.push(b'.');
    if tail < 10 {
        out.push(b'0');
    }
    out.extend_from_slice(digits.format(tail).as_bytes());
}

/// Finds the stamp in any message that holds a row's text.
#[derive(Debug, Clone)]
pub struct StampReader {
    finder: Finder<'static>,
}

impl StampReader {
    /// The stamp in `message`, in nanoseconds; `None` if there is none.
    #[must_use]
    pub fn read(&self, message: &[u8]) -> Option<u64> {
        let at = self.finder.find(message)? + self.finder.needle().len();
        leading_number(&message[at..])
    }
}

/// The decimal number that `text` begins with.
#[must_use]
pub fn leading_number(text: &[u8]) -> Option<u64> {
    let mut value = 0u64;
    let mut count = 0;
    for digit in text.iter().map(|byte| byte.wrapping_sub(b'0')).take_while(|digit| *digit < 10) {
        value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
        count += 1;
    }
    (count > 0).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(writer: &RowWriter, index: u64, stamp: u64) -> String {
        let mut out = Vec::new();
        writer.write(&mut out, index, stamp);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn rows_are_json_in_column_order() {
        let writer = RowWriter::new(&trade()).unwrap();
        assert_eq!(
            text(&writer, 8, 5_000_000_000),
            r#"{"event_ts":5000000000,"symbol":"S008","venue":"X000","price":52.96,"size":56,"id":8}"#
        );
        for index in 0..2_000 {
            let row: Value = serde_json::from_str(&text(&writer, index, 1)).unwrap();
            let price = row["price"].as_f64().unwrap();
            assert!((50.0..150.0).contains(&price), "{price}");
            assert!(text(&writer, index, 1).contains(&format!("\"price\":{price},")), "shortest form");
        }
    }

    #[test]
    fn stamps_are_read_back() {
        let writer = RowWriter::new(&trade()).unwrap();
        let message = format!("[1,2,{}]", text(&writer, 1, 1_234_567_890_123));
        assert_eq!(writer.stamps().read(message.as_bytes()), Some(1_234_567_890_123));
        for missing in ["", "[1,2,{}]", "{\"event_ts\":}", "{\"event_ts\":99999999999999999999}"] {
            assert_eq!(writer.stamps().read(missing.as_bytes()), None, "{missing}");
        }
    }

    #[test]
    fn cycles_and_text() {
        let columns = [
            Column::Stamp { name: "t".into() },
            Column::Cycle { name: "c".into(), of: 10, every: 3, step: 1 },
            Column::Text { name: "x".into(), bytes: 4 },
        ];
        let writer = RowWriter::new(&columns).unwrap();
        assert_eq!(text(&writer, 31, 9), r#"{"t":9,"c":0,"x":"abcd"}"#);
        assert_eq!(writer.schema()["properties"]["c"]["type"], "integer");
        assert_eq!(writer.schema()["required"], json!(["t", "c", "x"]));
    }

    #[test]
    fn bad_columns_are_refused() {
        let stamp = Column::Stamp { name: "t".into() };
        let twice = [stamp.clone(), Column::Price { name: "t".into() }];
        assert_eq!(RowWriter::new(&[]).unwrap_err(), RowError::Stamps(0));
        assert_eq!(RowWriter::new(&twice).unwrap_err(), RowError::Twice("t".into()));
        let zero = [stamp.clone(), Column::Cycle { name: "c".into(), of: 0, every: 1, step: 1 }];
        assert_eq!(RowWriter::new(&zero).unwrap_err(), RowError::Zero("c".into()));
        let name = [stamp, Column::Price { name: "a b".into() }];
        assert_eq!(RowWriter::new(&name).unwrap_err(), RowError::Name("a b".into()));
    }
}
