//! Where the files of documents are: the data root's file system, and a bucket that holds a copy. Both are used
//! through one small interface, so that the order of writing is the same in both.

use std::fmt::Debug;
use std::path::Path;

use futures_util::future::{BoxFuture, FutureExt as _, ready};

use super::files;
use crate::lake::error::LakeError;
use crate::lake::store::Store;

/// Whole files by name. A put replaces a file as a whole and lasts when it returns.
pub trait Objects: Debug + Send + Sync {
    /// The bytes of a file, `None` if there is no such file.
    fn get<'a>(&'a self, uri: &'a str) -> BoxFuture<'a, Result<Option<Vec<u8>>, LakeError>>;
    /// Writes a file, new or in place of an old one.
    fn put<'a>(&'a self, uri: &'a str, bytes: Vec<u8>) -> BoxFuture<'a, Result<(), LakeError>>;
    /// Deletes a file; one that is not there is deleted already.
    fn delete<'a>(&'a self, uri: &'a str) -> BoxFuture<'a, Result<(), LakeError>>;
    /// The names of the files right below a directory; none if there is no such directory.
    fn names<'a>(&'a self, directory: &'a str) -> BoxFuture<'a, Result<Vec<String>, LakeError>>;
}

/// Files on disk; names are absolute paths. Nothing here ever waits for anything but the disk.
#[derive(Debug)]
pub(super) struct Disk;

impl Objects for Disk {
    fn get<'a>(&'a self, uri: &'a str) -> BoxFuture<'a, Result<Option<Vec<u8>>, LakeError>> {
        ready(files::read(Path::new(uri))).boxed()
    }

    fn put<'a>(&'a self, uri: &'a str, bytes: Vec<u8>) -> BoxFuture<'a, Result<(), LakeError>> {
        ready(files::write(Path::new(uri), &bytes)).boxed()
    }

    fn delete<'a>(&'a self, uri: &'a str) -> BoxFuture<'a, Result<(), LakeError>> {
        ready(files::delete(Path::new(uri))).boxed()
    }

    fn names<'a>(&'a self, directory: &'a str) -> BoxFuture<'a, Result<Vec<String>, LakeError>> {
        ready(files::names(Path::new(directory))).boxed()
    }
}

impl Objects for Store {
    fn get<'a>(&'a self, uri: &'a str) -> BoxFuture<'a, Result<Option<Vec<u8>>, LakeError>> {
        async move { Ok(Store::get(self, uri).await?.map(Vec::from)) }.boxed()
    }

    fn put<'a>(&'a self, uri: &'a str, bytes: Vec<u8>) -> BoxFuture<'a, Result<(), LakeError>> {
        async move { Ok(Store::put(self, uri, bytes.into()).await?) }.boxed()
    }

    fn delete<'a>(&'a self, uri: &'a str) -> BoxFuture<'a, Result<(), LakeError>> {
        async move { Ok(Store::delete(self, uri).await?) }.boxed()
    }

    fn names<'a>(&'a self, directory: &'a str) -> BoxFuture<'a, Result<Vec<String>, LakeError>> {
        async move {
            let mut listing = self.list(directory)?;
            let mut names = Vec::new();
            loop {
                let page = listing.next_page().await?;
                if page.is_empty() {
                    return Ok(names);
                }
                let below = page.iter().filter_map(|object| object.uri.strip_prefix(directory)?.strip_prefix('/'));
                names.extend(below.filter(|name| !name.is_empty() && !name.contains('/')).map(str::to_owned));
            }
        }
        .boxed()
    }
}
