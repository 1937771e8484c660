//! Deleting the table of a log that is dropped.

use crate::lake::steps::step;
use crate::lake::store::{Object, Store};

use super::error::TableError;
use super::names;
use super::properties::RETIRED;
use super::version;

/// Files deleted at a time.
const BATCH_FILES: usize = 1000;

/// What a deletion has, or would have, deleted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Deletion {
    /// Files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Deletes everything below the table at `location`, whose log must be marked as finished (`litelink.retired`): data
/// first, then metadata, then the hint, and the version that has the mark last. So a call that was cut off can be made
/// again until nothing is left. Nothing there is deleted already.
///
/// # Errors
/// [`TableError::NotRetired`], or the store's.
pub async fn delete_all(store: &Store, location: &str, dry_run: bool) -> Result<Deletion, TableError> {
    let location = location.trim_end_matches('/');
    let Some(last) = marked_version(store, location).await? else {
        return left_over(store, location, dry_run).await;
    };
    let (hint, lock) = (names::hint(location), format!("{}/.lock", names::metadata_directory(location)));
    let mut deletion = Deletion::default();
    let lasting = [hint.clone(), last.clone(), lock.clone()];
    let data = format!("{location}/data");
    delete_below(store, &data, |_| true, dry_run, &mut deletion).await?;
    // A dry run has left the data where it is.
    let data = format!("{data}/");
    let metadata = |uri: &str| !lasting.iter().any(|it| it == uri) && !uri.starts_with(&data);
    delete_below(store, location, metadata, dry_run, &mut deletion).await?;
    for uri in [hint, last, lock] {
        if let Some(object) = store.head(&uri).await? {
            count(&mut deletion, &object);
            if !dry_run {
                step("part of a table is deleted");
                store.delete(&uri).await?;
            }
        }
    }
    if !dry_run {
        store.delete_empty_directories(location).await?;
    }
    Ok(deletion)
}

/// Deletes data files below a place where no table is, unless there are versions of one: a deletion that was cut off has
/// left these, and [`delete_all`] goes on with it.
///
/// # Errors
/// The store's.
pub async fn delete_unnamed(store: &Store, location: &str) -> Result<(), TableError> {
    if version::find(store, location).await?.is_some() || highest_stem(store, location).await?.is_some() {
        return Ok(());
    }
    delete_below(store, &format!("{location}/data"), |_| true, false, &mut Deletion::default()).await
}

/// The URI of the version that has the mark; `None` if there is no version at all.
async fn marked_version(store: &Store, location: &str) -> Result<Option<String>, TableError> {
    let (uri, metadata) = match version::find(store, location).await? {
        Some(found) => (names::metadata(location, &found.version.stem), found.version.metadata),
        // The hint is gone: a deletion that was cut off left the version that it had named.
        None => {
            let Some(stem) = highest_stem(store, location).await? else { return Ok(None) };
            let uri = names::metadata(location, &stem);
            let Some(bytes) = store.get(&uri).await? else { return Ok(None) };
            let metadata = version::decode(location, &uri, bytes).await?;
            (uri, metadata)
        }
    };
    if metadata.properties().contains_key(RETIRED) {
        Ok(Some(uri))
    } else {
        Err(TableError::NotRetired { location: location.to_owned() })
    }
}

async fn highest_stem(store: &Store, location: &str) -> Result<Option<String>, TableError> {
    let mut listing = store.list(&names::metadata_directory(location))?;
    let mut highest: Option<String> = None;
    loop {
        let page = listing.next_page().await?;
        if page.is_empty() {
            return Ok(highest);
        }
        for stem in page.iter().filter_map(|object| names::stem_of(&object.uri)) {
            if highest.as_deref().is_none_or(|highest| names::number(stem) > names::number(highest)) {
                highest = Some(stem.to_owned());
            }
        }
    }
}

/// Where there is no version there must be nothing; a lock and empty directories may be left.
async fn left_over(store: &Store, location: &str, dry_run: bool) -> Result<Deletion, TableError> {
    let lock = format!("{}/.lock", names::metadata_directory(location));
    let mut listing = store.list(location)?;
    loop {
        let page = listing.next_page().await?;
        if page.is_empty() {
            break;
        }
        if let Some(object) = page.iter().find(|object| object.uri != lock && object.size_bytes > 0) {
            let what = "there are files at this place and no table's metadata, so it is not deleted".to_owned();
            return Err(TableError::Damaged { uri: object.uri.clone(), what });
        }
    }
    if !dry_run {
        store.delete(&lock).await?;
        store.delete_empty_directories(location).await?;
    }
    Ok(Deletion::default())
}

async fn delete_below(
    store: &Store,
    prefix: &str,
    wanted: impl Fn(&str) -> bool,
    dry_run: bool,
    deletion: &mut Deletion,
) -> Result<(), TableError> {
    let mut listing = store.list(prefix)?;
    let mut batch = Vec::new();
    loop {
        let page = listing.next_page().await?;
        let done = page.is_empty();
        for object in page.into_iter().filter(|object| wanted(&object.uri)) {
            count(deletion, &object);
            batch.push(object.uri);
        }
        if !dry_run && (done || batch.len() >= BATCH_FILES) {
            store.delete_many(&std::mem::take(&mut batch)).await?;
        }
        if dry_run {
            batch.clear();
        }
        if done {
            return Ok(());
        }
    }
}

fn count(deletion: &mut Deletion, object: &Object) {
    deletion.files += 1;
    deletion.bytes += object.size_bytes;
}
