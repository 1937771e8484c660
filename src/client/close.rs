//! What a broker means by a close: the code decides, the reason fills in details (wire.md section 9).

use serde_json::{Map, Value};

/// A close frame from the broker.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{kind}")]
pub struct Closed {
    /// WebSocket close code.
    pub code: u16,
    /// Reason as sent.
    pub reason: String,
    /// What they mean.
    pub kind: CloseKind,
}

/// Meaning of a close.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum CloseKind {
    /// 1000 or 1001: an orderly end. The broker or the stream stops.
    #[error("the broker ended the connection{}", spelled(.0))]
    Going(String),
    /// 4400.
    #[error("the broker refused the request: {0}")]
    BadRequest(String),
    /// 4404, with the names it serves when it told.
    #[error("there is no such stream{}", serves(.0))]
    NoSuchStream(Vec<String>),
    /// 4409.
    #[error("another connection publishes under the same id; only the newest may")]
    Superseded,
    /// 4410.
    #[error("the stream is retired: it can be read, not written")]
    Retired {
        /// When, in UTC microseconds.
        at: Option<i64>,
        /// Where its rows end.
        end_offset: Option<u64>,
    },
    /// 4412.
    #[error("this stream takes no numbered rows; publish without an id, or declare it exactly_once")]
    ExactlyOnceUnavailable,
    /// 4416.
    #[error("{0}")]
    NotReplayable(NotReplayable),
    /// 4429.
    #[error("fell too far behind: the broker keeps {} frames for a subscriber", number(.0))]
    TooSlow(Option<u64>),
    /// 1009.
    #[error("a frame is too large: {} bytes of at most {}", number(.size), number(.limit))]
    TooBig {
        /// Bytes of the frame.
        size: Option<u64>,
        /// Most bytes allowed.
        limit: Option<u64>,
    },
    /// Any other code.
    #[error("the connection was closed with code {code}{}", spelled(.reason))]
    Other {
        /// WebSocket close code.
        code: u16,
        /// Reason as sent.
        reason: String,
    },
}

/// Why an offset cannot be served (wire.md section 7.5).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotReplayable {
    /// The stream has no log.
    #[error("the stream keeps no rows; subscribe without an offset")]
    NotDurable,
    /// Beyond the end of the log.
    #[error("offset {} lies beyond the end of the stream, {}", number(.offset), number(.end_offset))]
    Ahead {
        /// Offset asked for.
        offset: Option<u64>,
        /// End of the log.
        end_offset: Option<u64>,
    },
    /// Further back than the stream's `max_replay`.
    #[error("offset {} is {} rows back; the stream replays at most {}", number(.offset), number(.behind), number(.max_replay))]
    TooOld {
        /// Offset asked for.
        offset: Option<u64>,
        /// Rows from there to the end.
        behind: Option<u64>,
        /// The bound.
        max_replay: Option<u64>,
    },
    /// No longer in the log.
    #[error("offset {} is no longer in the broker's log, which begins at {}", number(.offset), number(.earliest))]
    Evicted {
        /// Offset asked for.
        offset: Option<u64>,
        /// First offset that can be served.
        earliest: Option<u64>,
    },
    /// Something newer than this client.
    #[error("the offset cannot be served ({0})")]
    Other(String),
}

impl Closed {
    /// Reads code and reason. A reason that is not the JSON it should be never hides the code.
    #[must_use]
    pub fn new(code: u16, reason: &str) -> Self {
        let fields: Map<String, Value> = serde_json::from_str(reason).unwrap_or_default();
        let text = |key: &str| fields.get(key).and_then(Value::as_str).map(str::to_owned);
        let count = |key: &str| fields.get(key).and_then(Value::as_u64);
        let kind = match code {
            1000 | 1001 => CloseKind::Going(reason.to_owned()),
            1009 => CloseKind::TooBig { size: count("size"), limit: count("limit") },
            4400 => CloseKind::BadRequest(text("detail").unwrap_or_else(|| "no detail given".to_owned())),
            4404 => CloseKind::NoSuchStream(names(&fields)),
            4409 => CloseKind::Superseded,
            4410 => {
                CloseKind::Retired { at: fields.get("at").and_then(Value::as_i64), end_offset: count("end_offset") }
            }
            4412 => CloseKind::ExactlyOnceUnavailable,
            4416 => CloseKind::NotReplayable(match text("why").as_deref() {
                Some("not_durable") => NotReplayable::NotDurable,
                Some("ahead") => NotReplayable::Ahead { offset: count("offset"), end_offset: count("end_offset") },
                Some("too_old") => NotReplayable::TooOld {
                    offset: count("offset"),
                    behind: count("behind"),
                    max_replay: count("max_replay"),
                },
                Some("evicted") => NotReplayable::Evicted { offset: count("offset"), earliest: count("earliest") },
                other => NotReplayable::Other(other.unwrap_or("no reason given").to_owned()),
            }),
            4429 => CloseKind::TooSlow(count("backlog")),
            code => CloseKind::Other { code, reason: reason.to_owned() },
        };
        Self { code, reason: reason.to_owned(), kind }
    }

    /// Whether connecting again can help. Refusals of what was asked for stay refusals.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match &self.kind {
            CloseKind::Going(_) | CloseKind::TooSlow(_) => true,
            // 1008 is the broker's "forbidden"; the other codes of RFC 6455 name accidents.
            // 4401 asks for new credentials, which the next connection may have.
            CloseKind::Other { code, .. } => *code == 4401 || (*code < 4000 && *code != 1008),
            CloseKind::BadRequest(_)
            | CloseKind::NoSuchStream(_)
            | CloseKind::Superseded
            | CloseKind::Retired { .. }
            | CloseKind::ExactlyOnceUnavailable
            | CloseKind::NotReplayable(_)
            | CloseKind::TooBig { .. } => false,
        }
    }
}

fn names(fields: &Map<String, Value>) -> Vec<String> {
    let list = fields.get("serves").and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn serves(names: &[String]) -> String {
    if names.is_empty() { String::new() } else { format!("; the broker serves {}", names.join(", ")) }
}

fn spelled(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(": {reason}") }
}

fn number(value: &Option<u64>) -> String {
    value.map_or_else(|| "?".to_owned(), |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_decides_and_the_reason_fills_in() {
        let table: &[(u16, &str, CloseKind, bool)] = &[
            (1000, "", CloseKind::Going(String::new()), true),
            (1001, "stream stopping", CloseKind::Going("stream stopping".into()), true),
            (1008, "forbidden", CloseKind::Other { code: 1008, reason: "forbidden".into() }, false),
            (4401, "x", CloseKind::Other { code: 4401, reason: "x".into() }, true),
            (1011, "x", CloseKind::Other { code: 1011, reason: "x".into() }, true),
            (1012, "", CloseKind::Other { code: 1012, reason: String::new() }, true),
            (4400, r#"{"error":"bad_request","detail":"d"}"#, CloseKind::BadRequest("d".into()), false),
            (4400, "rubbish", CloseKind::BadRequest("no detail given".into()), false),
            (
                4404,
                r#"{"error":"no_such_stream","serves":["a","b"]}"#,
                CloseKind::NoSuchStream(vec!["a".into(), "b".into()]),
                false,
            ),
            (4409, "{}", CloseKind::Superseded, false),
            (4410, r#"{"at":5,"end_offset":6}"#, CloseKind::Retired { at: Some(5), end_offset: Some(6) }, false),
            (4412, "", CloseKind::ExactlyOnceUnavailable, false),
            (
                4416,
                r#"{"error":"not_replayable","why":"too_old","offset":1,"behind":4,"max_replay":3}"#,
                CloseKind::NotReplayable(NotReplayable::TooOld {
                    offset: Some(1),
                    behind: Some(4),
                    max_replay: Some(3),
                }),
                false,
            ),
            (
                4416,
                r#"{"why":"evicted","offset":1,"earliest":11}"#,
                CloseKind::NotReplayable(NotReplayable::Evicted { offset: Some(1), earliest: Some(11) }),
                false,
            ),
            (
                4416,
                r#"{"why":"ahead","offset":"x"}"#,
                CloseKind::NotReplayable(NotReplayable::Ahead { offset: None, end_offset: None }),
                false,
            ),
            (4416, "", CloseKind::NotReplayable(NotReplayable::Other("no reason given".into())), false),
            (4429, r#"{"error":"too_slow","backlog":4}"#, CloseKind::TooSlow(Some(4)), true),
            (
                1009,
                r#"{"error":"too_big","size":208,"limit":200}"#,
                CloseKind::TooBig { size: Some(208), limit: Some(200) },
                false,
            ),
            (4999, "new", CloseKind::Other { code: 4999, reason: "new".into() }, false),
        ];
        for (code, reason, kind, retryable) in table {
            let closed = Closed::new(*code, reason);
            assert_eq!((&closed.kind, closed.is_retryable()), (kind, *retryable), "{code} {reason}");
            assert!(!closed.to_string().is_empty());
        }
    }
}
