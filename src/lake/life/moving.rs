//! Moving the rows of a stream that nobody publishes to: the lake of the data root does it when it is asked.

use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt as _};

use super::error::LifeError;
use super::estate::Moving;
use crate::lake::documents::LiveLog;
use crate::lake::mover::{Lake, LakeStream, MoverSettings};
use crate::schema::Schema;
use crate::stream::record::StreamRecord;
use crate::telemetry::StreamCounters;

/// A lake to which the stream was added.
#[derive(Debug)]
pub struct LakeMoving(pub Arc<Lake>);

impl Moving for LakeMoving {
    fn flush<'a>(&'a self, stream: &'a str) -> BoxFuture<'a, Result<(), LifeError>> {
        let (lake, name) = (Arc::clone(&self.0), stream.to_owned());
        async move {
            // The lake's calls wait, so they need a thread that may.
            match tokio::task::spawn_blocking(move || lake.flush(&name)).await {
                Ok(flushed) => Ok(flushed.map(|_| ())?),
                Err(error) => Err(LifeError::Moving { stream: stream.to_owned(), why: error.to_string() }),
            }
        }
        .boxed()
    }
}

/// Takes a stream that is not served into a lake, so that its rows can be moved as `settings` say, whenever that is asked.
///
/// # Errors
/// When its columns have no form as a table, or the catalog refuses.
pub fn add(lake: &Lake, record: &StreamRecord, live: &LiveLog, settings: &MoverSettings) -> Result<(), LifeError> {
    let refused = |why: String| LifeError::Schema { stream: record.name.clone(), why };
    let schema = Schema::compile(&live.schema, true).map_err(|error| refused(error.to_string()))?;
    Ok(lake.add(&LakeStream {
        record,
        schema: &schema,
        published: live.published.as_deref().unwrap_or_default(),
        start_offset: live.start_offset,
        replay_published: false,
        // Its rows move when they are asked to, and only then.
        settings: MoverSettings { maintain: false, purge: false, ..settings.clone() },
        counters: Arc::new(StreamCounters::new(&record.name, true, Some(record.end_offset))),
    })?)
}
