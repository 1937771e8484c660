//! The first frame of every accepted connection (wire.md section 2).

use serde::Deserialize;
use serde_json::Value;

use super::error::ClientError;

/// What the broker says about the stream. Keys this client does not know are ignored.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Greeting {
    /// Protocol version: 4 or 5.
    pub streamcast: u64,
    /// The stream's name.
    #[serde(default)]
    pub stream: String,
    /// Offset the next row gets; `None` for a stream without a log.
    pub end_offset: Option<u64>,
    /// Half-open range of the replay; `None` without one.
    #[serde(default)]
    pub replay: Option<(u64, u64)>,
    /// Whether rows are logged.
    #[serde(default)]
    pub durable: bool,
    /// The stream's schema in canonical form.
    #[serde(default)]
    pub schema: Option<Value>,
    /// Stable identity of the stream.
    #[serde(default)]
    pub stream_id: Option<String>,
    /// The mark of an exactly-once publisher.
    #[serde(default)]
    pub publisher: Option<Mark>,
}

/// How far a publisher's numbered rows are stored (wire.md section 5).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Mark {
    /// The publisher's id.
    #[serde(default)]
    pub id: String,
    /// Number of the last stored row; 0 when there is none.
    #[serde(default)]
    pub last_seq: u64,
    /// Its offset.
    #[serde(default)]
    pub last_offset: Option<u64>,
}

impl Greeting {
    /// Reads a greeting.
    ///
    /// # Errors
    /// [`ClientError::Protocol`] when the frame is none, or of a version this client does not know.
    pub fn parse(frame: &str) -> Result<Self, ClientError> {
        if !frame.starts_with('{') {
            return Err(ClientError::Protocol("the first frame is no greeting".to_owned()));
        }
        let greeting: Self = serde_json::from_str(frame)
            .map_err(|error| ClientError::Protocol(format!("the first frame is no greeting ({error})")))?;
        match greeting.streamcast {
            4 | 5 => Ok(greeting),
            other => Err(ClientError::Protocol(format!("protocol version {other}; this client speaks 4 and 5"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_keys_it_needs() {
        let full = r#"{"streamcast":4,"stream":"t","end_offset":5,"replay":[2,5],"durable":true,"group_commit":true,"schema":{"type":"object"},"metadata":null,"metadata_hint":null,"stream_id":"x","where":null,"publisher":{"id":"p","last_seq":3,"last_offset":4}}"#;
        let greeting = Greeting::parse(full).expect("a greeting");
        assert_eq!((greeting.end_offset, greeting.replay), (Some(5), Some((2, 5))));
        assert_eq!(greeting.publisher, Some(Mark { id: "p".into(), last_seq: 3, last_offset: Some(4) }));
        let live = r#"{"streamcast":5,"stream":"l","end_offset":null,"new":{}}"#;
        assert!(Greeting::parse(live).is_ok_and(|greeting| !greeting.durable && greeting.stream_id.is_none()));
        for bad in ["", "[1,2,{}]", "{}", r#"{"streamcast":"4"}"#, r#"{"streamcast":true}"#, r#"{"streamcast":3}"#] {
            assert!(matches!(Greeting::parse(bad), Err(ClientError::Protocol(_))), "{bad}");
        }
    }
}
