//! Manifests and manifest lists, through iceberg's own types. Its writers want a place to write to and know nothing of
//! syncs and conditions, so they write into memory, and the store takes it from there.

use std::collections::HashMap;

use futures_util::stream::{self, StreamExt as _};
use iceberg::io::FileIO;
use iceberg::spec::{
    DataContentType, DataFile as Entry, DataFileBuilder, DataFileFormat, Datum, FormatVersion, Manifest,
    ManifestContentType, ManifestEntry, ManifestFile, ManifestList, ManifestListWriter, ManifestStatus,
    ManifestWriterBuilder, Schema, Struct, TableMetadata,
};

use crate::lake::data_file::{ColumnStats, DataFile};
use crate::lake::store::Store;

use super::error::TableError;
use super::index::{Index, Live};
use super::spec::{OFFSET_COLUMN, STAMP_COLUMN};

/// The most live files in a manifest that this program writes. More files are more manifests.
pub(super) const MAX_FILES_PER_MANIFEST: usize = 512;
/// A manifest that has grown to this size, in bytes, is not added to: tables with many columns have large entries.
pub(super) const FULL_MANIFEST_BYTES: i64 = 1 << 20;

/// Manifests that are fetched and parsed side by side: a bucket is far, and memory is not for all of them.
const MANIFESTS_AT_ONCE: usize = 2;

/// One entry of a new manifest.
pub(super) enum NewEntry {
    Added(Entry),
    Existing(ManifestEntry),
    Deleted(ManifestEntry),
}

impl NewEntry {
    /// About how many bytes it will take up.
    pub(super) fn estimated_bytes(&self) -> i64 {
        let file = match self {
            Self::Added(file) => file,
            Self::Existing(entry) | Self::Deleted(entry) => &entry.data_file,
        };
        let counts = file.column_sizes().len() + file.value_counts().len() + file.null_value_counts().len();
        let bounds = file.lower_bounds().len() + file.upper_bounds().len();
        i64::try_from(200 + file.file_path().len() + counts * 6 + bounds * 16).unwrap_or(i64::MAX)
    }
}

/// The manifests of a snapshot. Refuses row-level deletes, which this program would have to apply and does not write.
pub(super) async fn read_list(store: &Store, location: &str, uri: &str) -> Result<Vec<ManifestFile>, TableError> {
    find_list(store, location, uri).await?.ok_or_else(|| missing(uri))
}

/// The same of a snapshot that may have been deleted: `None` if its list is not there.
pub(super) async fn find_list(
    store: &Store,
    location: &str,
    uri: &str,
) -> Result<Option<Vec<ManifestFile>>, TableError> {
    let Some(bytes) = store.get(uri).await? else { return Ok(None) };
    let list = ManifestList::parse_with_version(&bytes, FormatVersion::V2);
    let list = list.map_err(|error| TableError::Damaged { uri: uri.to_owned(), what: error.to_string() })?;
    let manifests: Vec<_> = list.consume_entries().into_iter().collect();
    if manifests.iter().any(|manifest| manifest.content != ManifestContentType::Data) {
        let what = "has deleted rows inside of files".to_owned();
        return Err(TableError::Foreign { location: location.to_owned(), what });
    }
    Ok(Some(manifests))
}

/// All entries of a manifest, deleted ones included, with the numbers they inherit.
pub(super) async fn read_manifest(store: &Store, manifest: &ManifestFile) -> Result<Vec<ManifestEntry>, TableError> {
    find_manifest(store, manifest).await?.ok_or_else(|| missing(&manifest.manifest_path))
}

/// The same of a snapshot that may have been deleted: `None` if it is not there.
pub(super) async fn find_manifest(
    store: &Store,
    manifest: &ManifestFile,
) -> Result<Option<Vec<ManifestEntry>>, TableError> {
    let Some(bytes) = store.get(&manifest.manifest_path).await? else { return Ok(None) };
    let parsed = tokio::task::spawn_blocking(move || Manifest::parse_avro(&bytes)).await;
    let damaged = |what: String| TableError::Damaged { uri: manifest.manifest_path.clone(), what };
    let parsed = parsed.map_err(|error| damaged(error.to_string()))?.map_err(|error| damaged(error.to_string()))?;
    let (entries, _) = parsed.into_parts();
    let entries = entries.into_iter().map(|entry| {
        let mut entry = std::sync::Arc::unwrap_or_clone(entry);
        entry.snapshot_id.get_or_insert(manifest.added_snapshot_id);
        entry.sequence_number.get_or_insert(manifest.sequence_number);
        entry.file_sequence_number.get_or_insert(manifest.sequence_number);
        entry
    });
    Ok(Some(entries.collect()))
}

/// The live files of the snapshot whose manifests are given.
pub(super) async fn read_index(
    store: &Store,
    metadata: &TableMetadata,
    manifests: Vec<ManifestFile>,
) -> Result<Index, TableError> {
    let mut files = Vec::new();
    let wanted: Vec<ManifestFile> = manifests.iter().filter(|manifest| live_files(manifest) > 0).cloned().collect();
    let mut read = stream::iter(wanted)
        .map(|manifest| {
            let store = store.clone();
            async move { read_manifest(&store, &manifest).await }
        })
        .buffered(MANIFESTS_AT_ONCE);
    while let Some(entries) = read.next().await {
        for entry in entries?.iter().filter(|entry| entry.is_alive()) {
            files.push(live(metadata, &entry.data_file)?);
        }
    }
    let mut index = Index { files, manifests };
    index.files.sort_by_key(|file| file.start);
    match index.overlap() {
        Some((one, two)) => Err(TableError::Damaged {
            uri: two.uri.to_string(),
            what: format!("its offsets {} to {} are also in {}", two.start, two.end, one.uri),
        }),
        None => Ok(index),
    }
}

/// Live files of a manifest; what is not counted is taken for one.
pub(super) fn live_files(manifest: &ManifestFile) -> u64 {
    u64::from(manifest.added_files_count.unwrap_or(1)) + u64::from(manifest.existing_files_count.unwrap_or(1))
}

fn missing(uri: &str) -> TableError {
    TableError::Damaged { uri: uri.to_owned(), what: "it does not exist".to_owned() }
}

/// Whether nothing is added to a manifest any more.
pub(super) fn is_full(manifest: &ManifestFile) -> bool {
    manifest.manifest_length >= FULL_MANIFEST_BYTES || live_files(manifest) >= MAX_FILES_PER_MANIFEST as u64
}

/// Takes those manifests out of `listed`, oldest first, that are written anew together with `new` more files: from the
/// first one on that has no more files than all that come after it. So each of those that stay has more than all after
/// it together: a table has few small manifests, and an entry is written once for every doubling, not with every change.
pub(super) fn absorb(listed: &mut Vec<ManifestFile>, new: usize) -> Vec<ManifestFile> {
    let (mut after, mut from) = (new as u64, listed.len());
    for (at, manifest) in listed.iter().enumerate().rev().filter(|(_, manifest)| !is_full(manifest)) {
        let live = live_files(manifest);
        if live <= after {
            from = at;
        }
        after += live;
    }
    let (full, small): (Vec<_>, Vec<_>) = listed.drain(from..).partition(is_full);
    listed.extend(full);
    small
}

/// A live file in short.
pub(super) fn live(metadata: &TableMetadata, entry: &Entry) -> Result<Live, TableError> {
    let damaged = |what: &str| TableError::Damaged { uri: entry.file_path().to_owned(), what: what.to_owned() };
    if entry.file_format() != DataFileFormat::Parquet {
        return Err(damaged("it is not a Parquet file"));
    }
    let bounds = |column: &str| {
        let id = metadata.current_schema().field_id_by_name(column)?;
        Some((integer(entry.lower_bounds().get(&id)?)?, integer(entry.upper_bounds().get(&id)?)?))
    };
    let Some((first, last)) = bounds(OFFSET_COLUMN) else {
        return Err(damaged("its manifest does not say which offsets it has"));
    };
    Ok(Live {
        uri: entry.file_path().into(),
        start: first,
        end: last.saturating_add(1),
        rows: entry.record_count(),
        size_bytes: entry.file_size_in_bytes(),
        ts_us: bounds(STAMP_COLUMN).unwrap_or((i64::MIN, i64::MAX)),
        split_offsets: entry.split_offsets().unwrap_or_default().into(),
    })
}

fn integer(bound: &Datum) -> Option<i64> {
    let bytes = bound.to_bytes().ok()?;
    match bytes.len() {
        4 => Some(i64::from(i32::from_le_bytes(bytes.as_ref().try_into().ok()?))),
        8 => Some(i64::from_le_bytes(bytes.as_ref().try_into().ok()?)),
        _ => None,
    }
}

/// What is known of a file's columns, from its entry.
pub(super) fn columns(entry: &Entry) -> Vec<ColumnStats> {
    let bound = |bounds: &HashMap<i32, Datum>, id| {
        bounds.get(&id).and_then(|bound| bound.to_bytes().ok()).map(|it| it.to_vec())
    };
    let mut ids: Vec<i32> = entry.value_counts().keys().chain(entry.lower_bounds().keys()).copied().collect();
    ids.sort_unstable();
    ids.dedup();
    let stats = ids.into_iter().map(|id| ColumnStats {
        field_id: id,
        size_bytes: entry.column_sizes().get(&id).copied().unwrap_or(0),
        values: entry.value_counts().get(&id).copied().unwrap_or(entry.record_count()),
        nulls: entry.null_value_counts().get(&id).copied().unwrap_or(0),
        lower: bound(entry.lower_bounds(), id),
        upper: bound(entry.upper_bounds(), id),
    });
    stats.collect()
}

/// The entry of a file that is taken away, without what it tells of the file's values: the manifest stays for a while,
/// and the rows may be gone for good.
fn without_bounds(mut entry: ManifestEntry) -> Result<ManifestEntry, iceberg::Error> {
    let file = &entry.data_file;
    let told = DataFileBuilder::default()
        .content(file.content_type())
        .file_path(file.file_path().to_owned())
        .file_format(file.file_format())
        .partition(Struct::empty())
        .record_count(file.record_count())
        .file_size_in_bytes(file.file_size_in_bytes())
        .build();
    entry.data_file = told.map_err(|error| iceberg::Error::new(iceberg::ErrorKind::DataInvalid, error.to_string()))?;
    Ok(entry)
}

/// The entry of a new file. The bounds of offsets and stamps are those that the file is said to have.
pub(super) fn entry(location: &str, schema: &Schema, file: &DataFile) -> Result<Entry, TableError> {
    let damaged = |what: String| TableError::Misfit {
        uri: file.uri.clone(),
        start: file.start,
        end: file.end,
        location: location.to_owned(),
        why: what,
    };
    let (mut lower, mut upper) = (HashMap::new(), HashMap::new());
    for column in &file.columns {
        let field = schema.field_by_id(column.field_id);
        let field = field.ok_or_else(|| damaged(format!("the table has no field {}", column.field_id)))?;
        let Some(primitive) = field.field_type.as_primitive_type() else { continue };
        for (bound, bounds) in [(&column.lower, &mut lower), (&column.upper, &mut upper)] {
            if let Some(bytes) = bound {
                let datum = Datum::try_from_bytes(bytes, primitive.clone());
                let datum = datum.map_err(|error| damaged(format!("a bound of {} is wrong ({error})", field.name)))?;
                bounds.insert(column.field_id, datum);
            }
        }
    }
    for (name, (first, last)) in [(OFFSET_COLUMN, (file.start, file.end - 1)), (STAMP_COLUMN, file.ts_us)] {
        if let Some(id) = schema.field_id_by_name(name) {
            lower.insert(id, Datum::long(first));
            upper.insert(id, Datum::long(last));
        }
    }
    let counts = |count: fn(&ColumnStats) -> u64| file.columns.iter().map(|it| (it.field_id, count(it))).collect();
    DataFileBuilder::default()
        .content(DataContentType::Data)
        .file_path(file.uri.clone())
        .file_format(DataFileFormat::Parquet)
        .partition(Struct::empty())
        .record_count(file.rows)
        .file_size_in_bytes(file.size_bytes)
        .column_sizes(counts(|column| column.size_bytes))
        .value_counts(counts(|column| column.values))
        .null_value_counts(counts(|column| column.nulls))
        .lower_bounds(lower)
        .upper_bounds(upper)
        .split_offsets((!file.split_offsets.is_empty()).then(|| file.split_offsets.clone()))
        .build()
        .map_err(|error| damaged(error.to_string()))
}

/// Writes one manifest to `uri`.
pub(super) async fn write_manifest(
    store: &Store,
    metadata: &TableMetadata,
    snapshot_id: i64,
    uri: &str,
    entries: Vec<NewEntry>,
) -> Result<ManifestFile, TableError> {
    let memory = FileIO::new_with_memory();
    let write = async {
        let spec = metadata.default_partition_spec().as_ref().clone();
        let output = memory.new_output(uri)?;
        let mut writer = ManifestWriterBuilder::new(output, Some(snapshot_id), metadata.current_schema().clone(), spec)
            .build_v2_data();
        for entry in entries {
            match entry {
                // Without a number it has that of the snapshot, which the list gives to the manifest.
                NewEntry::Added(file) => writer.add_file(file, -1)?,
                NewEntry::Existing(entry) => {
                    let sequence = entry.sequence_number.unwrap_or(0);
                    let snapshot = entry.snapshot_id.unwrap_or(0);
                    writer.add_existing_file(
                        entry.data_file,
                        snapshot,
                        sequence,
                        entry.file_sequence_number.or(Some(sequence)),
                    )?;
                }
                NewEntry::Deleted(entry) => {
                    let entry = without_bounds(entry)?;
                    let sequence = entry.sequence_number.unwrap_or(0);
                    writer.add_delete_file(entry.data_file, sequence, entry.file_sequence_number.or(Some(sequence)))?;
                }
            }
        }
        let manifest = writer.write_manifest_file().await?;
        Ok((manifest, memory.new_input(uri)?.read().await?))
    };
    let (manifest, bytes) = write.await.map_err(TableError::format("write a manifest", metadata.location()))?;
    store.put(uri, bytes).await?;
    Ok(manifest)
}

/// Writes the list of a snapshot's manifests to `uri`.
pub(super) async fn write_list(
    store: &Store,
    metadata: &TableMetadata,
    (snapshot_id, parent_id, sequence_number): (i64, Option<i64>, i64),
    uri: &str,
    manifests: &[ManifestFile],
) -> Result<(), TableError> {
    let memory = FileIO::new_with_memory();
    let write = async {
        let output = memory.new_output(uri)?.writer().await?;
        let mut writer = ManifestListWriter::v2(output, snapshot_id, parent_id, sequence_number);
        writer.add_manifests(manifests.iter().cloned())?;
        writer.close().await?;
        memory.new_input(uri)?.read().await
    };
    let bytes = write.await.map_err(TableError::format("write a manifest list", metadata.location()))?;
    Ok(store.put(uri, bytes).await?)
}

/// Whether a file below a table may hold rows, or bounds of their values: data files, manifests and their lists.
pub(super) fn may_tell_values(uri: &str) -> bool {
    uri.ends_with(".parquet") || uri.ends_with(".avro")
}

/// Whether a file of an entry that was deleted by `snapshot_id` is meant.
pub(super) fn deleted_by(entry: &ManifestEntry, snapshot_id: i64) -> bool {
    entry.status == ManifestStatus::Deleted && entry.snapshot_id == Some(snapshot_id)
}
