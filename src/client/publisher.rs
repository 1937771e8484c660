//! One connection that writes a stream: frames out, replies in their order (wire.md section 4).

use serde::Deserialize;

use super::address::Address;
use super::connection::{Connection, Options};
use super::error::ClientError;
use super::greeting::{Greeting, Mark};

/// A publisher. At most as many frames as the caller's window are unanswered.
pub struct Publisher {
    connection: Connection,
    greeting: Greeting,
}

/// The broker's answer to one frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// Stored, or handed on when the stream has no log; one entry a row. The first `dup` rows were there already.
    Ok {
        /// Offsets of the rows, `None` where the broker does not know or keep them.
        offsets: Vec<Option<u64>>,
        /// How many of them were stored before.
        dup: u64,
    },
    /// The frame or one of its rows is not acceptable; nothing was stored.
    Rejected(String),
    /// Storing failed, nothing was stored; trying again may help.
    CommitFailed(String),
    /// A numbered frame does not follow on.
    Gap {
        /// Number the broker expects.
        expected: u64,
        /// Number the frame had.
        got: u64,
    },
}

impl Publisher {
    /// Connects to publish. With an `id` the rows are numbered and the greeting has the id's mark.
    ///
    /// # Errors
    /// Whatever keeps the connection from being made, the broker's refusal included.
    pub async fn open(address: &Address, options: &Options, id: Option<&str>) -> Result<Self, ClientError> {
        let (connection, greeting) = Connection::open(address, &address.publish_target(id), options).await?;
        if id.is_some() && greeting.publisher.is_none() {
            return Err(ClientError::Protocol("the broker knows no numbered rows".to_owned()));
        }
        Ok(Self { connection, greeting })
    }

    /// What the broker said first.
    #[must_use]
    pub fn greeting(&self) -> &Greeting {
        &self.greeting
    }

    /// The mark of the id this publisher connected with.
    #[must_use]
    pub fn mark(&self) -> Option<&Mark> {
        self.greeting.publisher.as_ref()
    }

    /// Queues a frame; it is written while [`Publisher::reply`] is awaited.
    pub fn send(&mut self, frame: String) {
        self.connection.queue(frame);
    }

    /// The reply to the oldest unanswered frame. Cancel-safe. Await it also when nothing is owed: it answers pings
    /// and tells when the connection ends.
    ///
    /// # Errors
    /// The end of the connection, or a frame that is no reply.
    pub async fn reply(&mut self) -> Result<Reply, ClientError> {
        Reply::parse(&self.connection.next().await?)
    }

    /// Ends the connection in order. Frames that are not answered yet may be lost: await their replies first.
    pub async fn close(self) {
        self.connection.close().await;
    }
}

impl Reply {
    /// Reads a reply.
    ///
    /// # Errors
    /// [`ClientError::Protocol`] when the frame is none.
    pub fn parse(frame: &str) -> Result<Self, ClientError> {
        #[derive(Deserialize)]
        struct Fields {
            ok: Option<Vec<Option<u64>>>,
            #[serde(default)]
            dup: u64,
            error: Option<String>,
            detail: Option<String>,
            expected: Option<u64>,
            /// May be beyond 64 bits, being an echo.
            got: Option<serde_json::Number>,
        }
        let unknown = |why: String| ClientError::Protocol(format!("no reply to a frame ({why})"));
        if !frame.starts_with('{') {
            return Err(unknown("no object".to_owned()));
        }
        let fields: Fields = serde_json::from_str(frame).map_err(|error| unknown(error.to_string()))?;
        let detail = |code: &str| fields.detail.clone().unwrap_or_else(|| code.to_owned());
        match (fields.error.as_deref(), fields.ok) {
            (Some("gap"), _) => match (fields.expected, fields.got.and_then(|got| got.as_u64())) {
                (Some(expected), Some(got)) => Ok(Self::Gap { expected, got }),
                _ => Err(unknown("a gap without its numbers".to_owned())),
            },
            (Some("commit_failed"), _) => Ok(Self::CommitFailed(detail("commit_failed"))),
            (Some(code), _) => Ok(Self::Rejected(detail(code))),
            (None, Some(offsets)) => Ok(Self::Ok { offsets, dup: fields.dup }),
            (None, None) => Err(unknown("neither ok nor error".to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_every_reply() {
        for (frame, reply) in [
            (r#"{"ok":[1,2]}"#, Reply::Ok { offsets: vec![Some(1), Some(2)], dup: 0 }),
            (r#"{"ok":[null,5],"dup":1}"#, Reply::Ok { offsets: vec![None, Some(5)], dup: 1 }),
            (r#"{"error":"bad_frame","detail":"d"}"#, Reply::Rejected("d".into())),
            (r#"{"error":"rejected"}"#, Reply::Rejected("rejected".into())),
            (r#"{"error":"news"}"#, Reply::Rejected("news".into())),
            (r#"{"error":"commit_failed","detail":"full"}"#, Reply::CommitFailed("full".into())),
            (r#"{"error":"gap","expected":5,"got":6}"#, Reply::Gap { expected: 5, got: 6 }),
        ] {
            assert_eq!(Reply::parse(frame).ok(), Some(reply), "{frame}");
        }
        for bad in ["", "1", "{}", r#"{"ok":1}"#, r#"{"error":"gap"}"#, "[1,2,{}]"] {
            assert!(Reply::parse(bad).is_err(), "{bad}");
        }
    }
}
