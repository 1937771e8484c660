//! Absolute URIs of objects. Paths and keys are written raw: `%` means itself, because readers open them undecoded.

use std::path::{Path, PathBuf};

use super::error::StoreError;

/// Where a URI points.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// An absolute path.
    Local(PathBuf),
    /// A key in a bucket.
    S3 { bucket: String, key: String },
}

/// Reads `file:///absolute/path`, an absolute path, or `s3://bucket/key`. A trailing slash is dropped.
pub(super) fn parse(uri: &str) -> Result<Place, StoreError> {
    let refuse = |why| Err(StoreError::Uri { uri: uri.to_owned(), why });
    if uri.contains('\0') {
        return refuse("it has a zero byte in it");
    }
    if let Some(rest) = uri.strip_prefix("s3://") {
        let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
        let key = key.trim_end_matches('/');
        if bucket.is_empty() {
            return refuse("a bucket is missing after s3://");
        }
        if bucket.contains(['@', '?', '#', ':']) {
            return refuse(
                "a bucket's name has none of `@`, `:`, `?` and `#`; keys and settings do not belong in a URI",
            );
        }
        if key.split('/').any(|part| matches!(part, "." | "..")) || key.contains("//") || key.starts_with('/') {
            return refuse("a key has no empty parts, `.` or `..`");
        }
        return Ok(Place::S3 { bucket: bucket.to_owned(), key: key.to_owned() });
    }
    let path = match uri.strip_prefix("file://") {
        Some(path) => path,
        None if uri.starts_with('/') => uri,
        None => return refuse("it starts with neither file:// nor s3://"),
    };
    if !path.starts_with('/') {
        return refuse("after file:// comes an absolute path, and so a third slash");
    }
    if path.split('/').any(|part| part == "..") {
        return refuse("the path goes up (`..`)");
    }
    let trimmed = path.trim_end_matches('/');
    Ok(Place::Local(PathBuf::from(if trimmed.is_empty() { "/" } else { trimmed })))
}

/// The URI of a local path, raw.
pub(super) fn of_path(path: &Path) -> Result<String, StoreError> {
    match path.to_str() {
        Some(text) => Ok(format!("file://{text}")),
        None => Err(StoreError::Uri {
            uri: format!("file://{}", path.display()),
            why: "the path is not UTF-8, and readers of a table could not open it",
        }),
    }
}

/// The URI of a key.
pub(super) fn of_key(bucket: &str, key: &str) -> String {
    format!("s3://{bucket}/{key}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_are_raw() {
        let local = |path: &str| Place::Local(PathBuf::from(path));
        let s3 = |bucket: &str, key: &str| Place::S3 { bucket: bucket.to_owned(), key: key.to_owned() };
        for (uri, place) in [
            ("file:///srv/a b/é%20", local("/srv/a b/é%20")),
            ("/srv/x", local("/srv/x")),
            ("file:///srv/x/", local("/srv/x")),
            ("file:///", local("/")),
            ("s3://b/pre/t", s3("b", "pre/t")),
            ("s3://b/pre/", s3("b", "pre")),
            ("s3://b", s3("b", "")),
            ("s3://b/a%20b é", s3("b", "a%20b é")),
        ] {
            assert_eq!(parse(uri).expect(uri), place, "{uri}");
        }
    }

    #[test]
    fn other_uris_are_refused() {
        for uri in [
            "",
            "x",
            "relative/path",
            "file://host/path",
            "file://",
            "s3://",
            "s3:///key",
            "s3://key:secret@bucket/x",
            "s3://b/a//b",
            "s3://b/../x",
            "file:///a/../b",
            "gs://b/x",
            "https://b/x",
            "file:///a\0b",
        ] {
            assert!(matches!(parse(uri), Err(StoreError::Uri { .. })), "{uri}");
        }
    }
}
