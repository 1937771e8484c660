//! The first frame of every accepted connection (wire.md section 2.1).

use crate::schema::json::{push_i64, push_string};

/// The wire protocol this server speaks.
const PROTOCOL: &str = "4";

/// What a greeting tells.
#[derive(Debug, Default, Clone, Copy)]
pub struct Greeting<'a> {
    /// The stream's name; empty for the unnamed stream.
    pub stream: &'a str,
    /// The frontier at attach; `None` without a log.
    pub end_offset: Option<i64>,
    /// The half-open window of the replay, if one was asked for.
    pub replay: Option<(i64, i64)>,
    /// Whether a log is attached.
    pub durable: bool,
    /// Whether publish frames may share a transaction.
    pub group_commit: bool,
    /// The canonical schema, JSON text.
    pub schema: Option<&'a str>,
    /// URI of the plain metadata copy.
    pub metadata: Option<&'a str>,
    /// URI of the metadata's version hint.
    pub metadata_hint: Option<&'a str>,
    /// The stream's UUID.
    pub stream_id: Option<&'a str>,
    /// The applied filter as requested, JSON text.
    pub filter: Option<&'a str>,
    /// The mark of an exactly-once connection; the key is absent otherwise.
    pub publisher: Option<PublisherMark<'a>>,
}

/// How far an exactly-once publisher has come.
#[derive(Debug, Clone, Copy)]
pub struct PublisherMark<'a> {
    /// Its id.
    pub id: &'a str,
    /// The number of its last appended row; 0 before the first.
    pub last_seq: u64,
    /// That row's offset, `None` while `last_seq` is 0.
    pub last_offset: Option<i64>,
}

impl Greeting<'_> {
    /// The greeting's JSON: the payload of a text frame.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut out = Vec::with_capacity(512 + self.schema.map_or(0, str::len));
        out.extend_from_slice(b"{\"streamcast\":");
        out.extend_from_slice(PROTOCOL.as_bytes());
        key(&mut out, "stream");
        push_string(&mut out, self.stream);
        key(&mut out, "end_offset");
        integer(&mut out, self.end_offset);
        key(&mut out, "replay");
        match self.replay {
            Some((start, end)) => {
                out.push(b'[');
                push_i64(&mut out, start);
                out.push(b',');
                push_i64(&mut out, end);
                out.push(b']');
            }
            None => out.extend_from_slice(b"null"),
        }
        key(&mut out, "durable");
        boolean(&mut out, self.durable);
        key(&mut out, "group_commit");
        boolean(&mut out, self.group_commit);
        key(&mut out, "schema");
        out.extend_from_slice(self.schema.unwrap_or("null").as_bytes());
        for (name, text) in
            [("metadata", self.metadata), ("metadata_hint", self.metadata_hint), ("stream_id", self.stream_id)]
        {
            key(&mut out, name);
            match text {
                Some(text) => push_string(&mut out, text),
                None => out.extend_from_slice(b"null"),
            }
        }
        key(&mut out, "where");
        out.extend_from_slice(self.filter.unwrap_or("null").as_bytes());
        if let Some(mark) = self.publisher {
            key(&mut out, "publisher");
            out.extend_from_slice(b"{\"id\":");
            push_string(&mut out, mark.id);
            key(&mut out, "last_seq");
            out.extend_from_slice(itoa::Buffer::new().format(mark.last_seq).as_bytes());
            key(&mut out, "last_offset");
            integer(&mut out, mark.last_offset);
            out.push(b'}');
        }
        out.push(b'}');
        // Everything pushed comes from `str`s and ASCII literals.
        String::from_utf8(out).unwrap_or_default()
    }
}

fn key(out: &mut Vec<u8>, name: &str) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
}

fn integer(out: &mut Vec<u8>, value: Option<i64>) {
    match value {
        Some(value) => push_i64(out, value),
        None => out.extend_from_slice(b"null"),
    }
}

fn boolean(out: &mut Vec<u8>, value: bool) {
    out.extend_from_slice(if value { b"true" } else { b"false" });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_live_only_stream() {
        let greeting = Greeting { stream: "live", ..Greeting::default() };
        assert_eq!(
            greeting.to_json(),
            "{\"streamcast\":4,\"stream\":\"live\",\"end_offset\":null,\"replay\":null,\"durable\":false,\
             \"group_commit\":false,\"schema\":null,\"metadata\":null,\"metadata_hint\":null,\"stream_id\":null,\
             \"where\":null}"
        );
    }

    #[test]
    fn a_durable_stream_and_an_exactly_once_mark() {
        let greeting = Greeting {
            stream: "a\"b",
            end_offset: Some(6),
            replay: Some((2, 6)),
            durable: true,
            group_commit: true,
            schema: Some("{}"),
            metadata: Some("file:///t.metadata.json"),
            metadata_hint: Some("file:///hint"),
            stream_id: Some("79c6ab49-7ea5-482d-8bb0-9eef7a4b4b14"),
            filter: Some("{\"a\":1.0}"),
            publisher: Some(PublisherMark { id: "en r/1", last_seq: u64::MAX, last_offset: Some(5) }),
        };
        assert_eq!(
            greeting.to_json(),
            "{\"streamcast\":4,\"stream\":\"a\\\"b\",\"end_offset\":6,\"replay\":[2,6],\"durable\":true,\
             \"group_commit\":true,\"schema\":{},\"metadata\":\"file:///t.metadata.json\",\"metadata_hint\":\
             \"file:///hint\",\"stream_id\":\"79c6ab49-7ea5-482d-8bb0-9eef7a4b4b14\",\"where\":{\"a\":1.0},\
             \"publisher\":{\"id\":\"en r/1\",\"last_seq\":18446744073709551615,\"last_offset\":5}}"
        );
    }
}
