//! Where the bytes of a file of the catalog come from.

use std::io;
use std::path::Path;

use bytes::Bytes;
use tokio::runtime::Handle;

use crate::lake::catalog::SealedFile;
use crate::lake::columns::{ColumnsError, ReadRange, Source};
use crate::lake::store::Store;

/// An object of a store, read in ranges.
struct Remote {
    store: Store,
    handle: Handle,
    uri: String,
}

impl ReadRange for Remote {
    fn read_range(&self, start: u64, length: usize) -> io::Result<Bytes> {
        let range = start..start.saturating_add(length as u64);
        self.handle.block_on(self.store.get_range(&self.uri, range)).map_err(io::Error::other)
    }
}

/// The file on this machine, or the object, which is read through `handle` from threads that may wait.
pub(super) fn source_of(store: &Store, handle: Option<&Handle>, file: &SealedFile) -> Result<Source, ColumnsError> {
    match (&file.path, handle) {
        (Some(path), _) => Source::file(path),
        (None, Some(handle)) => {
            let remote = Remote { store: store.clone(), handle: handle.clone(), uri: file.uri.clone() };
            Ok(Source::ranges(&file.uri, file.size_bytes, Box::new(remote)))
        }
        (None, None) => Source::file(Path::new(&file.uri)),
    }
}
