//! What the steps of a stream's life work on.

use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::error::LifeError;
use super::ledger::Ledger;
use crate::lake::catalog::Catalog;
use crate::lake::documents::{Current, Documents};
use crate::lake::store::Store;
use crate::stream::record::StreamRecord;

/// Who moves the rows of a stream into its table.
pub trait Moving: Debug + Send + Sync {
    /// Seals and publishes every row of a stream. When it returns they are all in the table.
    fn flush<'a>(&'a self, stream: &'a str) -> BoxFuture<'a, Result<(), LifeError>>;
}

/// Where documents, files and tables are.
#[derive(Debug, Clone, Copy)]
pub struct Grounds<'a> {
    /// The data root, an absolute path.
    pub root: &'a Path,
    /// Where tables are.
    pub store: &'a Store,
    /// The files of every log.
    pub catalog: &'a Catalog,
}

/// A data root, as the steps need it. The stream that a step is about takes no rows meanwhile.
pub struct Estate<'a> {
    /// Where documents, files and tables are.
    pub grounds: Grounds<'a>,
    /// The journal.
    pub ledger: &'a mut dyn Ledger,
    /// Moves rows.
    pub moving: &'a dyn Moving,
}

impl Debug for Estate<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Estate").field("grounds", &self.grounds).finish_non_exhaustive()
    }
}

impl Grounds<'_> {
    /// The documents of a stream.
    pub(super) fn documents(&self, stream: &str) -> Documents {
        Documents::new(self.root, stream, Some(Arc::new(self.store.clone())))
    }
}

impl Estate<'_> {
    /// A stream's record and its current document.
    pub(super) async fn find(&mut self, stream: &str) -> Result<(StreamRecord, Documents, Current), LifeError> {
        let missing = || LifeError::NoStream { stream: stream.to_owned() };
        let record = self.ledger.record(stream)?.ok_or_else(missing)?;
        let documents = self.grounds.documents(stream);
        let current = documents.current().await?.ok_or_else(missing)?;
        Ok((record, documents, current))
    }
}
