//! Going through objects page by page.

use std::collections::VecDeque;
use std::path::PathBuf;

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;

use super::error::StoreError;
use super::local;
use super::objects::{Object, blocking};

/// The most objects in one page.
const PAGE_OBJECTS: usize = 1000;

/// All objects below a prefix, page by page. Holds one page, and of local files the names of one directory.
pub struct Listing {
    from: From,
}

enum From {
    Local { directories: Vec<PathBuf>, files: VecDeque<Object> },
    S3(BoxStream<'static, Result<Object, StoreError>>),
}

impl Listing {
    pub(super) fn local(prefix: PathBuf) -> Self {
        Self { from: From::Local { directories: vec![prefix], files: VecDeque::new() } }
    }

    pub(super) fn s3(objects: BoxStream<'static, Result<Object, StoreError>>) -> Self {
        Self { from: From::S3(objects) }
    }

    /// The next at most 1,000 objects; none after the last page.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn next_page(&mut self) -> Result<Vec<Object>, StoreError> {
        match &mut self.from {
            From::Local { directories, files } => {
                while files.is_empty() {
                    let Some(directory) = directories.pop() else { return Ok(Vec::new()) };
                    let (found, below) = blocking(move || local::read_directory(&directory)).await?;
                    directories.extend(below);
                    files.extend(found);
                }
                let page = files.len().min(PAGE_OBJECTS);
                Ok(files.drain(..page).collect())
            }
            From::S3(objects) => {
                let mut page = Vec::new();
                while page.len() < PAGE_OBJECTS
                    && let Some(object) = objects.next().await
                {
                    page.push(object?);
                }
                Ok(page)
            }
        }
    }
}
