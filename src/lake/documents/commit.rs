//! Committing a version of a stream's document.
//!
//! In each place: the manifest if there is a new one, the version under a name that was never used, the hint, the
//! plain copies, and then what is too old goes. A crash leaves the hint on a complete version. A stream whose tables
//! are in a bucket has its documents there as well, under the same names.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::files::{self, Places};
use super::model::Document;
use super::remote::{Disk, Objects};
use crate::lake::error::LakeError;
use crate::lake::steps::step;

/// Versions that are kept.
const KEPT_VERSIONS: usize = 10;

/// Which place is written first: what a document promises must not be shown before the place that matters has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// The data root, then the bucket.
    HomeFirst,
    /// The bucket, then the data root: for what takes rows away from readers.
    BucketFirst,
}

/// What a commit does with the statistics of finished logs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The new version names the manifest that the current one names.
    Keep,
    /// There is none any more.
    Clear,
    /// These bytes.
    Replace(Vec<u8>),
}

/// A document as it was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Current {
    /// The name of its version; `None` if only the plain copy is there.
    pub version: Option<String>,
    /// What it says.
    pub document: Document,
    /// Where it was read.
    pub source: String,
}

/// The documents of one stream.
#[derive(Debug, Clone)]
pub struct Documents {
    stream: String,
    home: PathBuf,
    bucket: Option<Arc<dyn Objects>>,
}

/// One place with documents.
#[derive(Debug, Clone)]
pub(super) struct Shelf<'a> {
    objects: &'a dyn Objects,
    places: Places,
}

impl Documents {
    /// The documents of `stream` below the absolute path `root`. `bucket` is used if its tables are in one.
    #[must_use]
    pub fn new(root: &Path, stream: &str, bucket: Option<Arc<dyn Objects>>) -> Self {
        Self { stream: stream.to_owned(), home: root.join(stream), bucket }
    }

    /// The current document of the data root.
    ///
    /// # Errors
    /// When a file cannot be read or makes no sense.
    pub async fn current(&self) -> Result<Option<Current>, LakeError> {
        self.shelf_at_home()?.current(&self.stream).await
    }

    /// The current document below a prefix: `s3://…`, or `file://…` and a path.
    ///
    /// # Errors
    /// When there is no way to a bucket, or a file cannot be read or makes no sense.
    pub async fn current_below(&self, prefix: &str) -> Result<Option<Current>, LakeError> {
        self.shelf_below(prefix)?.current(&self.stream).await
    }

    /// The bytes of the manifest that `current` names, from beside it; `None` if there is none.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub async fn manifest(&self, current: &Current) -> Result<Option<Vec<u8>>, LakeError> {
        let Some(name) = &current.document.manifest else { return Ok(None) };
        let directory = current.source.rsplit_once('/').map_or("", |(directory, _)| directory);
        let objects = if directory.contains("://") { self.bucket()? } else { &Disk };
        objects.get(&format!("{directory}/{name}")).await
    }

    /// Writes `document` as the next version. With `expected`, the name of the version it was made from, nothing is
    /// written if another one is current by now.
    ///
    /// # Errors
    /// [`LakeError::Changed`] in that case, or when a place cannot be written; what is written so far is then
    /// complete in itself, and writing the same again is right.
    pub async fn commit(
        &self,
        mut document: Document,
        manifest: Change,
        expected: Option<&Current>,
        order: Order,
    ) -> Result<Current, LakeError> {
        let home = self.shelf_at_home()?;
        let _lock = files::lock(Path::new(&home.places.versions))?;
        let current = home.current(&self.stream).await?;
        if let Some(expected) = expected
            && current.as_ref().and_then(|current| current.version.as_ref()) != expected.version.as_ref()
        {
            return Err(LakeError::Changed { stream: self.stream.clone() });
        }
        let mut shelves = self.shelves(&document)?;
        let mut highest = current.as_ref().and_then(Current::number).unwrap_or(0);
        for shelf in &shelves[1..] {
            highest = highest.max(shelf.current(&self.stream).await?.as_ref().and_then(Current::number).unwrap_or(0));
        }
        let (version, manifest_name) = files::version_names(highest + 1);
        let mut bytes = None;
        match manifest {
            Change::Clear => document.manifest = None,
            Change::Replace(new) => {
                document.manifest = Some(manifest_name);
                bytes = Some(new);
            }
            Change::Keep => {
                document.manifest = current.as_ref().and_then(|current| current.document.manifest.clone());
                if let Some(current) = &current {
                    bytes = self.manifest(current).await?;
                }
            }
        }
        if order == Order::BucketFirst {
            shelves.reverse();
        }
        let source = shelves.iter().find(|shelf| !is_remote(&shelf.places.versions));
        let source = source.map(|shelf| shelf.places.beside_hint(&version)).unwrap_or_default();
        for shelf in &shelves {
            shelf.write(&version, &document, bytes.as_deref()).await?;
        }
        Ok(Current { version: Some(version), document, source })
    }

    /// Writes `document` as the next version of the data root alone: its bucket is not asked.
    ///
    /// # Errors
    /// When the data root cannot be written.
    pub async fn commit_at_home(&self, mut document: Document, manifest: Change) -> Result<Current, LakeError> {
        let home = self.shelf_at_home()?;
        let _lock = files::lock(Path::new(&home.places.versions))?;
        let number = home.current(&self.stream).await?.as_ref().and_then(Current::number).unwrap_or(0) + 1;
        let (version, manifest_name) = files::version_names(number);
        let bytes = match manifest {
            Change::Replace(bytes) => Some(bytes),
            Change::Keep | Change::Clear => None,
        };
        document.manifest = bytes.as_ref().map(|_| manifest_name);
        home.write(&version, &document, bytes.as_deref()).await?;
        Ok(Current { source: home.places.beside_hint(&version), version: Some(version), document })
    }

    /// Makes what lies beside the current version of each place complete: plain copies that a crash left old, and
    /// the bucket's copy of a version that only the data root has.
    pub(super) async fn complete(&self, current: &Current) -> Result<(), LakeError> {
        let home = self.shelf_at_home()?;
        let _lock = files::lock(Path::new(&home.places.versions))?;
        self.complete_locked(&home, current).await
    }

    /// [`Documents::complete`] for whatever version of the data root is current.
    ///
    /// # Errors
    /// When a place cannot be read or written.
    pub async fn complete_current(&self) -> Result<(), LakeError> {
        let home = self.shelf_at_home()?;
        let _lock = files::lock(Path::new(&home.places.versions))?;
        match home.current(&self.stream).await? {
            Some(current) => self.complete_locked(&home, &current).await,
            None => Ok(()),
        }
    }

    async fn complete_locked(&self, home: &Shelf<'_>, current: &Current) -> Result<(), LakeError> {
        let manifest = self.manifest(current).await?;
        home.complete(&current.document, manifest.as_deref()).await?;
        let Some(prefix) = current.document.live_log.published.as_deref().filter(|prefix| is_remote(prefix)) else {
            return Ok(());
        };
        let bucket = self.shelf_below(prefix)?;
        match bucket.current(&self.stream).await? {
            Some(there) if there.document == current.document && there.version.is_some() => {
                bucket.complete(&current.document, manifest.as_deref()).await
            }
            _ => {
                let Some(version) = &current.version else { return Ok(()) };
                bucket.write(version, &current.document, manifest.as_deref()).await
            }
        }
    }

    /// The places with the stream's documents: the data root, and the bucket if its tables are in one.
    pub(super) fn shelves(&self, document: &Document) -> Result<Vec<Shelf<'_>>, LakeError> {
        let mut shelves = vec![self.shelf_at_home()?];
        if let Some(prefix) = document.live_log.published.as_deref().filter(|prefix| is_remote(prefix)) {
            shelves.push(self.shelf_below(prefix)?);
        }
        Ok(shelves)
    }

    /// A file beside the versions of the place that `current` was read from: where it is, and its bytes if it is there.
    pub(super) async fn beside(&self, current: &Current, name: &str) -> Result<(String, Option<Vec<u8>>), LakeError> {
        let directory = current.source.rsplit_once('/').map_or("", |(directory, _)| directory);
        let objects = if directory.contains("://") { self.bucket()? } else { &Disk };
        let uri = match current.version {
            Some(_) => format!("{directory}/{name}"),
            None => Places::new(directory, &self.stream).beside_hint(name),
        };
        let bytes = objects.get(&uri).await?;
        Ok((uri, bytes))
    }

    /// The shelf on the disk of this machine.
    fn shelf_at_home(&self) -> Result<Shelf<'static>, LakeError> {
        let home =
            self.home.to_str().ok_or_else(|| LakeError::Root { root: self.home.clone(), why: "is not UTF-8" })?;
        Ok(Shelf { objects: &Disk, places: Places::new(home, &self.stream) })
    }

    pub(super) fn shelf_below(&self, prefix: &str) -> Result<Shelf<'_>, LakeError> {
        let prefix = prefix.trim_end_matches('/');
        if is_remote(prefix) {
            return Ok(Shelf { objects: self.bucket()?, places: Places::new(prefix, &self.stream) });
        }
        let path = prefix.strip_prefix("file://").unwrap_or(prefix);
        Ok(Shelf { objects: &Disk, places: Places::new(path, &self.stream) })
    }

    fn bucket(&self) -> Result<&dyn Objects, LakeError> {
        self.bucket.as_deref().ok_or_else(|| LakeError::NoStore { stream: self.stream.clone() })
    }
}

impl Current {
    fn number(&self) -> Option<u64> {
        files::version_number(self.version.as_deref()?)
    }
}

/// Whether a prefix is in a bucket.
pub(super) fn is_remote(prefix: &str) -> bool {
    prefix.starts_with("s3://")
}

impl Shelf<'_> {
    /// A file beside the versions.
    pub(super) async fn beside(&self, name: &str) -> Result<Option<Vec<u8>>, LakeError> {
        self.objects.get(&self.places.beside_hint(name)).await
    }

    /// Writes a file beside the versions.
    pub(super) async fn put_beside(&self, name: &str, bytes: Vec<u8>) -> Result<(), LakeError> {
        self.objects.put(&self.places.beside_hint(name), bytes).await
    }

    /// The names of the files beside the versions.
    pub(super) async fn names(&self) -> Result<Vec<String>, LakeError> {
        self.objects.names(&self.places.versions).await
    }

    /// Deletes a file beside the versions.
    pub(super) async fn delete_beside(&self, name: &str) -> Result<(), LakeError> {
        self.objects.delete(&self.places.beside_hint(name)).await
    }

    /// Deletes the plain copies.
    pub(super) async fn delete_plain(&self) -> Result<(), LakeError> {
        self.objects.delete(&self.places.plain_manifest).await?;
        self.objects.delete(&self.places.plain).await
    }

    async fn current(&self, stream: &str) -> Result<Option<Current>, LakeError> {
        let parse = |source: &str, bytes: Vec<u8>| {
            let damaged = |what| LakeError::Damaged { path: PathBuf::from(source), what };
            let text = String::from_utf8(bytes).map_err(|_| damaged("it is not UTF-8".to_owned()))?;
            let document = Document::parse(&text).map_err(damaged)?;
            if document.stream != stream {
                let (found, recorded) = (format!("{:?}", document.stream), format!("{stream:?}"));
                return Err(LakeError::Foreign { path: PathBuf::from(source), what: "stream", found, recorded });
            }
            Ok(document)
        };
        if let Some(hint) = self.objects.get(&self.places.hint).await? {
            let damaged = |what| LakeError::Damaged { path: PathBuf::from(&self.places.hint), what };
            let version = String::from_utf8_lossy(&hint).trim().to_owned();
            if version.is_empty() || version.contains('/') {
                return Err(damaged("it names no version".to_owned()));
            }
            let source = self.places.beside_hint(&version);
            let Some(bytes) = self.objects.get(&source).await? else {
                return Err(damaged(format!("the version {version:?} that it names is missing")));
            };
            return Ok(Some(Current { document: parse(&source, bytes)?, version: Some(version), source }));
        }
        let Some(bytes) = self.objects.get(&self.places.plain).await? else { return Ok(None) };
        let source = self.places.plain.clone();
        Ok(Some(Current { document: parse(&source, bytes)?, version: None, source }))
    }

    async fn write(&self, version: &str, document: &Document, manifest: Option<&[u8]>) -> Result<(), LakeError> {
        if let (Some(name), Some(bytes)) = (&document.manifest, manifest) {
            let uri = self.places.beside_hint(name);
            if self.objects.get(&uri).await?.is_none() {
                self.objects.put(&uri, bytes.to_vec()).await?;
                step("document: manifest written");
            }
        }
        self.objects.put(&self.places.beside_hint(version), document.text().into_bytes()).await?;
        step("document: version written");
        self.objects.put(&self.places.hint, version.as_bytes().to_vec()).await?;
        step("document: hint written");
        self.complete(document, manifest).await?;
        step("document: plain copies written");
        self.prune(version).await
    }

    /// Writes the plain copies if they are not those of `document`.
    async fn complete(&self, document: &Document, manifest: Option<&[u8]>) -> Result<(), LakeError> {
        if let (Some(_), Some(bytes)) = (&document.manifest, manifest)
            && self.objects.get(&self.places.plain_manifest).await?.as_deref() != Some(bytes)
        {
            self.objects.put(&self.places.plain_manifest, bytes.to_vec()).await?;
            step("document: plain manifest written");
        }
        let text = document.plain_text().into_bytes();
        if self.objects.get(&self.places.plain).await?.as_deref() != Some(&text) {
            self.objects.put(&self.places.plain, text).await?;
        }
        Ok(())
    }

    /// Deletes all but the newest versions and the manifests that these name, and never `current`.
    async fn prune(&self, current: &str) -> Result<(), LakeError> {
        let names = self.objects.names(&self.places.versions).await?;
        let mut versions: Vec<(u64, &str)> =
            names.iter().filter_map(|name| Some((files::version_number(name)?, name.as_str()))).collect();
        versions.sort_unstable();
        let surplus = versions.len().saturating_sub(KEPT_VERSIONS);
        let (old, kept) = versions.split_at(surplus);
        for (_, name) in old.iter().filter(|(_, name)| *name != current) {
            self.objects.delete(&self.places.beside_hint(name)).await?;
        }
        let manifests: Vec<&String> = names.iter().filter(|name| files::manifest_number(name).is_some()).collect();
        if manifests.is_empty() {
            return Ok(());
        }
        let mut named = Vec::new();
        for name in kept.iter().map(|(_, name)| *name).chain([current]) {
            let Some(bytes) = self.objects.get(&self.places.beside_hint(name)).await? else { continue };
            // A version that makes no sense is nobody's; what it might name stays.
            let Ok(text) = String::from_utf8(bytes) else { return Ok(()) };
            let Ok(document) = Document::parse(&text) else { return Ok(()) };
            named.extend(document.manifest);
        }
        for name in manifests.into_iter().filter(|name| !named.contains(name)) {
            self.objects.delete(&self.places.beside_hint(name)).await?;
        }
        Ok(())
    }
}
