//! Close codes and their reasons (wire.md section 9).

use super::target::OffsetParam;
use crate::schema::json::{push_i64, push_string};

/// The longest reason a close frame can carry, in bytes of UTF-8 (RFC 6455 section 5.5).
pub const MAX_REASON_BYTES: usize = 123;

/// The longest `detail`, in characters, before it is put into a reason.
pub const MAX_DETAIL_CHARS: usize = 80;

/// Why the server closes a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CloseReason {
    /// 4400: the request target or its filter cannot be understood.
    BadRequest {
        /// What is wrong, for a person. Must not contain the word that section 9.3 reserves.
        detail: String,
    },
    /// 4401: what the caller showed has expired or is no longer accepted. It may come back with something new.
    CredentialsExpired,
    /// 4404: no stream of that name, or none that is active.
    NoSuchStream {
        /// The sorted names of the static streams; `None` with a registry.
        serves: Option<Vec<String>>,
    },
    /// 4409: a newer connection claimed the exactly-once id.
    Superseded,
    /// 4410: nobody publishes to a retired stream.
    StreamRetired {
        /// When it was retired, microseconds since the epoch.
        at_us: i64,
        /// The offset after its last row.
        end_offset: i64,
    },
    /// 4412: the stream has no exactly-once publishing.
    ExactlyOnceUnavailable,
    /// 4416: a stream without a log has no replay.
    NotDurable,
    /// 4416: the offset is beyond the frontier.
    Ahead {
        /// The requested offset.
        offset: OffsetParam,
        /// The frontier.
        end_offset: i64,
    },
    /// 4416: more rows would be replayed than the stream allows.
    TooOld {
        /// The offset the replay would start at.
        offset: i64,
        /// How many rows lie between it and the frontier.
        behind: i64,
        /// The stream's limit in rows.
        max_replay: i64,
    },
    /// 4416: the offset's rows are no longer here.
    Evicted {
        /// The requested offset.
        offset: i64,
        /// The first offset that can be served.
        earliest: i64,
    },
    /// 4429: the subscriber fell further behind than the stream allows.
    TooSlow {
        /// The stream's `max_backlog` in frames.
        backlog: u64,
    },
    /// 1001: writes are fenced.
    WritesFenced,
    /// 1001: the stream is being taken offline.
    StreamStopping,
    /// 1001: the server is shutting down.
    ServerShuttingDown,
    /// 1001: the connection's handler was cancelled.
    ConnectionEnding,
    /// 1002: the peer broke the WebSocket protocol.
    ProtocolError,
    /// 1007: a text frame was not UTF-8.
    InvalidUtf8,
    /// 1008: the parsed request is not allowed.
    Forbidden,
    /// 1009: a publish frame is over the stream's limit.
    TooBig {
        /// The frame's size in bytes.
        size: u64,
        /// The limit in bytes.
        limit: u64,
        /// The stream's name.
        stream: String,
    },
    /// 1009: a frame is over the transport's limit.
    FrameTooLarge,
    /// 1011: something failed that should not have.
    Unexpected,
    /// 1011: the peer did not answer a ping in time.
    KeepaliveTimeout,
}

impl CloseReason {
    /// The close code.
    #[must_use]
    pub fn code(&self) -> u16 {
        match self {
            CloseReason::WritesFenced
            | CloseReason::StreamStopping
            | CloseReason::ServerShuttingDown
            | CloseReason::ConnectionEnding => 1001,
            CloseReason::ProtocolError => 1002,
            CloseReason::InvalidUtf8 => 1007,
            CloseReason::Forbidden => 1008,
            CloseReason::TooBig { .. } | CloseReason::FrameTooLarge => 1009,
            CloseReason::Unexpected | CloseReason::KeepaliveTimeout => 1011,
            CloseReason::BadRequest { .. } => 4400,
            CloseReason::CredentialsExpired => 4401,
            CloseReason::NoSuchStream { .. } => 4404,
            CloseReason::Superseded => 4409,
            CloseReason::StreamRetired { .. } => 4410,
            CloseReason::ExactlyOnceUnavailable => 4412,
            CloseReason::NotDurable
            | CloseReason::Ahead { .. }
            | CloseReason::TooOld { .. }
            | CloseReason::Evicted { .. } => 4416,
            CloseReason::TooSlow { .. } => 4429,
        }
    }

    /// The reason text, at most [`MAX_REASON_BYTES`].
    #[must_use]
    pub fn reason(&self) -> String {
        match self {
            CloseReason::BadRequest { detail } => {
                let detail: String = detail.chars().take(MAX_DETAIL_CHARS).collect();
                json("bad_request", &[("detail", Member::Text(&detail))])
            }
            CloseReason::NoSuchStream { serves: Some(names) } => {
                json("no_such_stream", &[("serves", Member::Names(names))])
            }
            CloseReason::NoSuchStream { serves: None } => json("no_such_stream", &[]),
            CloseReason::CredentialsExpired => json("credentials_expired", &[]),
            CloseReason::Superseded => json("superseded", &[]),
            CloseReason::StreamRetired { at_us, end_offset } => {
                json("stream_retired", &[("at", Member::Int(*at_us)), ("end_offset", Member::Int(*end_offset))])
            }
            CloseReason::ExactlyOnceUnavailable => json("exactly_once_unavailable", &[("why", Member::Text("stream"))]),
            CloseReason::NotDurable => json("not_replayable", &[("why", Member::Text("not_durable"))]),
            CloseReason::Ahead { offset, end_offset } => json(
                "not_replayable",
                &[
                    ("why", Member::Text("ahead")),
                    ("offset", Member::Offset(offset)),
                    ("end_offset", Member::Int(*end_offset)),
                ],
            ),
            CloseReason::TooOld { offset, behind, max_replay } => json(
                "not_replayable",
                &[
                    ("why", Member::Text("too_old")),
                    ("offset", Member::Int(*offset)),
                    ("behind", Member::Int(*behind)),
                    ("max_replay", Member::Int(*max_replay)),
                ],
            ),
            CloseReason::Evicted { offset, earliest } => json(
                "not_replayable",
                &[
                    ("why", Member::Text("evicted")),
                    ("offset", Member::Int(*offset)),
                    ("earliest", Member::Int(*earliest)),
                ],
            ),
            CloseReason::TooSlow { backlog } => json("too_slow", &[("backlog", Member::Size(*backlog))]),
            CloseReason::TooBig { size, limit, stream } => json(
                "too_big",
                &[("size", Member::Size(*size)), ("limit", Member::Size(*limit)), ("stream", Member::Text(stream))],
            ),
            CloseReason::WritesFenced | CloseReason::Unexpected => "stream unavailable".to_owned(),
            CloseReason::StreamStopping => "stream stopping".to_owned(),
            CloseReason::ServerShuttingDown => "server shutting down".to_owned(),
            CloseReason::ConnectionEnding => "connection ending".to_owned(),
            CloseReason::ProtocolError => "protocol error".to_owned(),
            CloseReason::InvalidUtf8 => String::new(),
            CloseReason::Forbidden => "forbidden".to_owned(),
            CloseReason::FrameTooLarge => "frame too large".to_owned(),
            CloseReason::KeepaliveTimeout => "keepalive ping timeout".to_owned(),
        }
    }
}

enum Member<'a> {
    Int(i64),
    Size(u64),
    Offset(&'a OffsetParam),
    Text(&'a str),
    Names(&'a [String]),
}

/// A reason as JSON; members are dropped from the last on until it fits.
fn json(error: &str, members: &[(&str, Member<'_>)]) -> String {
    let mut out = b"{\"error\":".to_vec();
    push_string(&mut out, error);
    for (key, member) in members {
        let before = out.len();
        out.push(b',');
        push_string(&mut out, key);
        out.push(b':');
        push_member(&mut out, member);
        if out.len() + 1 > MAX_REASON_BYTES {
            out.truncate(before);
            break;
        }
    }
    out.push(b'}');
    // Everything pushed comes from `str`s and ASCII literals.
    String::from_utf8(out).unwrap_or_default()
}

fn push_member(out: &mut Vec<u8>, member: &Member<'_>) {
    match member {
        Member::Int(value) | Member::Offset(OffsetParam::At(value)) => push_i64(out, *value),
        Member::Offset(OffsetParam::BeyondI64(digits)) => out.extend_from_slice(digits.as_bytes()),
        Member::Size(value) => out.extend_from_slice(itoa::Buffer::new().format(*value).as_bytes()),
        Member::Text(text) => push_string(out, text),
        Member::Names(names) => {
            out.push(b'[');
            for (index, name) in names.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                push_string(out, name);
            }
            out.push(b']');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(reason: CloseReason, code: u16, text: &str) {
        assert_eq!((reason.code(), reason.reason().as_str()), (code, text));
    }

    #[test]
    fn the_table_of_section_9() {
        check(CloseReason::BadRequest { detail: "x".to_owned() }, 4400, r#"{"error":"bad_request","detail":"x"}"#);
        let serves = Some(vec![String::new(), "a\"b".to_owned(), "\u{e9}".to_owned()]);
        check(
            CloseReason::NoSuchStream { serves },
            4404,
            "{\"error\":\"no_such_stream\",\"serves\":[\"\",\"a\\\"b\",\"\u{e9}\"]}",
        );
        check(CloseReason::NoSuchStream { serves: None }, 4404, r#"{"error":"no_such_stream"}"#);
        check(CloseReason::CredentialsExpired, 4401, r#"{"error":"credentials_expired"}"#);
        check(CloseReason::Superseded, 4409, r#"{"error":"superseded"}"#);
        check(
            CloseReason::StreamRetired { at_us: 1, end_offset: 2 },
            4410,
            r#"{"error":"stream_retired","at":1,"end_offset":2}"#,
        );
        check(CloseReason::ExactlyOnceUnavailable, 4412, r#"{"error":"exactly_once_unavailable","why":"stream"}"#);
        check(CloseReason::NotDurable, 4416, r#"{"error":"not_replayable","why":"not_durable"}"#);
        check(
            CloseReason::Ahead { offset: OffsetParam::At(7), end_offset: 6 },
            4416,
            r#"{"error":"not_replayable","why":"ahead","offset":7,"end_offset":6}"#,
        );
        check(
            CloseReason::TooOld { offset: 1, behind: 4, max_replay: 3 },
            4416,
            r#"{"error":"not_replayable","why":"too_old","offset":1,"behind":4,"max_replay":3}"#,
        );
        check(
            CloseReason::Evicted { offset: 1, earliest: 11 },
            4416,
            r#"{"error":"not_replayable","why":"evicted","offset":1,"earliest":11}"#,
        );
        check(CloseReason::TooSlow { backlog: 4 }, 4429, r#"{"error":"too_slow","backlog":4}"#);
        check(CloseReason::WritesFenced, 1001, "stream unavailable");
        check(CloseReason::StreamStopping, 1001, "stream stopping");
        check(CloseReason::ServerShuttingDown, 1001, "server shutting down");
        check(CloseReason::ConnectionEnding, 1001, "connection ending");
        check(CloseReason::ProtocolError, 1002, "protocol error");
        check(CloseReason::InvalidUtf8, 1007, "");
        check(CloseReason::Forbidden, 1008, "forbidden");
        check(
            CloseReason::TooBig { size: 208, limit: 200, stream: "r".to_owned() },
            1009,
            r#"{"error":"too_big","size":208,"limit":200,"stream":"r"}"#,
        );
        check(CloseReason::FrameTooLarge, 1009, "frame too large");
        check(CloseReason::Unexpected, 1011, "stream unavailable");
        check(CloseReason::KeepaliveTimeout, 1011, "keepalive ping timeout");
    }

    #[test]
    fn the_last_member_goes_first() {
        let digits = OffsetParam::BeyondI64("9".repeat(60));
        check(
            CloseReason::Ahead { offset: digits, end_offset: 6 },
            4416,
            &format!(r#"{{"error":"not_replayable","why":"ahead","offset":{}}}"#, "9".repeat(60)),
        );
        let serves = Some((0..100).map(|index| format!("stream_{index}")).collect());
        check(CloseReason::NoSuchStream { serves }, 4404, r#"{"error":"no_such_stream"}"#);
        let stream = "s".repeat(100);
        check(CloseReason::TooBig { size: 2, limit: 1, stream }, 1009, r#"{"error":"too_big","size":2,"limit":1}"#);
    }

    #[test]
    fn a_reason_of_the_longest_length_is_kept_whole() {
        let empty = CloseReason::NoSuchStream { serves: Some(vec![String::new()]) }.reason().len();
        for (length, kept) in [(MAX_REASON_BYTES - empty, true), (MAX_REASON_BYTES - empty + 1, false)] {
            let reason = CloseReason::NoSuchStream { serves: Some(vec!["n".repeat(length)]) }.reason();
            assert_eq!(reason.contains("serves"), kept);
            assert!(reason.len() <= MAX_REASON_BYTES);
        }
    }

    #[test]
    fn details_are_cut_to_characters_and_dropped_when_still_too_long() {
        let reason = |detail: String| CloseReason::BadRequest { detail }.reason();
        let cut = reason("x".repeat(500));
        assert_eq!(cut, format!("{{\"error\":\"bad_request\",\"detail\":\"{}\"}}", "x".repeat(MAX_DETAIL_CHARS)));
        assert_eq!(reason("\u{e9}".repeat(80)), r#"{"error":"bad_request"}"#);
        assert_eq!(reason("\"".repeat(80)), r#"{"error":"bad_request"}"#);
        assert!(reason("\u{e9}".repeat(40)).contains(&"\u{e9}".repeat(40)));
    }
}
