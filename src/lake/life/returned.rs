//! The end of a restored log, back on this machine: replays read it there as they did before the loss.

use std::fs;
use std::path::{Path, PathBuf};

use futures_util::future::ready;
use futures_util::stream::{self, StreamExt as _};

use super::estate::Grounds;
use crate::lake::DataFile;
use crate::lake::catalog::{NewFile, Tier};
use crate::lake::documents::{LiveLog, local_path};
use crate::lake::store::StoreError;

/// A file of this size is full: it was never to be read again for a merge, and it and those before it stay where they are.
const FULL_BYTES: u64 = 512 << 20;

/// The most that is copied for one stream, in bytes.
const MAX_COPIED_BYTES: u64 = 2 << 30;

/// The most files that are copied for one stream: a table that nobody merged is restored as quickly as one that is kept.
const MAX_COPIED_FILES: usize = 256;

/// Copies under way at once.
const COPIES_AT_ONCE: usize = 16;

/// The files of a table as the catalog gets them. Those after the last full one are copied into the stream's directories,
/// the newest that the limits allow; a table in a local directory needs no copies and has no limits.
///
/// Best effort: what is not copied is read where it is published, by those that read there. So is everything before the
/// newest file that cannot be had.
pub(super) async fn returned(
    grounds: Grounds<'_>,
    stream: &str,
    live: &LiveLog,
    location: &str,
    files: Vec<DataFile>,
) -> Vec<NewFile> {
    let data = grounds.root.join(stream).join(&live.name).join("data");
    let wanted = wanted(location, &files);
    let copies = files.iter().rev().zip(&wanted).map(|(file, (tier, name))| {
        let to = data.join(tier.as_str()).join(name);
        async move {
            bring(grounds, file, to).await.unwrap_or_else(|error| {
                tracing::warn!(stream, uri = file.uri, %error, "a published file is not copied back");
                None
            })
        }
    });
    // Copies that were under way when one could not be had stay behind for the sweep of the directories.
    let here: Vec<PathBuf> = stream::iter(copies)
        .buffered(COPIES_AT_ONCE)
        .take_while(|path| ready(path.is_some()))
        .filter_map(ready)
        .collect()
        .await;
    let mut here = here.into_iter().zip(wanted.iter().map(|(tier, _)| *tier));
    let mut new: Vec<NewFile> = Vec::with_capacity(files.len());
    for file in files.into_iter().rev() {
        let (path, tier) = here.next().map_or((None, Tier::Ingested), |(path, tier)| (Some(path), tier));
        new.push(NewFile { file, local: path.is_some(), path, tier, published: true });
    }
    new.reverse();
    new
}

/// The newest files, the newest first, with the place of each in the log's directories: as many as are to be here.
fn wanted(location: &str, files: &[DataFile]) -> Vec<(Tier, String)> {
    let (mut copied, mut copied_bytes) = (0, 0);
    let mut wanted = Vec::new();
    for file in files.iter().rev() {
        if local_path(&file.uri).is_none() {
            copied += 1;
            copied_bytes += file.size_bytes;
        }
        if file.size_bytes >= FULL_BYTES || copied > MAX_COPIED_FILES || copied_bytes > MAX_COPIED_BYTES {
            break;
        }
        let Some((tier, name)) = place(location, &file.uri) else { break };
        wanted.push((tier, name.to_owned()));
    }
    wanted
}

/// Which directory of the log a file is in, and its name; `None` for one that lies anywhere else.
fn place<'a>(location: &str, uri: &'a str) -> Option<(Tier, &'a str)> {
    let (directory, name) = uri.strip_prefix(location)?.strip_prefix("/data/")?.split_once('/')?;
    let tier = [Tier::Sealed, Tier::Compacted, Tier::Ingested].into_iter().find(|tier| tier.as_str() == directory)?;
    let is_plain = !name.is_empty() && !name.contains('/') && !name.starts_with('.');
    is_plain.then_some((tier, name))
}

/// The file on this machine; `None` if what is there is not the one that the table has.
async fn bring(grounds: Grounds<'_>, file: &DataFile, to: PathBuf) -> Result<Option<PathBuf>, StoreError> {
    if let Some(path) = local_path(&file.uri) {
        return Ok(has_size(&path, file.size_bytes).then_some(path));
    }
    if has_size(&to, file.size_bytes) {
        return Ok(Some(to));
    }
    let size_bytes = grounds.store.download(&file.uri, &to).await?;
    Ok((size_bytes == file.size_bytes).then_some(to))
}

fn has_size(path: &Path, size_bytes: u64) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.len() == size_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(uri: String, size_bytes: u64) -> DataFile {
        DataFile {
            uri,
            start: 1,
            end: 2,
            rows: 1,
            size_bytes,
            ts_us: (0, 0),
            split_offsets: Vec::new(),
            columns: Vec::new(),
        }
    }

    fn sealed(location: &str, sizes: impl IntoIterator<Item = u64>) -> Vec<DataFile> {
        let named = |(n, size)| file(format!("{location}/data/sealed/{n}.parquet"), size);
        sizes.into_iter().enumerate().map(named).collect()
    }

    #[test]
    fn as_many_of_the_newest_come_back_as_the_limits_allow() {
        let s3 = "s3://b/p/r/r";
        let count = |location: &str, sizes: &[u64]| wanted(location, &sealed(location, sizes.iter().copied())).len();
        assert_eq!(count(s3, &[10; 1_000]), MAX_COPIED_FILES);
        assert_eq!(count(s3, &[MAX_COPIED_BYTES / 8; 20]), 8);
        assert_eq!(count(s3, &[10, FULL_BYTES, 10, 10]), 2, "a full file stays where it is");
        assert_eq!(wanted(s3, &sealed(s3, [10; 3]))[0], (Tier::Sealed, "2.parquet".to_owned()), "the newest first");
        let here = "file:///root/r/r";
        assert_eq!(count(here, &[MAX_COPIED_BYTES / 8; 1_000]), 1_000, "nothing is copied");
        let mut mixed = sealed(s3, [10; 3]);
        mixed[1].uri = "s3://b/p/r/r/data/1.parquet".to_owned();
        assert_eq!(wanted(s3, &mixed).len(), 1, "what lies elsewhere ends it");
    }

    #[test]
    fn only_files_of_the_log_itself_come_back() {
        let location = "s3://b/p/r/r";
        let uri = |rest: &str| format!("{location}{rest}");
        assert_eq!(place(location, &uri("/data/sealed/1-2-a.parquet")), Some((Tier::Sealed, "1-2-a.parquet")));
        assert_eq!(place(location, &uri("/data/compacted/1.parquet")), Some((Tier::Compacted, "1.parquet")));
        for rest in
            ["/data/1.parquet", "/data/other/1.parquet", "/data/sealed/", "/data/sealed/../x", "-v2/data/sealed/1"]
        {
            assert_eq!(place(location, &uri(rest)), None, "{rest}");
        }
        assert_eq!(place(location, "s3://c/p/r/r/data/sealed/1.parquet"), None);
    }
}
