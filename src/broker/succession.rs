//! The life of streams that a running broker does not serve at the moment: the writer changes the journal on its behalf.

use std::sync::Arc;

use super::error::BrokerError;
use super::streams::Streams;
use crate::journal::{Adopted, JournalError, Office, StreamRecord};
use crate::lake::documents::Documents;
use crate::lake::life::{self, Estate, Grounds, LakeMoving, Ledger, LifeError};
use crate::lake::mover::MoverSettings;
use crate::schema::Schema;

/// The journal of a running broker.
struct WritersLedger<'a>(&'a Streams);

impl WritersLedger<'_> {
    /// Has the writer do something between two transactions.
    fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Office<'_>) -> Result<T, JournalError> + Send + 'static,
    ) -> Result<T, JournalError> {
        self.0.errand(work).map_err(|error| JournalError::Unavailable { why: error.to_string() })?
    }

    fn name(&self, stream: u32) -> Result<String, JournalError> {
        let found = self.ask(move |office| office.name_of(stream))?;
        found.ok_or(JournalError::Unknown { stream })
    }
}

impl Ledger for WritersLedger<'_> {
    fn record(&mut self, stream: &str) -> Result<Option<StreamRecord>, JournalError> {
        let stream = stream.to_owned();
        self.ask(move |office| office.record(&stream))
    }

    fn evict(&mut self, stream: u32, below: i64) -> Result<(), JournalError> {
        let name = self.name(stream)?;
        loop {
            let name = name.clone();
            // A little at a time, so that commits of other streams do not wait.
            if !self.ask(move |office| office.evict(&name, below))? {
                return Ok(());
            }
        }
    }

    fn begin_log(
        &mut self,
        stream: u32,
        log: &str,
        schema_canonical: &str,
        sort_by: &[String],
        floor: Option<i64>,
    ) -> Result<(), JournalError> {
        let (name, log, schema) = (self.name(stream)?, log.to_owned(), schema_canonical.to_owned());
        let sort_by = sort_by.to_vec();
        self.ask(move |office| office.begin_log(&name, &log, &schema, &sort_by, floor))
    }

    fn forget_marks(&mut self, stream: u32) -> Result<(), JournalError> {
        self.ask(move |office| office.forget_marks(stream))
    }

    fn adopt(&mut self, adopted: &Adopted) -> Result<(), JournalError> {
        Err(JournalError::Unavailable { why: format!("stream {:?} is taken up while no broker runs", adopted.name) })
    }

    fn advance(&mut self, _stream: u32, _end: i64, _last_ts_us: i64) -> Result<(), JournalError> {
        Err(JournalError::Unavailable { why: "files are loaded while no broker runs".to_owned() })
    }
}

/// Ends a stream that is not served for good.
pub(super) fn retire(streams: &Arc<Streams>, name: &str) -> Result<(), BrokerError> {
    with(streams, name, async |estate| life::retire(estate, name).await.map(drop))
}

/// Begins a new log for a stream that is not served.
pub(super) fn migrate(
    streams: &Arc<Streams>,
    name: &str,
    schema: &Schema,
    sort_by: &[String],
) -> Result<(), BrokerError> {
    with(streams, name, async |estate| life::migrate(estate, name, schema, Some(sort_by)).await.map(drop))
}

fn with(
    streams: &Arc<Streams>,
    name: &str,
    work: impl AsyncFnOnce(&mut Estate<'_>) -> Result<(), LifeError>,
) -> Result<(), BrokerError> {
    let lake = Arc::clone(streams.lake());
    let missing = || LifeError::NoStream { stream: name.to_owned() };
    let record = streams.record(name)?.ok_or_else(missing)?;
    let bucket = Arc::new(lake.store().clone());
    let documents = Documents::new(lake.root(), name, Some(bucket));
    let current = lake.block_on(documents.current())?.ok_or_else(missing)?;
    life::add(&lake, &record, &current.document.live_log, &MoverSettings::default())?;
    let moving = LakeMoving(Arc::clone(&lake));
    let mut ledger = WritersLedger(streams);
    let mut estate = Estate {
        grounds: Grounds { root: lake.root(), store: lake.store(), catalog: lake.catalog() },
        ledger: &mut ledger,
        moving: &moving,
    };
    let outcome = lake.block_on(work(&mut estate));
    let evicted = outcome.is_ok().then(|| lake.evict(name));
    lake.remove(record.id);
    outcome?;
    evicted.transpose()?;
    Ok(())
}
