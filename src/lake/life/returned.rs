//! The end of a restored log, back on this machine: replays read it there as they did before the loss.

use std::fs;
use std::path::{Path, PathBuf};

use super::estate::Grounds;
use crate::lake::DataFile;
use crate::lake::catalog::{NewFile, Tier};
use crate::lake::documents::{LiveLog, local_path};
use crate::lake::store::StoreError;

/// A file of this size is full: it was never to be read again for a merge, and it and those before it stay where they are.
const FULL_BYTES: u64 = 512 << 20;

/// The most that is copied for one stream, in bytes.
const MAX_COPIED_BYTES: u64 = 2 << 30;

/// The files of a table as the catalog gets them. Those after the last full one are copied into the stream's directories,
/// the newest first, until one cannot be; a table in a local directory needs no copies.
///
/// Best effort: what is not copied is read where it is published, by those that read there.
pub(super) async fn returned(
    grounds: Grounds<'_>,
    stream: &str,
    live: &LiveLog,
    location: &str,
    files: Vec<DataFile>,
) -> Vec<NewFile> {
    let data = grounds.root.join(stream).join(&live.name).join("data");
    let mut copied = 0;
    let mut returning = true;
    let mut new: Vec<NewFile> = Vec::with_capacity(files.len());
    for file in files.into_iter().rev() {
        copied += file.size_bytes;
        returning &= file.size_bytes < FULL_BYTES && copied <= MAX_COPIED_BYTES;
        let mut here = None;
        if let Some((tier, name)) = place(location, &file.uri).filter(|_| returning) {
            let to = data.join(tier.as_str()).join(name);
            match bring(grounds, &file, to).await {
                Ok(path) => here = path.map(|path| (path, tier)),
                Err(error) => tracing::warn!(stream, uri = file.uri, %error, "a published file is not copied back"),
            }
        }
        returning &= here.is_some();
        let (path, tier) = here.map_or((None, Tier::Ingested), |(path, tier)| (Some(path), tier));
        new.push(NewFile { file, local: path.is_some(), path, tier, published: true });
    }
    new.reverse();
    new
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
