//! Versions of a table's metadata: finding the current one and putting the next one in its place.
//!
//! The version a table is at is the last of a chain. The hint names one of its links, normally the last; the name of the
//! next link follows from the one before ([`names::next_stem`]). A version is written with "only if it is not there",
//! which is the moment of commit: of two writers one gets it, and the other starts over from what is there now. The hint
//! is written after it. A writer that dies in between leaves a hint that is behind, and whoever opens the table for
//! writing goes along the chain to its end and repairs the hint.

use bytes::Bytes;
use iceberg::spec::{FormatVersion, TableMetadata};
use uuid::Uuid;

use crate::lake::store::{Placed, Store};

use super::error::TableError;
use super::names;

/// More links than that are not followed at once. A hint is behind by one, if at all.
const MAX_LINKS: usize = 1000;

/// One version of a table's metadata.
#[derive(Debug, Clone)]
pub(super) struct Version {
    pub stem: String,
    pub metadata: TableMetadata,
}

/// The current version, and what the hint says.
pub(super) struct Found {
    pub version: Version,
    /// The stem in the hint.
    pub hinted: String,
}

/// Finds the current version of the table at `location`; `None` where there is no hint.
pub(super) async fn find(store: &Store, location: &str) -> Result<Option<Found>, TableError> {
    let Some(hinted) = hinted(store, location).await? else { return Ok(None) };
    let uri = names::metadata(location, &hinted);
    let Some(bytes) = store.get(&uri).await? else {
        let what = "it does not exist, although version-hint.text names it".to_owned();
        return Err(TableError::Damaged { uri, what });
    };
    let version = Version { metadata: decode(location, &uri, bytes).await?, stem: hinted.clone() };
    let later = follow(store, location, version.metadata.uuid(), &hinted).await?;
    Ok(Some(Found { version: later.unwrap_or(version), hinted }))
}

/// The end of the chain after the version `stem` of a table; `None` if that is the end.
pub(super) async fn follow(
    store: &Store,
    location: &str,
    table: Uuid,
    stem: &str,
) -> Result<Option<Version>, TableError> {
    let mut last = None;
    let mut stem = stem.to_owned();
    for _ in 0..MAX_LINKS {
        stem = names::next_stem(table, &stem);
        let uri = names::metadata(location, &stem);
        let Some(bytes) = store.get(&uri).await? else { return Ok(last) };
        last = Some(Version { metadata: decode(location, &uri, bytes).await?, stem: stem.clone() });
    }
    Err(TableError::Damaged {
        uri: names::hint(location),
        what: format!("there are more than {MAX_LINKS} versions after the one it names"),
    })
}

/// The stem that the hint holds.
pub(super) async fn hinted(store: &Store, location: &str) -> Result<Option<String>, TableError> {
    let uri = names::hint(location);
    let Some(bytes) = store.get(&uri).await? else { return Ok(None) };
    let stem = std::str::from_utf8(&bytes).map(str::trim).unwrap_or_default();
    // Some programs write the whole name of the file.
    let stem = stem.strip_suffix(".metadata.json").unwrap_or(stem);
    if names::is_stem(stem) {
        Ok(Some(stem.to_owned()))
    } else {
        Err(TableError::Damaged { uri, what: "it does not name a version".to_owned() })
    }
}

pub(super) async fn write_hint(store: &Store, location: &str, stem: &str) -> Result<(), TableError> {
    Ok(store.put(&names::hint(location), Bytes::copy_from_slice(stem.as_bytes())).await?)
}

/// Writes the version after `current`; `None` if somebody else has written it.
pub(super) async fn install(
    store: &Store,
    location: &str,
    current: &str,
    metadata: TableMetadata,
) -> Result<Option<Version>, TableError> {
    let stem = names::next_stem(metadata.uuid(), current);
    let uri = names::metadata(location, &stem);
    match store.put_if_absent(&uri, encode(&uri, &metadata)?).await? {
        Placed::Ours => Ok(Some(Version { stem, metadata })),
        Placed::Taken => Ok(None),
    }
}

pub(super) fn encode(uri: &str, metadata: &TableMetadata) -> Result<Bytes, TableError> {
    serde_json::to_vec(metadata)
        .map(Bytes::from)
        .map_err(|error| TableError::Damaged { uri: uri.to_owned(), what: format!("it cannot be written ({error})") })
}

/// Reads a version. What this program cannot work with is refused here, once.
pub(super) async fn decode(location: &str, uri: &str, bytes: Bytes) -> Result<TableMetadata, TableError> {
    let parsed = tokio::task::spawn_blocking(move || serde_json::from_slice::<TableMetadata>(&bytes)).await;
    let damaged = |what: String| TableError::Damaged { uri: uri.to_owned(), what };
    let metadata = parsed.map_err(|error| damaged(error.to_string()))?.map_err(|error| damaged(error.to_string()))?;
    let foreign = |what: &str| TableError::Foreign { location: location.to_owned(), what: what.to_owned() };
    if metadata.format_version() != FormatVersion::V2 {
        return Err(foreign("is not of Iceberg's format version 2"));
    }
    if !metadata.default_partition_spec().fields().is_empty() {
        return Err(foreign("is partitioned"));
    }
    Ok(metadata)
}
