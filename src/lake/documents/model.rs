//! What a stream's metadata document says.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The format of a document without a retirement.
const FORMAT: u32 = 2;
/// The format of a document with one, which readers that know no retired streams refuse.
const FORMAT_RETIRED: u32 = 3;

/// The list of a stream's logs, and what is decided about them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Document {
    /// The format, 1 to 3; 3 exactly when `retirement` is there.
    pub streamcast_metadata: u32,
    /// The stream's name.
    pub stream: String,
    /// The UUID minted when it was created.
    pub stream_id: String,
    /// Finished logs, oldest first.
    pub sealed_logs: Vec<SealedLog>,
    /// The log that is written, or the last one of a retired stream.
    pub live_log: LiveLog,
    /// The file with statistics of the finished logs, in the directory of the version.
    #[serde(default)]
    pub manifest: Option<String>,
    /// How long rows are kept, in microseconds of `streamcast_ts`; for ever if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<i64>,
    /// What a retention pass has cut off and not deleted yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<Pending>,
    /// How the stream ended, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retirement: Option<Retirement>,
    /// Keys of other programs, which are kept.
    #[serde(flatten)]
    pub others: Map<String, Value>,
}

/// A log that gets no more rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SealedLog {
    /// Its name; its table is at `<published>/<name>`.
    pub name: String,
    /// The URI below which its table is.
    #[serde(default)]
    pub published: Option<String>,
    /// The first offset that the stream has in this log.
    pub start_offset: i64,
    /// The offset after its last row: where the next log starts.
    pub end_offset: i64,
    /// The lowest stamp in it, in microseconds; `None` if unknown or empty.
    #[serde(default)]
    pub start_ts: Option<i64>,
    /// The highest stamp in it, in microseconds; `None` if unknown or empty.
    #[serde(default)]
    pub end_ts: Option<i64>,
    /// Its columns in the canonical form of wire.md section 12.4.
    pub schema: Value,
    /// The columns that the broker adds.
    pub system_schema: Value,
    /// Columns its files are sorted by; `None` if unknown.
    #[serde(default)]
    pub sort_by: Option<Vec<String>>,
}

/// The log at the end of the list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LiveLog {
    /// Its name; its table is at `<published>/<name>`.
    pub name: String,
    /// The URI below which its table is.
    #[serde(default)]
    pub published: Option<String>,
    /// The first offset that the stream has in this log.
    pub start_offset: i64,
    /// The lowest stamp in it, in microseconds, once a start found rows.
    #[serde(default)]
    pub start_ts: Option<i64>,
    /// Its columns in the canonical form of wire.md section 12.4.
    pub schema: Value,
    /// The columns that the broker adds.
    pub system_schema: Value,
    /// Columns its files are sorted by; `None` if unknown.
    #[serde(default)]
    pub sort_by: Option<Vec<String>>,
}

/// What a retention pass has cut off, to be deleted an hour later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pending {
    /// The first offset that is kept.
    pub floor: i64,
    /// When it was cut off, in microseconds.
    pub at: i64,
    /// The logs that are not in the document any more.
    pub dropped: Vec<Dropped>,
}

/// A log that is not in the document any more and whose files are still there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dropped {
    /// Its name.
    pub name: String,
    /// The URI below which its table is.
    pub published: Option<String>,
}

/// How a stream ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retirement {
    /// When, in microseconds.
    pub at: i64,
    /// The offset after its last row.
    pub end_offset: i64,
    /// Columns its last log is sorted by; `None` if it is not.
    pub sort_by: Option<Vec<String>>,
    /// The lowest stamp of its last log, in microseconds.
    pub start_ts: Option<i64>,
    /// The highest stamp of its last log, in microseconds.
    pub end_ts: Option<i64>,
}

impl Document {
    /// The first document of a stream: one log, nothing finished.
    #[must_use]
    pub fn new(stream: &str, stream_id: &str, live_log: LiveLog) -> Self {
        Self {
            streamcast_metadata: FORMAT,
            stream: stream.to_owned(),
            stream_id: stream_id.to_owned(),
            sealed_logs: Vec::new(),
            live_log,
            manifest: None,
            retention: None,
            pending: None,
            retirement: None,
            others: Map::new(),
        }
    }

    /// Reads a document; the text of the error says what is wrong with it.
    ///
    /// # Errors
    /// When it is no JSON, of a format that is not known, or lacks a key.
    pub fn parse(text: &str) -> Result<Self, String> {
        let document: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if !(1..=FORMAT_RETIRED).contains(&document.streamcast_metadata) {
            return Err(format!("its format is {}, and only 1 to 3 are known", document.streamcast_metadata));
        }
        let mut end = None;
        for log in &document.sealed_logs {
            if log.start_offset > log.end_offset || end.is_some_and(|end| end > log.start_offset) {
                return Err(format!("the offsets of the log {:?} do not follow those before it", log.name));
            }
            end = Some(log.end_offset);
        }
        if end.is_some_and(|end| end > document.live_log.start_offset) {
            return Err(format!("the log {:?} starts before the one in front of it ends", document.live_log.name));
        }
        Ok(document)
    }

    /// The document as it is written, in the format that its content needs.
    #[must_use]
    pub fn text(&self) -> String {
        let format = if self.retirement.is_some() { FORMAT_RETIRED } else { FORMAT };
        let document = Self { streamcast_metadata: format, ..self.clone() };
        // panics: never, every key is text and every value is JSON already
        serde_json::to_string_pretty(&document).expect("a document is JSON")
    }

    /// The plain copy's text: it names the plain copy of the manifest, which lies beside it.
    #[must_use]
    pub fn plain_text(&self) -> String {
        let manifest = self.manifest.as_ref().map(|_| format!("{}.manifest.parquet", self.stream));
        Self { manifest, ..self.clone() }.text()
    }

    /// The columns of every log, oldest first, with the log's name.
    pub fn schemas(&self) -> impl Iterator<Item = (&str, &Value)> {
        let sealed = self.sealed_logs.iter().map(|log| (log.name.as_str(), &log.schema));
        sealed.chain(std::iter::once((self.live_log.name.as_str(), &self.live_log.schema)))
    }

    /// The name of the next log: the stream's with a number one above the highest ever used. The first log counts
    /// as 1, and logs that retention has dropped but not deleted count, too.
    #[must_use]
    pub fn next_log_name(&self) -> String {
        let names = self.sealed_logs.iter().map(|log| &log.name).chain([&self.live_log.name]);
        let dropped = self.pending.iter().flat_map(|pending| pending.dropped.iter().map(|log| &log.name));
        let highest = names.chain(dropped).filter_map(|name| log_number(&self.stream, name)).max().unwrap_or(1);
        format!("{}-v{}", self.stream, highest + 1)
    }

    /// The lowest offset a replay may start from: where the current log of a stream that was migrated starts
    /// (wire.md section 7.2); `None` if it has its first log.
    #[must_use]
    pub fn floor(&self) -> Option<i64> {
        (self.live_log.name != self.stream).then_some(self.live_log.start_offset)
    }
}

/// The number of a log: 1 for the first, `N` for `<stream>-vN`.
fn log_number(stream: &str, name: &str) -> Option<u64> {
    let rest = name.strip_prefix(stream)?;
    if rest.is_empty() {
        return Some(1);
    }
    let digits = rest.strip_prefix("-v")?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

impl LiveLog {
    /// The log as a finished one.
    #[must_use]
    pub fn seal(self, end_offset: i64, start_ts: Option<i64>, end_ts: Option<i64>) -> SealedLog {
        SealedLog {
            name: self.name,
            published: self.published,
            start_offset: self.start_offset,
            end_offset,
            start_ts: self.start_ts.or(start_ts),
            end_ts,
            schema: self.schema,
            system_schema: self.system_schema,
            sort_by: self.sort_by,
        }
    }
}

/// The columns that the broker adds to every log.
#[must_use]
pub fn system_schema() -> Value {
    json!({
        "type": "object",
        "properties": {"streamcast_ts": {"type": "integer", "format": "int64"}},
        "required": ["streamcast_ts"],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn live(name: &str, start_offset: i64) -> LiveLog {
        LiveLog {
            name: name.to_owned(),
            published: Some("s3://b/pre/t".to_owned()),
            start_offset,
            start_ts: None,
            schema: json!({"type": "object", "properties": {"z": {"type": "string"}, "a": {"type": "string"}}, "required": ["z", "a"]}),
            system_schema: system_schema(),
            sort_by: Some(vec![]),
        }
    }

    #[test]
    fn a_document_survives_being_written_and_read() {
        let mut document = Document::new("t", "fe0a68ae-5f92-4e01-82e8-427adb08b71d", live("t-v2", 21));
        document.sealed_logs.push(live("t", 1).seal(21, None, None));
        document.retention = Some(7);
        document.pending =
            Some(Pending { floor: 3, at: 9, dropped: vec![Dropped { name: "t".into(), published: None }] });
        document.others.insert("of_others".to_owned(), json!([1]));
        assert_eq!(Document::parse(&document.text()), Ok(document.clone()));
        let value: Value = serde_json::from_str(&document.text()).expect("JSON");
        assert_eq!(value["sealed_logs"][0]["end_ts"], Value::Null);
        assert!(value["live_log"].get("end_offset").is_none() && value.get("retirement").is_none());
        assert_eq!(
            value["live_log"]["schema"]["properties"].to_string(),
            r#"{"z":{"type":"string"},"a":{"type":"string"}}"#
        );
        assert_eq!(value["streamcast_metadata"], 2);
        document.retirement = Some(Retirement { at: 1, end_offset: 21, sort_by: None, start_ts: None, end_ts: None });
        let value: Value = serde_json::from_str(&document.text()).expect("JSON");
        assert_eq!(value["streamcast_metadata"], 3);
        assert_eq!(value["retirement"]["sort_by"], Value::Null);
    }

    #[test]
    fn the_next_log_is_called_by_the_highest_number_ever() {
        let mut document = Document::new("t", "id", live("t", 1));
        assert_eq!(document.next_log_name(), "t-v2");
        document.sealed_logs.push(live("t", 1).seal(2, None, None));
        document.live_log = live("t-v2", 2);
        assert_eq!(document.next_log_name(), "t-v3");
        // Retention dropped the first: counting what is left would give a name that is in use.
        document.sealed_logs.clear();
        document.live_log = live("t-v3", 2);
        assert_eq!(document.next_log_name(), "t-v4");
        document.pending =
            Some(Pending { floor: 3, at: 9, dropped: vec![Dropped { name: "t-v9".into(), published: None }] });
        assert_eq!(document.next_log_name(), "t-v10");
        assert_eq!(document.floor(), Some(2));
    }

    #[test]
    fn what_does_not_fit_is_told() {
        let mut document = Document::new("t", "id", live("t-v2", 20));
        document.sealed_logs.push(live("t", 1).seal(21, None, None));
        assert!(Document::parse(&document.text()).expect_err("overlap").contains("t-v2"));
        let newer = document.text().replace("\"streamcast_metadata\": 2", "\"streamcast_metadata\": 4");
        assert!(Document::parse(&newer).expect_err("newer").contains("its format is 4"));
        let without = document.text().replace("\"stream_id\"", "\"stream_ix\"");
        assert!(Document::parse(&without).expect_err("a key").contains("stream_id"));
    }
}
