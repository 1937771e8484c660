//! Readers that stay: whether they may still read.

use std::time::{Duration, Instant};

use crate::auth::Action;
use crate::batches::{ApiError, Stream};
use crate::http::caller::Caller;

/// How long what was found out about a reader is believed.
const BELIEVED: Duration = Duration::from_secs(1);

/// Looks now and then whether the credentials of a reader still hold, as those of WebSockets are looked after
/// (docs/security.md).
pub struct Lookout {
    caller: Caller,
    looked: Instant,
}

impl Lookout {
    /// The reader was let in at this moment.
    pub fn new(caller: &Caller) -> Self {
        Self { caller: caller.clone(), looked: Instant::now() }
    }

    /// To be asked before rows are given to whoever has waited for them.
    ///
    /// # Errors
    /// 401 when the reader may not have them any more.
    pub fn look(&mut self, stream: &Stream) -> Result<(), ApiError> {
        let now = Instant::now();
        if now.saturating_duration_since(self.looked) < BELIEVED {
            return Ok(());
        }
        self.looked = now;
        if self.caller.still_allows(Action::DataRead, &stream.served.name) {
            return Ok(());
        }
        let message = "what the request was let in with does not hold any more; ask again with other credentials";
        Err(ApiError::new(401, "authentication_required", message))
    }
}
