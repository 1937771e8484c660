//! One connection that reads a stream.

use super::address::Address;
use super::connection::{Connection, Options};
use super::error::ClientError;
use super::greeting::Greeting;
use super::row::Row;

/// A subscription: the greeting, then rows in the order of their offsets.
pub struct Subscription {
    connection: Connection,
    greeting: Greeting,
    last: Option<u64>,
}

impl Subscription {
    /// Subscribes from `offset` on (0 is the earliest row; `None` is what comes from now on), to the rows that match
    /// `filter`, the JSON text of a `where` (wire.md section 6).
    ///
    /// # Errors
    /// Whatever keeps the connection from being made, the broker's refusal included.
    pub async fn open(
        address: &Address,
        options: &Options,
        offset: Option<u64>,
        filter: Option<&str>,
    ) -> Result<Self, ClientError> {
        let target = address.subscribe_target(offset, filter);
        let (connection, greeting) = Connection::open(address, &target, options).await?;
        if offset.is_some() && greeting.replay.is_none() {
            return Err(ClientError::Protocol("an offset was asked for and the greeting has no replay".to_owned()));
        }
        Ok(Self { connection, greeting, last: None })
    }

    /// What the broker said first.
    #[must_use]
    pub fn greeting(&self) -> &Greeting {
        &self.greeting
    }

    /// The next row. Cancel-safe.
    ///
    /// # Errors
    /// The end of the connection, or a frame that breaks the rules of wire.md section 3.1.
    pub async fn next(&mut self) -> Result<Row, ClientError> {
        let row = Row::parse(self.connection.next().await?)?;
        if let (Some(last), Some(offset)) = (self.last, row.offset)
            && offset <= last
        {
            return Err(ClientError::Protocol(format!("offset {offset} came after {last}")));
        }
        self.last = row.offset.or(self.last);
        Ok(row)
    }

    /// Ends the subscription in order.
    pub async fn close(self) {
        self.connection.close().await;
    }
}
