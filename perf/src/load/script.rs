//! What an HTTP client asks, one request after the other.

use std::fmt;
use std::io::Write as _;

use serde_json::{Value, json};

use super::beside::Counts;
use crate::net::http::Answer;

/// How long an operation is left alone between two looks at it.
const LOOK_NS: u64 = 5_000_000;

/// Seconds that a page may wait for its first row.
const WAIT_S: u32 = 30;

/// A client.
#[derive(Debug)]
pub enum Script {
    /// Follows a stream by server-sent events.
    Events { host: String, stream: String },
    /// Follows a stream by pages, each asked for when the one before is there.
    Pages { host: String, stream: String, after: String },
    /// Declares a stream, serves and stops it, creates another by the batch API and deletes it, and begins again.
    Storm(Box<Storm>),
    /// Asks nothing any more.
    Failed,
}

/// When the next request goes out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    Now,
    /// After so many nanoseconds.
    After(u64),
}

/// Where a storm is in its round.
#[derive(Debug)]
pub struct Storm {
    host: String,
    number: usize,
    schema: Value,
    round: u64,
    step: Step,
    /// Requests so far: what makes keys differ.
    requests: u64,
    revision: String,
    operation: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Declare,
    Serve,
    Serving,
    Stop,
    Stopping,
    Create,
    Delete,
}

impl Script {
    /// A storm, told apart from others by `number`, that declares streams of `schema`.
    #[must_use]
    pub fn storm(host: String, number: usize, schema: Value) -> Self {
        let step = Step::Declare;
        let (round, requests, revision, operation) = (0, 0, String::new(), String::new());
        Self::Storm(Box::new(Storm { host, number, schema, round, step, requests, revision, operation }))
    }

    /// Whether the answer goes on for ever.
    #[must_use]
    pub fn is_endless(&self) -> bool {
        matches!(self, Self::Events { .. })
    }

    /// The next request.
    #[must_use]
    pub fn request(&mut self) -> Option<Vec<u8>> {
        match self {
            Self::Events { host, stream } => {
                Some(get(host, &format!("/v1/streams/{stream}/entries?after=head"), "text/event-stream"))
            }
            Self::Pages { host, stream, after } => {
                let target = format!("/v1/streams/{stream}/entries?after={after}&wait={WAIT_S}");
                Some(get(host, &target, "application/json"))
            }
            Self::Storm(storm) => Some(storm.request()),
            Self::Failed => None,
        }
    }

    /// Takes the answer to the last request.
    ///
    /// # Errors
    /// When it is not what a client may expect, in words.
    pub fn answered(&mut self, answer: &Answer<'_>, counts: &mut Counts) -> Result<Next, String> {
        match self {
            Self::Pages { after, .. } => {
                counts.pages += 1;
                *after = page_end(answer).ok_or_else(|| unexpected(answer))?;
                Ok(Next::Now)
            }
            Self::Storm(storm) => storm.answered(answer, counts),
            Self::Events { .. } | Self::Failed => Err("an answer to nothing".into()),
        }
    }
}

impl fmt::Display for Script {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Events { .. } => out.write_str("a reader of events"),
            Self::Pages { .. } => out.write_str("a reader of pages"),
            Self::Storm(storm) => write!(out, "a storm at {:?} of round {}", storm.step, storm.round),
            Self::Failed => out.write_str("a client that had failed"),
        }
    }
}

impl Storm {
    fn name(&self) -> String {
        format!("storm-{}-{}", self.number, self.round)
    }

    fn request(&mut self) -> Vec<u8> {
        let (host, name) = (&self.host, self.name());
        let change = |body: &Value| match self.step {
            Step::Declare => ("", "If-None-Match: *".to_owned(), body.to_string()),
            _ => ("/desired", format!("If-Match: {}", self.revision), body.to_string()),
        };
        let (path, condition, body) = match self.step {
            Step::Serving | Step::Stopping => return get(host, &self.operation, "application/json"),
            Step::Create => {
                let body = json!({ "name": format!("made-{name}"), "schema": self.schema }).to_string();
                let length = body.len();
                return format!(
                    "POST /v1/streams HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n\
                     Content-Length: {length}\r\n\r\n{body}"
                )
                .into_bytes();
            }
            Step::Delete => {
                return format!("DELETE /v1/streams/made-{name} HTTP/1.1\r\nHost: {host}\r\n\r\n").into_bytes();
            }
            Step::Declare => change(&json!({
                "schema": self.schema, "storage_profile": "local", "initialization": "create_if_absent",
            })),
            Step::Serve => change(&json!({ "state": "serving" })),
            Step::Stop => change(&json!({ "state": "stopped" })),
        };
        self.requests += 1;
        let mut out = Vec::new();
        // Into memory: it cannot fail.
        let _ = write!(
            out,
            "PUT /control/v1/streams/{name}{path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n\
             Idempotency-Key: storm-{}-{}\r\n{condition}\r\nContent-Length: {}\r\n\r\n{body}",
            self.number,
            self.requests,
            body.len()
        );
        out
    }

    fn answered(&mut self, answer: &Answer<'_>, counts: &mut Counts) -> Result<Next, String> {
        let (status, told) = (answer.head.status, serde_json::from_slice::<Value>(answer.body).unwrap_or_default());
        // As many as may be are under way: the same again, a little later.
        if status == 429 || status == 503 || (status == 409 && told["error"]["code"] == "transition_pending") {
            return Ok(Next::After(LOOK_NS));
        }
        match self.step {
            Step::Declare | Step::Serve | Step::Stop => {
                let etag = answer.head.field("etag").filter(|_| status == 200 || status == 202);
                self.revision = etag.ok_or_else(|| unexpected(answer))?.to_owned();
                counts.changes += 1;
                self.step = match self.step {
                    Step::Declare => Step::Serve,
                    step => {
                        let id = told["operation_id"].as_str().ok_or_else(|| unexpected(answer))?;
                        self.operation = format!("/control/v1/operations/{id}");
                        if step == Step::Serve { Step::Serving } else { Step::Stopping }
                    }
                };
                Ok(Next::Now)
            }
            Step::Serving | Step::Stopping => match told["status"].as_str() {
                Some("succeeded") => {
                    self.step = if self.step == Step::Serving { Step::Stop } else { Step::Create };
                    Ok(Next::Now)
                }
                Some("accepted" | "running") => Ok(Next::After(LOOK_NS)),
                _ => Err(unexpected(answer)),
            },
            Step::Create if status == 201 => {
                counts.changes += 1;
                self.step = Step::Delete;
                Ok(Next::Now)
            }
            Step::Delete if status == 202 => {
                counts.changes += 1;
                counts.rounds += 1;
                self.round += 1;
                self.step = Step::Declare;
                Ok(Next::Now)
            }
            Step::Create | Step::Delete => Err(unexpected(answer)),
        }
    }
}

fn get(host: &str, target: &str, accept: &str) -> Vec<u8> {
    format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nAccept: {accept}\r\n\r\n").into_bytes()
}

fn unexpected(answer: &Answer<'_>) -> String {
    let body = String::from_utf8_lossy(&answer.body[..answer.body.len().min(160)]).escape_debug().to_string();
    format!("the answer was {} {body}", answer.head.status)
}

/// The cursor after a page: the last field of that name (docs/batches.md, "Reading").
fn page_end(answer: &Answer<'_>) -> Option<String> {
    if answer.head.status != 200 {
        return None;
    }
    let at = memchr::memmem::rfind(answer.body, b"\"cursor\":\"")? + 10;
    let length = memchr::memchr(b'"', &answer.body[at..])?;
    String::from_utf8(answer.body[at..at + length].to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::http;

    fn answer(script: &mut Script, counts: &mut Counts, status: &str, body: &str) -> Result<Next, String> {
        let bytes = format!("HTTP/1.1 {status}\r\nETag: \"3\"\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        script.answered(&http::answer(bytes.as_bytes()).unwrap().unwrap(), counts)
    }

    fn asks(script: &mut Script) -> String {
        String::from_utf8(script.request().unwrap()).unwrap()
    }

    #[test]
    fn pages_follow_one_another() {
        let mut counts = Counts::default();
        let (host, stream, after) = ("h".to_owned(), "s".to_owned(), "head".to_owned());
        let mut script = Script::Pages { host, stream, after };
        assert!(asks(&mut script).starts_with("GET /v1/streams/s/entries?after=head&wait=30 HTTP/1.1\r\n"));
        let page = r#"{"entries":[{"id":"e","cursor":"cur_1"}],"cursor":"cur_2","head":"cur_3"}"#;
        assert_eq!(answer(&mut script, &mut counts, "200 OK", page), Ok(Next::Now));
        assert!(asks(&mut script).contains("after=cur_2&"));
        assert_eq!(counts.pages, 1);
        assert!(answer(&mut script, &mut counts, "410 Gone", "{}").is_err());
    }

    #[test]
    fn a_storm_goes_round() {
        let mut counts = Counts::default();
        let mut script = Script::storm("h".into(), 7, json!({}));
        let accepted = r#"{"status":"accepted","operation_id":"op","revision":3}"#;
        for (starts, has, status, body, next) in [
            ("PUT /control/v1/streams/storm-7-0 ", "If-None-Match: *\r\n", "202 A", "{}", Next::Now),
            ("PUT /control/v1/streams/storm-7-0/desired ", "If-Match: \"3\"\r\n", "429 T", "{}", Next::After(LOOK_NS)),
            ("PUT /control/v1/streams/storm-7-0/desired ", "\"serving\"", "202 A", accepted, Next::Now),
            ("GET /control/v1/operations/op ", "", "200 O", r#"{"status":"running"}"#, Next::After(LOOK_NS)),
            ("GET /control/v1/operations/op ", "", "200 O", r#"{"status":"succeeded"}"#, Next::Now),
            ("PUT /control/v1/streams/storm-7-0/desired ", "\"stopped\"", "202 A", accepted, Next::Now),
            ("GET /control/v1/operations/op ", "", "200 O", r#"{"status":"succeeded"}"#, Next::Now),
            ("POST /v1/streams ", "\"made-storm-7-0\"", "201 C", "{}", Next::Now),
            ("DELETE /v1/streams/made-storm-7-0 ", "", "202 A", "{}", Next::Now),
            ("PUT /control/v1/streams/storm-7-1 ", "", "500 E", "{}", Next::Now),
        ] {
            let asked = asks(&mut script);
            assert!(asked.starts_with(starts) && asked.contains(has), "{asked}");
            match answer(&mut script, &mut counts, status, body) {
                Ok(found) => assert_eq!(found, next),
                Err(why) => assert!(status == "500 E" && why.contains("500"), "{why}"),
            }
        }
        assert_eq!((counts.changes, counts.rounds), (5, 1));
    }
}
