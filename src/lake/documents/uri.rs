//! Where a stream's metadata documents are, as URIs for the greeting.

use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::files::Places;
use super::model::Document;

/// The URIs of the plain copy and of the version hint of a stream: what the greeting calls `metadata` and
/// `metadata_hint` (wire.md section 2.1). They are beside the published tables if these are in a bucket, else below
/// the absolute path `root`.
#[must_use]
pub fn uris(root: &Path, document: &Document) -> (String, String) {
    match document.live_log.published.as_deref() {
        Some(prefix) if prefix.starts_with("s3://") => {
            let places = Places::new(prefix.trim_end_matches('/'), &document.stream);
            (places.plain, places.hint)
        }
        _ => {
            let home = file_uri(&root.join(&document.stream));
            let places = Places::new(&home, &encode(document.stream.as_bytes()));
            (places.plain, places.hint)
        }
    }
}

/// The path of a `file://` URI whose path is not percent-encoded, as documents and tables have them.
#[must_use]
pub fn local_path(uri: &str) -> Option<PathBuf> {
    uri.strip_prefix("file://").filter(|path| path.starts_with('/')).map(PathBuf::from)
}

/// `path` as a `file://` URI; every byte but unreserved characters and slashes is percent-encoded.
fn file_uri(path: &Path) -> String {
    format!("file://{}", encode(path.as_os_str().as_bytes()))
}

fn encode(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => text.push(char::from(*byte)),
            // Writing to a string cannot fail.
            _ => write!(text, "%{byte:02X}").unwrap_or_default(),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lake::documents::model::LiveLog;

    fn document(name: &str, published: &str) -> Document {
        let live = LiveLog {
            name: name.to_owned(),
            published: Some(published.to_owned()),
            start_offset: 1,
            start_ts: None,
            schema: serde_json::Value::Null,
            system_schema: serde_json::Value::Null,
            sort_by: None,
        };
        Document::new(name, "id", live)
    }

    #[test]
    fn uris_are_absolute_and_percent_encoded() {
        let (metadata, hint) = uris(Path::new("/srv/data"), &document("trades", "file:///pub/trades"));
        assert_eq!(metadata, "file:///srv/data/trades/trades.metadata.json");
        assert_eq!(hint, "file:///srv/data/trades/trades.metadata/version-hint.text");
        let (metadata, _) = uris(Path::new("/srv/a b"), &document("é#?", "file:///pub/é#?"));
        assert_eq!(metadata, "file:///srv/a%20b/%C3%A9%23%3F/%C3%A9%23%3F.metadata.json");
    }

    #[test]
    fn documents_in_a_bucket_are_beside_the_tables() {
        let (metadata, hint) = uris(Path::new("/srv"), &document("t", "s3://b/pre/t/"));
        assert_eq!(metadata, "s3://b/pre/t/t.metadata.json");
        assert_eq!(hint, "s3://b/pre/t/t.metadata/version-hint.text");
    }
}
