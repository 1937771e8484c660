//! What a table says of itself besides its files.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::commit::MAX_ATTEMPTS;
use super::error::TableError;
use super::live::Table;
use super::spec::{ARROW_SCHEMA, SORT_BY};

pub(super) const ISSUED_THROUGH: &str = "litelink.issued_through";
pub(super) const RETIRED: &str = "litelink.retired";
pub(super) const WRITER_EPOCH: &str = "streamcast.writer-epoch";

/// That a log is finished, as its table says it (`litelink.retired`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retired {
    /// The last offset of the log; `None` if it never had one.
    pub through: Option<i64>,
    /// When, in ISO 8601 with an offset: `2026-11-29T19:17:55+00:00`.
    pub at: String,
}

impl Table {
    /// The last offset that the log had given out when it was last published.
    #[must_use]
    pub fn issued_through(&self) -> Option<i64> {
        self.properties().get(ISSUED_THROUGH)?.parse().ok()
    }

    /// The Arrow schema of the columns without the offset: an IPC message in hexadecimal digits.
    #[must_use]
    pub fn arrow_schema(&self) -> Option<&str> {
        self.properties().get(ARROW_SCHEMA).map(String::as_str)
    }

    /// The columns that rows are sorted by in a file; `None` if the table does not say.
    #[must_use]
    pub fn sort_by(&self) -> Option<Vec<String>> {
        serde_json::from_str(self.properties().get(SORT_BY)?).ok()
    }

    /// The columns of the declared sort order; empty if there is none.
    #[must_use]
    pub fn sort_order(&self) -> Vec<String> {
        let name = |id| self.schema().field_by_id(id).map(|field| field.name.clone());
        self.metadata().default_sort_order().fields.iter().filter_map(|field| name(field.source_id)).collect()
    }

    /// The mark of a finished log. One that cannot be read counts as none.
    #[must_use]
    pub fn retired(&self) -> Option<Retired> {
        serde_json::from_str(self.properties().get(RETIRED)?).ok()
    }

    /// The highest epoch of a server that changed the table.
    #[must_use]
    pub fn writer_epoch(&self) -> Option<u64> {
        self.properties().get(WRITER_EPOCH)?.parse().ok()
    }

    /// Sets properties, and removes those given as `None`. Nothing is written when nothing changes.
    ///
    /// # Errors
    /// When another writer is in the way, or the store fails.
    pub async fn set_properties(&mut self, changes: &BTreeMap<String, Option<String>>) -> Result<(), TableError> {
        let _lock = self.lock().await?;
        for _ in 0..MAX_ATTEMPTS {
            self.catch_up().await?;
            let differs = |(key, value): &(&String, &Option<String>)| self.properties().get(*key) != value.as_ref();
            let changes: BTreeMap<_, _> =
                changes.iter().filter(differs).map(|(key, value)| (key.clone(), value.clone())).collect();
            if changes.is_empty() || self.install_properties(&changes, None).await? {
                return Ok(());
            }
        }
        Err(self.contended())
    }

    /// Marks the table as that of a finished log. A mark that is there is kept.
    ///
    /// # Errors
    /// As [`Table::set_properties`].
    pub async fn retire(&mut self, mark: &Retired) -> Result<(), TableError> {
        self.refresh().await?;
        if self.retired().is_some() {
            return Ok(());
        }
        let text = serde_json::json!({"through": mark.through, "at": mark.at}).to_string();
        self.set_properties(&BTreeMap::from([(RETIRED.to_owned(), Some(text))])).await
    }
}
