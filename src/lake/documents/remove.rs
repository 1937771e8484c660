//! Deleting the documents of a stream that is no more from the bucket that has a copy of them.

use super::commit::{Documents, is_remote};
use super::files;
use super::holes;
use crate::lake::error::LakeError;
use crate::lake::steps::step;

impl Documents {
    /// Deletes the stream's documents below `prefix`, if that is in a bucket: what names the current version goes after
    /// everything else, so that a call that was cut off can be made again. Documents of a stream with another
    /// `stream_id` stay. Nothing but files of documents is deleted.
    ///
    /// # Errors
    /// When the bucket cannot be read or written.
    pub async fn remove_below(&self, prefix: &str, stream_id: &str) -> Result<(), LakeError> {
        if !is_remote(prefix) || !self.is_owned_below(prefix, stream_id).await? {
            return Ok(());
        }
        let shelf = self.shelf_below(prefix)?;
        let current = self.current_below(prefix).await?.and_then(|current| current.version);
        let names = shelf.names().await?;
        let is_document = |name: &&String| {
            files::version_number(name).is_some() || files::manifest_number(name).is_some() || *name == holes::NAME
        };
        for name in names.iter().filter(is_document).filter(|name| Some(*name) != current.as_ref()) {
            shelf.delete_beside(name).await?;
        }
        step("remove: older documents are deleted");
        shelf.delete_plain().await?;
        step("remove: plain documents are deleted");
        shelf.delete_beside(files::HINT).await?;
        step("remove: the hint of documents is deleted");
        if let Some(version) = current {
            shelf.delete_beside(&version).await?;
        }
        Ok(())
    }

    /// Whether what is below `prefix` is the stream's that has this `stream_id`, as far as documents there tell: nobody
    /// else's are there.
    ///
    /// # Errors
    /// When they cannot be read.
    pub async fn is_owned_below(&self, prefix: &str, stream_id: &str) -> Result<bool, LakeError> {
        match self.current_below(prefix).await {
            Ok(there) => Ok(there.is_none_or(|there| there.document.stream_id == stream_id)),
            Err(LakeError::Foreign { .. }) => Ok(false),
            // A deletion that was cut off may leave a hint that names nothing.
            Err(LakeError::Damaged { .. }) => Ok(true),
            Err(error) => Err(error),
        }
    }
}
